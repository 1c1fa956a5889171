"""Asks a cluster for all that the checks judge. It only reads."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package forgets to mark them as exported
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from rollbook.infra.doctor.facts import (
    Broker,
    Copies,
    Facts,
    InternalTopic,
    LedgerPart,
    Look,
    Member,
    RunFacts,
    Waiting,
)
from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.acl_table import INTERNAL
from rollbook.infra.topics.admin import connect
from rollbook.infra.topics.topics import check_topics, describe_topics
from rollbook.processors.host.clients import group_id
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.processors.ledger.store import Run
from rollbook.processors.lifecycle import LIVE
from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.source import OutOfRange
from rollbook.schemas.codec import UndecodableRecord, decode
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.records.rollout import Generated
from rollbook.schemas.records.run import LagUnit

_TIMEOUT_S = 10.0
_FIRST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LAST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_PAUSE_S = 0.1
_PASSING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)
Key = tuple[Topic, int]


def look(settings: Settings) -> Facts:
    """Everything, as it is now. Raises EnvironmentFault when the cluster does not answer or does not let us look."""
    client = connect(settings)
    metadata = client.list_topics(timeout=_TIMEOUT_S)
    topics = tuple(describe_topics(settings))
    places = [(state.spec.topic, p) for state in topics for p in range(state.partitions)]
    before = _look(client, settings, places)
    first = _ends(client, settings, places, _FIRST, committed=False)
    parts, runs = _ledger(settings, first, {state.spec.topic: state.partitions for state in topics})
    return Facts(
        settings=settings,
        now_ms=int(time.time() * 1000),
        brokers=tuple(_brokers(client, metadata)),
        internal=tuple(_internal(client, metadata)),
        copies=tuple(_copies(metadata, [*INTERNAL, *(state.name for state in topics)])),
        topics=topics,
        problems=tuple(check_topics(settings)),
        first=first,
        before=before,
        after=_look(client, settings, places),
        ledger=parts,
        runs=runs,
    )


def _answer(ask: Callable[[], "Future[Any]"]) -> Any:
    """The answer to a question, asked again while a coordinator or a leader is only just coming up."""
    deadline = time.monotonic() + 2 * _TIMEOUT_S
    while True:
        try:
            return ask().result(timeout=2 * _TIMEOUT_S)
        except KafkaException as fault:
            error: KafkaError = fault.args[0]
            if error.code() not in _PASSING or time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"the cluster refused a question ({error.name()} {error.str()}): ask as a user with the rights of "
                    "an operator, see `rollbook topics acl`"
                ) from fault
            time.sleep(_PAUSE_S)
        except TimeoutError as fault:
            raise EnvironmentFault("the cluster did not answer in time: check its log, then try again") from fault


def _only(futures: Mapping[Any, "Future[Any]"]) -> "Future[Any]":
    (future,) = futures.values()
    return future


def _config(client: AdminClient, kind: ResourceType, name: str) -> Mapping[str, str]:
    resource = ConfigResource(kind, name)
    found = _answer(lambda: _only(client.describe_configs([resource], request_timeout=_TIMEOUT_S)))
    return {entry.name: str(entry.value or "") for entry in found.values()}


def _brokers(client: AdminClient, metadata: ClusterMetadata) -> Iterator[Broker]:
    for node in sorted(metadata.brokers):
        yield Broker(node, _config(client, ResourceType.BROKER, str(node)))


def _internal(client: AdminClient, metadata: ClusterMetadata) -> Iterator[InternalTopic]:
    for name in INTERNAL:
        found = metadata.topics.get(name)
        if found is not None and found.partitions:
            config = _config(client, ResourceType.TOPIC, name)
            replication = min(len(partition.replicas) for partition in found.partitions.values())
            unclean = config["unclean.leader.election.enable"] == "true"
            yield InternalTopic(name, replication, int(config["min.insync.replicas"]), unclean)


def _copies(metadata: ClusterMetadata, names: list[str]) -> Iterator[Copies]:
    for name in names:
        found = metadata.topics.get(name)
        for number, partition in sorted(found.partitions.items()) if found is not None else ():
            yield Copies(name, number, partition.leader, len(partition.replicas), len(partition.isrs))


def _look(client: AdminClient, settings: Settings, places: list[Key]) -> Look:
    return Look(
        members=tuple(_members(client, settings)),
        committed=_committed(client, settings, [p for topic, p in places if topic is Topic.LIFECYCLE]),
        stable=_ends(client, settings, places, _LAST, committed=True),
        high=_ends(client, settings, places, _LAST, committed=False),
    )


def _decided(log: KafkaLog, settings: Settings, partition: int) -> tuple[int, bool]:
    """The offset behind the last decision, and whether the log still has the record that it decided."""
    decisions = DecisionLog(log, settings.topic(Topic.DECISIONS), partition)
    last = next(decisions.before(decisions.bounds.end), None)
    if last is None:
        return 0, True
    source = last.decision.source
    try:
        (found,) = log.read_at(settings.topic(Topic.LIFECYCLE), partition, [source.offset])
    except OutOfRange:  # deleted, or the log ends before it: findings of their own
        return source.offset + 1, True
    return source.offset + 1, found.sha256 == source.sha256


def _members(client: AdminClient, settings: Settings) -> Iterator[Member]:
    group = [group_id(settings)]
    try:
        described = _answer(lambda: _only(client.describe_consumer_groups(group, request_timeout=_TIMEOUT_S)))
    except EnvironmentFault as fault:
        cause = fault.__cause__
        if isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return  # no processor has ever run
        raise
    for member in described.members:
        lifecycle = settings.topic(Topic.LIFECYCLE)
        held = member.assignment.topic_partitions if member.assignment is not None else ()
        partitions = tuple(sorted(place.partition for place in held if place.topic == lifecycle))
        yield Member(member.member_id, member.group_instance_id or "", member.host, partitions)


def _committed(client: AdminClient, settings: Settings, partitions: list[int]) -> Mapping[int, int]:
    if not partitions:
        return {}
    wanted = [TopicPartition(settings.topic(Topic.LIFECYCLE), p) for p in partitions]
    asked = ConsumerGroupTopicPartitions(group_id(settings), wanted)
    found = _answer(lambda: _only(client.list_consumer_group_offsets([asked], request_timeout=_TIMEOUT_S)))
    return {place.partition: place.offset for place in found.topic_partitions if place.offset >= 0}


def _ends(
    client: AdminClient, settings: Settings, places: list[Key], spec: OffsetSpec, *, committed: bool
) -> Mapping[Key, int]:
    if not places:
        return {}
    names = {settings.topic(topic): topic for topic in Topic}
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(settings.topic(topic), p): spec for topic, p in places}
    # A copy, since the library finds the futures that it fulfils in its own.
    first = dict(client.list_offsets(asked, isolation_level=level, request_timeout=_TIMEOUT_S))

    def ask(place: TopicPartition) -> "Future[Any]":
        """The answer of the first question, and then of one of its own: a leader may only just be known."""
        again = {place: spec}
        return first.pop(place, None) or client.list_offsets(again, isolation_level=level)[place]

    return {(names[place.topic], place.partition): _answer(partial(ask, place)).offset for place in asked}


def _ledger(
    settings: Settings, first: Mapping[Key, int], partitions: Mapping[Topic, int]
) -> tuple[tuple[LedgerPart, ...], tuple[RunFacts, ...]]:
    """Every partition of the ledger, one at a time, and what is to be known of its runs."""
    parts, runs = [], []
    count = partitions.get(Topic.LIFECYCLE, 0)
    with KafkaLog(settings) as log:
        for p in range(min(count, partitions.get(Topic.LEDGER, 0))):
            rebuild = Rebuild(p, count)
            topic = settings.topic(Topic.LEDGER)
            bounds = log.bounds(topic, p)
            for stored in log.read(topic, p, bounds.first, bounds.end) if bounds.first < bounds.end else ():
                rebuild.take(stored.key or b"", stored.value)
            try:
                stands = None if rebuild.position is None else rebuild.position.next_offset
                found = rebuild.ledger().runs.values()
            except BadInput as problem:
                raise BadInput(f"{topic}:{p}: {problem}") from None
            parts.append(LedgerPart(p, stands, rebuild.records, rebuild.rows, *_decided(log, settings, p)))
            runs += [_run(log, settings, run, p, first) for run in found if run.head.config_version]
    return tuple(parts), tuple(runs)


def _run(log: KafkaLog, settings: Settings, run: Run, partition: int, first: Mapping[Key, int]) -> RunFacts:
    by_depth = not run.head.config_version or run.config.admission.lag_unit is LagUnit.DEPTH
    activated = [policy for policy in run.policies.values() if policy.activated_offset is not None]
    waiting = min((t.generated_offset for t in run.trajectories.values() if t.status in LIVE), default=None)
    offsets = {policy.activated_offset for policy in activated if policy.activated_offset is not None}
    wanted = offsets if waiting is None else {*offsets, waiting}
    try:
        found = {one.offset: one for one in log.read_at(settings.topic(Topic.LIFECYCLE), partition, wanted)}
    except OutOfRange:  # the log has lost its beginning, which is a finding of its own
        return RunFacts(run, partition, None, ())
    activations = sorted(
        (found[p.activated_offset].timestamp_ms, p.depth if by_depth else p.ordinal)
        for p in activated
        if p.activated_offset is not None
    )
    oldest = (
        None if waiting is None else _waiting(found[waiting].value or b"", found[waiting].timestamp_ms, settings, first)
    )
    return RunFacts(run, partition, oldest, tuple((number, at_ms) for at_ms, number in activations))


def _waiting(value: bytes, at_ms: int, settings: Settings, first: Mapping[Key, int]) -> Waiting | None:
    try:
        record = decode(value)
    except UndecodableRecord:  # the log is not that which was decided, which is a finding of its own
        return None
    if not isinstance(record, Generated):
        return None
    gone = ""
    for segment in record.segments:
        ref = segment.payload
        if ref is not None and ref.topic == settings.topic(Topic.PAYLOADS):
            begins = first.get((Topic.PAYLOADS, ref.partition), 0)
            gone = gone or next((f"{ref.topic}:{ref.partition}@{o}" for o in ref.offsets if o < begins), "")
    return Waiting(record.identity.trajectory_id, at_ms, gone)
