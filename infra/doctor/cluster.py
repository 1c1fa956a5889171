"""Checks of the cluster: brokers, topics, copies."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rollbook.infra.doctor.facts import Facts, Finding, Level
from rollbook.infra.settings import DECISION_MAX_BYTES
from rollbook.infra.topics.table import min_insync, replication_for
from rollbook.processors.host.loop import DEFAULT_SESSION_TIMEOUT_MS
from rollbook.processors.host.transaction import LONG_MS

_DAY_MS = 24 * 3_600_000
_REQUEST_BYTES = 2 * DECISION_MAX_BYTES


@dataclass(frozen=True, slots=True)
class Demand:
    """What a broker's setting must be. Without `absent` a broker that does not have the setting passes."""

    setting: str
    level: Level
    holds: Callable[[str], bool]
    wanted: str
    why: str
    absent: str = ""


def _at_least(number: int) -> Callable[[str], bool]:
    return lambda value: int(value) >= number


def _at_most(number: int) -> Callable[[str], bool]:
    return lambda value: int(value) <= number


def _is(wanted: str) -> Callable[[str], bool]:
    return lambda value: value.lower() == wanted


DEMANDS = (
    Demand(
        "transaction.max.timeout.ms",
        Level.UNSAFE,
        _at_least(LONG_MS),
        f"{LONG_MS} or more",
        "a mass change is one transaction that long, and the processor could not begin it",
    ),
    Demand(
        "group.min.session.timeout.ms",
        Level.UNSAFE,
        _at_most(DEFAULT_SESSION_TIMEOUT_MS),
        f"{DEFAULT_SESSION_TIMEOUT_MS} or less",
        "the processor could not join its group with its session time-out",
    ),
    Demand(
        "group.max.session.timeout.ms",
        Level.UNSAFE,
        _at_least(DEFAULT_SESSION_TIMEOUT_MS),
        f"{DEFAULT_SESSION_TIMEOUT_MS} or more",
        "the processor could not join its group with its session time-out",
    ),
    Demand(
        "group.coordinator.rebalance.protocols",
        Level.UNSAFE,
        lambda value: "classic" in value.split(","),
        "with classic in it",
        "the processor's group speaks the classic protocol",
    ),
    Demand(
        "socket.request.max.bytes",
        Level.UNSAFE,
        _at_least(_REQUEST_BYTES),
        f"{_REQUEST_BYTES} or more",
        "a maximal decision could not be written",
    ),
    Demand(
        "log.cleaner.enable",
        Level.UNSAFE,
        _is("true"),
        "true",
        "the compacted topics grow for ever, and with them every restore",
    ),
    Demand(
        "unclean.leader.election.enable",
        Level.UNSAFE,
        _is("false"),
        "false",
        "Kafka's own topics take it from here: offsets and the state of transactions can be lost",
    ),
    Demand(
        "transaction.partition.verification.enable",
        Level.WARNING,
        _is("true"),
        "true",
        "a late request can open a transaction that nobody ends, and readers stand still behind it",
        absent="not there (a Kafka older than 3.6)",
    ),
    Demand(
        "transactional.id.expiration.ms",
        Level.WARNING,
        _at_least(_DAY_MS),
        f"{_DAY_MS} or more",
        "a processor that was idle that long would have to start again",
    ),
    Demand(
        "auto.create.topics.enable",
        Level.WARNING,
        _is("false"),
        "false",
        "a mistyped prefix makes topics that keep records for a week",
    ),
    Demand(
        "authorizer.class.name",
        Level.WARNING,
        lambda value: value not in ("", "None"),
        "an authoriser",
        "whoever reaches the cluster may write decisions; see `rollbook topics acl`",
    ),
    Demand(
        "allow.everyone.if.no.acl.found",
        Level.WARNING,
        _is("false"),
        "false",
        "a topic without an entry, such as one of a new prefix, is everybody's",
    ),
)


def broker_settings(facts: Facts) -> Iterator[Finding]:
    for broker in facts.brokers:
        for demand in DEMANDS:
            value = broker.settings.get(demand.setting)
            if value is None:
                bad, told = bool(demand.absent), demand.absent
            else:
                bad, told = not demand.holds(value), value or "empty"
            if bad:
                yield Finding(
                    demand.level,
                    "broker settings",
                    f"broker {broker.node_id}",
                    f"{demand.setting} is {told}: {demand.why}",
                    f"set it to {demand.wanted}",
                )


def topic_settings(facts: Facts) -> Iterator[Finding]:
    for problem in facts.problems:
        about = f"topic {problem.topic}"
        told = f"{problem.setting} is {problem.actual}, wanted {problem.wanted}"
        yield Finding(Level.UNSAFE, "topic settings", about, told, problem.remedy)


def internal_topics(facts: Facts) -> Iterator[Finding]:
    """Offsets and the state of transactions decide what is exactly once: they are to be as safe as the log."""
    wanted = replication_for(len(facts.brokers))
    for topic in facts.internal:
        about = f"topic {topic.name}"
        if topic.replication < wanted:
            told = f"it has {topic.replication} of {wanted} copies that these brokers can hold"
            remedy = "move it to more replicas with Kafka's kafka-reassign-partitions"
            yield Finding(Level.UNSAFE, "internal topics", about, told, remedy)
        needed = int(min_insync(topic.replication).value)
        if topic.min_insync < needed:
            told = f"min.insync.replicas is {topic.min_insync}: what is acknowledged may be on one broker alone"
            yield Finding(Level.UNSAFE, "internal topics", about, told, f"set it to {needed} with kafka-configs.sh")
        if topic.unclean_election:
            told = "unclean.leader.election.enable is true: acknowledged records can be lost"
            yield Finding(Level.UNSAFE, "internal topics", about, told, "set it to false with kafka-configs.sh")


def copies(facts: Facts) -> Iterator[Finding]:
    needed = {state.name: int(state.value("min.insync.replicas")) for state in facts.topics}
    needed |= {topic.name: topic.min_insync for topic in facts.internal}
    for one in facts.copies:
        about = f"partition {one.topic}:{one.partition}"
        if one.leader < 0:
            yield Finding(Level.UNSAFE, "copies", about, "it has no leader", "bring its brokers back")
        elif one.in_sync < needed.get(one.topic, 1):
            told = f"{one.in_sync} of {one.replicas} copies are in sync, too few to be written"
            yield Finding(Level.UNSAFE, "copies", about, told, "bring its brokers back")
        elif one.in_sync < one.replicas:
            told = f"{one.in_sync} of {one.replicas} copies are in sync"
            yield Finding(Level.WARNING, "copies", about, told, "see why a broker is behind or away")
    single = [state.name for state in facts.topics if state.replication == 1]
    if single:
        told = "there is one copy of each record: with the broker's disk the ledger is gone"
        remedy = "fine for a trial; else run three brokers or more"
        yield Finding(Level.WARNING, "copies", f"prefix {facts.settings.topic_prefix}", told, remedy)
