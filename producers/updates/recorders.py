"""The recordings of an update: those of this process's rank, and of other ranks that gave theirs to it."""

from collections.abc import Callable

from rollbook.producers.redaction.policy import Redaction
from rollbook.producers.sending.outbox import Outbox
from rollbook.producers.updates.recording import Recorder, StepArrays
from rollbook.schemas.records.common import Header, LearnerRef
from rollbook.schemas.records.payload import StepRecording


class Recorders:
    """One recorder a rank, made when the rank first records. `rank` is this process's own."""

    def __init__(
        self,
        outbox: Outbox,
        header: Callable[[], Header],
        *,
        learner: LearnerRef,
        update_id: str,
        rollout_id: int,
        rank: int,
        redaction: Redaction,
    ) -> None:
        def make(of_rank: int) -> Recorder:
            return Recorder(
                outbox,
                header,
                learner=learner,
                update_id=update_id,
                rollout_id=rollout_id,
                rank=of_rank,
                redaction=redaction,
            )

        self._make = make
        self._rank = rank
        self._by_rank: dict[int, Recorder] = {}

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that recorded anything, and so will be sealed."""
        return tuple(sorted(rank for rank, one in self._by_rank.items() if one.used))

    @property
    def used(self) -> bool:
        """Whether anything was recorded."""
        return bool(self.ranks)

    def record(self, step_id: int, step: StepArrays, rank: int | None = None) -> None:
        """Queue the recording of a rank's share of an optimizer step; by default of this process's rank."""
        self._of(self._rank if rank is None else rank).record(step_id, step)

    def record_again(self, recording: StepRecording) -> None:
        """Queue what was recorded of a step in another update, which this one takes the place of."""
        self._of(recording.rank).record_again(recording)

    def seal(self) -> None:
        """Publish for each rank that its recordings are written."""
        for rank in self.ranks:
            self._by_rank[rank].seal()

    def _of(self, rank: int) -> Recorder:
        if rank not in self._by_rank:
            self._by_rank[rank] = self._make(rank)
        return self._by_rank[rank]
