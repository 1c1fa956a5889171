"""The committed lock: which jars make up the broker, each with the sha256 that we trust."""

import tomllib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

LOCK_PATH = Path(__file__).with_name("kafka.lock.toml")


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


@dataclass(frozen=True, slots=True)
class KafkaLock:
    """The jars in class path order, and a digest that changes whenever any of them does."""

    version: str
    jars: tuple[Jar, ...]

    @property
    def digest(self) -> str:
        return sha256("".join(jar.sha256 for jar in self.jars).encode()).hexdigest()


def read_lock(path: Path = LOCK_PATH) -> KafkaLock:
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["dependencies"]
    jars = tuple(Jar(e["groupId"], e["artifactId"], e["version"], e["sha256"]) for e in entries)
    if len({jar.file_name for jar in jars}) != len(jars):
        raise ValueError(f"{path}: two jars of one name cannot share a folder")
    return KafkaLock(version=jars[0].version, jars=jars)
