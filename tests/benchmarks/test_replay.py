"""Replay's benchmark measures what it says: bundles that pass, every task on the same payloads."""

from pathlib import Path

from rollbook.tests.benchmarks.replay import TASKS, measure, report


def test_every_task_is_measured_against_the_same_payloads(tmp_path: Path) -> None:
    figures = measure(tmp_path, samples=16, rounds=1, length=64)
    assert [one.task for one in figures] == list(TASKS)
    assert {one.tokens for one in figures} == {16 * 64}
    assert {one.payload_bytes for one in figures} == {
        sum(file.stat().st_size for file in (tmp_path / "step-16" / "payloads").iterdir())
    }
    load, *others = figures
    assert load.times_baseline == 1.0
    assert all(one.times_baseline == one.seconds / load.seconds > 0 for one in others)
    assert len(report(figures)) == 1 + len(figures)
