"""The history of one update: what it was offered, held, trained on, gave back, and whether that was undone."""

from collections import Counter
from dataclasses import dataclass

from rollbook.infra.looking.groups import Survivorship, survivorship
from rollbook.infra.looking.named import names_update
from rollbook.infra.looking.noted import Noted, among, note
from rollbook.infra.looking.refold import Step
from rollbook.infra.looking.rows import Row, Rows
from rollbook.infra.looking.trajectory import FORGOTTEN
from rollbook.processors.ledger.store import Run, is_open
from rollbook.processors.lifecycle import NONE
from rollbook.schemas.records.common import LearnerRef
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import UpdateState, UpdateStatus
from rollbook.schemas.records.update import Commit


@dataclass(frozen=True, slots=True)
class UpdatePage:
    """An update, the rows that it asked for, and its history. `offsets` has the record that brought it to each of its
    states, `policies` the versions that add it to their weights, `fates` what became of what it held, and `groups` the
    groups of what it held: when it ended, or now while it is open."""

    kind: str
    id: str
    state: str
    learner: LearnerRef | None
    config_version: int | None
    offsets: dict[str, int]
    steps: int
    expected_ranks: tuple[int, ...]
    sealed_ranks: tuple[int, ...]
    policies: tuple[int, ...]
    fates: dict[str, int]
    admitted: int
    refused: dict[str, int]
    groups: Survivorship
    rows: tuple[Row, ...]
    history: tuple[Noted, ...]


class UpdateWatch:
    """Notes every record that changed the update, was one of its own, or named it."""

    def __init__(self, update_id: str) -> None:
        self._id = update_id
        self._known: UpdateState | None = None
        self._before: UpdateState | None = None
        self._commit: Commit | None = None
        self._groups: Survivorship | None = None
        self._offsets: dict[str, int] = {}
        self._rows = Rows()
        self._history: list[Noted] = []

    def before(self, run: Run) -> None:
        """The update as it stands."""
        self._before = run.updates.get(self._id)

    def after(self, step: Step) -> None:
        """What the record did to it and its rows."""
        now, decision = step.run.updates.get(self._id), step.decision
        mine, changed = decision.update_id == self._id, now != self._before
        if mine and decision.outcome is not Outcome.DUPLICATE:
            self._rows.decided(decision)
        if changed:
            self._rows.changed(self._before, now, decision, step.run)
            self._change(step, now)
        if mine or changed or names_update(step, self._id):
            after = self._state(now) if now is not None or self._before is None else FORGOTTEN
            took = among(step, self._id, "updates") if changed and not mine else ()
            self._history.append(note(step, self._state(self._before), after, among=took))
        self._known = now or self._before or self._known

    def page(self, run: Run) -> UpdatePage | None:
        """The page at the end of the run's log; None when no record ever named it."""
        if not self._history:
            return None
        known = self._known
        rows = self._rows.now(run)
        held = [row for row in rows if row.held]
        return UpdatePage(
            kind="update",
            id=self._id,
            state=self._history[-1].after,
            learner=None if known is None else known.learner,
            config_version=None if known is None else known.config_version,
            offsets=self._offsets,
            steps=0 if self._commit is None else len(self._commit.steps),
            expected_ranks=() if self._commit is None else self._commit.expected_ranks,
            sealed_ranks=() if known is None else tuple(sealed.rank for sealed in known.sealed),
            policies=tuple(policy.version for policy in run.policies.values() if self._id in policy.update_ids),
            fates=dict(sorted(Counter(row.fate for row in held).items())),
            admitted=sum(row.admitted for row in held),
            refused=dict(sorted(Counter(row.refused for row in rows if row.refused).items())),
            groups=self._groups or survivorship(run, self._rows.groups()),
            rows=rows,
            history=tuple(self._history),
        )

    def _change(self, step: Step, now: UpdateState | None) -> None:
        if now is None or (self._before is not None and self._before.status is now.status):
            return
        self._offsets[now.status.value] = step.stored.offset
        if now.status is UpdateStatus.COMMITTED and isinstance(step.record, Commit):
            self._commit = step.record
            self._rows.committed(step.record)
        if self._groups is None and not is_open(now):
            self._groups = survivorship(step.run, self._rows.groups())

    def _state(self, update: UpdateState | None) -> str:
        if update is not None:
            return update.status.value + (", in doubt" if update.in_doubt else "")
        return NONE if self._known is None else FORGOTTEN
