"""What the dashboard stands, on a real broker and, with --browsers, in real headless browsers:

    python -m rollbook.tests.benchmarks.dashboard --records 300000 --load-s 60 --browsers 2

How fast it catches up with a log and what memory it takes (the process alone, as its user starts it), and at a load of
2,500 decisions a second how long it takes from the commit to the page. Decisions are those of a long run (long_run.py),
folded before: it is the dashboard that is measured, and not the processor. Times are of a machine that does other
things too: compare figures of one run with each other only.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from confluent_kafka import Producer

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings, Topic
from rollbook.processors.freshness import snapshot
from rollbook.schemas.codec import encode
from rollbook.schemas.records.decision import Decision
from rollbook.tests.benchmarks.long_run import LongRun, Unkept
from rollbook.tests.session_broker import own_topics

RUN = "long-run"
WAIT_S = 600.0
A_BATCH = 500
"""Decisions in a transaction, with one snapshot, as the processor writes them where there is much to do."""
CHROMIUM = "/usr/bin/chromium"


@dataclass(frozen=True, slots=True)
class CatchUp:
    """From the start of the process, without what it takes until it reads; memory is its peak."""

    records: int
    seconds: float
    records_per_s: float
    plain_read_seconds: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Load:
    """From the commit of a transaction until a page shows it."""

    rate_per_s: float
    seconds: float
    browsers: int
    p50_ms: float
    p99_ms: float
    most_ms: float
    first_mib: float
    last_mib: float
    cpu_share: float
    """Of one core, the dashboard's process alone."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory while the log grows, a page of its run open in no browser."""

    records: tuple[int, ...]
    mib: tuple[float, ...]


class Written:
    """Decisions of a run as long as is asked for, in batches, each with the snapshot after it."""

    def __init__(self) -> None:
        self._log = Told()
        self._run = LongRun(self._log, run=RUN, single=True)
        self._versions = self._run.versions(10**9)

    def batches(self) -> Iterator[tuple[list[bytes], bytes]]:
        kept: list[bytes] = []
        while True:
            next(self._versions)
            kept += self._log.take()
            while len(kept) >= A_BATCH:
                yield kept[:A_BATCH], encode(snapshot(self._run.history.run))
                kept = kept[A_BATCH:]


class Told(Unkept):
    """A log that keeps decisions until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bytes] = []

    def append(self, key: bytes | None, value: bytes | None) -> Decision:
        """Fold a record."""
        decision = super().append(key, value)
        self.told.append(self.folded[-1].encoded)
        return decision

    def take(self) -> list[bytes]:
        """The decisions since the last time."""
        found, self.told = self.told, []
        return found


class Writer:
    """Writes them as the processor does, in transactions."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        config = {
            "transactional.id": "benchmark",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
        self._producer = Producer(settings.client(config))
        self._producer.init_transactions(30)

    def write(self, decisions: list[bytes], found: bytes, time_ms: int) -> None:
        """One transaction."""
        self._producer.begin_transaction()
        for value in decisions:
            self._producer.produce(self._settings.topic(Topic.DECISIONS), value, RUN.encode(), 0, timestamp=time_ms)
        self._producer.produce(self._settings.topic(Topic.FRESHNESS), found, RUN.encode(), 0)
        self._producer.commit_transaction(30)


