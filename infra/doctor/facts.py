"""What was seen of a cluster, a prefix and its runs: all that the checks judge, so that they ask nothing themselves."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.topics import TopicProblem, TopicState
from rollbook.processors.ledger.store import Run


class Level(StrEnum):
    """How bad it is. Unsafe: data or exactly-once are at stake, or something cannot work at all."""

    UNSAFE = "unsafe"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    level: Level
    check: str
    about: str
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker with its settings."""

    node_id: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Copies:
    """A partition's copies now. `leader` is negative when there is none."""

    topic: str
    partition: int
    leader: int
    replicas: int
    in_sync: int


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """One of Kafka's own topics that exactly-once rests on."""

    name: str
    replication: int
    min_insync: int
    unclean_election: bool


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the processor's group; `instance` is empty where it is not static."""

    member_id: str
    instance: str
    client_host: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """The processor's group and the ends of all partitions at one moment; by partition of the run topics."""

    members: tuple[Member, ...]
    committed: Mapping[int, int]
    stable: Mapping[tuple[Topic, int], int]
    high: Mapping[tuple[Topic, int], int]


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """One partition of the ledger, read whole. `records` were read, `rows` are live; `decided` is the first lifecycle
    offset behind the last decision, which was read afterwards; `same_log` is false where the log has another record
    there than the one that was decided."""

    partition: int
    next_offset: int | None
    records: int
    rows: int
    decided: int = 0
    same_log: bool = True


@dataclass(frozen=True, slots=True)
class Waiting:
    """The oldest trajectory that can still be trained on: when it was published, and a payload of it that is gone."""

    trajectory_id: str
    published_ms: int
    gone: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run as the ledger has it. `activations`: of its policies, (number in the run's lag unit, broker's time)."""

    run: Run
    partition: int
    oldest: Waiting | None
    activations: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it. `first`: where partitions begin now."""

    settings: Settings
    now_ms: int
    brokers: tuple[Broker, ...]
    internal: tuple[InternalTopic, ...]
    copies: tuple[Copies, ...]
    topics: tuple[TopicState, ...]
    problems: tuple[TopicProblem, ...]
    first: Mapping[tuple[Topic, int], int]
    before: Look
    after: Look
    ledger: tuple[LedgerPart, ...]
    runs: tuple[RunFacts, ...]

    @property
    def partitions(self) -> int:
        """Of the topics ordered by run; 0 when there are none."""
        return next((state.partitions for state in self.topics if state.spec.topic is Topic.LIFECYCLE), 0)
