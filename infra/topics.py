"""The six topics: one table of their settings, and making or checking them on a cluster.

Sizes: the table's limit is what a broker admits for a whole record batch; it exceeds the largest value (4 MiB on
`lifecycle` and `payloads`, 8 MiB on `decisions`) by 64 KiB for key, headers and batch, so that a maximal value fits.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package forgets to mark them as exported
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from rollbook.infra.admin import connect
from rollbook.infra.settings import (
    DECISION_MAX_BYTES,
    DEFAULT_PARTITIONS,
    LIFECYCLE_MAX_BYTES,
    PAYLOAD_MAX_BYTES,
    Settings,
    Topic,
)
from rollbook.schemas.errors import BadInput, EnvironmentFault

T = TypeVar("T")

_OVERHEAD_BYTES = 64 * 1024
_SMALL_MAX_BYTES = 1024 * 1024
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_TIMEOUT_S = 10.0
_SETTLE_TIMEOUT_S = 30.0


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
        Topic.DECISIONS, Partitioning.RUNS, (*_FOR_EVER, _CLIENT_TIME, _max_bytes(DECISION_MAX_BYTES), *_EVERYWHERE)
    ),
    TopicSpec(Topic.LEDGER, Partitioning.RUNS, (*_COMPACTED, _max_bytes(_SMALL_MAX_BYTES), *_EVERYWHERE)),
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


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the cluster has it."""

    spec: TopicSpec
    name: str
    partitions: int
    replication: int
    settings: tuple[Setting, ...]

    def value(self, setting: str) -> str:
        return next((s.value for s in self.settings if s.name == setting), "unset")


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """One way in which a topic is not what the table wants; printed, it is a line with the remedy."""

    topic: str
    setting: str
    actual: str
    wanted: str
    remedy: str

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.setting} is {self.actual}, wanted {self.wanted}: {self.remedy}"


def in_one_line(problems: Sequence[TopicProblem]) -> str:
    """The first problem in full, and how many more there are: they mostly have one cause."""
    more = f" (and {len(problems) - 1} more: `rollbook topics describe`)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}"


@dataclass(frozen=True, slots=True)
class TopicReport:
    """What `create_topics` did."""

    created: tuple[str, ...]
    repaired: tuple[str, ...]
    unchanged: tuple[str, ...]
    partitions: int


def create_topics(
    settings: Settings,
    partitions: int | None = None,
    *,
    payload_partitions: int | None = None,
    repair: bool = False,
) -> TopicReport:
    """Make the missing topics and compare the others with the table; calling it again changes nothing.

    `partitions` is that of the topics ordered by run; None keeps what is there, or takes the default. `repair` sets
    wrong settings right. Raises BadInput naming all that is wrong, before anything is created, and EnvironmentFault.
    """
    client = connect(settings)
    states = _states(client, settings)
    present = {state.spec.topic for state in states}
    runs = partitions or _run_partitions(states) or DEFAULT_PARTITIONS
    problems = _problems(states, runs, _node_count(client), settings)
    repairable = [problem for problem in problems if repair and _is_repairable(problem)]
    refused = [problem for problem in problems if problem not in repairable]
    if refused:
        raise BadInput(in_one_line(refused))
    for problem in repairable:
        _set(client, problem)
    missing = [spec for spec in TOPIC_TABLE if spec.topic not in present]
    _create(client, settings, missing, runs, payload_partitions or runs)
    repaired = {problem.topic for problem in repairable}
    return TopicReport(
        created=tuple(settings.topic(spec.topic) for spec in missing),
        repaired=tuple(sorted(repaired)),
        unchanged=tuple(state.name for state in states if state.name not in repaired),
        partitions=runs,
    )


def check_topics(settings: Settings) -> list[TopicProblem]:
    """Everything that is missing or differs from the table. Raises EnvironmentFault when the cluster is down."""
    client = connect(settings)
    states = _states(client, settings)
    present = {state.spec.topic for state in states}
    missing = [
        TopicProblem(settings.topic(spec.topic), "topic", "missing", "present", "run `rollbook topics create`")
        for spec in TOPIC_TABLE
        if spec.topic not in present
    ]
    runs = _run_partitions(states)
    return missing + (_problems(states, runs, _node_count(client), settings) if runs else [])


def describe_topics(settings: Settings) -> list[TopicState]:
    """The topics of the prefix that exist, in the table's order. Raises EnvironmentFault."""
    return _states(connect(settings), settings)


