"""Recorded histories of every record type, with the decisions they got, written by

    python -m rollbook.tests.processors.proof.recorded

They are frozen: those that are there are never made anew, and `tests/frozen` takes up one that is added.
One Avro container file a history, as the recorded demo's: offset, key, record and decision, byte for byte.
"""

from pathlib import Path
from typing import Any

import fastavro

from rollbook.processors.ledger.fold import SourceRecord
from rollbook.schemas.records.rollout import Purpose
from rollbook.schemas.records.run import Enforcement
from rollbook.schemas.records.update import AbortDisposition, Checkpoint, Disposition
from rollbook.tests.processors.history import History
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof import walks

FOLDER = Path(__file__).parents[2] / "data" / "histories"
WALKS = {"walk-gate": 80, "walk-observe": 48}
_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Recorded",
        "fields": [
            {"name": "offset", "type": "long"},
            {"name": "key", "type": ["null", "bytes"]},
            {"name": "lifecycle", "type": ["null", "bytes"]},
            {"name": "decision", "type": "bytes"},
        ],
    }
)


def every_record() -> Log:
    """Each record type accepted, and what usually refuses it."""
    history = History("every-record").opened(workers=("w0",), lease_ms=60_000, horizon=2)
    history.rewarded("t0", reward=0.5)
    history.reward_failed("t9")
    history.dispatched("t0", group="g", sample=0, of=3)
    history.generated("t0", group="g", sample=0, of=3, segments=2)
    history.generated("t1", group="g", sample=1, of=3)
    history.failed("t2", group="g", sample=2, of=3)
    history.rewarded("t1")
    history.again()
    history.generated("t9")
    history.generated("t10")
    history.reward_failed("t10")
    history.ready("eval", purpose=Purpose.EVAL)
    history.ready("t3", "t4", "t5", "t6", "t7")
    history.discarded("t6")
    history.quarantined("t7")
    history.learner(incarnation="first")
    history.saved("c0")
    history.claim("u0", 1)
    history.renewed("u0")
    history.admit("u0", {"t0": 0.01, "t1": 3.60039})
    history.started("u0")
    history.expired("u0")
    history.renewed("u0")
    history.sealed("u0", rank=0)
    history.commit("u0", "t0", ranks=(0, 1))
    history.sealed("u0", rank=1, name="other rank")
    history.saved("c1", "u0")
    history.ack("w0", 1)
    history.written(1)
    history.prepared(1, "u0", committed=False)
    history.activate(1)
    history.reserve("u1", "t3", "t4")
    history.expired("u1")
    history.reserve("u2", "t3")
    history.started("u2")
    history.abort("u2", operator=True, disposition=AbortDisposition.QUARANTINE, text="stuck")
    history.learner(incarnation="second", checkpoint=Checkpoint(id="c1", digest="digest of c1"))
    history.reserve("u3", "t4", "t5")
    history.admit("u3", {"t4": 0.0, "t5": 0.0}, own_updates=1)
    history.started("u3")
    history.commit("u3", "t4", dropped={"t5": Disposition.DISCARD})
    history.prepared(2, "u3")
    history.abandoned(2)
    history.prepared(3, parent=2, committed=False)
    history.written(3)
    history.ack("w0", 3)
    history.activate(3)
    history.learner(incarnation="third", checkpoint=Checkpoint(id="c1", digest="digest of c1"))
    history.reserve("u4", "t4")
    history.abort("u4")
    history.prepared(4, parent=3, rollback_of=1)
    history.ack("w0", 4)
    history.activate(4)
    history.log.append(b"every-record", b"no record of the contract")
    history.closed("done")
    history.generated("t8")
    return history.log


def histories() -> dict[str, Log]:
    """Every history by its file's name."""
    logs = {"every-record": every_record()}
    for name, seed in WALKS.items():
        logs[name] = log = Log()
        walker = walks.run(log, walks.deep(seed))
        wanted = Enforcement.OBSERVE if name.endswith("observe") else Enforcement.GATE
        assert walker.enforcement is wanted, f"{name} needs a seed of a run in {wanted.value} mode"
    return logs


def write(name: str, log: Log) -> None:
    """Write one history; the same one gives the same bytes."""
    rows = [
        {"offset": record.offset, "key": record.key, "lifecycle": record.value, "decision": folded.encoded}
        for record, folded in zip(log.records, log.folded, strict=True)
    ]
    metadata = {"partition": str(log.partition), "topic_partitions": str(log.topic_partitions)}
    with (FOLDER / f"{name}.avro").open("xb") as file:
        fastavro.writer(file, _SCHEMA, rows, codec="deflate", metadata=metadata, sync_marker=b"rollbook-history")


def read(name: str) -> tuple[Log, list[bytes]]:
    """An empty log in the history's place with its records folded anew, and the decisions that were recorded."""
    with (FOLDER / f"{name}.avro").open("rb") as file:
        reader = fastavro.reader(file)
        metadata: dict[str, str] = reader.metadata
        rows: list[Any] = list(reader)
    log = Log(int(metadata["partition"]), int(metadata["topic_partitions"]))
    for row in rows:
        record = SourceRecord(log.partition, row["offset"], row["key"], row["lifecycle"])
        log.records.append(record)
        log.folded.append(log.ledger.fold(record))
    return log, [row["decision"] for row in rows]


if __name__ == "__main__":
    for written, of in histories().items():
        if (FOLDER / f"{written}.avro").exists():
            continue
        write(written, of)
        print(f"{written}: {len(of.records)} records")
