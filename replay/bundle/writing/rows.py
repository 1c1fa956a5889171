"""The index of a bundle from what a trainer has: columns over the rows of one rank, as lists or tensors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import ValidationError

from rollbook.replay.bundle.arrays import ArrayLike, NotWhole, integers, numbers
from rollbook.replay.bundle.contextparallel import ContextParallel
from rollbook.replay.bundle.convention import RewardOnly, Unmeasured
from rollbook.replay.bundle.model import (
    INDEX,
    ActorStepId,
    Config,
    Identity,
    Index,
    Links,
    Sample,
    WeightLineage,
    World,
)
from rollbook.replay.bundle.problems import BadBundle, Problem, problems_of
from rollbook.replay.bundle.redaction import Redactor

T = TypeVar("T", int, float)
_WRITTEN = "that is to be written"
_COLUMN = "give a list or tensor with one value for each row"


@dataclass(frozen=True, slots=True)
class Rows:
    """Samples in index order, which is the order of every payload's tokens.

    `loss_mask` is flat, 0 or 1 for each response token of all rows. `group_index` numbers the prompts' groups;
    `raw_rewards` are what the reward function gave, `rewards` what the trainer made of them. `micro_batch_ids` are of
    the iterator ("mb-0000"), or None where the trainer does not know them. `labels` are texts, which are redacted
    before they are written. `unmeasured`: samples whose own reward counts in no mean and no deviation, each with the id
    of the sample or member whose advantage it has, or None where nothing scored it.
    """

    sample_ids: Sequence[str]
    group_index: ArrayLike | None
    response_lengths: ArrayLike
    total_lengths: ArrayLike
    loss_mask: ArrayLike
    raw_rewards: ArrayLike
    rewards: ArrayLike
    micro_batch_ids: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    unmeasured: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotConsumed:
    """The other members of the rows' groups, as columns: those whose rewards were normalised together with the rows',
    and which the step did not train on (filtered, surplus, of another update)."""

    sample_ids: Sequence[str]
    group_index: ArrayLike
    raw_rewards: ArrayLike


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the numbers came from, as far as the trainer knows."""

    rollout_partition_ids: Sequence[str] = ()
    consumer_batch_ids: Sequence[str] = ()
    semantic_group_ids: Sequence[str] = ()
    normalization_cohort_ids: Sequence[str] = ()
    rollout_weight: str = ""
    actor_weight: str = ""
    world: World = field(default_factory=World)


def index_of(
    bundle_id: str,
    rows: Rows,
    config: Config,
    *,
    rollout_id: int,
    step_id: int | None,
    origin: Origin | None = None,
    links: Links | None = None,
    cohort: NotConsumed | None = None,
    context_parallel: ContextParallel | None = None,
    redactor: Redactor | None = None,
) -> Index:
    """The index of an optimizer step, or with `step_id=None` of a whole rollout. Raises `BadBundle`, naming the field.

    `bundle_id` is a public name: it is written as it is. `cohort`: what rewards were normalised with and was not
    consumed. `context_parallel`: how tokens are dealt out; the rows are whole samples even so, the payloads are what
    this rank holds.
    """
    came = origin or Origin()
    try:
        samples = _samples(rows, redactor or Redactor())
        identity = Identity(
            actor_step_id=None if step_id is None else ActorStepId(rollout_id=rollout_id, step_id=step_id),
            rollout_id=rollout_id if step_id is None else None,
            rollout_partition_ids=tuple(came.rollout_partition_ids),
            consumer_batch_ids=tuple(came.consumer_batch_ids),
            micro_batch_ids=tuple(dict.fromkeys(rows.micro_batch_ids or ())),
            semantic_group_ids=tuple(came.semantic_group_ids),
            normalization_cohort_ids=tuple(came.normalization_cohort_ids),
            weight_lineage=WeightLineage(rollout_weight=came.rollout_weight, actor_weight=came.actor_weight),
            rank=came.world,
        )
        return Index(
            bundle_id=bundle_id,
            identity=identity,
            samples=samples,
            config=config,
            links=links,
            cohort=None if cohort is None else _not_consumed(cohort),
            context_parallel=context_parallel,
            unmeasured=tuple(Unmeasured(sample_id=name, like=like) for name, like in rows.unmeasured.items()) or None,
        )
    except ValidationError as error:
        raise BadBundle(bundle_id, *problems_of(INDEX, error)) from None