@contextmanager
def dashboard(settings: Settings) -> Iterator[tuple[int, str]]:
    """A process of its own: its pid and address."""
    env = {
        **os.environ,
        "ROLLBOOK_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "ROLLBOOK_TOPIC_PREFIX": settings.topic_prefix,
    }
    command = [sys.executable, "-m", "rollbook.infra.cli", "dashboard", "--quiet", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield process.pid, process.stderr.readline().split()[0]
    finally:
        process.terminate()
        process.wait(20)


def status(address: str) -> dict[str, Any]:
    with urlopen(f"{address}api/status", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def mib(pid: int, line: str = "VmRSS") -> float:
    """Of resident memory; VmHWM is its peak."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(one.split()[1]) for one in text.splitlines() if one.startswith(line)) / 1024


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fill(settings: Settings, records: int) -> int:
    """Write so many decisions, as of 2,500 a second until now; answers how many records with their snapshots."""
    writer, written, began_ms = Writer(settings), 0, int(time.time() * 1000) - records * 1000 // 2500
    for decisions, found in Written().batches():
        writer.write(decisions, found, began_ms + written * 1000 // 2500)
        written += len(decisions)
        if written >= records:
            return written + written // A_BATCH
    raise AssertionError("a run has no end")


def catch_up(settings: Settings, records: int) -> CatchUp:
    """Start it, and wait until it has everything."""
    from rollbook.replay.history.kafka import KafkaLog

    began = time.monotonic()
    with KafkaLog(settings) as log:
        for topic in (Topic.DECISIONS, Topic.FRESHNESS):
            bounds = log.bounds(settings.topic(topic), 0)
            sum(1 for _ in log.read(settings.topic(topic), 0, bounds.first, bounds.end))
    plain = time.monotonic() - began
    with dashboard(settings) as (pid, address):
        while not (first := status(address)["records"]):
            time.sleep(0.005)
        began = time.monotonic()
        while status(address)["records"] < records:
            assert time.monotonic() - began < WAIT_S
            time.sleep(0.05)
        seconds = time.monotonic() - began
        return CatchUp(records, seconds, (records - first) / seconds, plain, mib(pid, "VmHWM"))


def growth(settings: Settings, records: int, looks: int = 10) -> Growth:
    """Write so many while it reads."""
    writer, written, began_ms = Writer(settings), 0, int(time.time() * 1000)
    at: list[int] = []
    found: list[float] = []
    with dashboard(settings) as (pid, address):
        for decisions, last in Written().batches():
            writer.write(decisions, last, began_ms + written * 1000 // 2500)
            written += len(decisions)
            if written >= records * (len(at) + 1) // looks:
                while status(address)["records"] < written + written // A_BATCH:
                    time.sleep(0.1)
                at.append(written)
                found.append(mib(pid))
                if len(at) == looks:
                    return Growth(tuple(at), tuple(found))
    raise AssertionError("a run has no end")


def load(settings: Settings, rate: int, seconds: float, browsers: int) -> Load:
    """Write at a rate, and ask each page what it shows."""
    written, sent = 0, Written().batches()
    ready = [next(sent) for _ in range(int(rate * seconds / A_BATCH) + 4)]
    writer = Writer(settings)
    with ExitStack() as open_:
        pid, address = open_.enter_context(dashboard(settings))
        writer.write(*ready[0], int(time.time() * 1000))
        written += A_BATCH
        pages = [open_.enter_context(browser(f"{address}#run={RUN}&size=1s")) for _ in range(browsers)]
        for page in pages:
            page.wait_for_function(f"() => ({SHOWN}) >= {written}", timeout=60_000)
        first_mib, first_cpu, began = mib(pid), cpu_s(pid), time.monotonic()
        took: list[float] = []
        waiting: list[tuple[int, float, int]] = []
        for at, (decisions, found) in enumerate(ready[1:]):
            due = began + at * A_BATCH / rate
            while time.monotonic() < due:
                look(pages, waiting, took)
                time.sleep(0.01)
            writer.write(decisions, found, int(time.time() * 1000))
            written += len(decisions)
            waiting += [(written, time.monotonic(), one) for one in range(browsers)]
        while waiting and time.monotonic() - began < seconds + 60:
            look(pages, waiting, took)
        elapsed = time.monotonic() - began
        assert not waiting, "a page never showed what was committed"
        took.sort()
        return Load(
            (written - A_BATCH) / elapsed,
            elapsed,
            browsers,
            took[len(took) // 2] * 1000,
            took[len(took) * 99 // 100] * 1000,
            took[-1] * 1000,
            first_mib,
            mib(pid),
            (cpu_s(pid) - first_cpu) / elapsed,
        )


SHOWN = "Number(document.querySelector('[data-figure=decisions]')?.dataset.value ?? 0)"


def look(pages: list[Any], waiting: list[tuple[int, float, int]], took: list[float]) -> None:
    """Take down what the pages show by now."""
    shown = [page.evaluate(SHOWN) for page in pages]
    now = time.monotonic()
    took += [now - since for wanted, since, at in waiting if shown[at] >= wanted]
    waiting[:] = [one for one in waiting if shown[one[2]] < one[0]]


@contextmanager
def browser(address: str) -> Iterator[Any]:
    """A page in a browser of its own."""
    from playwright.sync_api import sync_playwright

    global _playwright
    if _playwright is None:
        _playwright = sync_playwright().start()
    chromium = _playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
    try:
        page = chromium.new_page()
        page.goto(address)
        yield page
    finally:
        chromium.close()


_playwright: Any = None


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description="what the dashboard stands")
    parser.add_argument("--records", type=int, default=300_000, help="decisions of the log that it catches up with")
    parser.add_argument("--growth", type=int, default=0, help="decisions that are written while it reads; 0: none")
    parser.add_argument("--rate", type=int, default=2_500, help="decisions a second of the load")
    parser.add_argument("--load-s", type=float, default=60.0, help="how long; 0: no load")
    parser.add_argument("--browsers", type=int, default=2, help="pages that are open meanwhile")
    asked = parser.parse_args()
    with EmbeddedBroker() as broker:
        if asked.records:
            with own_topics(broker.bootstrap_servers, 1) as settings:
                print(json.dumps(asdict(catch_up(settings, fill(settings, asked.records)))))
        if asked.growth:
            with own_topics(broker.bootstrap_servers, 1) as settings:
                print(json.dumps(asdict(growth(settings, asked.growth))))
        if asked.load_s:
            with own_topics(broker.bootstrap_servers, 1) as settings:
                print(json.dumps(asdict(load(settings, asked.rate, asked.load_s, asked.browsers))))


if __name__ == "__main__":
    main()
