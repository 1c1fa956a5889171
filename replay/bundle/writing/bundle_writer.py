"""`BundleWriter`: a bundle from a trainer's own code, without Kafka and without torch.

Nothing is on disk before `finalize`, and then all of it or nothing (see writer.py and shards.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from rollbook.replay.bundle.arrays import ArrayLike, floats, number, numbers
from rollbook.replay.bundle.convention import ValueLoss
from rollbook.replay.bundle.model import (
    EXPECTED,
    MANIFEST,
    Capability,
    ComparisonPolicy,
    Expected,
    Index,
    PolicyLoss,
    Producer,
    StageContract,
    StageId,
)
from rollbook.replay.bundle.problems import BadBundle, Problem, problems_of
from rollbook.replay.bundle.redaction import Redactor, check_policy
from rollbook.replay.bundle.tensorfile import Tensor
from rollbook.replay.bundle.terms import TERMS
from rollbook.replay.bundle.writing.drafts import Draft, check_draft
from rollbook.replay.bundle.writing.promises import contracts_of
from rollbook.replay.bundle.writing.shards import publish_shards, shared_folder, write_shard
from rollbook.replay.bundle.writing.writer import write_bundle
from rollbook.schemas.errors import BadInput

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finalized:
    """What became of a bundle. `missing_ranks` have not written yet; the last of them publishes it."""

    path: Path
    missing_ranks: tuple[int, ...] = ()

    @property
    def published(self) -> bool:
        return not self.missing_ranks


class BundleWriter:
    """One rank's share of a bundle. Everything given is copied.

    `path` must not exist. `index` comes from `index_of`. Where several ranks write, each has a writer of its own on the
    same path, and `attempt` is one text for all of them and another at each start of the training (a broadcast UUID, or
    job id and restart count): so numbers of two starts never meet in one bundle. Text is redacted by `redactor`.
    """

    def __init__(
        self,
        path: Path,
        *,
        index: Index,
        producer: Producer,
        rank: int = 0,
        attempt: str = "",
        redactor: Redactor | None = None,
        comparison_policy: ComparisonPolicy | None = None,
    ) -> None:
        done = redactor or Redactor()
        if unknown := tuple(check_policy(done.policy)):
            raise BadBundle(str(path), *unknown)
        self._path, self._attempt = path, attempt
        self._tensors: dict[str, Tensor] = {}
        self._terms: dict[str, list[float]] = {}
        self._promised: dict[StageId, StageContract] = {}
        self._draft = Draft(
            producer=done.producer(producer),
            index=done.index(index),
            expected=Expected(),
            tensors=self._tensors,
            contracts=(),
            terms=self._terms,
            comparison_policy=comparison_policy or ComparisonPolicy(),
            redaction=dict(done.policy),
            rank=rank,
        )
        self._finalized: Finalized | None = None

    def payload(self, name: str, tensor: ArrayLike) -> None:
        """A tensor of the response tokens of all samples in index order (old_log_probs, log_probs, ref_log_probs,
        entropy, kl, advantages, returns, values, new_values, rollout_log_probs): numpy or torch, any float width,
        written as float32. Of a context-parallel shard those tokens that this rank holds, of each sample in their
        order."""
        self._once(name, self._tensors, "payloads")
        self._tensors[name] = self._made_of(f"payloads.{name}", MANIFEST, floats, tensor)

    def terms(self, name: str, values: ArrayLike) -> None:
        """Each sample's share of a scalar of the loss, so that a divergence names its sample."""
        self._once(name, self._terms, "terms")
        self._terms[name] = self._made_of(f"terms.{name}", TERMS, numbers, values)

    def expect(
        self,
        *,
        raw_rewards: ArrayLike | None = None,
        rewards: ArrayLike | None = None,
        loss: Mapping[str, ArrayLike] | None = None,
        value_loss: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """What the trainer computed, apart from the tensors. `loss`: loss, pg_loss, entropy_loss, pg_clipfrac, ppo_kl;
        `value_loss`: value_loss, and value_clipfrac where it is known. Raises `BadBundle` for what no bundle can
        hold."""
        self._open("expect")
        try:
            self._draft = replace(
                self._draft,
                expected=Expected.of(
                    raw_rewards=None if raw_rewards is None else tuple(self._expected("raw_rewards", raw_rewards)),
                    rewards=None if rewards is None else tuple(self._expected("rewards", rewards)),
                    loss=None if loss is None else PolicyLoss(**self._scalars("loss.policy", loss)),
                    value_loss=None if value_loss is None else ValueLoss(**self._scalars("loss.value", value_loss)),
                ),
            )
        except ValidationError as error:
            raise BadBundle(str(self._path), *problems_of(EXPECTED, error)) from None

    def promise(self, *stages: StageId, capability: Capability = Capability.RECOMPUTE) -> None:
        """What a reader can do with these stages. Of the others, all whose numbers are there can be recomputed."""
        self._open("promise")
        try:
            self._promised |= {stage: StageContract(stage=stage, capability=capability) for stage in stages}
        except ValidationError as error:
            raise BadBundle(str(self._path), *problems_of(MANIFEST, error)) from None

    def check(self, ranks: Sequence[int] | None = None) -> tuple[Problem, ...]:
        """Everything for which a strict reader would refuse the bundle; nothing is written."""
        return check_draft(self._made(ranks))

    def finalize(self, ranks: Sequence[int] | None = None) -> Finalized:
        """Write it. `ranks`: all that write a share of the bundle, this one among them; by itself it is a bundle.

        Waits for nobody: the rank that finds all others there publishes the bundle. Call it again to try once more.
        Raises `BadBundle` for what a strict reader would refuse, `BadInput` when the path is taken, `EnvironmentFault`
        when the disk does not play along.
        """
        draft = self._made(ranks)
        if self._finalized is None and len(draft.expected_ranks) == 1:
            self._finalized = Finalized(write_bundle(self._path, draft))
        elif self._finalized is None:
            self._finalized = Finalized(self._path, write_shard(self._path, draft, self._attempt))
        elif self._finalized.missing_ranks:
            shared = shared_folder(self._path, draft.index, draft.expected_ranks, self._attempt)
            self._finalized = Finalized(self._path, publish_shards(self._path, shared, draft.expected_ranks))
        self._tensors.clear()
        return self._finalized

    def _made(self, ranks: Sequence[int] | None) -> Draft:
        draft = replace(self._draft, expected_ranks=tuple(sorted(ranks)) if ranks else (self._draft.rank,))
        contracts = {contract.stage: contract for contract in contracts_of(draft)} | self._promised
        return replace(draft, contracts=tuple(contracts.values()))

    def _expected(self, name: str, values: ArrayLike) -> list[float]:
        return self._made_of(name, EXPECTED, numbers, values)

    def _scalars(self, stage: str, loss: Mapping[str, ArrayLike]) -> dict[str, float]:
        return {name: self._made_of(f"{stage}.{name}", EXPECTED, number, value) for name, value in loss.items()}

    def _made_of(self, name: str, file: str, made: Callable[[ArrayLike], T], values: ArrayLike) -> T:
        """What a library says of values that are no numbers is told with the field's name, and without the values."""
        try:
            return made(values)
        except (
            ValueError,
            TypeError,
            OverflowError,
            RuntimeError,
        ):  # the last: a tensor without data, or of a lost device
            problem = Problem(file, name, "not numbers, or more than one where one belongs", "give a tensor or list")
            raise BadBundle(str(self._path), problem) from None

    def _once(self, name: str, given: Mapping[str, object], noun: str) -> None:
        self._open(f"{noun}.{name}")
        if name in given:
            raise BadInput(f"{noun}.{name} was given already: give each once, for all samples in index order")

    def _open(self, what: str) -> None:
        if self._finalized is not None:
            raise BadInput(f"{what}: the bundle is written already: give everything before finalize")
