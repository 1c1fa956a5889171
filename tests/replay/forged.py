"""A real run in memory, for tests that forge it: each record at its own offset, the gaps as they are."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.fold import Ledger, SourceRecord
from rollbook.replay.audit.audit import AuditReport, audit, stretch_of
from rollbook.replay.history.export import export, ranges_of_run
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.source import LogSource, StoredRecord
from rollbook.schemas.codec import decode, encode
from rollbook.schemas.types import Part
from rollbook.tests.replay.memory_log import MemoryLog

Change = Callable[[Part], Part]


@dataclass
class Forged:
    """A log in memory that may be changed, and what is known of it."""

    log: MemoryLog
    settings: Settings
    run_id: str
    partition: int

    @classmethod
    def of(cls, path: Path, run_id: str, partition: int) -> "Forged":
        """All that an exported file holds."""
        with FileLog([path]) as file:
            log = MemoryLog(max(file.contents[0].partitions.values()))
            for section in file.sections:
                records = file.read(section.topic, section.partition, section.start, section.end)
                log.put(section.topic, section.partition, section.end, list(records))
            return cls(log, Settings(topic_prefix=file.topic_prefix), run_id, partition)

    def topic(self, topic: Topic) -> str:
        return self.settings.topic(topic)

    def records(self, topic: Topic) -> list[StoredRecord]:
        """Of the run's partition; payloads lie in all of theirs."""
        name = self.topic(topic)
        places = [self.partition] if topic is not Topic.PAYLOADS else self.log.filled(name)
        bounds = [(partition, self.log.bounds(name, partition)) for partition in places]
        return [one for partition, within in bounds for one in self.log.read(name, partition, within.first, within.end)]

    def of_type(self, topic: Topic, name: str) -> list[StoredRecord]:
        return [one for one in self.records(topic) if one.value and type(decode(one.value)).__name__ == name]

    def change(self, stored: StoredRecord, change: Change) -> None:
        """Put a changed record in a record's place."""
        changed = encode(change(decode(stored.value or b"")))
        assert changed != stored.value, "a forgery changes something"
        self.log.tamper(stored.topic, stored.partition, stored.offset, changed)

    def refold(self) -> None:
        """Write all decisions anew, so that they fit the lifecycle as it is now."""
        ledger = Ledger(self.partition, self.log.partitions(self.topic(Topic.LIFECYCLE)))
        decisions = self.records(Topic.DECISIONS)
        for stored, decided in zip(self.records(Topic.LIFECYCLE), decisions, strict=True):
            folded = ledger.fold(SourceRecord(stored.partition, stored.offset, stored.key, stored.value))
            self.log.tamper(decided.topic, decided.partition, decided.offset, folded.encoded)
            ledger.journal.keep()
        self.log.drop(self.topic(Topic.LEDGER), self.partition)

    def audited(self, *heads: str) -> AuditReport:
        stretch = stretch_of(self.log, self.settings, None, self.run_id)
        return audit(self.log, self.settings, stretch, heads=heads).report


def exported(log: LogSource, settings: Settings, run_id: str, path: Path) -> Path:
    """A run with its payloads in a file."""
    return export(log, settings, ranges_of_run(log, settings, run_id), path, run_id=run_id, payloads=True).path
