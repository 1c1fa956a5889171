"""All bundles of one update, ready to be written: checked against the log, drafted, linked, redacted. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from rollbook.replay.bundle.model import ActorStepId, Links, StepBundle
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.materialize.checks import RankStep, Row, contradictions, rank_step
from rollbook.replay.materialize.conventions import stated
from rollbook.replay.materialize.draft import drafts_of
from rollbook.replay.materialize.evidence import Recording, UpdateEvidence
from rollbook.replay.materialize.form import BundleFormat, Form
from rollbook.replay.materialize.membership import Membership
from rollbook.replay.materialize.naming import bundle_id_of
from rollbook.replay.materialize.provenance import Provenance, UsedPayload, UsedRecord
from rollbook.replay.materialize.redacted import PublicNames, redacted, redacted_provenance, sample_names
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.replay.materialize.update import Step, update_draft
from rollbook.schemas.records.update import CommitStep


@dataclass(frozen=True, slots=True)
class Ready:
    """One bundle. `drafts`: by rank, one for an update."""

    drafts: Mapping[int, Draft]
    provenance: Provenance

    @property
    def bundle_id(self) -> str:
        return self.provenance.bundle_id

    @property
    def step_id(self) -> int | None:
        step = self.provenance.actor_step_id
        return None if step is None else step.step_id


@dataclass(frozen=True, slots=True)
class Assembled:
    """An update's bundle, or why it has none where one was wanted, and its steps'."""

    update: Ready | None
    steps: tuple[Ready, ...]
    without_update: CannotWrite | None

    @property
    def all(self) -> tuple[Ready, ...]:
        """In the order of the training."""
        return self.steps if self.update is None else (self.update, *self.steps)


class Assembler:
    """Of one update with steps. Raises CannotWrite where its steps have no bundles."""

    def __init__(self, evidence: UpdateEvidence, form: Form) -> None:
        commit = evidence.commit.record
        self._evidence, self._form, self._steps = evidence, form, commit.steps
        offset = evidence.commit.used.position.offset
        self._public = PublicNames.of(form.redactor, commit.header.run_id, commit.update_id, offset)
        self._rollout_id = commit.steps[0].rollout_id

    def assemble(self, *, with_update: bool = True) -> Assembled:
        """`with_update`: also the update's own bundle, where the form has one."""
        found = [self._ranks(step, of) for step, of in zip(self._steps, self._evidence.recordings, strict=True)]
        trajectories = self._evidence.trajectories
        membership = Membership.of(found, trajectories, names_absent=self._form.linked)
        steps = [
            Step(ranks, self._drafts(step, ranks, membership)) for step, ranks in zip(self._steps, found, strict=True)
        ]
        update, why_not = None, None
        if self._form.linked and with_update:
            try:
                update = update_draft(self._name(None), steps, membership)
            except CannotWrite as cannot:
                why_not = cannot
        every = [
            *([update] if update is not None else []),
            *chain.from_iterable(step.drafts.values() for step in steps),
        ]
        names = sample_names(every) if self._form.redactor is not None else {}
        return Assembled(
            update=None if update is None else self._ready(None, {0: self._of_update(update)}, found, names),
            steps=tuple(
                self._ready(taken, self._of_step(step.drafts, update is not None), [step.ranks], names)
                for taken, step in zip(self._steps, steps, strict=True)
            ),
            without_update=why_not,
        )

    def _ranks(self, step: CommitStep, recordings: Sequence[Recording]) -> tuple[RankStep, ...]:
        ranks = tuple(rank_step(recording, self._evidence.trajectories) for recording in recordings)
        if self._form.format is BundleFormat.V1_0:
            _check_plain(recordings, step.step_id)
        wrong = list(contradictions(ranks, step, self._evidence.commit.place))
        if wrong:
            raise CannotWrite(NotWritten.DISAGREEMENT, *wrong, step_id=step.step_id)
        return ranks

    def _drafts(self, step: CommitStep, ranks: Sequence[RankStep], membership: Membership) -> dict[int, Draft]:
        try:
            return drafts_of(self._name(step.step_id), ranks, membership)
        except CannotWrite as cannot:
            raise CannotWrite(cannot.reason, *cannot.whats, step_id=step.step_id) from None

    def _name(self, step_id: int | None) -> str:
        return bundle_id_of(self._public.run_id, self._public.update_id, self._rollout_id, step_id)

    def _of_update(self, draft: Draft) -> Draft:
        bundles = (StepBundle(step_id=step.step_id, bundle_id=self._name(step.step_id)) for step in self._steps)
        return self._linked(draft, Links(update_id=self._update_id, step_bundles=tuple(bundles)))

    def _of_step(self, drafts: Mapping[int, Draft], is_named: bool) -> dict[int, Draft]:
        if not self._form.linked:
            return dict(drafts)
        links = Links(update_id=self._update_id, update_bundle=self._name(None) if is_named else None)
        return {rank: self._linked(draft, links) for rank, draft in drafts.items()}

    @property
    def _update_id(self) -> str:
        return self._evidence.commit.record.update_id

    def _linked(self, draft: Draft, links: Links) -> Draft:
        return replace(draft, index=draft.index.model_copy(update={"links": links}))

    def _ready(
        self,
        step: CommitStep | None,
        drafts: Mapping[int, Draft],
        found: Sequence[Sequence[RankStep]],
        names: Mapping[str, str],
    ) -> Ready:
        ranks = tuple(chain.from_iterable(found))
        identity = None if step is None else ActorStepId(rollout_id=step.rollout_id, step_id=step.step_id)
        provenance = Provenance(
            bundle_id=self._name(None if step is None else step.step_id),
            run_id=self._evidence.commit.record.header.run_id,
            update_id=self._update_id,
            actor_step_id=identity,
            ranks=tuple(drafts),
            records=_records(self._evidence, (row for found in ranks for row in found.rows)),
            payloads=_payloads(ranks),
        )
        redactor = self._form.redactor
        if redactor is None:
            return Ready(drafts, provenance)
        public = redacted_provenance(provenance, redactor, self._public)
        return Ready({rank: redacted(draft, redactor, names) for rank, draft in drafts.items()}, public)


def _check_plain(recordings: Sequence[Recording], step_id: int) -> None:
    """Format 1.0.0 names no conventions: what was computed under others would be held against its own there."""
    for recording in recordings:
        if (named := stated(recording.step.conventions)) is not None:
            names = [str(one) for one in (named.advantages, named.loss, named.value_loss) if one is not None]
            raise CannotWrite(
                NotWritten.NOT_REPRESENTABLE,
                f"{recording.place} states conventions ({', '.join(names) or 'numbers alone'}), for which format "
                f"{BundleFormat.V1_0} has no place: ask for {BundleFormat.V1_1}",
                step_id=step_id,
            )


def _records(evidence: UpdateEvidence, rows: Iterator[Row]) -> tuple[UsedRecord, ...]:
    facts = (fact for row in rows for fact in (row.trajectory.generated, row.trajectory.reward) if fact is not None)
    by_offset = {used.position.offset: used for used in (*evidence.records, *(fact.used for fact in facts))}
    return tuple(by_offset[offset] for offset in sorted(by_offset))


def _payloads(ranks: Sequence[RankStep]) -> tuple[UsedPayload, ...]:
    """The recordings, then the segments of their rows; what several ranks used is named once."""
    segments = [row.trajectory.segments[row.row.segment].used for found in ranks for row in found.rows]
    used = [found.recording.used for found in ranks] + [segment for segment in segments if segment is not None]
    return tuple({(one.record_type, one.chunks): one for one in used}.values())
