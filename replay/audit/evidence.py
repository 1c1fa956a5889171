"""What an audit computes again from payloads: the drift that an Admit shows, and the digests of recordings."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rollbook.processors.gates import abs_log_ratio
from rollbook.processors.reasons import Reason
from rollbook.replay.audit.decisions import Derived
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.audit.lookup import Lookup, Written, batches
from rollbook.replay.history.source import StoredRecord
from rollbook.replay.materialize.segments import contradictions
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.digests import (
    FloatArray,
    Mask,
    digest_of_digests,
    evidence_digest,
    floats_of,
    log_probs_digest,
    mask_of,
    trajectory_evidence_digest,
)
from rollbook.schemas.payload_io import PayloadCorrupt, place_of
from rollbook.schemas.records.common import PayloadRef
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.payload import CurrentLogProbs, SegmentPayload, StepRecording
from rollbook.schemas.records.rollout import Generated
from rollbook.schemas.records.update import Admit, AdmitItem, RecordingSealed

_AT_ONCE = 256
"""How many rows are looked up together: each look-up in Kafka costs a jump."""
_LOOKED_AT = frozenset((Admit.__name__, RecordingSealed.__name__))


_SEALED = Outcome.ACCEPTED, Outcome.PENDING
"""A seal that was refused vouches for nothing: everybody can write one."""


@dataclass(slots=True)
class Checked:
    """What was computed again, and what could not be: rows whose log-probs nobody kept, rows whose Generated is not to
    be had, rows that the ledger refused since their evidence was another one (what they show follows from nothing),
    and payloads that are not there any more."""

    admits: int = 0
    without_log_probs: int = 0
    without_generated: int = 0
    refused: int = 0
    recordings: int = 0
    gone: int = 0

    @property
    def unmeasured(self) -> int:
        return self.without_log_probs + self.without_generated


@dataclass(frozen=True, slots=True)
class _Shown:
    """One row of an Admit: where that lies, what it shows and with which log-probs, and where the row was
    generated."""

    place: str
    admit: Admit
    item: AdmitItem
    current: PayloadRef
    generated_offset: int


@dataclass(frozen=True, slots=True)
class _Row:
    """A row as it was generated, and the log-probs of its segments."""

    shown: _Shown
    generated: Generated
    segments: tuple[PayloadRef, ...]

    @property
    def refs(self) -> tuple[PayloadRef, ...]:
        return (self.shown.current, *self.segments)


@dataclass(frozen=True, slots=True)
class _Sealed:
    place: str
    record: RecordingSealed
    ref: PayloadRef
    step_id: int


@dataclass(slots=True)
class EvidenceCheck:
    """Takes what the deriver derives; its findings come some records later, and the rest with `finish`."""

    lookup: Lookup
    written: Written
    lifecycle: str
    partition: int
    checked: Checked = field(default_factory=Checked)
    _shown: list[_Shown] = field(default_factory=list)
    _sealed: list[_Sealed] = field(default_factory=list)

    def take(self, derived: Derived) -> Iterator[Finding]:
        if derived.decision.record_type not in _LOOKED_AT:  # others need not be decoded
            return
        record = derived.record
        if isinstance(record, Admit):
            yield from self._admit(derived, record)
        elif isinstance(record, RecordingSealed) and derived.decision.outcome in _SEALED:
            yield from self._seal(derived.stored, record)

    def finish(self) -> Iterator[Finding]:
        yield from self._check_shown()
        yield from self._check_sealed()

    def _admit(self, derived: Derived, record: Admit) -> Iterator[Finding]:
        """Row by row as it was decided: one of a rejected Admit was shown to nobody."""
        decided = {one.trajectory_id: one for one in derived.decision.items}
        for item in record.items:
            answer = decided.get(item.trajectory_id)
            if answer is None:
                continue
            if answer.reason == Reason.EVIDENCE_MISMATCH:
                self.checked.refused += 1
            elif item.payload is None:
                self.checked.without_log_probs += 1
            elif answer.generated_offset is None:
                self.checked.without_generated += 1
            else:
                self._shown.append(_Shown(derived.stored.place, record, item, item.payload, answer.generated_offset))
            if len(self._shown) >= _AT_ONCE:
                yield from self._check_shown()

    def _seal(self, stored: StoredRecord, record: RecordingSealed) -> Iterator[Finding]:
        digest = digest_of_digests([one.payload.sha256 for one in record.recordings])
        if digest != record.digest:
            what = f"the seal of rank {record.rank} of update {record.update_id}"
            yield Finding(
                FindingKind.RECORDING_DIFFERS, stored.place, what, {"digest": record.digest}, {"digest": digest}
            )
        for one in record.recordings:
            self._sealed.append(_Sealed(stored.place, record, one.payload, one.step_id))
            if len(self._sealed) >= _AT_ONCE:
                yield from self._check_sealed()

    def _check_sealed(self) -> Iterator[Finding]:
        sealed, self._sealed = self._sealed, []
        for together in batches(sealed, lambda one: one.ref.size):
            for one, payload in zip(together, self.lookup.payloads([one.ref for one in together]), strict=True):
                if payload is not None:
                    self.checked.recordings += 1
                    yield from _recording_differs(one, payload)
                elif (why := self._never_written(one.ref)) is not None:
                    yield Finding(FindingKind.RECORDING_DIFFERS, place_of(one.ref), f"{_what(one)}: {why}", {}, {})
                else:
                    self.checked.gone += 1

    def _never_written(self, ref: PayloadRef) -> str | None:
        why = self.written.why_not(ref.topic, ref.partition, ref.offsets)
        return None if why is None else f"it was never written, since {why}"

    def _check_shown(self) -> Iterator[Finding]:
        shown, self._shown = self._shown, []
        generated = self.lookup.records(self.lifecycle, self.partition, {one.generated_offset for one in shown})
        for together in batches(self._rows(shown, generated), lambda row: sum(ref.size for ref in row.refs)):
            refs = [ref for row in together for ref in row.refs]
            found = dict(zip(refs, self.lookup.payloads(refs), strict=True))
            for row in together:
                yield from self._check_row(row, found)

    def _rows(self, shown: Iterable[_Shown], generated: dict[int, StoredRecord]) -> Iterator[_Row]:
        """Those of which everything is kept; the others are counted."""
        for one in shown:
            record = _generated(generated.get(one.generated_offset))
            if record is None:
                self.checked.without_generated += 1
                continue
            segments = [segment.payload for segment in record.segments]
            kept = tuple(ref for ref in segments if ref is not None)
            if len(kept) < len(segments):
                self.checked.without_log_probs += 1
            else:
                yield _Row(one, record, kept)

    def _check_row(self, row: _Row, found: dict[PayloadRef, bytes | PayloadCorrupt | None]) -> Iterator[Finding]:
        item = row.shown.item
        what = f"trajectory {item.trajectory_id} in the Admit at {row.shown.place}"
        parts: list[bytes] = []
        for ref in row.refs:
            part = found[ref]
            if isinstance(part, PayloadCorrupt):
                yield Finding(FindingKind.EVIDENCE_DIFFERS, place_of(ref), f"{what}: {part}", {}, {})
                return
            if part is None and (why := self._never_written(ref)) is not None:
                yield Finding(FindingKind.EVIDENCE_DIFFERS, place_of(ref), f"{what}: {why}", {}, {})
                return
            if part is None:
                self.checked.gone += 1
                return
            parts.append(part)
        try:
            shown = decode_as(CurrentLogProbs, parts[0])
            current = floats_of(shown.log_probs)
            segments = [decode_as(SegmentPayload, part) for part in parts[1:]]
        except (UndecodableRecord, ContractViolation, ValueError) as problem:
            yield Finding(FindingKind.EVIDENCE_DIFFERS, place_of(row.shown.current), f"{what}: {problem}", {}, {})
            return
        self.checked.admits += 1
        if (other := _other(row, shown, segments, what)) is not None:
            yield other
            return
        masks = [mask_of(segment.action_mask) for segment in segments]
        behavior = [floats_of(segment.log_probs) for segment in segments]
        said, derived = _figures_said(item), _figures(current, masks, behavior)
        if said != derived:
            sides = _apart(said, derived)
            kind = FindingKind.EVIDENCE_DIFFERS if [*sides[1]] == ["evidence_digest"] else FindingKind.DRIFT_DIFFERS
            yield Finding(kind, row.shown.place, what, *sides)


def _other(row: _Row, shown: CurrentLogProbs, segments: Sequence[SegmentPayload], what: str) -> Finding | None:
    """Payloads have what they refer to in them: those of others have their own digests, too."""
    admit, item = row.shown.admit, row.shown.item
    said = {"run_id": shown.run_id, "update_id": shown.update_id, "trajectory_id": shown.trajectory_id}
    wanted = {"run_id": admit.header.run_id, "update_id": admit.update_id, "trajectory_id": item.trajectory_id}
    if said != wanted:
        return Finding(FindingKind.EVIDENCE_DIFFERS, place_of(row.shown.current), what, *_apart(said, wanted))
    for index, (ref, segment) in enumerate(zip(row.segments, segments, strict=True)):
        if wrong := list(contradictions(row.generated, index, segment)):
            return Finding(FindingKind.EVIDENCE_DIFFERS, place_of(ref), f"{what}: {'; '.join(wrong)}", {}, {})
    return None


def _generated(stored: StoredRecord | None) -> Generated | None:
    """None also where what lies before an anchor, which nobody vouches for, is another record."""
    try:
        return None if stored is None else decode_as(Generated, stored.value or b"")
    except (UndecodableRecord, ContractViolation):
        return None


def _what(one: _Sealed) -> str:
    return f"rank {one.record.rank} step {one.step_id} of update {one.record.update_id}, sealed at {one.place}"


def _recording_differs(one: _Sealed, payload: bytes | PayloadCorrupt) -> Iterator[Finding]:
    what = _what(one)
    if isinstance(payload, PayloadCorrupt):
        yield Finding(FindingKind.RECORDING_DIFFERS, place_of(one.ref), f"{what}: {payload}", {}, {})
        return
    try:
        recording = decode_as(StepRecording, payload)
    except (UndecodableRecord, ContractViolation) as problem:
        yield Finding(FindingKind.RECORDING_DIFFERS, place_of(one.ref), f"{what}: {problem}", {}, {})
        return
    said = _names(recording.run_id, recording.update_id, recording.rank, recording.step_id)
    wanted = _names(one.record.header.run_id, one.record.update_id, one.record.rank, one.step_id)
    if said != wanted:
        yield Finding(FindingKind.RECORDING_DIFFERS, place_of(one.ref), what, *_apart(said, wanted))


def _apart(said: dict[str, str], derived: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """What differs, on both sides."""
    names = [name for name in derived if said[name] != derived[name]]
    return {name: said[name] for name in names}, {name: derived[name] for name in names}


def _names(run_id: str, update_id: str, rank: int, step_id: int) -> dict[str, str]:
    return {"run_id": run_id, "update_id": update_id, "rank": str(rank), "step_id": str(step_id)}


def _figures_said(item: AdmitItem) -> dict[str, str]:
    return {
        "active_tokens": str(item.active_tokens),
        "sum_abs_log_ratio": repr(item.sum_abs_log_ratio),
        "max_abs_log_ratio": repr(item.max_abs_log_ratio),
        "evidence_digest": item.evidence_digest,
        "current_digest": item.current_digest,
    }


def _figures(current: FloatArray, masks: Sequence[Mask], behavior: Sequence[FloatArray]) -> dict[str, str]:
    mask, before = np.concatenate(masks), np.concatenate(behavior)
    evidence = trajectory_evidence_digest(
        [evidence_digest(own, values) for own, values in zip(masks, behavior, strict=True)]
    )
    if len(current) != len(mask):
        return {
            **dict.fromkeys(
                ("active_tokens", "sum_abs_log_ratio", "max_abs_log_ratio"),
                f"{len(current)} log-probs for {len(mask)} tokens",
            ),
            "evidence_digest": evidence,
            "current_digest": "",
        }
    active, total, largest = abs_log_ratio(before.tolist(), current.tolist(), mask.tolist())
    return {
        "active_tokens": str(active),
        "sum_abs_log_ratio": repr(total),
        "max_abs_log_ratio": repr(largest),
        "evidence_digest": evidence,
        "current_digest": log_probs_digest(mask, current),
    }
