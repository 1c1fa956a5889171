"""The schedule: every lag is planned, and no episode is forgotten or started twice."""

from collections import Counter
from dataclasses import replace

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.schedule import episodes_due_at, episodes_started_at

CONFIG = DemoConfig()


def test_what_starts_is_what_becomes_due() -> None:
    started = [episode for version in range(CONFIG.updates) for episode in episodes_started_at(CONFIG, version)]
    due = [episode for version in range(CONFIG.updates) for episode in episodes_due_at(CONFIG, version)]
    assert Counter(started) == Counter(due)
    assert len({episode.row for episode in due}) == len(due)


def test_an_episode_starts_with_the_policy_that_its_latency_says() -> None:
    lags = Counter(version - episode.start_version for version in (5,) for episode in episodes_due_at(CONFIG, version))
    assert lags == Counter(CONFIG.latencies)
    assert {episode.start_version for episode in episodes_due_at(CONFIG, 0)} == {0}


def test_every_wave_feeds_its_update() -> None:
    """Also when the groups that end stale are not counted; the first wave has some to spare."""
    for version in range(CONFIG.updates):
        usable = [e for e in episodes_due_at(CONFIG, version) if version - e.start_version <= CONFIG.max_lag]
        assert len(usable) == CONFIG.groups_per_update + (3 if version == 0 else 0)


def test_no_episode_outlives_the_run() -> None:
    short = replace(CONFIG, updates=2)
    assert {episode.due_version for episode in episodes_started_at(short, 0)} == {0, 1}
