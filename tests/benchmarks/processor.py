"""What the processor reaches on a real broker, beside a bare loop in the same run:

    python -m rollbook.tests.benchmarks.processor --versions 60 --live 100000 --json figures.json

Records a second through one partition with decisions and ledger written; from command to decision at 1, 100 and 1,000
records a second; the restore of many live trajectories, and what each of them weighs. Times are of a machine that does
other things too: compare figures of one run with each other only.
"""

import argparse
import json
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host.clients import group_consumer, transactional_producer
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.kafka import Cluster
from rollbook.processors.host.loop import Host
from rollbook.processors.host.restore import Opening
from rollbook.processors.host.transaction import Transactions
from rollbook.processors.ledger.fold import SourceRecord
from rollbook.processors.ledger.keys import key_of, position_key
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.schemas.codec import encode
from rollbook.schemas.records.ledger import Position, TrajectoryState
from rollbook.tests.benchmarks.bare_loop import SESSION_MS, BareLoop, running
from rollbook.tests.benchmarks.long_run import LongRun
from rollbook.tests.processors.history import History
from rollbook.tests.processors.log import Log
from rollbook.tests.session_broker import own_topics

WAIT_S = 600.0
RATES = (1, 100, 1000)
LATENCY_S = 10.0


@dataclass(frozen=True, slots=True)
class Throughput:
    """Of one loop over one log, from its start to the commit of the last record."""

    loop: str
    records: int
    seconds: float
    records_per_s: float
    cpu_us_per_record: float


@dataclass(frozen=True, slots=True)
class Latency:
    """From `produce` to the decision in a reader's hands."""

    loop: str
    rate_per_s: int
    sent: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Restore:
    """Of a partition with so many live trajectories."""

    live: int
    seconds: float
    topic_bytes_per_live: float
    memory_bytes_per_live: float


def long_log(versions: int, groups: int) -> list[SourceRecord]:
    """A run as trainers make it."""
    log = Log()
    for _ in LongRun(log, groups=groups).versions(versions):
        pass
    return log.records


def throughput(servers: str, records: list[SourceRecord]) -> Iterator[Throughput]:
    """The bare loop and the host, each on topics of its own that hold the log already."""
    for name in ("bare loop", "processor"):
        with own_topics(servers, 1) as settings:
            _send(settings, records)
            loop = BareLoop(settings) if name == "bare loop" else Host(settings, "bench", SESSION_MS)
            cpu, began = time.process_time(), time.monotonic()
            with running(loop):
                _await(lambda loop=loop: loop.decided >= len(records))  # type: ignore[misc]
                seconds, cpu = time.monotonic() - began, time.process_time() - cpu
        count = len(records)
        yield Throughput(name, count, round(seconds, 2), round(count / seconds), round(cpu / count * 1e6, 1))


def latencies(servers: str) -> Iterator[Latency]:
    """Both loops at each rate, with records of the smallest kind."""
    for name in ("bare loop", "processor"):
        with own_topics(servers, 1) as settings:
            opened = History().opened()
            loop = BareLoop(settings) if name == "bare loop" else Host(settings, "bench", SESSION_MS)
            with running(loop):
                _send(settings, opened.log.records)
                _await(lambda loop=loop, opened=opened: loop.decided >= len(opened.log.records))  # type: ignore[misc]
                for rate in RATES:
                    yield _latency(settings, name, rate, opened)


def _latency(settings: Settings, name: str, rate: int, history: History) -> Latency:
    count = max(10, round(rate * LATENCY_S))
    history.log.records.clear()
    for at in range(count):
        history.dispatched(f"{rate}-{at}")
    records = list(history.log.records)
    sent = [0.0] * count
    with _reader(settings, Topic.DECISIONS) as reader:
        producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "linger.ms": 0})
        topic = settings.topic(Topic.LIFECYCLE)

        def send() -> None:
            began = time.monotonic()
            for at, record in enumerate(records):
                time.sleep(max(0.0, began + at / rate - time.monotonic()))
                sent[at] = time.monotonic()
                producer.produce(topic, record.value, record.key, 0)
                producer.poll(0)
            producer.flush(30)

        sender = threading.Thread(target=send)
        sender.start()
        took: list[float] = []
        while len(took) < count:
            message = reader.poll(1.0)  # one at a time: to fill a batch, `consume` waits for what is not there yet
            if message is not None:
                assert message.error() is None, message.error()
                took.append(time.monotonic() - sent[len(took)])
        sender.join()
    took.sort()
    return Latency(name, rate, count, *(round(took[min(count - 1, int(count * q))] * 1000, 1) for q in (0.5, 0.99)))


