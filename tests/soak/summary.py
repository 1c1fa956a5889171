"""What a soak was and what it found: a table for people, JSON for the figures in docs/."""

import json
from collections.abc import Iterable, Mapping
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


def recovery_times(ended: Iterable[Recovery], away: Iterable[tuple[float, float]]) -> dict[str, Times]:
    """By cause. What began or went on while a broker was away is counted apart: nobody can commit then."""
    spans = list(away)
    by_cause: dict[str, list[Recovery]] = {"kill": [], "zombie": [], "broker": [], "leader": []}
    disturbed: dict[str, list[Recovery]] = {"kill": [], "zombie": []}
    for one in ended:
        hit = one.cause in disturbed and any(
            one.began < until + 1 and (one.ended or 0) > since for since, until in spans
        )
        (disturbed if hit else by_cause)[one.cause].append(one)
    apart = {f"{cause} with a broker away": Times.of(ones) for cause, ones in disturbed.items()}
    return {**{cause: Times.of(ones) for cause, ones in by_cause.items()}, **apart}
