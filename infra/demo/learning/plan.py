"""The plan of an update: rewards normalised by group, groups dealt out to optimizer steps and micro-batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.records import FloatArray, TrainingGroup, TrainingRow
from rollbook.schemas.errors import BadInput

STD_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A training row with its place: its group in the step, its micro-batch, its normalised reward."""

    row: TrainingRow
    group_id: str
    group_index: int
    micro_batch: int
    reward: float


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The rows of one optimizer step, in order."""

    rollout_id: int
    step_id: int
    rows: tuple[PlannedRow, ...]


def plan_update(groups: Sequence[TrainingGroup], rollout_id: int, config: DemoConfig) -> tuple[StepPlan, ...]:
    """Deal the groups of one update out to `steps_per_update` steps, as evenly as whole groups allow."""
    if len(groups) < config.steps_per_update:
        raise BadInput(f"{len(groups)} groups cannot fill {config.steps_per_update} steps: claim more before updating")
    for group in groups:
        if len(group.rows) != config.samples_per_prompt:
            raise BadInput(
                f"group {group.group_id} has {len(group.rows)} rows, not {config.samples_per_prompt}: discard it whole"
            )
    return tuple(
        StepPlan(rollout_id, step_id, _rows(part, config))
        for step_id, part in enumerate(_split(groups, config.steps_per_update))
    )


def group_advantages(raw_rewards: Sequence[float]) -> FloatArray:
    """(r - mean) / (std + 1e-6) in float64, then rounded to float32; std with ddof 1: GRPO's advantage, of all members,
    admitted or not."""
    rewards = np.asarray(raw_rewards, dtype=np.float64)
    if len(rewards) < 2:
        raise BadInput("a group of one has no standard deviation: use at least two samples a prompt")
    centred = rewards - rewards.mean()
    normalised: FloatArray = (centred / (rewards.std(ddof=1) + STD_EPSILON)).astype(np.float32)
    return normalised


def _rows(groups: Sequence[TrainingGroup], config: DemoConfig) -> tuple[PlannedRow, ...]:
    micro_batches = min(config.micro_batches_per_step, len(groups))
    rows: list[PlannedRow] = []
    group_index = 0
    for micro_batch, part in enumerate(_split(groups, micro_batches)):
        for group in part:
            advantages = group_advantages([row.raw_reward for row in group.rows])
            for row, advantage in zip(group.rows, advantages, strict=True):
                rows.append(PlannedRow(row, group.group_id, group_index, micro_batch, float(advantage)))
            group_index += 1
    return tuple(rows)


def _split(groups: Sequence[TrainingGroup], parts: int) -> list[Sequence[TrainingGroup]]:
    bounds = [len(groups) * part // parts for part in range(parts + 1)]
    return [groups[start:end] for start, end in pairwise(bounds)]
