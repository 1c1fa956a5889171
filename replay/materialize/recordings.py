"""The recordings that a rank sealed, held against its seal and against the update's Commit."""

from rollbook.replay.history.source import LogSource
from rollbook.replay.materialize.evidence import Recording
from rollbook.replay.materialize.facts import Fact
from rollbook.replay.materialize.payloads import read_payloads
from rollbook.replay.materialize.provenance import UsedPayload
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.digests import digest_of_digests
from rollbook.schemas.records.payload import Role, StepRecording
from rollbook.schemas.records.update import Commit, CommitStep, RecordingRef, RecordingSealed


def read_recordings(log: LogSource, commit: Fact[Commit], sealed: Fact[RecordingSealed]) -> tuple[Recording, ...]:
    """One recording for each step of the Commit, in order. Raises CannotWrite."""
    refs = sealed.record.recordings
    if sealed.record.digest != digest_of_digests([ref.payload.sha256 for ref in refs]):
        raise CannotWrite(NotWritten.DISAGREEMENT, f"{sealed.place}: digest is not that of the recordings it lists")
    listed = [(ref.rollout_id, ref.step_id) for ref in refs]
    committed = [(step.rollout_id, step.step_id) for step in commit.record.steps]
    if sorted(listed) != sorted(committed):
        raise CannotWrite(
            NotWritten.DISAGREEMENT,
            f"{sealed.place} lists recordings of (rollout_id, step_id) {_some(sorted(listed))}, {commit.place} commits "
            f"{_some(sorted(committed))}",
        )
    by_step = {ref.step_id: ref for ref in refs}
    return tuple(_read(log, commit, sealed, step, by_step[step.step_id]) for step in commit.record.steps)


def _read(
    log: LogSource, commit: Fact[Commit], sealed: Fact[RecordingSealed], step: CommitStep, ref: RecordingRef
) -> Recording:
    payload = read_payloads(log, [ref.payload])[0]
    try:
        recording = decode_as(StepRecording, payload.data)
    except (UndecodableRecord, ContractViolation) as error:
        raise CannotWrite(
            NotWritten.PAYLOAD_CORRUPT, f"{payload.place}, listed by {sealed.place}: {error}", step_id=step.step_id
        ) from None
    if recording.role is not Role.ACTOR:
        raise CannotWrite(
            NotWritten.NOT_REPRESENTABLE, f"{payload.place} is of the {recording.role.value}", step_id=step.step_id
        )
    record = commit.record
    stated = (
        ("run_id", recording.run_id, record.header.run_id, commit.place),
        ("update_id", recording.update_id, record.update_id, commit.place),
        ("learner", recording.learner, record.learner, commit.place),
        ("rollout_id", recording.rollout_id, step.rollout_id, commit.place),
        ("step_id", recording.step_id, step.step_id, commit.place),
        ("rank", recording.rank, sealed.record.rank, sealed.place),
    )
    wrong = [
        f"{payload.place} has {name} {recorded}, {place} has {logged}"
        for name, recorded, logged, place in stated
        if recorded != logged
    ]
    if wrong:
        raise CannotWrite(NotWritten.DISAGREEMENT, *wrong, step_id=step.step_id)
    used = UsedPayload(
        record_type=StepRecording.__name__,
        subject=recording.update_id,
        segment=None,
        chunks=payload.chunks,
        bytes=ref.payload.size,
        sha256=ref.payload.sha256,
    )
    return Recording(recording, payload.place, used)


def _some(pairs: list[tuple[int, int]], limit: int = 8) -> str:
    more = f" and {len(pairs) - limit} more" if len(pairs) > limit else ""
    return f"{', '.join(map(str, pairs[:limit])) or 'none'}{more}"
