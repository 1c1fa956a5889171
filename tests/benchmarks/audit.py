"""What an audit costs: its time against the plain read of the same range in the same run, and its memory as the range
grows while the live state does not:

    python -m rollbook.tests.benchmarks.audit --versions 500 2500

A version has about 240 lifecycle records of 200 trajectories.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from rollbook.infra.settings import Settings
from rollbook.processors.ledger.fold import Folded, SourceRecord
from rollbook.replay.audit.audit import audit, stretch_of
from rollbook.replay.history.container import Contents, Section, write
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import StoredRecord
from rollbook.tests.benchmarks.long_run import LongRun
from rollbook.tests.processors.log import Log

SETTINGS = Settings()
LIFECYCLE, DECISIONS = (f"{SETTINGS.topic_prefix}{name}" for name in ("lifecycle", "decisions"))


class Kept(Log):
    """Keeps the records and decisions of one version."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[SourceRecord] = []
        self.folded: list[Folded] = []


def made(versions: int) -> Iterator[tuple[list[SourceRecord], list[Folded]]]:
    """A long run, version by version."""
    log = Kept()
    run = LongRun(log)
    for _ in run.versions(versions):
        yield log.records, log.folded
        log.records.clear()
        log.folded.clear()


def exported(folder: Path, versions: int) -> Path:
    """A long run as a file; made twice, since it does not fit the memory."""
    path, ends = folder / f"{versions}.avro", sum(len(records) for records, _ in made(versions))

    def lifecycle() -> Iterator[StoredRecord]:
        for records, _ in made(versions):
            for one in records:
                yield StoredRecord(LIFECYCLE, one.partition, one.offset, one.offset, one.key, one.value)

    def decisions() -> Iterator[StoredRecord]:
        for _, folded in made(versions):
            for one in folded:
                source, key = one.decision.source, one.decision.run_id.encode()
                yield StoredRecord(DECISIONS, source.partition, source.offset, source.offset, key, one.encoded)

    partition = next(made(1))[0][0].partition
    sections = tuple(Section(topic=topic, partition=partition, start=0, end=ends) for topic in (LIFECYCLE, DECISIONS))
    counts = Log().ledger.topic_partitions
    contents = Contents(
        topic_prefix=SETTINGS.topic_prefix, partitions={LIFECYCLE: counts, DECISIONS: counts}, sections=sections
    )
    write(path, contents, [lifecycle(), decisions()])
    return path


def measure(path: Path) -> None:
    """In a process of its own: one line of figures."""
    with FileLog([path]) as log:
        (section, *_) = log.sections
        began = time.perf_counter()
        read = sum(1 for one in log.sections for _ in log.read(one.topic, one.partition, one.start, one.end))
        plain = time.perf_counter() - began
        stretch = stretch_of(log, SETTINGS, OffsetRange(LIFECYCLE, section.partition), None)
        began = time.perf_counter()
        report = audit(log, SETTINGS, stretch, payloads=False).report
        audited = time.perf_counter() - began
    assert report.passed, report.findings
    assert report.decided * 2 == read
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"| {report.decided:,} | {plain:.1f} | {audited:.1f} | {audited / plain:.1f} | {peak:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, nargs="+", default=[50, 250])
    parser.add_argument("--file", type=Path, help="measure this file alone")
    asked = parser.parse_args()
    if asked.file is not None:
        measure(asked.file)
        return
    print(
        "| lifecycle records | plain read, s | audit, s | ratio | peak memory, MiB |\n|---|---|---|---|---|", flush=True
    )
    with TemporaryDirectory() as folder:
        for versions in asked.versions:
            path = exported(Path(folder), versions)
            subprocess.run([sys.executable, "-m", __spec__.name, "--file", str(path)], check=True)
            path.unlink()


if __name__ == "__main__":
    main()