def _samples(rows: Rows, redactor: Redactor) -> tuple[Sample, ...]:
    count = len(rows.sample_ids)
    lengths = _column("response_length", rows.response_lengths, integers)
    columns: dict[str, Sequence[object]] = {
        "group_index": [None] * count
        if rows.group_index is None
        else _column("group_index", rows.group_index, integers),
        "response_length": lengths,
        "total_length": _column("total_length", rows.total_lengths, integers),
        "raw_reward": _column("raw_reward", rows.raw_rewards, numbers),
        "reward": _column("reward", rows.rewards, numbers),
        "micro_batch_id": [None] * count if rows.micro_batch_ids is None else list(rows.micro_batch_ids),
        "label_hash": [""] * count if rows.labels is None else _labels(rows.labels, redactor),
    }
    for name, column in columns.items():
        if len(column) != count:
            raise _bad(f"samples.{name}", f"{len(column)} values for {count} sample_ids")
    masks = _masks(_column("loss_mask", rows.loss_mask, integers), lengths)
    return tuple(
        Sample.model_validate({"sample_id": name, "loss_mask": mask, **_row(columns, at)})
        for at, (name, mask) in enumerate(zip(rows.sample_ids, masks, strict=True))
    )


def _not_consumed(cohort: NotConsumed) -> tuple[RewardOnly, ...] | None:
    """None where there are none: a key is absent or used."""
    groups = _column("group_index", cohort.group_index, integers, part="cohort")
    rewards = _column("raw_reward", cohort.raw_rewards, numbers, part="cohort")
    for name, column in (("group_index", groups), ("raw_reward", rewards)):
        if len(column) != len(cohort.sample_ids):
            raise _bad(f"cohort.{name}", f"{len(column)} values for {len(cohort.sample_ids)} sample_ids")
    members = zip(cohort.sample_ids, groups, rewards, strict=True)
    found = (RewardOnly(sample_id=name, group_index=group, raw_reward=reward) for name, group, reward in members)
    return tuple(found) or None


def _labels(labels: Sequence[str], redactor: Redactor) -> list[str]:
    if not all(isinstance(label, str) for label in labels):
        raise BadBundle(_WRITTEN, Problem(INDEX, "samples.label_hash", "a label that is no text", "give texts"))
    return [redactor.label(label) for label in labels]


def _row(columns: Mapping[str, Sequence[object]], at: int) -> dict[str, object]:
    return {name: column[at] for name, column in columns.items()}


def _masks(flat: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
    if sum(lengths) != len(flat) or any(length < 0 for length in lengths):
        raise _bad("samples.loss_mask", f"{len(flat)} values for {sum(lengths)} response tokens")
    if not set(flat) <= {0, 1}:
        raise _bad("samples.loss_mask", "a value other than 0 and 1")
    packed = bytes(flat)
    masks, start = [], 0
    for length in lengths:
        masks.append(packed[start : start + length])
        start += length
    return masks


def _column(name: str, values: ArrayLike, made: Callable[[ArrayLike], list[T]], *, part: str = "samples") -> list[T]:
    try:
        return made(values)
    except NotWhole:
        raise _bad(f"{part}.{name}", "has a value that is no whole number") from None
    except (ValueError, TypeError, OverflowError):  # whose text may quote a value
        raise _bad(f"{part}.{name}", "has a value that is no number") from None


def _bad(field_name: str, what: str) -> BadBundle:
    return BadBundle(_WRITTEN, Problem(INDEX, field_name, what, _COLUMN))
