"""Whole histories with another record in them, and everything that is asked of a history: who writes to the log decides
what an auditor's commands are given.
"""

import struct
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from rollbook.infra.settings import Topic
from rollbook.processors.ledger.fold import Ledger, NewerFoldVersion, SourceRecord
from rollbook.replay.audit.rules import Instead
from rollbook.replay.diff.diff import RunIn, diff_runs
from rollbook.replay.histories import History
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.targets import Targets
from rollbook.replay.prove.asked import Asked
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.digests import digest_of_digests, evidence_digest, floats_of, ints_of, mask_of, tokens_digest
from rollbook.schemas.records.payload import SegmentPayload
from rollbook.tests.fuzz.avro import changed, rewritten
from rollbook.tests.fuzz.target import Target, noted, told
from rollbook.tests.producers.trl.recorded import Story, read_log, settings_of
from rollbook.tests.replay.memory_log import MemoryLog

_STORY = Story.GATE
_RUN = _STORY.value
_SETTINGS = settings_of(_STORY)
_LIFECYCLE, _DECISIONS, _PAYLOADS = (_SETTINGS.topic(one) for one in (Topic.LIFECYCLE, Topic.DECISIONS, Topic.PAYLOADS))
_AT = struct.Struct(">H")
"""Which record is replaced, before its value."""
_FIRST_UPDATE = 21
"""So many records until the first update is made a policy that is served: where one of them is replaced, the history
ends there, and takes half the time."""
_POLICY = 4
"""Made of that update."""
_SHARE = 4


@cache
def _whole() -> MemoryLog:
    return read_log(_STORY)


@cache
def _place() -> int:
    (partition,) = _whole().filled(_LIFECYCLE)
    return partition


@cache
def _records() -> list[SourceRecord]:
    bounds = _whole().bounds(_LIFECYCLE, _place())
    stored = _whole().read(_LIFECYCLE, _place(), bounds.first, bounds.end)
    return [SourceRecord(_place(), one.offset, one.key, one.value) for one in stored]


@cache
def _named_at() -> list[int]:
    """Of each payload the record that refers to it."""
    return [
        next(at for at, one in enumerate(_records()) if _vouched(one, partition, offset, b"").value != one.value)
        for partition, offset, *_ in _payloads()
    ]


def _end(at: int) -> int:
    return _FIRST_UPDATE if at < _FIRST_UPDATE else len(_records())


@cache
def _payloads() -> list[tuple[int, int, bytes, bytes]]:
    found = []
    for partition in _whole().filled(_PAYLOADS):
        bounds = _whole().bounds(_PAYLOADS, partition)
        for one in _whole().read(_PAYLOADS, partition, bounds.first, bounds.end):
            found.append((partition, one.offset, one.key or b"", one.value or b""))
    return found


def decided(data: bytes) -> bool:
    """Another lifecycle record in the place of one, and all decided anew: that is a history like any other, so that its
    decisions are as they must be, and whatever is asked of it has an answer."""
    at, value = _split(data, len(_records()))
    records = [one._replace(value=value) if one.offset == at else one for one in _records()[: _end(at)]]
    log = _log(records, {})
    return log is not None and _all_asked(log, data, audit_passes=True)


def undecided(data: bytes) -> bool:
    """The same without deciding anew: the audit finds it."""
    at, value = _split(data, len(_records()))
    log = _copied(_end(at))
    log.tamper(_LIFECYCLE, _place(), at, value)
    passed = _all_asked(log, data, audit_passes=False)
    assert not passed or value == _records()[at].value, "a record was changed, and the audit passed"
    return passed


def forged(data: bytes) -> bool:
    """A forged decision in the place of one: the audit finds it."""
    at, value = _split(data, len(_records()))
    log = _copied(_end(at))
    (before,) = log.read_at(_DECISIONS, _place(), [at])
    log.tamper(_DECISIONS, _place(), at, value)
    passed = _all_asked(log, data, audit_passes=False)
    assert not passed or value == before.value, "a decision was changed, and the audit passed"
    return passed


def payload(data: bytes) -> bool:
    """Another payload in the place of one, with every digest of it right: only its content is wrong."""
    at, value = _split(data, len(_payloads()))
    partition, offset, _, _ = _payloads()[at]
    records = [_vouched(one, partition, offset, value) for one in _records()[: _end(_named_at()[at])]]
    log = _log(records, {(partition, offset): value})
    return log is not None and _all_asked(log, data, audit_passes=False)


def _split(data: bytes, count: int) -> tuple[int, bytes]:
    return int.from_bytes(data[: _AT.size], "big") % count, data[_AT.size :]


def _log(records: list[SourceRecord], payloads: dict[tuple[int, int], bytes]) -> MemoryLog | None:
    """The history of these records; None where they ask for newer rules, at which a processor stops."""
    count = _whole().partitions(_LIFECYCLE)
    ledger, log = Ledger(_place(), count), MemoryLog(count)
    for record in records:
        try:
            folded = ledger.fold(record)
        except NewerFoldVersion:
            return None
        log.append(_LIFECYCLE, _place(), record.key or b"", record.value or b"")
        log.append(_DECISIONS, _place(), folded.decision.run_id.encode(), folded.encoded)
    _put_payloads(log, payloads)
    return log


