"""An update as one bundle, at rollout level: every row that any rank recorded in any of its steps, once, up to the
advantages that the steps started from. Groups that ranks or mini-batches divide are whole in it. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from pydantic import ValidationError

from rollbook.replay.bundle.convention import Conventions
from rollbook.replay.bundle.model import INDEX, Config, Expected, Identity, Index, Sample
from rollbook.replay.bundle.problems import problems_of
from rollbook.replay.bundle.tensorfile import Tensor
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.materialize.checks import RankStep, Row
from rollbook.replay.materialize.draft import contracts_of, groups_of, is_remote, lineage_of, unique, unmeasured_of
from rollbook.replay.materialize.membership import Membership
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.schemas.records.convention import Conventions as Recorded
from rollbook.schemas.records.payload import ArrayName, Cohort, StepRecording

_TENSORS = tuple(
    name.value
    for name in (
        ArrayName.OLD_LOG_PROBS,
        ArrayName.REF_LOG_PROBS,
        ArrayName.KL,
        ArrayName.ADVANTAGES,
        ArrayName.RETURNS,
        ArrayName.VALUES,
    )
)
_COMMON = ("advantage_estimator", "n_samples_per_prompt", "grpo_std_normalization", "kl_loss_type", "kl_coef")
"""What the steps of an update must have in common, so that their rows are of one computation."""
_LISTS = ("rollout_partition_ids", "consumer_batch_ids", "semantic_group_ids", "normalization_cohort_ids")


@dataclass(frozen=True, slots=True)
class Step:
    """A step's recordings, and the drafts made from them, in the order of their ranks."""

    ranks: tuple[RankStep, ...]
    drafts: Mapping[int, Draft]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a row was recorded: its sample in a draft, and where its tokens begin there."""

    row: Row
    draft: Draft
    at: int
    start: int

    @property
    def sample(self) -> Sample:
        return self.draft.index.samples[self.at]

    def of(self, name: str) -> Tensor:
        return self.draft.tensors[name][self.start : self.start + self.sample.response_length]


def update_draft(bundle_id: str, steps: Sequence[Step], membership: Membership) -> Draft:
    """The draft of the update that these are all steps of. Raises CannotWrite where they are no one computation."""
    _check_common(steps)
    every = tuple(chain.from_iterable(step.ranks for step in steps))
    drafts = tuple(chain.from_iterable(step.drafts.values() for step in steps))
    places = _chosen(steps)
    rows = [place.row for place in places]
    groups = groups_of(every)
    cohorts = _cohorts(every)
    absent = membership.absent(cohorts, [row.row for row in rows], groups)
    try:
        index = Index(
            bundle_id=bundle_id,
            identity=_identity([draft.index.identity for draft in drafts], rows),
            samples=tuple(_sample(place, groups) for place in places),
            config=_config(drafts[0].index.config),
            cohort=absent,
            unmeasured=unmeasured_of(drafts[0].index.config, rows),
        )
    except ValidationError as error:
        raise CannotWrite(NotWritten.NOT_REPRESENTABLE, *map(str, problems_of(INDEX, error))) from None
    size = index.config.n_samples_per_prompt
    is_part = membership.is_part([row.row for row in rows], absent or (), groups, size)
    tensors = _tensors(places)
    return Draft(
        producer=drafts[0].producer,
        index=index,
        expected=Expected.of(
            raw_rewards=tuple(_raw_reward(place) for place in places),
            rewards=tuple(place.sample.reward for place in places),
        ),
        tensors=tensors,
        contracts=contracts_of(index, tensors, is_remote=is_remote(rows), is_part=is_part),
    )


def _check_common(steps: Sequence[Step]) -> None:
    first, *others = [step.ranks[0].recording for step in steps]
    ours = _common(first.step)
    for recording in others:
        for name, theirs in _common(recording.step).items():
            if ours[name] != theirs:
                what = f"{recording.place} has {name} {theirs!r}, {first.place} has {ours[name]!r}"
                raise CannotWrite(NotWritten.NOT_REPRESENTABLE, what)


def _common(step: StepRecording) -> dict[str, object]:
    found = {name: getattr(step.config, name) for name in _COMMON}
    named = step.conventions or Recorded()
    advantages = None if named.advantages is None else str(named.advantages)
    return {**found, "conventions.advantages": advantages, "gamma": named.gamma, "lam": named.lam}


def _config(of_step: Config) -> Config:
    """Without the conventions of a loss, which each step has of its own."""
    if (named := of_step.conventions) is None:
        return of_step
    kept = Conventions(advantages=named.advantages, gamma=named.gamma, lam=named.lam)
    return of_step.model_copy(update={"conventions": None if kept == Conventions() else kept})


def _chosen(steps: Sequence[Step]) -> list[_Place]:
    """Each row where it first counted in a loss, since what a trainer wrote where it did not may be anything; where it
    never did, the first of all."""
    found: dict[str, _Place] = {}
    for place in _places(steps):
        name = place.sample.sample_id
        if name not in found or (place.row.active and not found[name].row.active):
            found[name] = place
    return list(found.values())


def _places(steps: Sequence[Step]) -> Iterator[_Place]:
    for step in steps:
        for found in step.ranks:
            draft, start = step.drafts[found.rank], 0
            for at, row in enumerate(found.rows):
                yield _Place(row, draft, at, start)
                start += draft.index.samples[at].response_length


def _sample(place: _Place, groups: Mapping[str, int]) -> Sample:
    """Micro-batches are a step's."""
    group_index = groups[place.row.row.group_id]
    return place.sample.model_copy(update={"group_index": group_index, "micro_batch_id": None})


def _raw_reward(place: _Place) -> float:
    """As the trainer had it."""
    recorded = place.draft.expected.reward_raw
    assert recorded is not None, "every step's draft has them"
    return recorded.raw_rewards[place.at]


def _cohorts(ranks: Iterable[RankStep]) -> list[Cohort]:
    """Of several ranks and steps that normalised the same together, one."""
    cohorts = (cohort for found in ranks for cohort in found.recording.step.cohorts)
    return list({(one.cohort_id, one.group_id, one.members): one for one in cohorts}.values())


def _tensors(places: Sequence[_Place]) -> dict[str, Tensor]:
    names = [name for name in _TENSORS if all(name in place.draft.tensors for place in places)]
    return {name: np.concatenate([place.of(name) for place in places]) for name in names}


def _identity(identities: Sequence[Identity], rows: Sequence[Row]) -> Identity:
    first = identities[0]
    assert first.actor_step_id is not None
    lists = {name: unique(chain.from_iterable(getattr(one, name) for one in identities)) for name in _LISTS}
    lineage = first.weight_lineage.model_copy(update={"rollout_weight": lineage_of(rows)})
    changed = {"actor_step_id": None, "rollout_id": first.actor_step_id.rollout_id, "micro_batch_ids": ()}
    return first.model_copy(update={**changed, **lists, "weight_lineage": lineage})
