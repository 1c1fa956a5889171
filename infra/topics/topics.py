"""The topics on a cluster: make them, compare them with the table, delete them."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package forgets to mark them as exported
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from rollbook.infra.settings import DEFAULT_PARTITIONS, Settings
from rollbook.infra.topics.admin import connect
from rollbook.infra.topics.table import TOPIC_TABLE, Partitioning, Setting, TopicSpec, min_insync, replication_for
from rollbook.schemas.errors import BadInput, EnvironmentFault

T = TypeVar("T")

# The "setting" of a topic that is not there at all.
_EXISTENCE = "topic"
_TIMEOUT_S = 10.0
_SETTLE_TIMEOUT_S = 30.0
_POLL_S = 0.02


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
        if self.setting == _EXISTENCE:
            return f"topic {self.topic} is missing: {self.remedy}"
        return f"topic {self.topic}: {self.setting} is {self.actual}, wanted {self.wanted}: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Fact:
    """A setting of a topic beside what it should be; `wanted` is empty where that is the operator's."""

    setting: str
    actual: str
    wanted: str


def wanted_of(state: TopicState, problems: Sequence[TopicProblem]) -> tuple[Fact, ...]:
    """What the table says of a topic, as it is and as it should be."""
    told = {problem.setting: problem.wanted for problem in problems if problem.topic == state.name}
    partitions, replication = str(state.partitions), str(state.replication)
    facts = [
        Fact("partitions", partitions, told.get("partitions", partitions)),
        Fact("replication", replication, told.get("replication", replication)),
    ]
    for setting in (*state.spec.settings, min_insync(state.replication)):
        wanted = setting.value if setting.fixed else f"yours ({setting.value} at first)"
        facts.append(Fact(setting.name, state.value(setting.name), wanted))
    return tuple(facts)


def in_one_line(problems: Sequence[TopicProblem], rest: str = "`rollbook topics describe` shows them") -> str:
    """The first problem in full, and how many more there are: they mostly have one cause."""
    more = f" (and {len(problems) - 1} more; {rest})" if len(problems) > 1 else ""
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
    nodes = _node_count(client)
    problems = _problems(states, runs, nodes, settings)
    repairable = [problem for problem in problems if repair and _is_repairable(problem)]
    refused = [problem for problem in problems if problem not in repairable]
    if refused:
        raise BadInput(in_one_line(refused))
    for problem in repairable:
        _set(client, problem)
    if repairable:
        _await(
            lambda: not set(repairable) & set(_problems(_states(client, settings), runs, nodes, settings)),
            "the repaired settings to be in force",
        )
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
        TopicProblem(settings.topic(spec.topic), _EXISTENCE, "missing", "present", "run `rollbook topics create`")
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
        _await(lambda: not _present(client).keys() & set(names), "the deleted topics to be gone")


def _node_count(client: AdminClient) -> int:
    return len(_metadata(client).brokers)


def _present(client: AdminClient) -> Mapping[str, TopicMetadata]:
    return _metadata(client).topics


def _metadata(client: AdminClient) -> ClusterMetadata:
    try:
        return client.list_topics(timeout=_TIMEOUT_S)
    except KafkaException as fault:
        raise _refused("the cluster stopped answering", fault) from fault


def _states(client: AdminClient, settings: Settings) -> list[TopicState]:
    present = _present(client)
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
    """The number that the existing topics settle: the smallest of those ordered by run, since partitions can be added
    to a topic and never taken away."""
    return min((state.partitions for state in states if state.spec.partitioning is Partitioning.RUNS), default=None)


def _problems(states: list[TopicState], runs: int, nodes: int, settings: Settings) -> list[TopicProblem]:
    problems = []
    settled = _run_partitions(states) or runs
    for state in states:
        problems += _partition_problems(state, runs, settled, settings)
        wanted_replication = replication_for(nodes)
        if state.replication < wanted_replication:
            remedy = f"move it to {wanted_replication} replicas with Kafka's kafka-reassign-partitions"
            problems.append(
                TopicProblem(state.name, "replication", str(state.replication), str(wanted_replication), remedy)
            )
        for setting in (*state.spec.settings, min_insync(state.replication)):
            actual = state.value(setting.name)
            if setting.fixed and actual != setting.value:
                remedy = "run `rollbook topics create --repair`"
                problems.append(TopicProblem(state.name, setting.name, actual, setting.value, remedy))
    return problems


def _partition_problems(state: TopicState, runs: int, settled: int, settings: Settings) -> list[TopicProblem]:
    wanted = {Partitioning.RUNS: runs, Partitioning.OWN: state.partitions, Partitioning.SINGLE: 1}
    number = wanted[state.spec.partitioning]
    if state.partitions == number:
        return []
    fixed = f"it is fixed for the life of the prefix {settings.topic_prefix!r}: "
    remedy = fixed + (
        "what was added cannot be taken away; set ROLLBOOK_TOPIC_PREFIX to a new prefix"
        if settled < state.partitions
        else f"run `rollbook topics create --partitions {settled}`, or set ROLLBOOK_TOPIC_PREFIX to a new prefix"
    )
    return [TopicProblem(state.name, "partitions", str(state.partitions), str(number), remedy)]


def _is_repairable(problem: TopicProblem) -> bool:
    return problem.setting not in ("partitions", "replication", _EXISTENCE)


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
            config={setting.name: setting.value for setting in (*spec.settings, min_insync(replication))},
        )
        for spec in specs
    ]
    futures = client.create_topics(topics, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)
    for name, future in futures.items():
        try:
            future.result(timeout=_SETTLE_TIMEOUT_S)
        except KafkaException as fault:
            # Someone makes them at the same moment, from the same table as we.
            if fault.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _refused(f"topic {name} cannot be created", fault) from fault
    names = [topic.topic for topic in topics]
    _await(lambda: _are_led(_present(client), names), "the new topics to have leaders")


def _await(done: Callable[[], bool], what: str) -> None:
    """Wait until the broker that we ask shows a change: the controller answers before the brokers have heard of it."""
    deadline = time.monotonic() + _SETTLE_TIMEOUT_S
    while not done():
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"waited {_SETTLE_TIMEOUT_S:.0f} s for {what}: check the cluster's log")
        time.sleep(_POLL_S)


def _are_led(present: Mapping[str, TopicMetadata], names: Sequence[str]) -> bool:
    partitions = [tuple(present[name].partitions.values()) if name in present else () for name in names]
    return all(found and all(partition.leader >= 0 for partition in found) for found in partitions)


def _result(future: "Future[T]") -> T:
    try:
        return future.result(timeout=_SETTLE_TIMEOUT_S)
    except KafkaException as fault:
        raise _refused("the cluster refused a request about its topics", fault) from fault
    except TimeoutError as fault:
        raise EnvironmentFault(
            f"the cluster did not answer within {_SETTLE_TIMEOUT_S:.0f} s: check its log, then try again"
        ) from fault


def _refused(what: str, fault: KafkaException) -> EnvironmentFault:
    return EnvironmentFault(f"{what}: {fault.args[0].str()}: check the cluster and what this client may do there")
