"""The administrative connection to a cluster: quiet, bounded in time, and clear about a cluster that is not there."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from rollbook.infra.settings import Settings

CONNECT_TIMEOUT_S = 5.0
_FIRST_S = 1.0
"""After so long a refusal is known; librdkafka itself would try until the end."""


def connect(settings: Settings, timeout_s: float = CONNECT_TIMEOUT_S) -> AdminClient:
    """An AdminClient that has heard from the cluster. Keep a reference while its futures run.

    Raises EnvironmentFault, naming the address and the remedy, when nothing there answers as Kafka within the time, or
    does not let us in.
    """
    faults: list[KafkaError] = []
    # librdkafka writes its troubles to stderr unless told not to; the one that matters is raised below.
    client = AdminClient(settings.client({"log_level": 0, "error_cb": faults.append}))
    last = _ask(client, min(_FIRST_S, timeout_s))
    if last is not None and not any(map(settings.is_refusal, faults)):
        last = _ask(client, timeout_s - _FIRST_S)
    if last is not None:
        raise settings.unreachable(faults, timeout_s) from last
    return client


def _ask(client: AdminClient, timeout_s: float) -> KafkaException | None:
    """Why the cluster does not answer; None when it does."""
    try:
        client.list_topics(timeout=max(0.1, timeout_s))
    except KafkaException as fault:
        client.poll(0)  # what went wrong on the way is only told from here
        return fault
    return None
