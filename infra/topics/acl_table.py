"""Who may do what on a cluster with authorisation: one table of the least that each role needs.

Kafka judges by topic and not by record: whoever may write `lifecycle` may write any record there. What it can keep
apart are topics and transactions: decisions, ledger and transactional ids belong to the processor alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rollbook.infra.settings import Settings, Topic


class Role(StrEnum):
    """A kind of process that gets a user of its own."""

    WORKER = "worker"
    REWARD = "reward"
    TRAINER = "trainer"
    COORDINATOR = "coordinator"
    PROCESSOR = "processor"
    READER = "reader"
    OPERATOR = "operator"
    RESTORER = "restorer"


ABOUT = {
    Role.WORKER: "a rollout worker: publishes trajectories with their payloads; reads only how stale they would be",
    Role.REWARD: "a reward service: publishes rewards; reads nothing",
    Role.TRAINER: "a trainer: reserves, loads what it reserved, commits",
    Role.COORDINATOR: "the weight coordinator: configures runs, prepares and activates policies",
    Role.PROCESSOR: "the processor: the only one that writes decisions and the ledger, and that may use transactions",
    Role.READER: "whoever looks, materializes, replays or audits; writes nothing",
    Role.OPERATOR: "who makes the topics, runs `rollbook doctor` and ends what hangs: a reader who may do that too",
    Role.RESTORER: "who restores a backup, for as long as that takes: writes records, and lets payloads go",
}


class Resource(StrEnum):
    """What an operation is done to, by the name that Kafka's tool has for it."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"
    CLUSTER = "cluster"


class Operation(StrEnum):
    """By the name that Kafka's tool has for it. Read, Write and Delete include Describe."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"


@dataclass(frozen=True, slots=True)
class Named:
    """A consumer group, or a topic of Kafka's own. `is_own`: named after the topic prefix."""

    name: str
    is_own: bool = True

    def of(self, settings: Settings) -> str:
        return f"{settings.topic_prefix}{self.name}" if self.is_own else self.name


PROCESSORS = Named("processor")
RESTORING = Named("processor-restore")
# These commit nothing; librdkafka wants a name, and asks who coordinates it.
READING = Named("history")
CLIENTS = Named("rollbook-reader", is_own=False)


INTERNAL = ("__consumer_offsets", "__transaction_state")
"""Kafka's own topics that exactly-once rests on."""


@dataclass(frozen=True, slots=True)
class Right:
    """Operations of a role on one resource, and why it needs them. No `on`: the cluster, or all transactional ids that
    begin with the topic prefix, as those of the processor's instances do."""

    role: Role
    resource: Resource
    on: Topic | Named | None
    operations: tuple[Operation, ...]
    why: str