def delete_topics(settings: Settings) -> None:
    """Delete the topics of the prefix that exist, with all that is in them. Raises EnvironmentFault."""
    client = connect(settings)
    names = [state.name for state in _states(client, settings)]
    if names:
        for future in client.delete_topics(names, operation_timeout=_TIMEOUT_S).values():
            _result(future)


def replication_for(nodes: int) -> int:
    """One copy on one or two nodes, three from three on: two copies would stop writing when either node is away."""
    return 3 if nodes >= 3 else 1


def _min_insync(replication: int) -> Setting:
    return Setting("min.insync.replicas", "2" if replication >= 3 else "1")


def _node_count(client: AdminClient) -> int:
    return len(client.list_topics(timeout=_TIMEOUT_S).brokers)


def _states(client: AdminClient, settings: Settings) -> list[TopicState]:
    present = client.list_topics(timeout=_TIMEOUT_S).topics
    specs = [spec for spec in TOPIC_TABLE if settings.topic(spec.topic) in present]
    if not specs:
        return []
    resources = [ConfigResource(ResourceType.TOPIC, settings.topic(spec.topic)) for spec in specs]
    futures = client.describe_configs(resources, request_timeout=_TIMEOUT_S)
    entries = {resource.name: _result(future) for resource, future in futures.items()}
    states = []
    for spec in specs:
        name = settings.topic(spec.topic)
        partitions = present[name].partitions
        values = tuple(Setting(entry.name, str(entry.value)) for entry in entries[name].values())
        replication = min((len(partition.replicas) for partition in partitions.values()), default=0)
        states.append(TopicState(spec, name, len(partitions), replication, values))
    return states


def _run_partitions(states: list[TopicState]) -> int | None:
    """The number that the existing topics settle: that of `lifecycle`, else of any other topic ordered by run."""
    return next((state.partitions for state in states if state.spec.partitioning is Partitioning.RUNS), None)


def _problems(states: list[TopicState], runs: int, nodes: int, settings: Settings) -> list[TopicProblem]:
    problems = []
    for state in states:
        problems += _partition_problems(state, runs, settings)
        wanted_replication = replication_for(nodes)
        if state.replication < wanted_replication:
            remedy = f"move it to {wanted_replication} replicas with Kafka's kafka-reassign-partitions"
            problems.append(
                TopicProblem(state.name, "replication", str(state.replication), str(wanted_replication), remedy)
            )
        for setting in (*state.spec.settings, _min_insync(state.replication)):
            actual = state.value(setting.name)
            if setting.fixed and actual != setting.value:
                remedy = "run `rollbook topics create --repair`"
                problems.append(TopicProblem(state.name, setting.name, actual, setting.value, remedy))
    return problems


def _partition_problems(state: TopicState, runs: int, settings: Settings) -> list[TopicProblem]:
    wanted = {Partitioning.RUNS: runs, Partitioning.OWN: state.partitions, Partitioning.SINGLE: 1}
    number = wanted[state.spec.partitioning]
    if state.partitions == number:
        return []
    remedy = (
        f"it is fixed for the life of the prefix {settings.topic_prefix!r}: run `rollbook topics create --partitions "
        f"{state.partitions}`, or set ROLLBOOK_TOPIC_PREFIX to a new prefix"
    )
    return [TopicProblem(state.name, "partitions", str(state.partitions), str(number), remedy)]


def _is_repairable(problem: TopicProblem) -> bool:
    return problem.setting not in ("partitions", "replication", "topic")


def _set(client: AdminClient, problem: TopicProblem) -> None:
    entry = ConfigEntry(problem.setting, problem.wanted, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, problem.topic, incremental_configs=[entry])
    for future in client.incremental_alter_configs([resource], request_timeout=_TIMEOUT_S).values():
        _result(future)


def _create(client: AdminClient, settings: Settings, specs: list[TopicSpec], runs: int, payloads: int) -> None:
    if not specs:
        return
    replication = replication_for(_node_count(client))
    numbers = {Partitioning.RUNS: runs, Partitioning.OWN: payloads, Partitioning.SINGLE: 1}
    topics = [
        NewTopic(
            settings.topic(spec.topic),
            num_partitions=numbers[spec.partitioning],
            replication_factor=replication,
            config={setting.name: setting.value for setting in (*spec.settings, _min_insync(replication))},
        )
        for spec in specs
    ]
    futures = client.create_topics(topics, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)
    for name, future in futures.items():
        try:
            _result(future)
        except KafkaException as fault:
            # Someone made it at the same moment: theirs came from the same table.
            if fault.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise EnvironmentFault(f"topic {name} cannot be created: {fault.args[0].str()}") from fault


def _result(future: "Future[T]") -> T:
    return future.result(timeout=_SETTLE_TIMEOUT_S)
