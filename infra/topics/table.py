"""What the six topics must be: one table.

Sizes: the table's limit is what a broker admits for a whole record batch; it exceeds the largest value (4 MiB on
`lifecycle` and `payloads`, 8 MiB on `decisions`) by 64 KiB for key, headers and batch, so that a maximal value fits.
"""

from dataclasses import dataclass
from enum import StrEnum

from rollbook.infra.settings import DECISION_MAX_BYTES, LIFECYCLE_MAX_BYTES, PAYLOAD_MAX_BYTES, Topic

_OVERHEAD_BYTES = 64 * 1024
_SMALL_MAX_BYTES = 1024 * 1024
_DAY_MS = 24 * 3_600_000


class Partitioning(StrEnum):
    """Where a topic's number of partitions comes from."""

    RUNS = "runs"  # a run's records lie in the same partition of each of these topics: one number, fixed for ever
    OWN = "own"  # free to choose
    SINGLE = "single"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a topic. `fixed` ones are demanded; the others are a start, and the operator's to change."""

    name: str
    value: str
    fixed: bool = True


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic must be."""

    topic: Topic
    partitioning: Partitioning
    settings: tuple[Setting, ...]


def _max_bytes(value_bytes: int) -> Setting:
    return Setting("max.message.bytes", str(value_bytes + _OVERHEAD_BYTES))


_FOR_EVER = (
    Setting("cleanup.policy", "delete"),
    Setting("retention.ms", "-1"),
    Setting("retention.bytes", "-1"),
)
# With client timestamps a record that arrives late is deleted early, and one from a fast clock is refused.
_BROKER_TIME = Setting("message.timestamp.type", "LogAppendTime")
_CLIENT_TIME = Setting("message.timestamp.type", "CreateTime")
# A decision has the time of its record, however long ago that was.
_ANY_AGE = Setting("message.timestamp.before.max.ms", str(2**63 - 1))
_COMPACTED = (
    Setting("cleanup.policy", "compact"),
    # The active segment is never compacted: small and short-lived ones keep a restore short.
    Setting("segment.bytes", str(8 * 1024 * 1024)),
    Setting("segment.ms", str(10 * 60_000)),
    Setting("min.cleanable.dirty.ratio", "0.1"),
    # Longer than any restore, or a reader that began before a deletion would never hear of it.
    Setting("delete.retention.ms", str(_DAY_MS)),
)
_EVERYWHERE = (Setting("unclean.leader.election.enable", "false"),)

TOPIC_TABLE: tuple[TopicSpec, ...] = (
    TopicSpec(
        Topic.LIFECYCLE, Partitioning.RUNS, (*_FOR_EVER, _BROKER_TIME, _max_bytes(LIFECYCLE_MAX_BYTES), *_EVERYWHERE)
    ),
    TopicSpec(
        Topic.DECISIONS,
        Partitioning.RUNS,
        (*_FOR_EVER, _CLIENT_TIME, _ANY_AGE, _max_bytes(DECISION_MAX_BYTES), *_EVERYWHERE),
    ),
    # An open update keeps its first answers, which are as large as the decisions that gave them.
    TopicSpec(Topic.LEDGER, Partitioning.RUNS, (*_COMPACTED, _max_bytes(DECISION_MAX_BYTES), *_EVERYWHERE)),
    TopicSpec(Topic.FRESHNESS, Partitioning.RUNS, (*_COMPACTED, _max_bytes(_SMALL_MAX_BYTES), *_EVERYWHERE)),
    TopicSpec(
        Topic.PAYLOADS,
        Partitioning.OWN,
        (
            Setting("cleanup.policy", "delete"),
            Setting("retention.ms", str(30 * _DAY_MS), fixed=False),
            Setting("retention.bytes", "-1", fixed=False),
            _BROKER_TIME,
            _max_bytes(PAYLOAD_MAX_BYTES),
            *_EVERYWHERE,
        ),
    ),
    TopicSpec(
        Topic.DEAD_LETTERS,
        Partitioning.SINGLE,
        (*_FOR_EVER, _BROKER_TIME, _max_bytes(_SMALL_MAX_BYTES), *_EVERYWHERE),
    ),
)


def replication_for(nodes: int) -> int:
    """One copy on one or two nodes, three from three on: two copies would stop writing when either node is away."""
    return 3 if nodes >= 3 else 1


def min_insync(replication: int) -> Setting:
    """With three copies, one may be away and an acknowledged record is still on two."""
    return Setting("min.insync.replicas", "2" if replication >= 3 else "1")
