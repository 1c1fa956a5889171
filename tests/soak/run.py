"""The soak: real brokers, several processor instances, clients, and a seeded plan of faults; then the check.

    python -m rollbook.tests.soak.run --minutes 25 --seed 1 --nodes 1 --json soak.json

Exit code 0 when nothing was violated and every kind of fault left its trace, 1 otherwise.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.topics import create_topics
from rollbook.tests.soak.check import Findings, check_all
from rollbook.tests.soak.cluster import Brokers
from rollbook.tests.soak.director import Director
from rollbook.tests.soak.fleet import Fleet
from rollbook.tests.soak.follower import Follower
from rollbook.tests.soak.plan import Rates, plan
from rollbook.tests.soak.publisher import Publisher
from rollbook.tests.soak.reader import end_of
from rollbook.tests.soak.stories import make_stories
from rollbook.tests.soak.summary import Summary, recovery_times

DRAIN_S = 300.0
SAY_S = 15.0
FEW_ZOMBIES = 5
"""Of so few none need be fenced: one that was stopped within no transaction leaves by itself."""


@dataclass(frozen=True, slots=True)
class Soak:
    """What is asked for."""

    minutes: float
    seed: int = 1
    nodes: int = 1
    instances: int = 3
    partitions: int = 6
    rate: float = 1_600.0
    """Records a second over all partitions; 0 for as many as the processor takes."""
    backlog: int = 4_000
    """Undecided records of a partition above which the clients wait."""
    session_ms: int = 3_000
    jobs: int = 2
    rates: Rates = field(default_factory=Rates)
    quiet: bool = False

    @property
    def command(self) -> str:
        rates = f"--kills {self.rates.kills:g} --zombies {self.rates.zombies:g} --brokers {self.rates.brokers:g}"
        return (
            f"python -m rollbook.tests.soak.run --minutes {self.minutes:g} --seed {self.seed} --nodes {self.nodes} "
            f"--rate {self.rate:g} {rates} --storms {self.rates.storms:g}"
        )


def soak(asked: Soak, keep_logs: Path | None = None) -> Summary:
    """Run one, from the first broker to the check; leaves nothing behind."""
    folder = Path(tempfile.mkdtemp(prefix="rollbook-soak-logs-"))
    brokers = Brokers(asked.nodes)
    try:
        brokers.start()
        settings = Settings(brokers.bootstrap_servers, "soak.")
        create_topics(settings, asked.partitions)
        return _Running(asked, settings, brokers, folder).through()
    finally:
        brokers.close()
        if keep_logs is not None:
            shutil.copytree(folder, keep_logs, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


class _Running:
    def __init__(self, asked: Soak, settings: Settings, brokers: Brokers, folder: Path) -> None:
        self._asked, self._settings, self._brokers = asked, settings, brokers
        self._follower = Follower(settings, asked.partitions)
        self._fleet = Fleet(settings, asked.session_ms, folder, self._follower)
        names = [f"p{number}" for number in range(asked.instances)]
        self._director = Director(settings, self._fleet, brokers, self._follower, names, asked.seed)
        stories = make_stories(asked.seed, asked.partitions)
        self._publisher = Publisher(settings, self._follower, stories, asked.seed, asked.rate, asked.backlog)
        self._names = names
        self._drained = True
        self._began = time.monotonic()
        if not asked.quiet:
            self._director.every(SAY_S, self._say)

    def through(self) -> Summary:
        for name in self._names:
            self._fleet.spawn(name)
        self._follower.start()
        self._publisher.start()
        began = self._began = time.monotonic()
        try:
            faults = plan(
                self._asked.seed,
                self._asked.minutes,
                self._asked.rates,
                self._asked.nodes,
                self._asked.session_ms / 1000,
            )
            self._director.run(faults, self._asked.minutes * 60)
            seconds = time.monotonic() - began
            decided = self._follower.decided
            self._director.settle()
            self._publisher.close()
            self._drain()
        finally:
            with suppress(RuntimeError):
                self._publisher.close()
            self._fleet.kill_all()
            self._follower.close()
        began = time.monotonic()
        found = check_all(self._settings, self._asked.partitions, self._asked.jobs)
        return self._summary(found, seconds, decided, time.monotonic() - began)

    def _drain(self) -> None:
        """Everything decided, nobody working: what the lease clerk may still have written is decided, too."""
        for _ in range(3):
            deadline = time.monotonic() + DRAIN_S
            while not self._is_drained() and time.monotonic() < deadline:
                for _ in range(25):
                    self._director.turn()
            self._drained = self._is_drained()
            self._fleet.close()
            if not self._drained or self._is_drained():
                return
            self._fleet.spawn(self._names[0])

    def _is_drained(self) -> bool:
        servers, topic = self._settings.bootstrap_servers, self._settings.topic(Topic.LIFECYCLE)
        return all(end_of(servers, topic, at) <= offset for at, offset in self._follower.next.items())

    def _say(self) -> None:
        fleet = self._fleet
        backlog = sum(self._publisher.sent) - self._follower.decided
        print(
            f"{time.monotonic() - self._began:6.0f} s  decided {self._follower.decided}, waiting {backlog}, "
            f"kills {fleet.kills.total()}, zombies {fleet.stops.total()}, fences {fleet.counts['fenced processes']}, "
            f"brokers {dict(self._director.counts)}, violations {len(self._light_violations())}",
            flush=True,
        )

    def _light_violations(self) -> list[str]:
        return [*self._follower.violations, *self._fleet.violations, *self._publisher.failures]

    def _summary(self, found: Findings, seconds: float, decided: int, check_s: float) -> Summary:
        fleet, counts = self._fleet, self._fleet.counts
        violations = [*self._light_violations(), *found.violations]
        if not self._drained:
            violations.append(f"not everything was decided within {DRAIN_S:.0f} s after the last fault")
        sent = sum(self._publisher.sent)
        by_clerk = found.types["LeaseExpired"]
        if not found.violations and found.events != sent + by_clerk:
            violations.append(
                f"{sent} records were acknowledged and {by_clerk} are the clerk's, {found.events} are there"
            )
        traces = {
            "a fence": counts["fenced processes"] or fleet.stops.total() < FEW_ZOMBIES,
            "an aborted transaction": found.aborted,
            "a dead letter": found.dead_letters,
            "a restore": counts["restored"],
            "a kill": fleet.kills.total(),
            "a zombie": fleet.stops.total(),
        }
        return Summary(
            command=self._asked.command,
            seed=self._asked.seed,
            commit=_commit(),
            nodes=self._asked.nodes,
            minutes=self._asked.minutes,
            session_timeout_ms=self._asked.session_ms,
            network_cuts=_network_cuts(),
            events=found.events,
            events_per_s=round(decided / seconds, 1),
            kills=fleet.kills.total(),
            kills_by_point=dict(fleet.kills),
            zombies=fleet.stops.total(),
            zombies_by_point=dict(fleet.stops),
            faults=dict(self._director.counts),
            rebalances=counts["assigned"],
            fences=counts["fenced processes"],
            aborts=counts["aborted"],
            unknown_outcomes=counts["unknown"],
            hidden_decisions=found.aborted,
            restores=counts["restored"],
            dead_letters=found.dead_letters,
            takeovers=counts["takeover"],
            stopped_themselves=dict(fleet.last_words),
            published={"records": sent, **self._publisher.counts},
            outcomes=dict(found.outcomes),
            reservations=found.reservations,
            ledger_rows=found.ledger_rows,
            recovery=recovery_times(self._follower.ended, fleet.hits, self._director.away),
            unfinished_recoveries=self._follower.unfinished,
            check_s=round(check_s, 1),
            missing=tuple(what for what, count in Counter(traces).items() if not count),
            violations=tuple(violations),
        )


def _network_cuts() -> str:
    tools = [tool for tool in ("nft", "toxiproxy-server") if shutil.which(tool)]
    return f"none made ({', '.join(tools)} present)" if tools else "none made (neither nftables nor Toxiproxy here)"


def _commit() -> str:
    root = Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    dirty = " with changes" if git("status", "--porcelain", "--untracked-files=no", "processors", "schemas") else ""
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + dirty


def main() -> None:
    """Run it as asked; table to stdout, figures to a file."""
    usual = Soak(minutes=0)
    parser = argparse.ArgumentParser(description="exactly once, under faults, on real brokers")
    parser.add_argument("--minutes", type=float, required=True, help="how long faults go on")
    parser.add_argument("--seed", type=int, default=1, help="of the plan of faults and of what is published")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="brokers; three keep three copies")
    parser.add_argument("--rate", type=float, default=usual.rate, help="records a second; 0: all that is taken")
    parser.add_argument("--instances", type=int, default=usual.instances, help="processor instances")
    parser.add_argument("--session-timeout-ms", type=int, default=usual.session_ms, help="of the instances")
    parser.add_argument("--kills", type=float, default=usual.rates.kills, help="kills a minute")
    parser.add_argument("--zombies", type=float, default=usual.rates.zombies, help="zombies a minute")
    parser.add_argument("--brokers", type=float, default=usual.rates.brokers, help="broker kills a minute")
    parser.add_argument("--storms", type=float, default=usual.rates.storms, help="rebalance storms a minute")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--logs", type=Path, help="folder to keep the instances' logs in")
    given = parser.parse_args()
    asked = Soak(
        minutes=given.minutes,
        seed=given.seed,
        nodes=given.nodes,
        instances=given.instances,
        rate=given.rate,
        session_ms=given.session_timeout_ms,
        rates=Rates(given.kills, given.zombies, given.brokers, given.storms),
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of the clean-up
    summary = soak(asked, given.logs)
    print(summary.as_table())
    if given.json is not None:
        given.json.write_text(summary.as_json() + "\n", encoding="utf-8")
    sys.exit(0 if summary.passed else 1)


if __name__ == "__main__":
    main()