def _rights() -> Iterator[Right]:
    read, write, describe = Operation.READ, Operation.WRITE, Operation.DESCRIBE

    def topics(role: Role, operations: tuple[Operation, ...], why: str, *names: Topic) -> Iterator[Right]:
        yield from (Right(role, Resource.TOPIC, name, operations, why) for name in names)

    def group(role: Role, on: Named, *operations: Operation, why: str) -> Right:
        return Right(role, Resource.GROUP, on, operations, why)

    for role in (Role.WORKER, Role.REWARD):
        yield from topics(role, (write,), "publishes", Topic.LIFECYCLE, Topic.PAYLOADS)
        yield from topics(role, (describe,), "a client looks whether the topics are there", Topic.DECISIONS)
    yield from topics(Role.WORKER, (read,), "asks how much can be generated without going stale", Topic.FRESHNESS)
    yield group(Role.WORKER, CLIENTS, describe, why="reads without committing")

    role = Role.TRAINER
    yield from topics(role, (read, write), "publishes, and loads what it reserved", Topic.LIFECYCLE, Topic.PAYLOADS)
    yield from topics(role, (read,), "waits for its decisions, and finds its epoch", Topic.DECISIONS, Topic.LEDGER)
    yield group(role, CLIENTS, describe, why="reads without committing")

    role = Role.COORDINATOR
    yield from topics(role, (write,), "publishes", Topic.LIFECYCLE)
    yield from topics(role, (describe,), "a client looks whether the topics are there", Topic.PAYLOADS)
    yield from topics(role, (read,), "waits for its decisions", Topic.DECISIONS)
    yield group(role, CLIENTS, describe, why="reads without committing")

    role, compared = Role.PROCESSOR, Operation.DESCRIBE_CONFIGS
    yield from topics(role, (read, write, compared), "folds the log; its lease clerk writes there", Topic.LIFECYCLE)
    yield from topics(role, (read, write, compared), "keeps the state, and restores from it", Topic.LEDGER)
    yield from topics(
        role,
        (read, write, compared),
        "decides; looks whether what it wrote is to be seen, and whose transaction is open",
        *(Topic.DECISIONS, Topic.FRESHNESS, Topic.DEAD_LETTERS),
    )
    yield from topics(
        role, (Operation.DESCRIBE, compared), "compares all topics with their table when it starts", Topic.PAYLOADS
    )
    yield group(role, PROCESSORS, read, why="shares the partitions with its like")
    yield group(role, RESTORING, describe, why="restores without committing")
    yield Right(role, Resource.TRANSACTIONAL_ID, None, (write,), "exactly once; also ends those of a dead instance")

    for role in (Role.READER, Role.OPERATOR):
        yield from topics(role, (read,), "looks", *Topic)
        for one in (READING, CLIENTS):
            yield group(role, one, describe, why="reads without committing")

    role = Role.OPERATOR
    yield from topics(role, (write,), "aborts, quarantines, closes runs", Topic.LIFECYCLE)
    made = (Operation.CREATE, compared, Operation.ALTER_CONFIGS)
    yield from topics(role, made, "`rollbook topics create`, `describe` and `doctor`", *Topic)
    for internal in INTERNAL:
        on = Named(internal, is_own=False)
        yield Right(role, Resource.TOPIC, on, (describe, compared), "`rollbook doctor` looks at their copies")
    yield group(role, PROCESSORS, read, why="`rollbook doctor`; resets its offsets where the host asks for it")
    yield Right(role, Resource.CLUSTER, None, (describe, compared), "`rollbook doctor` looks at brokers and groups")

    role = Role.RESTORER
    yield from topics(role, (read,), "looks whether they are there and empty", *Topic)
    yield from topics(role, (write,), "writes back what was exported", Topic.LIFECYCLE, Topic.PAYLOADS)
    why = "lets go again what retention had taken; Kafka has no right to records alone: it may delete the topic, too"
    yield from topics(role, (Operation.DELETE,), why, Topic.PAYLOADS)
    yield group(role, READING, describe, why="reads without committing")


RIGHTS: tuple[Right, ...] = tuple(_rights())


@dataclass(frozen=True, slots=True)
class Acl:
    """One entry for one principal. `is_prefix`: of all resources whose name begins so."""

    principal: str
    resource: Resource
    name: str
    operation: Operation
    is_prefix: bool = False


def acls_for(role: Role, principal: str, settings: Settings) -> tuple[Acl, ...]:
    """What a principal needs in this role, each entry once, by resource."""
    found: dict[Acl, None] = {}
    for right in RIGHTS:
        if right.role is role:
            begins = right.resource is Resource.TRANSACTIONAL_ID
            for operation in right.operations:
                found[Acl(principal, right.resource, _name(right, settings), operation, is_prefix=begins)] = None
    order = list(Resource)
    return tuple(sorted(found, key=lambda acl: (order.index(acl.resource), acl.name)))


def _name(right: Right, settings: Settings) -> str:
    if isinstance(right.on, Named):
        return right.on.of(settings)
    if right.on is None:
        return settings.topic_prefix if right.resource is Resource.TRANSACTIONAL_ID else "kafka-cluster"
    return settings.topic(right.on)
