"""The files of a bundle as typed records: formats 1.0.0 and 1.1.0, strict (no unknown key, no boolean or string as a
number). 1.1.0 adds fields that are absent where they are not used (`ADDED`), and a bundle that uses none is of 1.0.0.

What we write is that format and nothing else: the payloads are flat token tensors (`returns`, where a trainer recorded
it, is one more of them). What we know beyond it lies in files of their own, which a reader of 1.0.0 does not open:
`terms.py` and the provenance that materialize writes.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
)

from rollbook.replay.bundle.contextparallel import ContextParallel
from rollbook.replay.bundle.convention import Added, Conventions, RewardOnly, Unmeasured, ValueLoss

MANIFEST: Final = "manifest.json"
INDEX: Final = "index.json"
EXPECTED: Final = "expected.json"
COMPLETE: Final = "COMPLETE"

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
# JSON knows arrays and strings only; everything inside them stays strict.
# A list ends at its first wrong item: millions of them would otherwise become an error each.
Many = Annotated[tuple[T, ...], Field(strict=False, fail_fast=True)]
OneOf = Annotated[E, Field(strict=False)]

Id = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Text = Annotated[str, StringConstraints(max_length=4096)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
PayloadName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$")]
# A bundle that another one names is the folder of that name beside it: one path component that hides nothing.
BundleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._~-]{0,199}$")]
FormatVersion = Literal["1.0.0", "1.1.0"]
Count = Annotated[int, Field(ge=0, lt=2**48)]
Size = Annotated[int, Field(ge=1, lt=2**48)]
Rank = Annotated[int, Field(ge=0, lt=2**20)]
Tolerated = Annotated[float, Field(ge=0, lt=1)]
MetadataFile = Literal["expected.json", "index.json", "manifest.json"]


def _packed_mask(value: object) -> object:
    """One byte a token instead of one object; a mask has as many entries as the step has tokens."""
    if isinstance(value, list) and set(map(type, value)) <= {int} and set(value) <= {0, 1}:
        return bytes(value)
    if isinstance(value, bytes) and not value.translate(None, b"\x00\x01"):
        return value
    raise ValueError("it must be a list of the integers 0 and 1")


Mask = Annotated[bytes, BeforeValidator(_packed_mask), PlainSerializer(list)]


class Record(BaseModel):
    """Base of every part of a bundle's metadata."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Grown(Record):
    """Base of the parts that 1.1.0 adds fields to. Where such a field is None its key is absent, as in 1.0.0."""

    ADDED: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        return {key: value for key, value in content.items() if value is not None or key not in self.ADDED}

    def added(self) -> Iterator[str]:
        """The fields of 1.1.0 that are used."""
        yield from (name for name in sorted(self.ADDED) if getattr(self, name) is not None)


class StageId(StrEnum):
    """The stages in the order in which one feeds the next; format 1.0.0 knows the last, and never computes it."""

    SAMPLE = "sample"
    REWARD_RAW = "reward.raw"
    REWARD_POST_PROCESS = "reward.post_process"
    ADVANTAGE_KL = "advantage.kl"
    ADVANTAGE_ESTIMATE = "advantage.estimate"
    LOSS_POLICY = "loss.policy"
    LOSS_VALUE = "loss.value"


class Capability(StrEnum):
    """What a bundle lets a reader do with a stage."""

    RECOMPUTE = "recompute"
    RECORDED_ONLY = "recorded-only"
    INSPECT_ONLY = "inspect-only"
    UNSUPPORTED = "unsupported"


class Implementation(StrEnum):
    """Whether the stage ran the trainer's own function or a rewrite of it."""

    REUSE = "reuse"
    REIMPLEMENTED = "reimplemented"


class Redaction(StrEnum):
    """What was done to a field before it was written."""

    HASH = "hash"
    TRUNCATE = "truncate"
    DROP = "drop"


class StageContract(Record):
    stage: OneOf[StageId]
    version: Literal["v1"] = "v1"
    capability: OneOf[Capability]
    implementation: OneOf[Implementation] = Implementation.REIMPLEMENTED
    inputs: Many[Id] = ()
    expected_outputs: Many[Id] = ()


class Payload(Record):
    """A tensor file `payloads/<name>.pt`: what it holds and what it hashes to."""

    name: PayloadName
    dtype: Text
    shape: Annotated[tuple[Count, ...], Field(strict=False, fail_fast=True, min_length=1, max_length=8)]
    bytes: Size
    sha256: Digest


class Tolerance(Record):
    """Equal when |actual - expected| <= atol + rtol * |expected|."""

    atol: Tolerated
    rtol: Tolerated


class ComparisonPolicy(Record):
    exact_fields: Many[Id] = ()
    tolerances: dict[OneOf[StageId], Tolerance] = Field(default_factory=dict)


class Producer(Record):
    commit: Text
    dirty_patch_digest: Text
    torch_version: Text


class Manifest(Record):
    format_version: FormatVersion = "1.0.0"
    bundle_id: Id
    producer: Producer
    stage_contracts: dict[OneOf[StageId], StageContract]
    payloads: Annotated[dict[PayloadName, Payload], Field(max_length=64)]
    comparison_policy: ComparisonPolicy = Field(default_factory=ComparisonPolicy)
    redaction: dict[Id, OneOf[Redaction]] = Field(default_factory=dict)