def _put_payloads(log: MemoryLog, changes: dict[tuple[int, int], bytes]) -> None:
    for partition, offset, key, value in _payloads():
        log.append(_PAYLOADS, partition, key, changes.get((partition, offset), value))


def _copied(end: int) -> MemoryLog:
    log = MemoryLog(_whole().partitions(_LIFECYCLE))
    for topic in (_LIFECYCLE, _DECISIONS):
        log.put(topic, _place(), end, _whole().read(topic, _place(), 0, end))
    _put_payloads(log, {})
    return log


def _vouched(record: SourceRecord, partition: int, offset: int, value: bytes) -> SourceRecord:
    """The record with references and digests that fit the payload, if it names it."""

    def mend(part: Any) -> None:
        if isinstance(part, list):
            for one in part:
                mend(one)
        elif isinstance(part, dict):
            for one in part.values():
                mend(one)
            ref = part.get("payload")
            if isinstance(ref, dict) and (ref["partition"], list(ref["offsets"])) == (partition, [offset]):
                ref["size"], ref["sha256"] = max(1, len(value)), sha256(value).hexdigest()
                if "evidence_digest" in part and "tokens_digest" in part:
                    part.update(_digests(value))
            if part.get("recordings"):
                part["digest"] = digest_of_digests([one["payload"]["sha256"] for one in part["recordings"]])

    return record._replace(value=rewritten(record.value or b"", mend))


def _digests(value: bytes) -> dict[str, str]:
    try:
        arrays = decode_as(SegmentPayload, value)
        return {
            "evidence_digest": evidence_digest(mask_of(arrays.action_mask), floats_of(arrays.log_probs)),
            "tokens_digest": tokens_digest(ints_of(arrays.prompt_ids), ints_of(arrays.response_ids)),
        }
    except (UndecodableRecord, ContractViolation, ValueError, IndexError):
        return {}


def _all_asked(log: MemoryLog, data: bytes, *, audit_passes: bool) -> bool:
    """Whether the audit passes. What else is asked must have an answer, or be refused in a line: of one input one
    thing, since each of them reads the whole history."""
    history = History(Targets(log, _SETTINGS, (OffsetRange(_LIFECYCLE, _place()),), _RUN, False))
    end = log.bounds(_LIFECYCLE, _place()).end
    reports = told(history.audit)
    passed = reports is not None and all(one.passed for one in reports)
    if audit_passes and reports is not None:
        decisions = [one for report in reports for one in report.findings if one.kind.value.startswith("decision")]
        assert not decisions, decisions[0]
    asked: tuple[Callable[[], object], ...] = (
        lambda: history.what_if(Instead(max_lag=0)),
        history.report,
        lambda: history.prove(policy=_POLICY, asked=Asked.of(task_ids=["row-1"])),
        lambda: list(history.replay()),
        lambda: diff_runs(RunIn(_RUN, log, _SETTINGS), RunIn(_RUN, _copied(end), _SETTINGS)),
        lambda: _materialized(history),
    )
    which = sha256(data).digest()[0] % len(asked)
    noted(f"{'passed' if passed else 'no'} {'abcdef'[which]} {'yes' if told(asked[which]) is not None else 'no'}")
    return passed


def _materialized(history: History) -> object:
    with TemporaryDirectory() as folder:
        made = history.materialize(Path(folder) / "out")
    noted(" ".join(sorted({problem.reason.value for one in made for problem in one.problems})))
    return made


def _of_records(most: int) -> list[bytes]:
    each = max(1, len(_records()) // most)
    return [_AT.pack(at) + (one.value or b"") for at, one in enumerate(_records()) if at % each == 0]


def _decisions() -> list[bytes]:
    stored = _whole().read(_DECISIONS, _place(), 0, len(_records()))
    return [_AT.pack(at) + (one.value or b"") for at, one in enumerate(stored)]


def _of_payloads() -> list[bytes]:
    return [_AT.pack(at) + value for at, (*_, value) in enumerate(_payloads())]


def _changed(rng: Random, data: bytes) -> bytes:
    if rng.random() < 0.1:
        return _AT.pack(rng.randrange(64)) + data[_AT.size :]
    return data[: _AT.size] + changed(rng, data[_AT.size :])


TARGETS = (
    Target(
        "history-record",
        "a lifecycle record of a history that was decided with it, as audit, replay, prove, report and diff read it",
        lambda: _of_records(40),
        decided,
        _changed,
        share=_SHARE,
    ),
    Target(
        "history-tampered",
        "a lifecycle record that was changed in the log",
        lambda: _of_records(12),
        undecided,
        _changed,
        share=_SHARE,
    ),
    Target("history-forged", "a decision that was changed in the log", _decisions, forged, _changed, share=_SHARE),
    Target("history-payload", "a payload that its maker vouches for", _of_payloads, payload, _changed, share=_SHARE),
)
