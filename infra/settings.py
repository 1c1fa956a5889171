"""Settings and topic names: the leaf that every part may import. The one place that reads the environment."""

import os
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


@dataclass(frozen=True, slots=True)
class Settings:
    """Which cluster and which topics. Build it with `Settings.from_env()` unless a test needs its own."""

    bootstrap_servers: str = DEFAULT_BOOTSTRAP_SERVERS
    topic_prefix: str = DEFAULT_TOPIC_PREFIX

    def topic(self, topic: Topic) -> str:
        """The full name of a topic on the cluster."""
        return f"{self.topic_prefix}{topic.value}"

    @staticmethod
    def from_env(environ: Mapping[str, str] | None = None) -> "Settings":
        """Read `ROLLBOOK_BOOTSTRAP_SERVERS` and `ROLLBOOK_TOPIC_PREFIX`; unset means the default, empty is an error."""
        env = os.environ if environ is None else environ
        return Settings(
            bootstrap_servers=_non_empty(env, "ROLLBOOK_BOOTSTRAP_SERVERS", DEFAULT_BOOTSTRAP_SERVERS),
            topic_prefix=_non_empty(env, "ROLLBOOK_TOPIC_PREFIX", DEFAULT_TOPIC_PREFIX),
        )


def cache_dir() -> Path:
    """Where fetched and verified files live (`ROLLBOOK_CACHE_DIR`): safe to delete, they are fetched again."""
    return Path(os.environ.get("ROLLBOOK_CACHE_DIR") or platformdirs.user_cache_path("rollbook")).absolute()


def data_dir() -> Path:
    """Where data that must survive lives, such as the broker's logs (`ROLLBOOK_DATA_DIR`)."""
    return Path(os.environ.get("ROLLBOOK_DATA_DIR") or platformdirs.user_data_path("rollbook")).absolute()


def _non_empty(env: Mapping[str, str], name: str, default: str) -> str:
    value = env.get(name, default).strip()
    if not value:
        raise BadInput(f"{name} is set but empty: unset it, or set it to a value such as {default}")
    return value
