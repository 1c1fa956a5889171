"""The errors that Kafka and librdkafka answer with, as the simulated clients raise them."""

from confluent_kafka import KafkaError, KafkaException


class Again(Exception):
    """The broker says: not yet. librdkafka asks again by itself."""


def timed_out(what: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{what} timed out", False, True, False))


def retriable(what: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, f"{what}: loading", False, True, False))


def abortable(code: int, what: str) -> KafkaException:
    return KafkaException(KafkaError(code, what, False, False, True))


def fatal(code: int, what: str) -> KafkaException:
    return KafkaException(KafkaError(code, what, True, False, False))


def state(what: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._STATE, what, False, False, False))


def fenced(name: str) -> KafkaException:
    return fatal(KafkaError._FENCED, f"{name}: this instance has been fenced by a newer instance")
