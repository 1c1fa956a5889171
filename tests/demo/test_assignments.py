"""Who answers which prompt: all of the schedule, each once, whatever a worker missed."""

from collections import Counter

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.schedule import episodes_due_at
from rollbook.infra.demo.processes.assignments import assignments_until
from rollbook.infra.demo.processes.faults import planned_faults
from rollbook.schemas.records.rollout import Purpose

CONFIG = DemoConfig()


def keys(version: int, worker: int) -> list[str]:
    return [assignment.key for assignment in assignments_until(CONFIG, version, worker, 2)]


def test_the_workers_share_all_there_is_and_nothing_twice() -> None:
    whole = Counter(keys(CONFIG.updates, 0) + keys(CONFIG.updates, 1))
    groups = sum(len(episodes_due_at(CONFIG, version)) for version in range(CONFIG.updates))
    assert set(whole.values()) == {1}
    assert len(whole) == groups + 2 * CONFIG.eval_prompts


def test_a_worker_that_was_away_finds_what_it_missed() -> None:
    assert keys(3, 1)[: len(keys(2, 1))] == keys(2, 1)
    assert len(keys(3, 1)) > len(keys(2, 1))


def test_the_initial_and_the_final_policy_are_evaluated() -> None:
    due = {a.due_version for a in assignments_until(CONFIG, CONFIG.updates, 0, 2) if a.purpose is Purpose.EVAL}
    assert due == {0, CONFIG.updates}


def test_the_planned_failures_concern_groups_that_are_generated() -> None:
    faults = planned_faults(CONFIG)
    rows = {episode.row for version in range(CONFIG.updates) for episode in episodes_due_at(CONFIG, version)}
    assert {faults.failed_generation_row, faults.failed_reward_row} <= rows
    assert faults.generation_fails(faults.failed_generation_row, 0, faults.sample_index)
    assert not faults.generation_fails(faults.failed_generation_row, 1, faults.sample_index)
    assert 0 < faults.lost_at_version < CONFIG.updates


def test_the_trainer_is_killed_after_updates_that_no_checkpoint_holds() -> None:
    made = planned_faults(CONFIG).crash_after_update
    assert made % CONFIG.checkpoint_every == 2
    assert CONFIG.checkpoint_every < made < CONFIG.updates
