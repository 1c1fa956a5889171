"""The client of a reward service: rewards by one rule, and failures to have one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy.typing as npt

from rollbook.infra.settings import Settings
from rollbook.producers import given
from rollbook.producers.arrays import Field, Number, finite_reals, real
from rollbook.producers.clients.client import Client, Options
from rollbook.producers.sending.outbox import PayloadBytes
from rollbook.schemas.digests import float32_bytes
from rollbook.schemas.records.common import PayloadRef, Source, SourceKind
from rollbook.schemas.records.reward import RewardFailed, RewardFailure, RewardItem, RewardReady
from rollbook.schemas.records.run import RewardIdentity
from rollbook.schemas.types import NamedNumber


@dataclass(frozen=True, slots=True)
class Reward:
    """The reward of one trajectory before any post-processing; `token_rewards` [T] real, one per response token."""

    trajectory_id: str
    raw_reward: Number
    components: Mapping[str, Number] = field(default_factory=dict)
    token_rewards: npt.ArrayLike | None = None


class RewardService(Client):
    """Publishes the rewards of one rule; nothing here waits for the broker. `remote`: nobody can run the rule again."""

    def __init__(
        self,
        settings: Settings,
        run_id: str,
        service_id: str,
        rule: RewardIdentity,
        *,
        remote: bool = False,
        options: Options | None = None,
    ) -> None:
        source = Source(kind=SourceKind.REWARD_SERVICE, id=service_id)
        super().__init__(settings, run_id, source, options, commands=False)
        self._rule = self._redaction.rule(given.a(RewardIdentity, rule, "RewardReady", "reward"))
        self._remote = remote

    def reward(
        self,
        trajectory_id: str,
        raw_reward: Number,
        *,
        components: Mapping[str, Number] | None = None,
        label_hash: str = "",
    ) -> None:
        """Publish the reward of one trajectory. Raises ContractViolation for one that is not finite."""
        self.rewards([Reward(trajectory_id, raw_reward, components or {})], label_hash=label_hash)

    def rewards(self, rewards: Sequence[Reward], *, label_hash: str = "") -> None:
        """Publish rewards that were judged against the same labels, in one record; per-token ones go first.

        `label_hash` is the sha256 of the labels; should it be the labels themselves, they are hashed here.
        """
        rewards = [
            given.a(Reward, reward, "RewardReady", f"rewards.{at}")
            for at, reward in enumerate(given.listed(rewards, "RewardReady", "rewards"))
        ]
        label_hash = self._redaction.label(given.a(str, label_hash, "RewardReady", "label_hash"))
        header = self._header()
        payloads = [
            PayloadBytes(reward.trajectory_id, _token_bytes(index, reward.token_rewards))
            for index, reward in enumerate(rewards)
            if reward.token_rewards is not None
        ]

        def build(refs: tuple[PayloadRef, ...]) -> RewardReady:
            left = iter(refs)
            items = tuple(
                self._item(index, reward, None if reward.token_rewards is None else next(left))
                for index, reward in enumerate(rewards)
            )
            return RewardReady(
                header=header, items=items, reward=self._rule, remote=self._remote, label_hash=label_hash
            )

        self._outbox.publish(build, payloads)

    def failed(self, trajectory_id: str, reason: RewardFailure, *, retriable: bool, text: str = "") -> None:
        """Publish that a reward could not be had: never a reward of 0."""
        text = self._redaction.text(text)
        self._publish(
            RewardFailed(
                header=self._header(),
                trajectory_id=trajectory_id,
                reason=reason,
                retriable=retriable,
                text=text,
            )
        )

    def _item(self, index: int, reward: Reward, payload: PayloadRef | None) -> RewardItem:
        place = Field("RewardReady", f"items.{index}")
        components = []
        for number, (name, value) in enumerate(given.mapped(reward.components, place / "components")):
            with (place / f"components.{number}").built_here():
                components.append(NamedNumber(name=name, value=real(value)))
        with place.built_here():
            return RewardItem(
                trajectory_id=reward.trajectory_id,
                raw_reward=real(reward.raw_reward),
                components=self._redaction.named(components),
                payload=payload,
            )


def _token_bytes(index: int, values: npt.ArrayLike) -> bytes:
    place = Field("RewardReady", f"items.{index}.token_rewards")
    return float32_bytes(finite_reals(place, values))
