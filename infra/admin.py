"""The administrative connection to a cluster: quiet, bounded in time, and clear about a cluster that is not there."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from rollbook.infra.settings import FILE_VARIABLE, KAFKA_VARIABLE, Settings
from rollbook.schemas.errors import EnvironmentFault

CONNECT_TIMEOUT_S = 5.0
_NOT_LET_IN = (KafkaError._AUTHENTICATION, KafkaError._SSL)


def connect(settings: Settings, timeout_s: float = CONNECT_TIMEOUT_S) -> AdminClient:
    """An AdminClient that has heard from the cluster. Keep a reference while its futures run.

    Raises EnvironmentFault, naming the address and the remedy, when nothing there answers as Kafka within the time, or
    does not let us in.
    """
    faults: list[KafkaError] = []
    # librdkafka writes its troubles to stderr unless told not to; the one that matters is raised below.
    client = AdminClient(settings.client({"log_level": 0, "error_cb": faults.append}))
    try:
        client.list_topics(timeout=timeout_s)
    except KafkaException as fault:
        client.poll(0)
        refusal = next((one for one in faults if one.code() in _NOT_LET_IN), None)
        if refusal is not None:
            raise EnvironmentFault(
                f"the broker at {settings.bootstrap_servers} does not let us in ({refusal.str()}): see the user, "
                f"password and certificates of {KAFKA_VARIABLE}* or {FILE_VARIABLE}"
            ) from fault
        raise EnvironmentFault(
            f"no Kafka broker answers at {settings.bootstrap_servers} (waited {timeout_s:.0f} s): start one with "
            "`rollbook broker start`, or set ROLLBOOK_BOOTSTRAP_SERVERS to a running cluster"
        ) from fault
    return client