def restore(servers: str, live: int) -> Restore:
    """A ledger topic with so many live trajectories, read back as at the start of a processor."""
    run = History().opened()
    run.ready("t")
    template = run.trajectory("t")
    with own_topics(servers, 1) as settings:
        size = _fill(settings, run, template, live)
        name = f"{settings.topic_prefix}bench"
        consumer = group_consumer(settings, name, SESSION_MS)
        before = _resident()
        began = time.monotonic()
        kafka, clock = Cluster(settings), SystemClock()
        opening = Opening(settings, kafka, clock, Transactions(kafka, clock, name), 0, 1, lambda: False)
        restored = opening.open(consumer)
        seconds = time.monotonic() - began
        assert restored.ledger.run("r").trajectories.live >= live
        weight = (_resident() - before) / live
        consumer.close()
    return Restore(live, round(seconds, 2), round(size / live, 1), round(weight, 1))


def _fill(settings: Settings, run: History, template: TrajectoryState, live: int) -> int:
    """The rows as the processor would have written them; returns their bytes."""
    producer = transactional_producer(settings, f"{settings.topic_prefix}bench")
    topic = settings.topic(Topic.LEDGER)
    rows = [*run.log.ledger.changes()]
    for at in range(live):
        name = f"0193a6f0-0000-7000-8000-{at:012x}"
        row = template.but(trajectory_id=name, group_id=f"group-{at // 8}", sample_index=at % 8, generated_offset=at)
        rows.append((key_of("r", "trajectory", name), encode(row)))
    for first in range(0, len(rows), 20_000):
        producer.begin_transaction()
        for key, value in rows[first : first + 20_000]:
            producer.produce(topic, value, key, 0)
        if first + 20_000 >= len(rows):
            position = Position(next_offset=0, transactional_id="bench")
            producer.produce(topic, encode(position), position_key(0), 0)
        producer.commit_transaction(60)
    assert Rebuild(0, 1).next_offset == 0
    return sum(len(key) + len(value or b"") for key, value in rows[-live:])


def _send(settings: Settings, records: list[SourceRecord]) -> None:
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True})
    for record in records:
        producer.produce(settings.topic(Topic.LIFECYCLE), record.value, record.key, 0)
        producer.poll(0)
    assert producer.flush(60) == 0, "the log did not arrive"


@contextmanager
def _reader(settings: Settings, topic: Topic) -> Iterator[Consumer]:
    """At the end of the topic, of committed records only."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    _, end = consumer.get_watermark_offsets(TopicPartition(settings.topic(topic), 0), timeout=10)
    consumer.assign([TopicPartition(settings.topic(topic), 0, end)])
    consumer.poll(1.0)
    yield consumer
    consumer.close()


def _await(done: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def _resident() -> int:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Run all of it; print a table, and write JSON where that is asked for."""
    parser = argparse.ArgumentParser(description="throughput, latency and restore of the processor beside a bare loop")
    parser.add_argument("--versions", type=int, default=60, help="policy versions in the log of the throughput")
    parser.add_argument("--groups", type=int, default=25, help="groups of trajectories a version")
    parser.add_argument("--live", type=int, default=100_000, help="live trajectories to restore")
    parser.add_argument("--json", type=Path, help="file for the figures")
    asked = parser.parse_args()
    records = long_log(asked.versions, asked.groups)
    existing = os.environ.get("ROLLBOOK_BOOTSTRAP_SERVERS")
    broker = None if existing else EmbeddedBroker()
    if broker is not None:
        broker.start()
    servers = existing or (broker.bootstrap_servers if broker is not None else "")
    try:
        figures = {
            "throughput": [asdict(one) for one in throughput(servers, records)],
            "latency": [asdict(one) for one in latencies(servers)],
            "restore": [asdict(restore(servers, asked.live))],
        }
    finally:
        if broker is not None:
            broker.close()
    for name, rows in figures.items():
        print(f"\n{name}\n" + "  ".join(f"{column:>22}" for column in rows[0]))
        for row in rows:
            print("  ".join(f"{value!s:>22}" for value in row.values()))
    if asked.json is not None:
        asked.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
