"""What an audit computes again from payloads: the drift that an Admit shows, and the digests of recordings."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rollbook.processors.gates import abs_log_ratio
from rollbook.replay.audit.decisions import Derived
from rollbook.replay.audit.findings import Finding, Kind
from rollbook.replay.history.source import LogSource, StoredRecord
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
from rollbook.schemas.errors import BadInput
from rollbook.schemas.payload_io import PayloadCorrupt, join, place_of
from rollbook.schemas.records.common import PayloadRef
from rollbook.schemas.records.payload import CurrentLogProbs, SegmentPayload, StepRecording
from rollbook.schemas.records.rollout import Generated
from rollbook.schemas.records.update import Admit, AdmitItem, RecordingSealed

_AT_ONCE = 256
"""How many rows are looked up together: each look-up in Kafka costs a jump."""


@dataclass(slots=True)
class Checked:
    """What was computed again, and what could not be. Unmeasured: an Admit without its log-probs; gone: payloads that
    the log does not have any more."""

    admits: int = 0
    unmeasured: int = 0
    recordings: int = 0
    gone: int = 0


@dataclass(frozen=True, slots=True)
class _Shown:
    """One row of an Admit: where the Admit lies, and where the row was generated."""

    place: str
    item: AdmitItem
    generated_offset: int


@dataclass(frozen=True, slots=True)
class _Sealed:
    place: str
    record: RecordingSealed
    ref: PayloadRef
    step_id: int


@dataclass(slots=True)
class EvidenceCheck:
    """Takes what the deriver derives; its findings come some records later, and the rest with `finish`."""

    log: LogSource
    lifecycle: str
    partition: int
    checked: Checked = field(default_factory=Checked)
    _shown: list[_Shown] = field(default_factory=list)
    _sealed: list[_Sealed] = field(default_factory=list)

    def take(self, derived: Derived) -> Iterator[Finding]:
        record = derived.record
        if isinstance(record, Admit):
            offsets = {one.trajectory_id: one.generated_offset for one in derived.decision.items}
            for item in record.items:
                offset = offsets.get(item.trajectory_id)
                if item.payload is None or offset is None:
                    self.checked.unmeasured += 1
                else:
                    self._shown.append(_Shown(derived.stored.place, item, offset))
        elif isinstance(record, RecordingSealed):
            yield from self._seal(derived.stored, record)
        if len(self._shown) >= _AT_ONCE:
            yield from self._check_shown()
        if len(self._sealed) >= _AT_ONCE:
            yield from self._check_sealed()

    def finish(self) -> Iterator[Finding]:
        yield from self._check_shown()
        yield from self._check_sealed()

    def _seal(self, stored: StoredRecord, record: RecordingSealed) -> Iterator[Finding]:
        digest = digest_of_digests([one.payload.sha256 for one in record.recordings])
        if digest != record.digest:
            what = f"the seal of rank {record.rank} of update {record.update_id}"
            yield Finding(Kind.RECORDING_DIFFERS, stored.place, what, {"digest": record.digest}, {"digest": digest})
        self._sealed += [_Sealed(stored.place, record, one.payload, one.step_id) for one in record.recordings]

    def _check_sealed(self) -> Iterator[Finding]:
        sealed, self._sealed = self._sealed, []
        for one, payload in zip(sealed, self._payloads([one.ref for one in sealed]), strict=True):
            if payload is None:
                self.checked.gone += 1
                continue
            self.checked.recordings += 1
            what = f"rank {one.record.rank} step {one.step_id} of update {one.record.update_id}, sealed at {one.place}"
            if isinstance(payload, PayloadCorrupt):
                yield Finding(Kind.RECORDING_DIFFERS, place_of(one.ref), f"{what}: {payload}", {}, {})
                continue
            try:
                recording = decode_as(StepRecording, payload)
            except (UndecodableRecord, ContractViolation) as problem:
                yield Finding(Kind.RECORDING_DIFFERS, place_of(one.ref), f"{what}: {problem}", {}, {})
                continue
            said = {"update_id": recording.update_id, "rank": str(recording.rank), "step_id": str(recording.step_id)}
            wanted = {"update_id": one.record.update_id, "rank": str(one.record.rank), "step_id": str(one.step_id)}
            if said != wanted:
                yield Finding(Kind.RECORDING_DIFFERS, place_of(one.ref), what, said, wanted)

    def _check_shown(self) -> Iterator[Finding]:
        shown, self._shown = self._shown, []
        generated = self._generated({one.generated_offset for one in shown})
        refs: list[PayloadRef] = []
        for one in shown:
            record = generated.get(one.generated_offset)
            assert one.item.payload is not None, "rows without one are unmeasured"
            refs.append(one.item.payload)
            refs += [segment.payload for segment in record.segments if segment.payload is not None] if record else []
        found = dict(zip(map(place_of, refs), self._payloads(refs), strict=True))
        for one in shown:
            yield from self._check_row(one, generated.get(one.generated_offset), found)

    def _check_row(
        self, one: _Shown, record: Generated | None, found: dict[str, bytes | PayloadCorrupt | None]
    ) -> Iterator[Finding]:
        assert one.item.payload is not None
        what = f"trajectory {one.item.trajectory_id} in the Admit at {one.place}"
        refs = [] if record is None else [segment.payload for segment in record.segments]
        if record is None or any(ref is None for ref in refs):
            self.checked.unmeasured += 1
            return
        places = [place_of(ref) for ref in (one.item.payload, *refs) if ref is not None]
        parts: list[bytes] = []
        for place in places:
            part = found[place]
            if isinstance(part, PayloadCorrupt):
                yield Finding(Kind.EVIDENCE_DIFFERS, place, f"{what}: {part}", {}, {})
                return
            if part is None:
                self.checked.gone += 1
                return
            parts.append(part)
        try:
            current = floats_of(decode_as(CurrentLogProbs, parts[0]).log_probs)
            segments = [decode_as(SegmentPayload, part) for part in parts[1:]]
        except (UndecodableRecord, ContractViolation) as problem:
            yield Finding(Kind.EVIDENCE_DIFFERS, places[0], f"{what}: {problem}", {}, {})
            return
        self.checked.admits += 1
        masks = [mask_of(segment.action_mask) for segment in segments]
        behavior = [floats_of(segment.log_probs) for segment in segments]
        said, derived = _figures_said(one.item), _figures(current, masks, behavior)
        if said != derived:
            names = [name for name in derived if said[name] != derived[name]]
            kind = Kind.EVIDENCE_DIFFERS if names == ["evidence_digest"] else Kind.DRIFT_DIFFERS
            sides = [{name: side[name] for name in names} for side in (said, derived)]
            yield Finding(kind, one.place, what, sides[0], sides[1])

    def _generated(self, offsets: Iterable[int]) -> dict[int, Generated]:
        found = {}
        try:
            for stored in self.log.read_at(self.lifecycle, self.partition, offsets):
                found[stored.offset] = decode_as(Generated, stored.value or b"")
        except BadInput:  # before the range, and not to be had: the rows are unmeasured
            pass
        return found

    def _payloads(self, refs: Sequence[PayloadRef]) -> list[bytes | PayloadCorrupt | None]:
        """Each payload, what is wrong with it, or None where it is not there any more."""
        places: dict[tuple[str, int], list[int]] = {}
        for ref in refs:
            places.setdefault((ref.topic, ref.partition), []).extend(ref.offsets)
        chunks = {
            (*place, stored.offset): stored for place, offsets in places.items() for stored in self._at(place, offsets)
        }
        return [
            self._joined(ref, [chunks.get((ref.topic, ref.partition, offset)) for offset in ref.offsets])
            for ref in refs
        ]

    def _at(self, place: tuple[str, int], offsets: Sequence[int]) -> Iterator[StoredRecord]:
        """What is there of these; where one is gone the others are looked for one by one."""
        try:
            yield from list(self.log.read_at(*place, offsets))
        except BadInput:
            for offset in offsets:
                try:
                    yield from list(self.log.read_at(*place, [offset]))
                except BadInput:
                    continue

    def _joined(self, ref: PayloadRef, chunks: Sequence[StoredRecord | None]) -> bytes | PayloadCorrupt | None:
        there = [chunk.value or b"" for chunk in chunks if chunk is not None]
        if len(there) < len(chunks):
            return None
        try:
            return join(there, ref)
        except PayloadCorrupt as corrupt:
            return corrupt


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
