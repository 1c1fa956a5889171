"""Settings and topic names: the leaf that every part may import. One table of environment variables, read in one place."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from rollbook.schemas.errors import BadInput

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"
DEFAULT_TOPIC_PREFIX = "rollbook."
DEFAULT_PARTITIONS = 4


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


def _non_empty(env: Mapping[str, str], name: str, default: str) -> str:
    value = env.get(name, default).strip()
    if not value:
        raise BadInput(f"{name} is set but empty: unset it, or set it to a value such as {default}")
    return value