class ActorStepId(Record):
    rollout_id: Count
    step_id: Count


class WeightLineage(Record):
    rollout_weight: Text
    actor_weight: Text


class World(Record):
    """Sizes of the parallel groups: data, tensor, pipeline, context."""

    dp: Size = 1
    tp: Size = 1
    pp: Size = 1
    cp: Size = 1


class Identity(Record):
    """Whose numbers these are. Exactly one of `actor_step_id` (step level) and `rollout_id` (rollout level) is set."""

    actor_step_id: ActorStepId | None
    rollout_id: Count | None
    rollout_partition_ids: Many[Id]
    consumer_batch_ids: Many[Id]
    micro_batch_ids: Many[Id]
    semantic_group_ids: Many[Id]
    normalization_cohort_ids: Many[Id]
    weight_lineage: WeightLineage
    rank: World


class Sample(Record):
    """One row: a trajectory's segment. `loss_mask` holds one byte, 0 or 1, per response token."""

    sample_id: Id
    group_index: Annotated[int, Field(ge=0, lt=2**62)] | None
    response_length: Count
    total_length: Count
    loss_mask: Mask
    raw_reward: float
    reward: float
    label_hash: Text = ""
    micro_batch_id: Id | None


class Config(Grown):
    """The conventions under which the trainer computed the step; those of format 1.1.0 are named."""

    ADDED = frozenset({"conventions"})

    advantage_estimator: Id
    n_samples_per_prompt: Size
    grpo_std_normalization: bool
    kl_loss_type: Id
    kl_coef: float
    eps_clip: Annotated[float, Field(ge=0)]
    eps_clip_high: Annotated[float, Field(ge=0)]
    entropy_coef: float
    conventions: Added[Conventions] = None


class StepBundle(Record):
    """A step of an update, and its bundle."""

    step_id: Count
    bundle_id: BundleName


class Links(Record):
    """What belongs together: the bundle of an update (rollout level) and those of its optimizer steps, folders beside
    one another, each named as its bundle_id. A step names its update; an update may name its steps, which often are not
    yet known when it is written."""

    update_id: Id
    update_bundle: BundleName | None = None
    step_bundles: Many[StepBundle] = ()


class Index(Grown):
    ADDED = frozenset({"cohort", "context_parallel", "links", "unmeasured"})

    bundle_id: Id
    identity: Identity
    samples: Annotated[tuple[Sample, ...], Field(strict=False, fail_fast=True, min_length=1)]
    config: Config
    links: Added[Links] = None
    cohort: Added[Many[RewardOnly]] = None
    context_parallel: Added[ContextParallel] = None
    unmeasured: Added[Many[Unmeasured]] = None

    def added(self) -> Iterator[str]:
        yield from super().added()
        yield from (f"config.{name}" for name in self.config.added())


class RawRewards(Record):
    raw_rewards: Many[float]


class Rewards(Record):
    rewards: Many[float]


class PolicyLoss(Record):
    loss: float
    pg_loss: float
    entropy_loss: float
    pg_clipfrac: float
    ppo_kl: float


class Expected(Grown):
    """What the trainer computed, apart from the tensors; a stage that was not recorded is absent."""

    ADDED = frozenset({"loss_value"})

    reward_raw: RawRewards | None = Field(default=None, alias="reward.raw")
    reward_post_process: Rewards | None = Field(default=None, alias="reward.post_process")
    loss_policy: PolicyLoss | None = Field(default=None, alias="loss.policy")
    loss_value: Added[ValueLoss] = Field(default=None, alias="loss.value")

    @classmethod
    def of(
        cls,
        *,
        raw_rewards: tuple[float, ...] | None = None,
        rewards: tuple[float, ...] | None = None,
        loss: PolicyLoss | None = None,
        value_loss: ValueLoss | None = None,
    ) -> "Expected":
        raw = None if raw_rewards is None else RawRewards(raw_rewards=raw_rewards)
        post = None if rewards is None else Rewards(rewards=rewards)
        losses = {"loss.policy": loss, "loss.value": value_loss}
        return cls.model_validate({"reward.raw": raw, "reward.post_process": post, **losses})


MetadataDigests = Annotated[dict[MetadataFile, Digest], Field(min_length=3)]


class Complete(Record):
    """`COMPLETE`, written last: the bundle of this rank is whole."""

    ranks: Annotated[tuple[Rank, ...], Field(strict=False, fail_fast=True, min_length=1, max_length=1)]
    expected_ranks: Annotated[tuple[Rank, ...], Field(strict=False, fail_fast=True, min_length=1)]
    metadata: MetadataDigests


class RankComplete(Record):
    """`COMPLETE.<rank>`: what one rank wrote."""

    actor_step_id: ActorStepId | None
    rollout_id: Count | None
    payloads: dict[PayloadName, Digest]
    metadata: MetadataDigests
    expected_ranks: Annotated[tuple[Rank, ...], Field(strict=False, fail_fast=True, min_length=1)]


class ShardComplete(RankComplete):
    """`COMPLETE.<rank>` beside the folders of several ranks."""

    relpath: Id


class CohortComplete(Record):
    """`COMPLETE` beside the folders of several ranks: all of them are there."""

    ranks: Annotated[tuple[Rank, ...], Field(strict=False, fail_fast=True, min_length=1)]
    shards: dict[Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,6})$")], ShardComplete]
