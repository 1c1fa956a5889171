"""Kafka errors by who must act: one table from error to action."""

from enum import StrEnum

from confluent_kafka import KafkaError

from rollbook.schemas.errors import EnvironmentFault


class Action(StrEnum):
    """What the host does about an error."""

    STOP_FENCED = "stop_fenced"
    STOP = "stop"
    ABORT = "abort"
    RETRY = "retry"
    UNKNOWN_OUTCOME = "unknown_outcome"


class Fenced(EnvironmentFault):
    """A newer process of the same name took over: this one must end, and says so by its own exit code."""

    exit_code = 5


class HostStopped(EnvironmentFault):
    """The host cannot go on; the message names the place and the remedy."""


_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
    }
)
_TIMEOUTS = frozenset({KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError.REQUEST_TIMED_OUT})


def action_for(error: KafkaError) -> Action:
    """Who acts: fenced before fatal, since a fence is fatal too; a time-out leaves the outcome unknown."""
    if error.code() in _FENCED or (error.code() == KafkaError._FATAL and "fenced" in error.str()):
        return Action.STOP_FENCED
    if error.fatal():
        return Action.STOP
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return Action.STOP  # the same records would be refused for ever
    if error.txn_requires_abort():
        return Action.ABORT
    if error.code() in _TIMEOUTS:
        return Action.UNKNOWN_OUTCOME
    return Action.RETRY if error.retriable() else Action.STOP
