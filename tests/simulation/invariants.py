"""What must be true of the topics when a simulation is over. Nothing of the host is used, nor what it keeps."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.freshness import snapshot
from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.keys import key_of
from rollbook.schemas.codec import encode
from rollbook.tests import recount
from rollbook.tests.simulation.broker import Broker
from rollbook.tests.simulation.faults import LOST_MARKERS
from rollbook.tests.simulation.workload import Source

CODEC = recount.Codec()


class Violation(AssertionError):
    """An invariant does not hold."""


def check(settings: Settings, broker: Broker, sources: Sequence[Source]) -> Counter[str]:
    """All of them; raises Violation. Returns what there was, so that nobody is proud of an empty run."""
    counts: Counter[str] = Counter()
    try:
        for source in sources:
            counts += _partition(settings, broker, source)
        _dead_letters(settings, broker, sources, counts)
        _freshness(settings, broker, sources)
    except AssertionError as broken:
        raise Violation(str(broken)) from broken
    return counts


def _read(broker: Broker, topic: str, partition: int) -> list[recount.Record]:
    """A topic's partition as a read_committed reader sees it."""
    log = broker.logs[topic, partition]
    return [recount.Record(partition, e.offset, e.key or b"", e.value) for e in log.visible(0)]


def _partition(settings: Settings, broker: Broker, source: Source) -> Counter[str]:
    partition, decided = source.partition, len(source.folded)
    lifecycle = _read(broker, broker.lifecycle, partition)[:decided]
    decisions = _read(broker, settings.topic(Topic.DECISIONS), partition)
    outcomes = recount.check_decisions(lifecycle, decisions, CODEC)
    for at, (found, wanted) in enumerate(zip(decisions, source.decisions, strict=True)):
        assert found.value == wanted, f"partition {partition} offset {at}: other bytes than those of a fold outside"
    times = [e.timestamp for e in broker.logs[settings.topic(Topic.DECISIONS), partition].visible(0)]
    assert times == [e.timestamp for e in broker.logs[broker.lifecycle, partition].visible(0)][:decided], "other times"
    _ledger(broker, source)
    lost = broker.faults.counts[LOST_MARKERS]  # the group may not have heard of the last transaction then
    if broker.group.committed(partition) >= 0 and not lost:
        assert broker.group.committed(partition) == decided, (
            f"partition {partition}: the group's offset is not the log's end"
        )
    _reserved_once([CODEC.decode(one.value or b"")[1] for one in decisions])
    return Counter({f"decisions {name}": count for name, count in outcomes.items()})


def _ledger(broker: Broker, source: Source) -> None:
    """What is left of the ledger topic is the fold of the log, and where it stands."""
    found: dict[bytes, bytes] = {}
    for record in _read(broker, broker.ledger, source.partition):
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = record.value
    position = found.pop(key_of("", "position", source.partition), None)
    stands = 0 if position is None else CODEC.decode(position)[1]["next_offset"]
    assert stands == len(source.folded), f"partition {source.partition}: the ledger stands at {stands}"
    wanted = rows(source.ledger)
    assert found == wanted, (
        f"partition {source.partition}: ledger rows differ: {sorted(found.items() ^ wanted.items())[:3]}"
    )


def rows(ledger: Ledger) -> dict[bytes, bytes]:
    """A ledger's rows as the topic keeps them."""
    return {
        key_of(run.run_id, table.kind, key): encode(row)
        for run in ledger.runs.values()
        for table in run.tables()
        for key, row in table._rows.items()
    }


def _reserved_once(decisions: list[dict[str, Any]]) -> None:
    """At every prefix at most one live reservation of a trajectory."""
    live: dict[tuple[str, str], str] = {}
    for decision in decisions:
        run, update = decision["run_id"], decision["update_id"]
        for change in decision["mass_changes"]:
            for name in change["first_ids"]:
                if "trajectories" in change["predicate"]:
                    live.pop((run, name), None)
        if decision["outcome"] != "accepted":
            continue
        for item in decision["items"]:
            place = (run, item["trajectory_id"])
            before, after = item["state_before"], item["state_after"]
            if after == "reserved" != before:
                assert place not in live, f"{place} is reserved by {live[place]} and by {update}"
                live[place] = update
            elif before == "reserved" != after:
                live.pop(place, None)


def _dead_letters(settings: Settings, broker: Broker, sources: Sequence[Source], counts: Counter[str]) -> None:
    """One for each undecodable record, naming its place; as far as no dead instance holds them by a lost marker."""
    log = broker.logs[settings.topic(Topic.DEAD_LETTERS), 0]
    if log.stable_end < log.end:
        assert broker.faults.counts[LOST_MARKERS], "a transaction holds the dead letters"
        return
    read = [record for record in _read(broker, settings.topic(Topic.DEAD_LETTERS), 0) if record.value is not None]
    letters = {(record.key, record.value) for record in read}  # one may be there twice, where markers were lost
    wanted = [
        f"{source.partition}:{record.offset}".encode()
        for source in sources
        for record, folded in zip(source.records, source.folded, strict=True)
        if folded.undecodable is not None
    ]
    if broker.faults.counts[LOST_MARKERS]:  # one that hung may have been taken back by its producer's next abort
        wanted = [key for key in wanted if key in {found for found, _ in letters}]
    assert sorted(key for key, _ in letters) == sorted(wanted), "dead letters are not those of the undecodable records"
    counts["dead letters"] += len(letters)


def _freshness(settings: Settings, broker: Broker, sources: Sequence[Source]) -> None:
    """The last snapshot of each run is that of its last state; one that hung is written again with its next record."""
    if broker.faults.counts[LOST_MARKERS]:
        return
    for source in sources:
        latest = {r.key: r.value for r in _read(broker, settings.topic(Topic.FRESHNESS), source.partition)}
        for run in source.ledger.runs.values():
            if run.head.config_version:
                assert latest.get(run.run_id.encode()) == encode(snapshot(run)), f"{run.run_id}: an old snapshot"
