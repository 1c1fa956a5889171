"""A small run on the real broker through the real clients: two workers, two updates of two optimizer steps, one row
refused for drift, every step recorded."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import LoadedTrajectory, RolloutWorker, RowArrays, StepArrays, Trainer, Update
from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.payload import Cohort, CohortMember, Kernel, OldSource
from rollbook.tests.producers.world import PATIENT, POLICY, World
from rollbook.tests.replay.numbers import CONFIG, TrainedRow, step_numbers

DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run, its updates, the trajectory that was refused, and where in the log the last update's Commit lies."""

    run_id: str
    updates: tuple[str, ...]
    refused: str
    partition: int
    last_commit: int


def _group(world: World, first_seed: int) -> None:
    world.group(first_seed=first_seed)


def train(world: World, group: Callable[[World, int], object] = _group) -> TrainedRun:
    """Two updates of two groups each; the second group of the last loses a member to drift. `group` publishes the one
    that begins with a seed."""
    with RolloutWorker(world.settings, world.run_id, "worker-1") as second:
        for seed, worker in ((0, world.worker), (2, second), (4, world.worker), (6, second)):
            group(replace(world, worker=worker), seed)
    updates = []
    refused, last_commit = "", 0
    with Trainer(world.settings, world.run_id, "learner-0", options=PATIENT) as trainer:
        trainer.start()
        for rollout_id in range(2):
            with trainer.update(rollout_id) as update:
                update.claim(POLICY, max_groups=2, wait_s=DEADLINE_S)
                loaded = update.load()
                refused = loaded[-1].trajectory_id if rollout_id else ""
                near = {
                    one.trajectory_id: one.log_probs - (0.9 if one.trajectory_id == refused else 0.01) for one in loaded
                }
                update.admit(near, POLICY)
                update.start()
                for group_id in dict.fromkeys(one.group_id for one in loaded):
                    _step(update, [one for one in loaded if one.group_id == group_id])
                last_commit = update.commit().source.offset
            updates.append(update.update_id)
    partition = partition_of(world.run_id, _partitions(world.settings))
    await_decided(world.settings, partition)
    return TrainedRun(world.run_id, tuple(updates), refused, partition, last_commit)


def _step(update: Update, group: list[LoadedTrajectory]) -> None:
    rows = [
        TrainedRow(
            one.trajectory_id,
            one.group_id,
            one.raw_reward,
            one.action_mask & np.bool_(one.trajectory_id in update.admitted),
            one.log_probs,
        )
        for one in group
    ]
    step_id = update.step([row.trajectory_id for row in rows if row.loss_mask.any()])
    numbers = step_numbers(rows, seed=step_id)
    members = tuple(CohortMember(trajectory_id=row.trajectory_id, raw_reward=row.raw_reward) for row in rows)
    update.record_step(
        step_id,
        StepArrays(
            consumer_batch_id="batch-0",
            policy=POLICY,
            config=CONFIG,
            cohorts=[Cohort(cohort_id=rows[0].group_id, group_id=rows[0].group_id, members=members)],
            rows=[
                RowArrays(row.trajectory_id, row.group_id, "mb-0000", 3, row.loss_mask, numbers.rewards[index])
                for index, row in enumerate(rows)
            ],
            arrays=numbers.arrays,
            old_source=OldSource.ROLLOUT,
            results=numbers.results,
            row_terms=numbers.row_terms,
            kernel=Kernel(implementation="numpy", package="tests", version="1", function="step_numbers"),
        ),
    )


def await_decided(settings: Settings, partition: int) -> None:
    """Wait until the last lifecycle record there is has its decision."""
    end = time.monotonic() + DEADLINE_S
    with KafkaLog(settings) as log:
        last = log.bounds(settings.topic(Topic.LIFECYCLE), partition).end - 1
        while time.monotonic() < end:
            decided = next(DecisionLog(log, settings.topic(Topic.DECISIONS), partition).of([last]), None)
            if decided is not None:
                return
            time.sleep(0.05)
    raise AssertionError(f"lifecycle:{partition}@{last} was not decided in time")


def _partitions(settings: Settings) -> int:
    with KafkaLog(settings) as log:
        return log.partitions(settings.topic(Topic.LIFECYCLE))
