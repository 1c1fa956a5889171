"""The Kafka clients of the host, and how they are tuned."""

import logging
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from rollbook.infra.settings import DECISION_MAX_BYTES, Settings
from rollbook.processors.host.clock import Clock
from rollbook.processors.host.errors import HostStopped, passes, remedy

logger = logging.getLogger("rollbook.processor")
librdkafka = logging.getLogger("rollbook.librdkafka")
librdkafka.setLevel(logging.CRITICAL + 1)  # what matters of it reaches error_cb and the calls' own errors

INIT_TIMEOUT_S = 30.0
ASK_S = 60.0
FEW = 3

TRANSACTION_TIMEOUT_MS = 3_000
MAX_RECORD_BYTES = DECISION_MAX_BYTES + 64 * 1024
"""Of a decision, the largest record there is, with its envelope."""


_SAY_AGAIN_S = 10.0
_said: dict[int, float] = {}


def _on_error(error: KafkaError) -> None:
    """An outage repeats one error many times a second: say each kind once in a while."""
    now = time.monotonic()
    if now - _said.get(error.code(), -_SAY_AGAIN_S) >= _SAY_AGAIN_S:
        _said[error.code()] = now
        logger.warning("kafka: %s", error.str())


def group_id(settings: Settings) -> str:
    """The consumer group that all processor instances of a topic prefix share."""
    return f"{settings.topic_prefix}processor"


def transactional_producer(settings: Settings, name: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> Producer:
    """A producer that owns the transactional id: whoever held it before is fenced, its open transaction ended."""
    producer = Producer(
        settings.client(
            {
                "transactional.id": name,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "batch.size": 262_144,
                "compression.type": "lz4",
                "message.max.bytes": MAX_RECORD_BYTES,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1_048_576,
                "retry.backoff.ms": 10,
                "error_cb": _on_error,
                "logger": librdkafka,
            }
        )
    )
    try:
        producer.init_transactions(INIT_TIMEOUT_S)
    except KafkaException as error:
        raise HostStopped(
            f"transactional id {name} cannot be had at {settings.bootstrap_servers} ({error.args[0].str()}): "
            "check that the broker runs and that its transaction topic has a leader, then start the processor again"
        ) from None
    return producer


def clerk_producer(settings: Settings) -> Producer:
    """A plain producer for what the processor itself reports: the lifecycle topic is never written transactionally."""
    return Producer(
        settings.client(
            {
                "enable.idempotence": True,
                "linger.ms": 0,
                "error_cb": _on_error,
                "logger": librdkafka,
            }
        )
    )


def group_consumer(settings: Settings, name: str, session_timeout_ms: int) -> Consumer:
    """The consumer of the lifecycle topic, a static member of the group."""
    return Consumer(
        settings.client(
            {
                "group.id": group_id(settings),
                "group.instance.id": name,
                "session.timeout.ms": session_timeout_ms,
                "heartbeat.interval.ms": max(100, session_timeout_ms // 4),
                "partition.assignment.strategy": "cooperative-sticky",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "fetch.queue.backoff.ms": 5,
                "fetch.wait.max.ms": 50,
                "fetch.message.max.bytes": MAX_RECORD_BYTES,
                "error_cb": _on_error,
                "logger": librdkafka,
            }
        )
    )


def reader(settings: Settings, *, committed: bool = True) -> Consumer:
    """A consumer without a group, for restores: of partitions that it is told, committed records or all."""
    return Consumer(
        settings.client(
            {
                "group.id": f"{group_id(settings)}-restore",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.queue.backoff.ms": 5,
                "fetch.wait.max.ms": 50,
                "error_cb": _on_error,
                "logger": librdkafka,
            }
        )
    )


def retried(clock: Clock, what: str, call: Callable[[], Any]) -> Any:
    """Repeat a call that asks the cluster, while its error passes: brokers move and come back. A machine that slept is
    no reason to give up: a few failures must have been seen."""
    deadline, failures = clock.monotonic() + ASK_S, 0
    while True:
        try:
            return call()
        except KafkaException as error:
            fault: KafkaError = error.args[0]
            failures += 1
            if (clock.monotonic() > deadline and failures >= FEW) or not passes(fault):
                raise HostStopped(f"{what}: {fault.str()} ({fault.name()}): {remedy(fault)}") from None
            clock.sleep(0.1)
