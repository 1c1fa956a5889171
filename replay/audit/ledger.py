"""The compacted ledger topic held against what the decisions lead to."""

from collections.abc import Iterator

from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.keys import POSITION, key_of, parse_key
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.replay.audit.findings import Finding, Kind
from rollbook.replay.history.source import Bounds, LogSource, place_of
from rollbook.schemas.codec import decode, encode
from rollbook.schemas.errors import BadInput

_MOST = 20


class NotHere(Exception):
    """The topic cannot be held against the fold: it stands at another place, or is not to be had."""


def check_ledger(log: LogSource, topic: str, ledger: Ledger, stands: Bounds, run_id: str | None) -> Iterator[Finding]:
    """What differs, row by row, of one run or of all. `stands`: the lifecycle offsets, both inclusive, that the topic
    may name as the next, so that nothing was folded into one of both alone. Raises NotHere."""
    partition = ledger.partition
    rebuild = Rebuild(partition, ledger.topic_partitions, run_id)
    places: dict[bytes, str] = {}
    try:
        bounds = log.bounds(topic, partition)
        for stored in log.read(topic, partition, bounds.first, bounds.end) if bounds.first < bounds.end else ():
            key = stored.key or b""
            rebuild.take(key, stored.value)
            places[key] = stored.place
    except BadInput as problem:
        raise NotHere(str(problem)) from None
    if not stands.first <= rebuild.next_offset <= stands.end:
        raise NotHere(
            f"{topic}:{partition} stands at lifecycle offset {rebuild.next_offset}, the audit at {stands.first}"
        )
    yield from _differences(rebuild, dict(rows_of(ledger, run_id)), places, place_of(topic, partition, 0), run_id)


def rows_of(ledger: Ledger, run_id: str | None = None) -> Iterator[tuple[bytes, bytes]]:
    """A ledger's rows as its topic has them, by key."""
    for name in sorted(ledger.runs):
        if run_id in (None, name):
            for table in ledger.run(name).tables():
                for key, row in table.items():
                    yield key_of(name, table.kind, key), encode(row)


def _differences(
    rebuild: Rebuild, derived: dict[bytes, bytes], places: dict[bytes, str], topic: str, run_id: str | None
) -> Iterator[Finding]:
    count = 0
    for key, said in rebuild.latest():
        of, kind, _ = parse_key(key)
        if kind == POSITION or run_id not in (None, of):
            continue
        wanted = derived.pop(key, None)
        if said == wanted:
            continue
        count += 1
        if count > _MOST:
            return
        what = f"row {key.decode(errors='backslashreplace')}"
        yield Finding(Kind.LEDGER_DIFFERS, places[key], what, _fields(said, wanted), _fields(wanted, said))
    for key, missing in sorted(derived.items())[: max(0, _MOST - count)]:
        what = f"row {key.decode(errors='backslashreplace')} is not there"
        yield Finding(Kind.LEDGER_DIFFERS, topic, what, {}, _fields(missing, None))


def _fields(row: bytes | None, other: bytes | None) -> dict[str, str]:
    """The fields of a row that the other has not."""
    if row is None:
        return {"row": "none"}
    own = decode(row).model_dump(mode="json")
    others = {} if other is None else decode(other).model_dump(mode="json")
    return {name: str(value)[:400] for name, value in own.items() if others.get(name) != value}
