"""The demo's asynchrony in one process and without Kafka: deterministic per seed, to tune and test the constants."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.learner import Learner
from rollbook.infra.demo.learning.model import TinyTransformer
from rollbook.infra.demo.learning.plan import plan_update
from rollbook.infra.demo.learning.records import StepRecord, TrainingGroup, TrainingRow
from rollbook.infra.demo.learning.rollout import sample_group
from rollbook.infra.demo.learning.schedule import Episode, episodes_started_at
from rollbook.infra.demo.learning.task import Prompt, eval_prompts, reward_of, train_prompt
from rollbook.infra.demo.learning.warmup import initial_policy
from rollbook.processors import assess_policy_compatibility
from rollbook.processors.rules import Assessment


@dataclass(frozen=True, slots=True)
class Judged:
    """A trajectory at the gates of one update, and what the ledger's rule says of it."""

    trajectory_id: str
    lag: int
    assessment: Assessment


@dataclass(frozen=True, slots=True)
class SimulatedUpdate:
    """One update: who came to the gates, the optimizer steps, and how long both took."""

    judged: tuple[Judged, ...]
    steps: tuple[StepRecord, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """A whole run."""

    eval_before: float
    eval_after: float
    updates: tuple[SimulatedUpdate, ...]

    @property
    def judged(self) -> tuple[Judged, ...]:
        return tuple(judged for update in self.updates for judged in update.judged)

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        return tuple(step for update in self.updates for step in update.steps)


@dataclass(frozen=True, slots=True)
class _Generated:
    """A group and the episode that it came from."""

    episode: Episode
    group: TrainingGroup


def simulate(config: DemoConfig) -> SimulationResult:
    """The training loop: workers generate by schedule, the learner takes the oldest groups within the lag limit."""
    learner = Learner(initial_policy(config), config)
    before = evaluate(learner.model, config)
    in_flight: list[_Generated] = []
    backlog: list[_Generated] = []
    updates: list[SimulatedUpdate] = []
    for version in range(config.updates):
        in_flight += [
            _Generated(episode, generate_group(learner.model, train_prompt(config, episode.row), config))
            for episode in episodes_started_at(config, version)
        ]
        backlog += [generated for generated in in_flight if generated.episode.due_version == version]
        in_flight = [generated for generated in in_flight if generated.episode.due_version > version]
        update, backlog = _update(learner, backlog, version, config)
        updates.append(update)
    return SimulationResult(before, evaluate(learner.model, config), tuple(updates))


def generate_group(model: TinyTransformer, prompt: Prompt, config: DemoConfig) -> TrainingGroup:
    """Sample and score one group."""
    rows = [
        TrainingRow(
            trajectory_id=f"{prompt.task_id}/{index}",
            prompt_ids=prompt.ids,
            response_ids=response.ids,
            behavior_log_probs=response.log_probs,
            raw_reward=reward_of(prompt, response.ids),
        )
        for index, response in enumerate(sample_group(model, prompt, config))
    ]
    return TrainingGroup(group_id=prompt.task_id, rows=tuple(rows))


def evaluate(model: TinyTransformer, config: DemoConfig) -> float:
    """Mean reward over the evaluation prompts, sampled as in training."""
    groups = [generate_group(model, prompt, config) for prompt in eval_prompts(config)]
    return float(np.mean([row.raw_reward for group in groups for row in group.rows]))


def _update(
    learner: Learner, backlog: Iterable[_Generated], version: int, config: DemoConfig
) -> tuple[SimulatedUpdate, list[_Generated]]:
    """One update over the oldest groups that are not stale, and the groups that are left for the next."""
    started = time.perf_counter()
    judged: list[Judged] = []
    taken: list[TrainingGroup] = []
    left: list[_Generated] = []
    for generated in backlog:
        stale = version - generated.episode.start_version > config.max_lag
        if not stale and len(taken) == config.groups_per_update:
            left.append(generated)
            continue
        verdicts = _judge(learner, generated, version, config)
        judged += verdicts
        if not stale:
            rows = zip(generated.group.rows, verdicts, strict=True)
            admitted = tuple(replace(row, admitted=verdict.assessment["accepted"]) for row, verdict in rows)
            taken.append(replace(generated.group, rows=admitted))
    steps = tuple(learner.step(plan) for plan in plan_update(taken, rollout_id=version, config=config))
    return SimulatedUpdate(tuple(judged), steps, time.perf_counter() - started), left


def _judge(learner: Learner, generated: _Generated, version: int, config: DemoConfig) -> list[Judged]:
    rows, behavior_version = generated.group.rows, generated.episode.start_version
    return [
        Judged(
            trajectory_id=row.trajectory_id,
            lag=version - behavior_version,
            assessment=assess_policy_compatibility(
                old_log_probs=row.behavior_log_probs.tolist(),
                current_log_probs=current.tolist(),
                action_mask=[True] * len(row.response_ids),
                behavior_version=behavior_version,
                current_version=version,
                max_lag=config.max_lag,
                max_mean_abs_log_ratio=config.max_mean_abs_log_ratio,
            ),
        )
        for row, current in zip(rows, learner.current_log_probs(rows), strict=True)
    ]
