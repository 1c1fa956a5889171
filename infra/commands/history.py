"""`rollbook history export`, `restore`, `seal` and `show`: offset ranges of the log as a file, back, and as a page."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from rollbook.infra.looking.show import SHOWN, at, console, print_json, shown
from rollbook.infra.settings import Settings
from rollbook.processors.ledger.keys import parse_key
from rollbook.replay.audit.report import lines, plain
from rollbook.replay.audit.seal import Sealed
from rollbook.replay.histories import open_history
from rollbook.replay.history.container import ANCHOR, AnchorNote, Section
from rollbook.replay.history.export import Exported, empty_of
from rollbook.replay.history.options import RunOnly, TargetTexts
from rollbook.replay.history.source import StoredRecord
from rollbook.replay.progress import Watch, progress
from rollbook.schemas.codec import Decoded, UndecodableRecord, unwrap
from rollbook.schemas.errors import AnswerNo, BadInput
from rollbook.schemas.registry import RECORDS
from rollbook.schemas.text import plural, visible

app = typer.Typer(help="Export, restore, seal and show offset ranges of the log.")


@app.callback()
def _group() -> None:
    """Export, restore, seal and show offset ranges of the log."""


@app.command(epilog="Example: rollbook history export --run my-run --payloads --out my-run.avro")
def export(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write; it must not exist.")],
    targets: TargetTexts = None,
    run: RunOnly = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every partition that holds a record, of whichever run: a backup.")
    ] = False,
    payloads: Annotated[
        bool, typer.Option("--payloads", help="Also the payloads that the exported lifecycle records name.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Write the committed records of ranges, or of a run, to one file, from which every command works as from Kafka.

    It is a compressed Avro object container: offsets, timestamps, keys, headers and the original bytes of each record,
    the schemas that they were written under, and a digest of each range. Payloads that are gone, and what is named and
    is no payload of the log, are left out and counted. A run's ranges are its lifecycle, its decisions and its ledger,
    and so are those of --all, which tells which lifecycle partitions are empty.
    """
    with (
        progress() as watch,
        open_history(*(targets or ()), run=run, everything=everything, watch=watch) as history,
    ):
        done = history.export(out, payloads=payloads)
        empty = empty_of(history.of.log, history.of.settings, done.sections) if everything else []
    if as_json:
        print_json({**_exported(done), **({"empty": empty} if everything else {})})
        return
    for section, total in zip(done.sections, done.totals, strict=True):
        print(f"{section}{_of_run(section.run)}  {plural(total.records, 'record')}  {total.digest}")
    told = [f"empty: {', '.join(empty)}"] if empty else []
    print("\n".join((*told, *_left_out(done), f"written: {visible(done.path, limit=4096)}")))


