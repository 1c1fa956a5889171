"""Records as they come over Kafka, from whoever may write there: the codec, and everything that reads their bytes."""

import io
import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

import avro.io
import avro.schema
import fastavro

from rollbook.infra.settings import Settings
from rollbook.processors.dashboard.answers import Size
from rollbook.processors.dashboard.fold import lean
from rollbook.processors.dashboard.fold.view import View
from rollbook.processors.freshness import snapshot as snapshot_of
from rollbook.processors.ledger.fold import Ledger, NewerFoldVersion, SourceRecord
from rollbook.processors.ledger.keys import key_of, parse_key
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.producers.reading.fetch import Place
from rollbook.producers.reading.loading import load_trajectories
from rollbook.schemas.codec import (
    PREFIX_LENGTH,
    ContractViolation,
    UndecodableRecord,
    decode,
    decode_as,
    encode,
    shipped_schemas,
    unwrap,
)
from rollbook.schemas.digests import evidence_digest, floats_of, ints_of, mask_of, tokens_digest
from rollbook.schemas.records.common import PayloadRef
from rollbook.schemas.records.decision import Decision, FreshnessSnapshot, ItemDecision
from rollbook.schemas.records.payload import SegmentPayload
from rollbook.schemas.records.reward import RewardReady
from rollbook.schemas.records.rollout import Generated
from rollbook.tests.fuzz import recorded
from rollbook.tests.fuzz.avro import changed, keyed_changed
from rollbook.tests.fuzz.target import Target, noted, told

_STATES = 4


class _Apaches(avro.io.BinaryDecoder):
    """Of a byte that is no boolean Apache's makes false, and fastavro true: which the fold has decided by, for ever."""

    def read_boolean(self) -> bool:
        return self.read(1) != b"\x00"


def codec(data: bytes) -> bool:
    """A record is read as Apache's own reader reads it, and again as it was after being written."""
    record = told(lambda: decode(data))
    if record is None:
        return False
    assert decode(encode(record)) == record
    ours, theirs = _schemas()[data[2:PREFIX_LENGTH]]
    body = io.BytesIO(data[PREFIX_LENGTH:])
    assert avro.io.DatumReader(theirs).read(_Apaches(body)) == fastavro.schemaless_reader(
        io.BytesIO(data[PREFIX_LENGTH:]), ours, None
    )
    assert not body.read(), "Apache's reader leaves bytes over"
    return True


@cache
def _schemas() -> dict[bytes, tuple[Any, avro.schema.Schema]]:
    found: dict[bytes, tuple[Any, avro.schema.Schema]] = {}
    for name, raw in shipped_schemas():
        whole = {"namespace": "rollbook", **raw}
        parsed = fastavro.parse_schema(whole, named_schemas={}), avro.schema.parse(json.dumps(whole))
        found[bytes.fromhex(name)] = parsed
    return found


def fold(data: bytes) -> bool:
    """Whatever lies on the lifecycle topic is decided; what is undone leaves no trace, as the record that really came
    next shows."""
    ledger, following, wanted = _states()[len(data) % _STATES]
    mark = ledger.journal.mark()
    try:
        key = unwrap(data).fields["header"]["run_id"].encode()
    except (UndecodableRecord, KeyError):
        key = following.key
    folded = told(lambda: ledger.fold(following._replace(key=key, value=data)), NewerFoldVersion)
    if folded is not None:
        noted(f"{folded.decision.record_type} {folded.decision.outcome.value} {folded.decision.reason}")
        assert decode(folded.encoded) == folded.decision
        assert lean.beginning(folded.encoded)[0].decode() == folded.decision.run_id
        for _, value in ledger.changes():
            assert value is None or decode(value) is not None
    ledger.journal.undo(mark)
    again = ledger.journal.mark()
    assert ledger.fold(following).encoded == wanted, "it left a trace"
    ledger.journal.undo(again)
    return folded is not None and folded.decision.outcome.value in ("accepted", "pending")


@cache
def _states() -> list[tuple[Ledger, SourceRecord, bytes]]:
    """Ledgers in the midst of recorded runs, each with the record that came next and its decision."""
    found = []
    for name in ("walk-gate", "walk-observe"):
        partition, count = recorded.place(name)
        records = recorded.log(name)
        for share in (0.45, 0.8):
            ledger = Ledger(partition, count)
            at = int(len(records) * share)
            for record in records[:at]:
                ledger.fold(record)
            ledger.journal.keep()
            mark = ledger.journal.mark()
            wanted = ledger.fold(records[at]).encoded
            ledger.journal.undo(mark)
            found.append((ledger, records[at], wanted))
    assert len(found) == _STATES
    return found


def ledger_row(data: bytes) -> bool:
    """A row of the ledger topic: the key behind its length in two bytes, then the value."""
    size = int.from_bytes(data[:2], "big")
    key, value = data[2 : 2 + size], data[2 + size :]
    rebuild = Rebuild(0, 1)
    rebuild.take(key, value)
    told(lambda: rebuild.position)
    ledger = told(rebuild.ledger)
    if ledger is None:
        return False
    run_id, kind, name = parse_key(key)
    again = Rebuild(0, 1)
    again.take(key_of(run_id, kind, name), value)
    assert told(again.ledger) is not None, "a key that is read is a key that can be written"
    return True


