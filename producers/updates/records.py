"""The records of one update, filled in with who asks and what for."""

from collections.abc import Sequence
from typing import Protocol

from rollbook.schemas.records.common import Header, LearnerRef, PolicyRef
from rollbook.schemas.records.update import (
    Abort,
    AbortDisposition,
    AbortReason,
    Admit,
    AdmitItem,
    Claim,
    Commit,
    CommitStep,
    DroppedItem,
    Renew,
    Reserve,
    ReserveItem,
    ReserveMode,
    UpdateStarted,
)


class Writer(Protocol):
    """Who writes: a learner in its epoch, with a fresh header for each record."""

    @property
    def learner(self) -> LearnerRef:
        """The learner in its epoch."""

    def header(self) -> Header:
        """A fresh header."""


class UpdateRecords:
    """Makes the records. Parts count what was asked: (update, part) is the natural key of a Reserve and of an Admit."""

    def __init__(self, writer: Writer, update_id: str) -> None:
        self._writer = writer
        self._update_id = update_id

    def reserve(
        self,
        part: int,
        policy: PolicyRef,
        mode: ReserveMode,
        *,
        items: Sequence[ReserveItem] = (),
        claim: Claim | None = None,
    ) -> Reserve:
        return Reserve(
            header=self._writer.header(),
            learner=self._writer.learner,
            update_id=self._update_id,
            part=part,
            policy=policy,
            items=tuple(items),
            claim=claim,
            mode=mode,
        )

    def admit(self, part: int, policy: PolicyRef, own_updates: int, items: Sequence[AdmitItem]) -> Admit:
        return Admit(
            header=self._writer.header(),
            learner=self._writer.learner,
            update_id=self._update_id,
            part=part,
            policy=policy,
            own_updates=own_updates,
            items=tuple(items),
        )

    def started(self) -> UpdateStarted:
        return UpdateStarted(header=self._writer.header(), learner=self._writer.learner, update_id=self._update_id)

    def renew(self) -> Renew:
        return Renew(header=self._writer.header(), learner=self._writer.learner, update_id=self._update_id)

    def commit(
        self,
        steps: Sequence[CommitStep],
        dropped: Sequence[DroppedItem],
        expected_ranks: Sequence[int],
        *,
        unreserved: bool = False,
    ) -> Commit:
        return Commit(
            header=self._writer.header(),
            learner=self._writer.learner,
            update_id=self._update_id,
            steps=tuple(steps),
            dropped=tuple(dropped),
            expected_ranks=tuple(expected_ranks),
            unreserved=unreserved,
        )

    def abort(self, text: str, disposition: AbortDisposition) -> Abort:
        return Abort(
            header=self._writer.header(),
            learner=self._writer.learner,
            update_id=self._update_id,
            reason=AbortReason.UPDATE_FAILED,
            text=text,
            disposition=disposition,
        )
