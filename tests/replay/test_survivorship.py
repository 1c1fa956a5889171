"""What became of a run's trajectories: every figure is that of a simple recount, over recorded histories, random runs
and a story that is counted by hand."""

import statistics
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollbook.processors.ledger.fold import SourceRecord
from rollbook.replay.audit.audit import stretch_of
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import StoredRecord
from rollbook.replay.survivorship.fates import Fate, Part
from rollbook.replay.survivorship.result import SurvivorshipReport
from rollbook.replay.survivorship.survey import survey
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof import walks
from rollbook.tests.recount import Codec, Record, figures
from rollbook.tests.replay.memory_log import MemoryLog
from rollbook.tests.replay.recorded_histories import Recorded, recorded
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS
from rollbook.tests.replay.survivorship_recount import Counted, recount

NAMES = ("walk-gate", "walk-observe", "trl-gate", "trl-observe", "trl-asynchronous", "trl-resumed", "demo")
DEEP = st.integers(0, 2**32).map(walks.deep)


def sources(found: Recorded) -> list[SourceRecord]:
    within = found.log.bounds(LIFECYCLE, found.stretch.partition)
    stored = found.log.read(LIFECYCLE, found.stretch.partition, within.first, within.end)
    return [SourceRecord(one.partition, one.offset, one.key, one.value) for one in stored]


def fates(report: SurvivorshipReport) -> dict[str, int]:
    return {fate.value: count for fate, count in report.total.fates}


def without_staleness(counts: dict[str, int]) -> dict[str, int]:
    """The recount knows no lags."""
    found = Counter(counts)
    found["waiting"] += found.pop("waiting_stale", 0)
    return {name: count for name, count in found.items() if count}


def check(report: SurvivorshipReport, counted: Counted) -> None:
    assert without_staleness(fates(report)) == counted.fates()
    assert report.total.trajectories == len(counted.names)
    assert sum(one.count for one in report.causes if one.fate is Fate.DISCARDED) == fates(report).get("discarded", 0)
    check_slices(report, counted)
    check_rewards(report, counted)
    reached = report.reached
    assert reached.dispatched == len(counted.dispatched)
    assert reached.generated == len(counted.lengths)
    assert reached.rewarded == len(counted.rewards)
    assert reached.admitted == len(counted.admitted)
    assert reached.reserved == sum(
        {"reserved", "consumed"} & set(states) != set() for states in counted.states.values()
    )
    assert reached.trained == sum("consumed" in states for states in counted.states.values())


def check_slices(report: SurvivorshipReport, counted: Counted) -> None:
    by_version: dict[int, list[str]] = defaultdict(list)
    for name in counted.names:
        by_version[counted.versions[name]].append(name)
    assert {one.version: without_staleness(dict(_named(one.became.fates))) for one in report.versions} == {
        version: counted.fates(names) for version, names in by_version.items()
    }
    lengths = [counted.lengths.get(name) for name in counted.names]
    for of in report.lengths:
        within = [
            one for one in lengths if one is not None and of.first is not None and of.first <= one <= (of.last or 0)
        ]
        assert of.became.trajectories == (lengths.count(None) if of.first is None else len(within))
    told = {one.task_id: one.became.trajectories for one in report.tasks if one.task_id is not None}
    for task_id, many in Counter(counted.tasks[name] for name in counted.names if name in counted.tasks).items():
        assert told[task_id] >= many, "failures are counted with their group's task"
    assert sum(one.became.trajectories for one in report.tasks) == report.total.trajectories


def check_rewards(report: SurvivorshipReport, counted: Counted) -> None:
    parts = counted.parts()
    for found in report.rewards:
        values = parts.get(found.part.value, [])
        assert found.count == len(values)
        assert sum(found.bins) == len(values)
        if values:
            assert found.mean == pytest.approx(statistics.fmean(values))
            assert found.deviation == pytest.approx(statistics.pstdev(values), abs=1e-9)
            assert (found.minimum, found.maximum) == (values[0], values[-1])
            assert found.quartiles == pytest.approx(np.quantile(values, (0.25, 0.5, 0.75)).tolist())
            if len(report.edges) > 2:
                assert list(found.bins) == np.histogram(values, np.array(report.edges))[0].tolist()


def _named(counts: tuple[tuple[Fate, int], ...]) -> dict[str, int]:
    return {fate.value: count for fate, count in counts}


@pytest.mark.parametrize("name", NAMES)
def test_over_recorded_histories_every_figure_is_the_recounts(name: str) -> None:
    found = recorded(name)
    report = survey(found.log, found.stretch)
    check(report, recount(report.run_id, sources(found), found.log.partitions(LIFECYCLE)))


def walked(log: Log) -> MemoryLog:
    """A random run as a log with its decisions."""
    found = MemoryLog()
    for record, decided in zip(log.records, log.folded, strict=True):
        found.append(LIFECYCLE, 0, record.key or b"", record.value or b"")
        found.append(DECISIONS, 0, decided.decision.run_id.encode(), decided.encoded)
    return found


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(DEEP)
def test_over_random_runs_every_figure_is_the_recounts(rolls: list[bytes]) -> None:
    """But for the end of a run, behind which there is nothing to look at."""
    log = Log()
    walks.run(log, rolls)
    ended = next((at for at, one in enumerate(log.folded) if one.decision.record_type == "RunClosed"), len(log.folded))
    log.records, log.folded = log.records[:ended], log.folded[:ended]
    memory = walked(log)
    report = survey(memory, stretch_of(memory, SETTINGS, OffsetRange(LIFECYCLE, 0), "r"))
    check(report, recount("r", log.records, 1))


def test_of_the_demo_it_says_what_the_independent_recount_of_its_topics_says() -> None:
    """Which imports nothing of rollbook."""
    found = recorded("demo")
    report = survey(found.log, found.stretch)
    lifecycle, decisions = (
        [Record(one.partition, one.offset, one.key or b"", one.value) for one in _all(found, topic)]
        for topic in (LIFECYCLE, DECISIONS)
    )
    said = figures(report.run_id, lifecycle, decisions, Codec())
    count = report.total.count
    states: dict[str, Any] = said["trajectories"]
    assert count(Fate.CONSUMED) == states["consumed"]
    assert count(Fate.DISCARDED) == states["discarded"]
    assert count(Fate.GENERATION_FAILED) == states["generation_failed"]
    assert count(Fate.REFUSED_DRIFT, Fate.REFUSED_OTHER, Fate.QUARANTINED) == states["quarantined"]
    left = count(Fate.WAITING, Fate.WAITING_STALE, Fate.REFUSED_STALE, Fate.EXPIRED, Fate.EVALUATION)
    assert left == states["rewarded"] + states["offline"]
    assert count(Fate.ROLLED_BACK) == states["forgotten"], "rolled back, but forgotten"
    assert report.total.trajectories == sum(states.values())
    means = {str(one.version): one.became.mean_reward for one in report.versions if one.became.rewarded}
    assert {version: round(mean or 0.0, 6) for version, mean in means.items()} == said["reward_by_version"]
    failures = {f"GenerationFailed {one.why}": one.count for one in report.causes if one.fate is Fate.GENERATION_FAILED}
    assert failures == {name: many for name, many in said["failures"].items() if name.startswith("Generation")}
    assert report.of(Part.EVALUATION).count == count(Fate.EVALUATION)


def _all(found: Recorded, topic: str) -> list[StoredRecord]:
    within = found.log.bounds(topic, found.stretch.partition)
    return list(found.log.read(topic, found.stretch.partition, within.first, within.end))
