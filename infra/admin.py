"""The administrative connection to a cluster: quiet, bounded in time, and clear about a cluster that is not there."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from rollbook.infra.settings import FILE_VARIABLE, KAFKA_VARIABLE, Settings
from rollbook.schemas.errors import EnvironmentFault

CONNECT_TIMEOUT_S = 5.0
_FIRST_S = 1.0
"""After so long a refusal is known; librdkafka itself would try until the end."""
_NOT_LET_IN = (KafkaError._AUTHENTICATION, KafkaError._SSL)


def connect(settings: Settings, timeout_s: float = CONNECT_TIMEOUT_S) -> AdminClient:
    """An AdminClient that has heard from the cluster. Keep a reference while its futures run.

    Raises EnvironmentFault, naming the address and the remedy, when nothing there answers as Kafka within the time, or
    does not let us in.
    """
    faults: list[KafkaError] = []
    # librdkafka writes its troubles to stderr unless told not to; the one that matters is raised below.
    client = AdminClient(settings.client({"log_level": 0, "error_cb": faults.append}))
    last = _ask(client, min(_FIRST_S, timeout_s))
    refusal = next((one for one in faults if one.code() in _NOT_LET_IN), None)
    if last is not None and refusal is None:
        last = _ask(client, timeout_s - _FIRST_S)
        refusal = next((one for one in faults if one.code() in _NOT_LET_IN), None)
    if last is None:
        return client
    if refusal is not None:
        raise EnvironmentFault(
            f"the broker at {settings.bootstrap_servers} does not let us in ({refusal.str()}): see the user, password "
            f"and certificates of {KAFKA_VARIABLE}* or {FILE_VARIABLE}"
        ) from last
    raise EnvironmentFault(
        f"no Kafka broker answers at {settings.bootstrap_servers} (waited {timeout_s:.0f} s): start one with "
        "`rollbook broker start`, or set ROLLBOOK_BOOTSTRAP_SERVERS to a running cluster"
    ) from last


def _ask(client: AdminClient, timeout_s: float) -> KafkaException | None:
    """Why the cluster does not answer; None when it does."""
    try:
        client.list_topics(timeout=max(0.1, timeout_s))
    except KafkaException as fault:
        client.poll(0)  # what went wrong on the way is only told from here
        return fault
    return None