def lean_decision(data: bytes) -> bool:
    """A decision is read from its bytes as the codec reads it; bytes that it refuses end in an error that is caught."""
    try:
        head, rest = lean.of_fields(data)
    except UndecodableRecord:
        told(lambda: lean.whole(data, lean.beginning(data)[-1]), IndexError)
        return False
    if told(lambda: decode(data)) is None:
        return False
    got = lean.beginning(data)
    assert got[:-1] == head[:-1]
    assert lean.whole(data, got[-1]) == rest
    try:
        fact = lean.fact(data, lean.head(data)[-1]) if lean.is_lean(data) else None
    except (lean.NotLean, IndexError):
        fact = None
    assert fact is None or [fact[:4]] == [row[:4] for row in rest.rows]
    return True


def snapshot(data: bytes) -> bool:
    """The first fields of a snapshot, as the codec reads them."""
    found = told(lambda: decode_as(FreshnessSnapshot, data))
    if found is None:
        return False
    name, number = lean.name_and_number(data)
    first = tuple(found.model_dump().values())
    assert (name.decode(), number) == first[:2]
    return True


@dataclass(frozen=True, slots=True)
class _Message:
    at: int
    data: bytes

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_700_000_000_000 + 1000 * self.at)

    def key(self) -> bytes:
        return b"any"

    def value(self) -> bytes:
        return self.data


def view(data: bytes) -> bool:
    """What the dashboard makes of a record of either topic: it is counted, and all pages can be asked for."""
    found = View()
    usual = recorded.decisions()[:6]
    found.take_decisions([_Message(at, value) for at, value in enumerate((*usual, data, usual[0]))])
    found.take_snapshots([_Message(at, value) for at, value in enumerate((data, data))])
    for line in found.runs().runs:
        assert found.now(line.run_id) is not None
        for size in Size:
            shown = found.series(line.run_id, size, None)
            assert shown is not None
            shown.model_dump_json()
        decisions = found.decisions(line.run_id, 50)
        assert decisions is not None
        decisions.model_dump_json()
    list(found.figures())
    return found.unreadable < 3


class _Fetched:
    """In place of a reader of Kafka."""

    def __init__(self, *values: tuple[int, bytes]) -> None:
        self._values = dict(values)

    def fetch(self, topic: str, places: Collection[Place], *, skip: int, deadline_s: float) -> dict[Place, bytes]:
        return {place: self._values[place.offset] for place in places}


def segment_payload(data: bytes) -> bool:
    """The arrays behind a trajectory, where its `Generated` vouches for these bytes."""
    generated, reward, item = _trained_on()
    ref = PayloadRef(
        topic="rollbook.payloads", partition=0, offsets=(3,), size=max(1, len(data)), sha256=sha256(data).hexdigest()
    )
    segment = generated.segments[0].but(payload=ref)
    try:
        arrays = decode_as(SegmentPayload, data)
        mask, floats = mask_of(arrays.action_mask), floats_of(arrays.log_probs)
        segment = segment.but(
            evidence_digest=evidence_digest(mask, floats),
            tokens_digest=tokens_digest(ints_of(arrays.prompt_ids), ints_of(arrays.response_ids)),
        )
    except (UndecodableRecord, ContractViolation, ValueError, IndexError):
        pass
    values = (1, encode(generated.but(segments=(segment,)))), (2, reward), (3, data)
    fetcher: Any = _Fetched(*values)
    loaded = told(lambda: load_trajectories(fetcher, Settings(), 0, [item], deadline_s=1.0))
    if loaded is None:
        return False
    assert len(loaded[0].log_probs) == len(loaded[0].action_mask) == segment.response_length
    return True


@cache
def _trained_on() -> tuple[Generated, bytes, ItemDecision]:
    """A trajectory of a recorded run with one segment, its reward, and the decision that gave it away."""
    rows = recorded.rows("histories/trl-gate.avro")
    by_offset = {row["offset"]: row["lifecycle"] for row in rows}
    for row in rows:
        for item in decode_as(Decision, row["decision"]).items:
            if item.reason == "reserved" and item.generated_offset is not None and item.reward_offset is not None:
                found = decode_as(Generated, by_offset[item.generated_offset])
                reward = by_offset[item.reward_offset]
                assert decode_as(RewardReady, reward)
                return found, reward, item.but(generated_offset=1, reward_offset=2)
    raise LookupError("no reserved trajectory in the history")


def _payloads() -> list[bytes]:
    generated = _trained_on()[0]
    values = [row["value"] for row in recorded.rows("histories/trl-gate-payloads.avro")]
    return [
        value
        for value in values
        if unwrap(value).fields.get("trajectory_id") == generated.identity.trajectory_id
    ]  # fmt: skip


def _rows() -> list[bytes]:
    return [len(key).to_bytes(2, "big") + key + value for key, value in recorded.of_topic("anchor")]


def snapshots() -> list[bytes]:
    return [
        encode(snapshot_of(run)) for ledger, *_ in _states() for run in ledger.runs.values() if run.head.config_version
    ]


TARGETS = (
    Target("codec", "a record of any topic, under any schema that was ever shipped", recorded.values, codec, changed),
    Target("fold", "a record of the lifecycle topic, decided in the midst of a run", recorded.lifecycle, fold, changed),
    Target("ledger-row", "a row of the ledger topic, or of an anchor", _rows, ledger_row, keyed_changed),
    Target("lean-decision", "a decision, as the dashboard reads it", recorded.decisions, lean_decision, changed),
    Target("snapshot", "a freshness snapshot, as the dashboard reads it", snapshots, snapshot, changed),
    Target(
        "view",
        "a record of the decisions or the freshness topic, as the dashboard counts it",
        lambda: [*recorded.decisions()[::4], *snapshots()],
        view,
        changed,
    ),
    Target(
        "segment-payload", "the arrays of a trajectory, as a trainer loads them", _payloads, segment_payload, changed
    ),
)
