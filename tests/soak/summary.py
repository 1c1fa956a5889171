"""What a soak was and what it found: a table for people, JSON for the figures in docs/."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from rollbook.tests.soak.follower import Recovery


@dataclass(frozen=True, slots=True)
class Times:
    """Recoveries of one cause, in seconds."""

    count: int
    p50_s: float
    p99_s: float
    max_s: float

    @staticmethod
    def of(recoveries: Iterable[Recovery]) -> "Times":
        seconds = sorted(one.seconds for one in recoveries)
        count = len(seconds)
        if not count:
            return Times(0, 0.0, 0.0, 0.0)
        p50, p99 = (seconds[min(count - 1, int(count * q))] for q in (0.5, 0.99))
        return Times(count, round(p50, 2), round(p99, 2), round(seconds[-1], 2))


@dataclass(frozen=True, slots=True)
class Summary:
    """All figures of a soak."""

    command: str
    seed: int
    commit: str
    nodes: int
    minutes: float
    session_timeout_ms: int
    network_cuts: str
    events: int
    events_per_s: float
    kills: int
    kills_by_point: Mapping[str, int]
    zombies: int
    zombies_by_point: Mapping[str, int]
    faults: Mapping[str, int]
    rebalances: int
    fences: int
    aborts: int
    unknown_outcomes: int
    hidden_decisions: int
    restores: int
    dead_letters: int
    takeovers: int
    stopped_themselves: Mapping[str, int]
    published: Mapping[str, int]
    outcomes: Mapping[str, int]
    reservations: int
    ledger_rows: int
    recovery: Mapping[str, Times]
    unfinished_recoveries: int
    check_s: float
    missing: tuple[str, ...]
    """What must have happened at least once for the soak to say anything, and did not."""
    violations: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        return not self.violations and not self.missing

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "violation_count": len(self.violations), "passed": self.passed}, indent=2)

    def as_table(self) -> str:
        """One figure a line."""
        plain = ("events", "events_per_s", "kills", "zombies", "rebalances", "fences", "aborts", "unknown_outcomes")
        more = ("hidden_decisions", "restores", "takeovers", "dead_letters", "reservations", "ledger_rows", "check_s")
        lines = [f"{self.command}", f"commit {self.commit}, network cuts: {self.network_cuts}", ""]
        lines += [f"{name.replace('_', ' '):<24}{getattr(self, name)}" for name in (*plain, *more)]
        groups = {
            "kills at": self.kills_by_point,
            "zombies at": self.zombies_by_point,
            "faults": self.faults,
            "published": self.published,
            "outcomes": self.outcomes,
            "stopped themselves": self.stopped_themselves,
        }
        for title, counts in groups.items():
            lines += [f"{title:<24}" + (", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "-")]
        for cause, times in self.recovery.items():
            told = f"p50 {times.p50_s} s, p99 {times.p99_s} s, longest {times.max_s} s, of {times.count}"
            lines += [f"{'recovery, ' + cause:<36}{told if times.count else '-'}"]
        lines += [f"{'recoveries unfinished':<24}{self.unfinished_recoveries}"]
        lines += [f"{'violations':<24}{len(self.violations)}", *(f"  VIOLATION {one}" for one in self.violations)]
        lines += [f"  MISSING   {one}" for one in self.missing]
        return "\n".join((*lines, "passed" if self.passed else "FAILED"))


ALONE_S = 1.0
"""A fault that close before another one is not over when that one comes."""


def recovery_times(
    ended: Iterable[Recovery], hits: Sequence[float], away: Iterable[tuple[float, float]]
) -> dict[str, Times]:
    """By cause. Where another process was hit, or a broker was away, before the partition had recovered, that is
    counted apart: it says how long faults add up, and not how long one takes."""
    spans = list(away)
    causes = ("kill", "zombie", "broker", "leader")
    kinds: dict[str, list[Recovery]] = {
        cause: [] for cause in (*causes, *(f"{one}, others meanwhile" for one in causes))
    }
    for one in ended:
        until = one.ended or one.began
        others = any(one.began - ALONE_S < hit < until and hit != one.began for hit in hits)
        broker = one.cause in ("kill", "zombie") and any(
            one.began < back + ALONE_S and until > gone for gone, back in spans
        )
        kinds[f"{one.cause}, others meanwhile" if others or broker else one.cause].append(one)
    return {kind: Times.of(ones) for kind, ones in kinds.items()}
