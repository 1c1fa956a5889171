"""Asks an address which Kafka cluster answers there."""

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient


def answering_cluster(bootstrap_servers: str, timeout_s: float) -> str | None:
    """The cluster id that the address answers with; None if nothing there speaks Kafka within the time."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 200})
    try:
        metadata = client.list_topics(timeout=timeout_s)
    except KafkaException:
        return None
    return str(metadata.cluster_id) if metadata.cluster_id else None