@app.command(epilog="Example: rollbook history restore backup.avro")
def restore(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Exported files that hold whole partitions together.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Write the lifecycle and the payloads of exported files into new topics, each record to the offset where it lay.

    The topics of ROLLBOOK_TOPIC_PREFIX must be there, all of them empty, with as many partitions as before, and nobody
    may write there meanwhile. Each lifecycle partition must be in the files from offset 0 on, without a gap. Places of
    payloads that are in no file are kept by empty records. The processor then derives everything else anew.

    Exits 2, before anything is written, where files or topics do not fit; 3 where a record does not arrive at its
    offset: then the topics are to be made anew.
    """
    from rollbook.replay.history.restore import restore as write_back

    settings = Settings.from_env()
    with progress() as watch:
        done = write_back(files, settings, watch)
    if as_json:
        print_json(
            {
                "bootstrap_servers": settings.bootstrap_servers,
                "topic_prefix": settings.topic_prefix,
                "partitions": done.partitions,
                "untouched": done.untouched,
                "references_left_out": done.unknown,
            }
        )
        return
    for one in done.partitions:
        kept = f", {plural(one.empty, 'empty place')}" if one.empty else ""
        print(f"{one}  {plural(one.records, 'record')}{kept}")
    if done.untouched:
        print(f"not in the files: {', '.join(done.untouched)}")
    if done.unknown:
        print(f"lead nowhere: {plural(done.unknown, 'reference')} to what is no payload of the files")
    print(f"restored: {plural(sum(one.records for one in done.partitions), 'record')} on {settings.bootstrap_servers}")


@app.command(epilog="Example: rollbook history seal lifecycle:0:- --payloads --out sealed.avro")
def seal(
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE|DIR", help="The file to write; it must not exist. Of several partitions a folder."
        ),
    ],
    targets: TargetTexts = None,
    run: RunOnly = None,
    anchor: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="The sealed file that ends where the range begins; of several partitions one each.",
            show_default=False,
        ),
    ] = None,
    anchor_digest: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HASH",
            help="The anchor's digest, as its seal printed it; of several one each, in the same order.",
            show_default=False,
        ),
    ] = None,
    payloads: Annotated[
        bool,
        typer.Option(
            "--payloads",
            help="Also the payloads that the sealed records name; without it drift and recordings are not checked.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, an object a line for each partition.")] = False,
) -> None:
    """Audit ranges of the lifecycle topic, or a run, and write each with an anchor behind it.

    A file holds the decided records, their decisions, and the state that they lead to with its digest: an audit of what
    follows starts there (`rollbook audit RANGE --anchor FILE`), so that what is sealed may leave Kafka. It is of one
    partition; ranges of several become files of a folder, named by partition and first offset. Note the printed chain
    heads elsewhere: they tell a history that was rewritten.

    Exits 1 where a range does not pass its audit, or nothing of it is decided, and does not write that one.
    """
    left_out = []
    with progress() as watch, open_history(*(targets or ()), run=run, watch=watch) as history:
        for done in history.seal(out, anchors=anchor or (), anchor_digests=anchor_digest or (), payloads=payloads):
            if as_json:
                print_json(_plain_of_seal(done))
            else:
                print("\n".join((*lines(done.report), *_sealed(done))))
            if done.exported is None:
                left_out.append(f"{done.report.lifecycle}:{done.report.partition}")
    if left_out:
        raise AnswerNo(f"not sealed: {', '.join(left_out)} has no decided record there, or does not pass its audit")


def _exported(done: Exported) -> dict[str, Any]:
    """For scripts: keys only ever grow."""
    return {
        "path": visible(done.path, limit=4096),
        "sections": [
            {**section.model_dump(), "records": total.records, "digest": total.digest}
            for section, total in zip(done.sections, done.totals, strict=True)
        ],
        "payloads_gone": done.gone,
        "references_left_out": done.unknown,
    }


def _plain_of_seal(done: Sealed) -> dict[str, Any]:
    """For scripts: keys only ever grow. What is not written has neither file nor anchor."""
    return {
        "audit": plain(done.report),
        "exported": None if done.exported is None else _exported(done.exported),
        "anchor": None if done.anchor is None else done.anchor.model_dump(),
        "may_leave_kafka": [section.model_dump() for section in _may_leave(done)],
    }


def _of_run(run: str | None) -> str:
    return "" if run is None else f" of run {visible(run)}"


def _left_out(done: Exported) -> Iterator[str]:
    if done.gone:
        yield f"not there any more: {plural(done.gone, 'payload record')} that the lifecycle records name"
    if done.unknown:
        yield f"left out: {plural(done.unknown, 'reference')} to what is no payload of this log"


def _sealed(done: Sealed) -> Iterator[str]:
    note = done.anchor
    if note is not None and done.exported is not None:
        yield f"anchor: before {note.lifecycle}:{note.partition}:{note.next_offset}  {note.digest}"
        yield from _left_out(done.exported)
        yield f"written: {visible(done.exported.path, limit=4096)}"
        if leaving := _may_leave(done):
            yield f"may leave Kafka: {', '.join(map(str, leaving))}"


def _may_leave(done: Sealed) -> list[Section]:
    """Of a seal of all runs: with one of a single run those of others lie there, too."""
    note = done.anchor
    if note is None or done.exported is None or note.run is not None:
        return []
    held = (one for one in done.exported.sections if one.topic != ANCHOR and not one.only_referenced)
    return [_leaving(one, note) for one in held]


def _leaving(section: Section, note: AnchorNote) -> Section:
    """What may go of a section: of decisions all but the last, which the processor holds its ledger against."""
    is_of_decisions = section.topic != note.lifecycle and section.partition == note.partition and note.next_decision > 0
    return section.model_copy(update={"end": note.next_decision - 1}) if is_of_decisions else section


@app.command(epilog="Example: rollbook history show lifecycle:0:- --type Commit")
def show(
    targets: TargetTexts = None,
    run: RunOnly = None,
    record_type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only of this record type, such as Commit; repeatable."),
    ] = None,
    naming: Annotated[
        str | None, typer.Option(metavar="ID", help="Only records whose bytes contain this id.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=1_000_000_000,
            show_default=f"{SHOWN} in the table, all as JSON",
            help="Only the first N of them.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Each record whole, as a line of JSON.")] = False,
) -> None:
    """Print the committed records of ranges, of a run, or of exported files (of their payloads where a range names
    them). Exits 1 when there is none."""
    types = _types(record_type or ())
    with _progress() as watch, open_history(*(targets or ()), run=run, watch=watch) as history:
        found = islice(_found(history.records(), types, naming), limit or (None if as_json else SHOWN + 1))
        count = 0
        for count, (stored, decoded) in enumerate(found, start=1):
            if as_json:
                print_json(_whole(stored, decoded))
            elif limit is None and count > SHOWN:
                console().print("... and more; --limit shows as many as you like, --json all")
            else:
                print(_line(stored, decoded))
        if not count:
            where = ", ".join(f"{one}{_of_run(run or one.run)}" for one in history.of.ranges)
            raise AnswerNo(f"no such record is in {where}")


def _types(names: Sequence[str]) -> frozenset[str]:
    """Raises BadInput for one that no record can have: that there is none would say nothing."""
    known = sorted(model.__name__ for model in RECORDS)
    for name in names:
        if name not in known:
            raise BadInput(f"--type '{visible(name)}' is no record type: give one of {', '.join(known)}")
    return frozenset(names)


def _progress() -> AbstractContextManager[Watch]:
    """Where the records themselves are no progress that a person sees."""
    return nullcontext(lambda *_: None) if sys.stdout.isatty() else progress()


def _found(
    records: Iterator[StoredRecord], types: frozenset[str], naming: str | None
) -> Iterator[tuple[StoredRecord, Decoded | None]]:
    for stored in records:
        if naming is not None and naming.encode() not in (stored.value or b"") + (stored.key or b""):
            continue
        decoded = _decoded(stored)
        if not types or (decoded is not None and decoded.model.__name__ in types):
            yield stored, decoded


def _decoded(stored: StoredRecord) -> Decoded | None:
    try:
        return unwrap(stored.value or b"")
    except UndecodableRecord:  # dead letters, chunks of payloads, removed keys
        return None


def _line(stored: StoredRecord, decoded: Decoded | None) -> str:
    kind = "" if decoded is None else decoded.model.__name__
    size = "removed" if stored.value is None else f"{len(stored.value):,} B"
    return f"{stored.place}  {at(stored.timestamp_ms)}  {kind:<16} {size:>12}  {shown(_key(stored))}"


def _key(stored: StoredRecord) -> str:
    key = stored.key or b""
    try:
        return " ".join(map(str, parse_key(key)))
    except ValueError:
        return key.decode(errors="backslashreplace")


def _whole(stored: StoredRecord, decoded: Decoded | None) -> dict[str, Any]:
    """Bytes that are no text are hexadecimal."""
    return {
        "topic": stored.topic,
        "partition": stored.partition,
        "offset": stored.offset,
        "timestamp_ms": stored.timestamp_ms,
        "key": None if stored.key is None else stored.key.decode(errors="backslashreplace"),
        "headers": [(name, None if value is None else value.hex()) for name, value in stored.headers],
        "size": None if stored.value is None else len(stored.value),
        "sha256": stored.sha256,
        "type": None if decoded is None else decoded.model.__name__,
        "schema": None if decoded is None or stored.value is None else stored.value[2:10].hex(),
        "record": None if decoded is None else _plain(decoded.fields),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
