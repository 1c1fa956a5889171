"""`rollbook dead-letters`: what could not be decoded, as a list, or one record with its bytes."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from rollbook.infra.commands.options import Follow, Last
from rollbook.infra.dead_letters import Asked, DeadLetters, Foreign, Found, Place
from rollbook.infra.looking.show import SHOWN, at, print_figures, print_json, print_table, shown
from rollbook.infra.output import sleep_while_read
from rollbook.infra.settings import Settings
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.errors import AnswerNo, BadInput
from rollbook.schemas.text import plural

_BYTES_SHOWN = 256
_BYTES_A_LINE = 16
_COLUMNS = ("written", "place", "bytes", "sha256", "error")
_DIGITS_SHOWN = 12

app = typer.Typer(help="Look at what could not be decoded.")


@app.command("dead-letters", epilog="Example: rollbook dead-letters --limit 20")
def dead_letters(
    partition: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Only those of this partition of the lifecycle topic.")
    ] = None,
    since: Annotated[
        int | None, typer.Option(min=0, help="Only those of this lifecycle offset and later.", metavar="OFFSET")
    ] = None,
    limit: Last = None,
    follow: Follow = False,
    show: Annotated[
        str | None, typer.Option(metavar="PARTITION:OFFSET", help="Show this one, with the record's first bytes.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="With --show: write all of the record's bytes to this new file."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table, a line each.")] = False,
) -> None:
    """List the records that the processor could not decode, or show one with its bytes.

    A dead letter names the record's place, size and sha256, and what was wrong; its bytes stay in the lifecycle topic,
    and --show reads them from there. Whatever they are, they are shown as hex and plain ASCII only. What could be
    decoded and broke the contract, or lay in a wrong partition, has a decision `invalid` and no dead letter. Exits 1
    when there is none, and 130 when --follow is ended with Ctrl-C.
    """
    _check(show, out, partition, since, limit, follow)
    settings = Settings.from_env()
    with KafkaLog(settings) as log:
        letters = DeadLetters(log, settings)
        asked = Asked(partition, since)
        if show is not None:
            _show(letters, Place.parse(show), out, as_json)
        elif follow:
            _follow(letters, asked, limit, as_json)
        elif not _list(letters, asked, limit, as_json):
            what = "there are no dead letters" if asked == Asked() else "there is no such dead letter"
            raise AnswerNo(f"{what} on {settings.bootstrap_servers} (prefix {settings.topic_prefix})")


def _check(
    show: str | None, out: Path | None, partition: int | None, since: int | None, limit: int | None, follow: bool
) -> None:
    if out is not None and show is None:
        raise BadInput("--out writes the bytes of one record: say which with --show PARTITION:OFFSET")
    if show is not None and (follow or limit is not None or partition is not None or since is not None):
        raise BadInput("--show names one record: leave out --partition, --since, --limit and --follow")


def _list(letters: DeadLetters, asked: Asked, limit: int | None, as_json: bool) -> int:
    if as_json and limit is None:
        return sum(1 for letter in letters.every(asked) if _print_json(letter))
    found = letters.last(asked, limit or SHOWN)
    if as_json:
        for letter in found:
            _print_json(letter)
    else:
        print_table("dead letters", _COLUMNS, [_row(letter) for letter in found], right=("bytes",), limit=None)
        if limit is None and len(found) == SHOWN:
            print(f"the last {SHOWN}; --limit or --json for more")
    return len(found)


def _follow(letters: DeadLetters, asked: Asked, limit: int | None, as_json: bool) -> NoReturn:
    for letter in letters.follow(asked, limit if as_json or limit else SHOWN, sleep_while_read):
        if as_json:
            _print_json(letter)
        else:
            print("  ".join(map(shown, _row(letter))), flush=True)
    raise AssertionError("following never ends by itself")


def _row(found: Found) -> tuple[object, ...]:
    if isinstance(found, Foreign):
        return at(found.stored.timestamp_ms), "", f"{len(found.stored.value or b''):,}", "", found.why
    letter = found.letter
    place = Place(letter.partition, letter.offset)
    return at(found.stored.timestamp_ms), place, f"{letter.size:,}", letter.sha256[:_DIGITS_SHOWN], letter.error


def _print_json(found: Found) -> bool:
    if isinstance(found, Foreign):
        return print_json({"written_ms": found.stored.timestamp_ms, "foreign": found.why})
    return print_json({"written_ms": found.stored.timestamp_ms, **found.letter.model_dump()})


def _show(letters: DeadLetters, place: Place, out: Path | None, as_json: bool) -> None:
    found = letters.at(place)
    record = letters.record(found.letter)
    value = record.value or b""
    if out is not None:
        _write(out, value)
    if as_json:
        print_json(
            {
                "written_ms": found.stored.timestamp_ms,
                **found.letter.model_dump(),
                "sent_ms": record.timestamp_ms,
                "key_hex": None if record.key is None else record.key.hex(),
                "tombstone": record.value is None,
                "first_bytes_hex": value[:_BYTES_SHOWN].hex(),
            }
        )
        return
    letter = found.letter
    print_figures(
        (
            ("place", f"{letter.topic}:{place}"),
            ("written", at(record.timestamp_ms)),
            ("error", letter.error),
            ("key", _key(record)),
            ("bytes", "none: a tombstone" if record.value is None else f"{letter.size:,}"),
            ("sha256", letter.sha256),
        )
    )
    for line in _hex(value[:_BYTES_SHOWN]):
        print(line)
    if len(value) > _BYTES_SHOWN:
        print(f"... {plural(len(value) - _BYTES_SHOWN, 'more byte')}; --out FILE writes all of them")
    if out is not None:
        print(f"wrote {plural(len(value), 'byte')} to {shown(out)}")


def _key(record: StoredRecord) -> str:
    return "none" if record.key is None else _ascii(record.key[:_BYTES_SHOWN]) or "empty"


def _hex(data: bytes) -> list[str]:
    """As hexdump has it: place, hex, and what of it is plain ASCII."""
    lines = []
    for start in range(0, len(data), _BYTES_A_LINE):
        part = data[start : start + _BYTES_A_LINE]
        halves = part[: _BYTES_A_LINE // 2].hex(" "), part[_BYTES_A_LINE // 2 :].hex(" ")
        lines.append(f"{start:08x}  {halves[0]:<23}  {halves[1]:<23}  |{_ascii(part)}|")
    return lines


def _ascii(data: bytes) -> str:
    """A dot for whatever a terminal might obey."""
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in data)


def _write(path: Path, value: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(value)
    except FileExistsError:
        raise BadInput(f"--out {shown(path)} exists: name a new file") from None
