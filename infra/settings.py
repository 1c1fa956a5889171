"""Settings and topic names: the leaf that every part may import. The one place that reads the environment."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import platformdirs

from rollbook.schemas.errors import BadInput

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"
DEFAULT_TOPIC_PREFIX = "rollbook."
DEFAULT_PARTITIONS = 4

# The largest record values. The topics admit a little more, since a broker counts key, headers and batch as well.
LIFECYCLE_MAX_BYTES = PAYLOAD_MAX_BYTES = 4 * 1024 * 1024
DECISION_MAX_BYTES = 8 * 1024 * 1024


class Topic(StrEnum):
    """The six topics of a prefix."""

    LIFECYCLE = "lifecycle"
    PAYLOADS = "payloads"
    DECISIONS = "decisions"
    LEDGER = "ledger"
    FRESHNESS = "freshness"
    DEAD_LETTERS = "dead-letters"


SERVERS_VARIABLE = "ROLLBOOK_BOOTSTRAP_SERVERS"
PREFIX_VARIABLE = "ROLLBOOK_TOPIC_PREFIX"
# Kafka's own rule for a topic's name, of which the prefix is the beginning.
_LEGAL_IN_A_TOPIC = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_LONGEST_TOPIC = 249
LONGEST_PREFIX = _LONGEST_TOPIC - max(len(topic.value) for topic in Topic)
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Settings:
    """Which cluster and which topics. Build it with `Settings.from_env()` unless a test needs its own.

    Raises BadInput for servers or a prefix that no cluster can have.
    """

    bootstrap_servers: str = DEFAULT_BOOTSTRAP_SERVERS
    topic_prefix: str = DEFAULT_TOPIC_PREFIX

    def __post_init__(self) -> None:
        _check(SERVERS_VARIABLE, self.bootstrap_servers, DEFAULT_BOOTSTRAP_SERVERS)
        _check(PREFIX_VARIABLE, self.topic_prefix, DEFAULT_TOPIC_PREFIX)
        if not self.bootstrap_servers.isprintable():
            raise BadInput(
                f"{SERVERS_VARIABLE} is {_quoted(self.bootstrap_servers)}, which names no host: set it to HOST:PORT, "
                f"several with commas, such as {DEFAULT_BOOTSTRAP_SERVERS}"
            )
        if not _LEGAL_IN_A_TOPIC.fullmatch(self.topic_prefix):
            raise BadInput(
                f"{PREFIX_VARIABLE} is {_quoted(self.topic_prefix)}, with which no topic's name can begin: use letters "
                f"of ASCII, digits, '.', '_' and '-' only, such as {DEFAULT_TOPIC_PREFIX}"
            )
        if len(self.topic_prefix) > LONGEST_PREFIX:
            raise BadInput(
                f"{PREFIX_VARIABLE} is {_quoted(self.topic_prefix)}, {len(self.topic_prefix)} characters long: use at "
                f"most {LONGEST_PREFIX}, since a topic's name has at most {_LONGEST_TOPIC}"
            )

    def topic(self, topic: Topic) -> str:
        """The full name of a topic on the cluster."""
        return f"{self.topic_prefix}{topic.value}"

    @staticmethod
    def from_env(environ: Mapping[str, str] | None = None) -> "Settings":
        """Read `ROLLBOOK_BOOTSTRAP_SERVERS` and `ROLLBOOK_TOPIC_PREFIX`; unset means the default, empty is an error."""
        env = os.environ if environ is None else environ
        return Settings(
            bootstrap_servers=env.get(SERVERS_VARIABLE, DEFAULT_BOOTSTRAP_SERVERS).strip(),
            topic_prefix=env.get(PREFIX_VARIABLE, DEFAULT_TOPIC_PREFIX).strip(),
        )


def cache_dir() -> Path:
    """Where fetched and verified files live (`ROLLBOOK_CACHE_DIR`): safe to delete, they are fetched again."""
    return Path(os.environ.get("ROLLBOOK_CACHE_DIR") or platformdirs.user_cache_path("rollbook")).absolute()


def data_dir() -> Path:
    """Where data that must survive lives, such as the broker's logs (`ROLLBOOK_DATA_DIR`)."""
    return Path(os.environ.get("ROLLBOOK_DATA_DIR") or platformdirs.user_data_path("rollbook")).absolute()


def _check(variable: str, value: object, example: str) -> None:
    if not isinstance(value, str):
        raise BadInput(f"{variable} must be a text, not {type(value).__name__}: set it to a value such as {example}")
    if not value.strip():
        raise BadInput(f"{variable} is set but empty: unset it, or set it to a value such as {example}")


def _quoted(text: str) -> str:
    """Whatever is in it, as printable ASCII."""
    return ascii(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!a}..."
