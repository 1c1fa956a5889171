"""What the pages' commands find: a real broker with the recorded runs decided anew, and files of them. Made once a
session of tests, in about three seconds, by the process that asks first; the others wait for it.
"""

import fcntl
import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from rollbook.infra.settings import DATA_VARIABLE, PREFIX_VARIABLE, SERVERS_VARIABLE, Settings, Topic
from rollbook.infra.topics.topics import create_topics, delete_topics
from rollbook.replay.histories import open_history
from rollbook.replay.history.export import export, ranges_of_run
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.schemas.errors import EnvironmentFault
from rollbook.tests.docs.blocks import ROOT
from rollbook.tests.docs.record import PATH, PREFIX
from rollbook.tests.processors.hosting import host_in_thread
from rollbook.tests.replay.trained_run import await_decided

PARTITIONS = 4
DEFAULT_PREFIX = Settings().topic_prefix
UNUSED = 3
"""A partition of no recorded run."""
RUNS = ("my-run", "run-a", "run-b")
OF_NONE = hashlib.sha256(b"of no run here").hexdigest()
_FILLER = b"of no run here"


@dataclass(frozen=True, slots=True)
class World:
    """Topics with the runs in them, files of these, and what the placeholders of the pages stand for."""

    settings: Settings
    files: Path
    words: dict[str, str]

    def meant(self, text: str) -> str:
        """A page's text with what its placeholders stand for."""
        for word, meant in self.words.items():
            text = re.sub(rf"(?<![\w-]){word}(?![\w-])", meant, text)
        return text

    def environment(self, data: Path) -> dict[str, str]:
        """What a reader would have exported; `data` is for what is kept."""
        return {
            SERVERS_VARIABLE: self.settings.bootstrap_servers,
            PREFIX_VARIABLE: self.settings.topic_prefix,
            DATA_VARIABLE: str(data),
        }

    def as_on_pages(self, printed: str) -> str:
        """Pages are of the topics' plain names."""
        return printed.replace(self.settings.topic_prefix, DEFAULT_PREFIX)


@contextmanager
def empty_world(broker: str, files: Path) -> Iterator[World]:
    """Topics of one page alone, and no files."""
    settings = Settings(bootstrap_servers=broker, topic_prefix=f"docs-{uuid.uuid4().hex[:8]}.")
    create_topics(settings, PARTITIONS)
    files.mkdir()
    yield World(settings, files, {})
    _forget(settings)


@contextmanager
def shared_world(broker: str, folder: Path) -> Iterator[World]:
    """The recorded runs, loaded, decided, exported and materialized. `folder` is where the session's processes meet;
    the last of them that leaves takes the topics with it."""
    settings = Settings(bootstrap_servers=broker, topic_prefix=PREFIX)
    folder.mkdir(exist_ok=True)
    with (folder / "made.lock").open("w") as making, (folder / "used.lock").open("w") as using:
        fcntl.flock(making, fcntl.LOCK_EX)
        fcntl.flock(using, fcntl.LOCK_SH)
        noted = folder / "words.json"
        if not noted.exists():
            noted.write_text(json.dumps(_made(settings, folder / "files")), encoding="utf-8")
        fcntl.flock(making, fcntl.LOCK_UN)
        yield World(settings, folder / "files", json.loads(noted.read_text(encoding="utf-8")))
        fcntl.flock(using, fcntl.LOCK_UN)
        with suppress(BlockingIOError):
            fcntl.flock(using, fcntl.LOCK_EX | fcntl.LOCK_NB)
            noted.unlink(missing_ok=True)
            _forget(settings)


def furnish(folder: Path, files: Path, written: Iterable[str] = ()) -> None:
    """A page's folder: the files but those that the page itself will have `written`, the examples beside them; what
    activates an environment is there, and empty."""
    shutil.copytree(files, folder, ignore=shutil.ignore_patterns(*written))
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").touch()


def _forget(settings: Settings) -> None:
    with suppress(EnvironmentFault):
        delete_topics(settings)


def _made(settings: Settings, files: Path) -> dict[str, str]:
    create_topics(settings, PARTITIONS)
    partitions = _load(settings)
    with host_in_thread(settings, "the-world"):
        for partition in partitions:
            await_decided(settings, partition)
    return _files(settings, files)


def _load(settings: Settings) -> set[int]:
    """Each record at its recorded place; the partitions of the lifecycle topic that hold any."""
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
    partitions = set()
    with FileLog([PATH]) as log:
        for section in log.sections:
            after = 0
            for one in log.read(section.topic, section.partition, section.start, section.end):
                for _ in range(after, one.offset):  # of a payload that no record names
                    producer.produce(one.topic, _FILLER, None, one.partition)
                producer.produce(one.topic, one.value, one.key, one.partition, timestamp=one.timestamp_ms)
                after = one.offset + 1
                producer.poll(0)
            if section.topic == settings.topic(Topic.LIFECYCLE):
                partitions.add(section.partition)
    producer.produce(settings.topic(Topic.LIFECYCLE), b"no record", b"nobody", UNUSED)  # has a dead letter
    assert producer.flush(30) == 0
    return partitions


def _files(settings: Settings, folder: Path) -> dict[str, str]:
    """The files of the runs; names for the placeholders."""
    folder.mkdir()
    with KafkaLog(settings) as log:
        for run in RUNS:
            ranges = ranges_of_run(log, settings, run)
            export(log, settings, ranges, folder / f"{run}.avro", run_id=run, payloads=True)
    with open_history(folder / "my-run.avro", run="my-run") as history:
        history.materialize(folder / "bundles")
        proof = history.prove(policy=9)
    trained = proof.trajectories[0]
    assert trained.task is not None
    (folder / "held-out.txt").write_text(f"{trained.task.prompt_hash}\n{OF_NONE}\n", encoding="utf-8")
    bundle = next(path.name for path in sorted((folder / "bundles").iterdir()) if path.name.endswith("-s0"))
    return {"ID": trained.trajectory_id, "UPDATE": trained.update_id, "BUNDLE": bundle}
