"""What an audit costs: its time against the plain read of the same range in the same run, from an exported file and
from Kafka, and its memory as the range grows while the live state does not:

    python -m rollbook.tests.benchmarks.audit --versions 500 2500 --kafka

A version has 107 lifecycle records of 32 trajectories, each dispatched, generated and rewarded by a record of its own;
with `--together` it has 237 of 200, whose groups are rewarded and trained on by one record, so that a record does more.
After a thousand versions a run is closed and another begins: what is kept of updates grows with a run. Both topics of
the range are read.
"""

import argparse
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.keys import position_key
from rollbook.replay.audit.audit import audit, stretch_of
from rollbook.replay.history.container import Contents, Section, write
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import LogSource, StoredRecord
from rollbook.schemas.codec import encode
from rollbook.schemas.records.ledger import Position
from rollbook.tests.benchmarks.long_run import LongRun
from rollbook.tests.processors.log import Log
from rollbook.tests.session_broker import own_topics

VERSIONS_OF_A_RUN = 1_000
TOPICS = (Topic.LIFECYCLE, Topic.DECISIONS)


class Spooled(Log):
    """Writes what is folded to two files, since a long run does not fit the memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._paths = [folder / topic.value for topic in TOPICS]
        self._files = [path.open("wb") for path in self._paths]
        self.count = 0

    def forget(self) -> None:
        """Write what was folded since the last time."""
        for record, folded in zip(self.records, self.folded, strict=True):
            for file, value in zip(self._files, (record.value, folded.encoded), strict=True):
                pickle.dump((record.key, value), file)
        self.count += len(self.records)
        self.records.clear()
        self.folded.clear()

    def stored(self, topic: Topic, name: str) -> Iterator[StoredRecord]:
        """The records of a topic, at the offsets that they have where nothing else was ever written."""
        at = TOPICS.index(topic)
        self._files[at].close()
        with self._paths[at].open("rb") as file:
            for offset in range(self.count):
                key, value = pickle.load(file)  # our own, of a moment ago
                yield StoredRecord(name, 0, offset, offset, key, value)


def exported(path: Path, settings: Settings, versions: int, together: bool) -> None:
    """A long run as a file."""
    with TemporaryDirectory() as folder:
        log = Spooled(Path(folder))
        for number, first in enumerate(range(0, versions, VERSIONS_OF_A_RUN)):
            name = f"run-{number}"
            run = LongRun(log, run=name) if together else LongRun(log, groups=4, single=True, run=name)
            for _ in run.versions(min(VERSIONS_OF_A_RUN, versions - first)):
                log.forget()
            run.history.closed()
            log.forget()
        names = {topic: settings.topic(topic) for topic in TOPICS}
        contents = Contents(
            topic_prefix=settings.topic_prefix,
            partitions=dict.fromkeys(names.values(), 1),
            sections=tuple(Section(topic=name, partition=0, start=0, end=log.count) for name in names.values()),
        )
        write(path, contents, [log.stored(topic, name) for topic, name in names.items()])


def sent(path: Path, settings: Settings) -> None:
    """The file's records into the topics of the same names."""
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "linger.ms": 20, "enable.idempotence": True})
    with FileLog([path]) as log:
        for one in log.sections:
            for record in log.read(one.topic, one.partition, one.start, one.end):
                producer.produce(record.topic, record.value, record.key, record.partition)
                if record.offset % 10_000 == 0:
                    producer.flush()
    stands = encode(Position(next_offset=record.offset + 1, transactional_id="a processor"))
    producer.produce(settings.topic(Topic.LEDGER), stands, position_key(0), 0)
    assert producer.flush(60) == 0, "the log did not arrive"


def measure(opened: Callable[[], AbstractContextManager[LogSource]], source: str, settings: Settings) -> None:
    """In a process of its own: one line of figures. Each reading opens the log anew, since a file that was read whole
    is known to be as it was written."""
    topics = [settings.topic(topic) for topic in TOPICS]
    plain = min(_plain(opened, topics) for _ in range(2))
    began = time.perf_counter()
    with opened() as log:
        whole = OffsetRange(topics[0], 0, 0, log.bounds(topics[0], 0).end - 1)  # no ledger to be compared was written
        stretch = stretch_of(log, settings, whole, None)
        report = audit(log, settings, stretch, payloads=False).report
    audited = time.perf_counter() - began
    assert report.passed, report.findings
    assert report.decided == stretch.within.end
    figures = f"{report.decided:,} | {plain:.1f} | {audited:.1f} | {audited / plain:.1f} | {_peak_kib() / 2**10:.0f}"
    print(f"| {source} | {figures} |", flush=True)


def _plain(opened: Callable[[], AbstractContextManager[LogSource]], topics: Iterable[str]) -> float:
    """Seconds to read the records, and no more."""
    began = time.perf_counter()
    with opened() as log:
        for topic in topics:
            bounds = log.bounds(topic, 0)
            for _ in log.read(topic, 0, bounds.first, bounds.end):
                pass
    return time.perf_counter() - began


def _peak_kib() -> int:
    """Of this process alone: what getrusage says includes the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, nargs="+", default=[50, 250])
    parser.add_argument("--together", action="store_true", help="groups rewarded and trained on by one record")
    parser.add_argument("--kafka", action="store_true", help="also from a broker")
    parser.add_argument("--file", type=Path, help="measure this file alone")
    parser.add_argument("--topics", nargs=2, metavar=("SERVERS", "PREFIX"), help="measure these topics alone")
    asked = parser.parse_args()
    if asked.topics is not None:
        settings = Settings(bootstrap_servers=asked.topics[0], topic_prefix=asked.topics[1])
        measure(partial(KafkaLog, settings), "Kafka", settings)
    elif asked.file is not None:
        with FileLog([asked.file]) as file:
            settings = Settings(topic_prefix=file.topic_prefix)
        measure(partial(FileLog, [asked.file]), "file", settings)
    else:
        _all(asked.versions, asked.together, asked.kafka)


def _all(counts: Iterable[int], together: bool, kafka: bool) -> None:
    print("| source | lifecycle records | plain read, s | audit, s | ratio | peak memory, MiB |")
    print("|---|---|---|---|---|---|", flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        broker = stack.enter_context(EmbeddedBroker()) if kafka else None
        for versions in counts:
            path = folder / f"{versions}.avro"
            if broker is None:
                exported(path, Settings(), versions, together)
                _apart("--file", str(path))
            else:
                with own_topics(broker.bootstrap_servers, 1) as settings:
                    exported(path, settings, versions, together)
                    sent(path, settings)
                    _apart("--file", str(path))
                    _apart("--topics", broker.bootstrap_servers, settings.topic_prefix)
            path.unlink()


def _apart(*args: str) -> None:
    assert __spec__ is not None
    subprocess.run([sys.executable, "-m", __spec__.name, *args], check=True)


if __name__ == "__main__":
    main()
