"""Which episodes start with which policy, and when they end: the demo's asynchrony, measured in policy versions.

Real episodes differ in length, so fast ones train fresh and slow ones late. Here the length is scheduled in activations
and not left to the clock: an episode starts with policy `start_version` and is published when `due_version` is active.
Versions are counted along the policies that stand: after a roll-back, those that were undone do not count.
"""

from dataclasses import dataclass

from rollbook.infra.demo.config import DemoConfig


@dataclass(frozen=True, slots=True)
class Episode:
    """One group's generation: the row of its prompt, the policy it starts with, the activation at which it ends."""

    row: int
    start_version: int
    due_version: int


def episodes_due_at(config: DemoConfig, version: int) -> tuple[Episode, ...]:
    """The training episodes that end when `version` is active: the wave that the next update trains on."""
    first_row = version * len(config.latencies)
    return tuple(
        Episode(row=first_row + place, start_version=max(0, version - latency), due_version=version)
        for place, latency in enumerate(config.latencies)
        # No policy is old enough yet for the ones that are to end stale, so they would only pile up. The first wave
        # keeps them: they are the surplus that makes up for groups lost to failures.
        if version == 0 or latency <= max(version, config.max_lag)
    )


def episodes_started_at(config: DemoConfig, version: int) -> tuple[Episode, ...]:
    """The training episodes that start when `version` is active, shortest first; none ends after the last update."""
    last = min(version + max(config.latencies), config.updates - 1)
    waves = (episodes_due_at(config, due) for due in range(version, last + 1))
    return tuple(episode for wave in waves for episode in wave if episode.start_version == version)
