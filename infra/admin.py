"""The administrative connection to a cluster: quiet, bounded in time, and clear about a cluster that is not there."""

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from rollbook.infra.settings import Settings
from rollbook.schemas.errors import EnvironmentFault

CONNECT_TIMEOUT_S = 5.0


def connect(settings: Settings, timeout_s: float = CONNECT_TIMEOUT_S) -> AdminClient:
    """An AdminClient that has heard from the cluster. Keep a reference while its futures run.

    Raises EnvironmentFault, naming the address and the remedy, when nothing there answers as Kafka within the time.
    """
    # librdkafka writes its troubles to stderr unless told not to; the one that matters is raised below.
    client = AdminClient({"bootstrap.servers": settings.bootstrap_servers, "log_level": 0})
    try:
        client.list_topics(timeout=timeout_s)
    except KafkaException as fault:
        raise EnvironmentFault(
            f"no Kafka broker answers at {settings.bootstrap_servers} (waited {timeout_s:.0f} s): start one with "
            "`rollbook broker start`, or set ROLLBOOK_BOOTSTRAP_SERVERS to a running cluster"
        ) from fault
    return client
