"""The broker of a demo: one of its own that dies with it, or an existing cluster with topics of this run's own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.broker.daemon import start_daemon
from rollbook.infra.broker.files import broker_files
from rollbook.infra.demo.processes.folder import RunFolder
from rollbook.infra.settings import FILE_VARIABLE, SERVERS_VARIABLE, Settings, variable_for
from rollbook.infra.topics.topics import create_topics
from rollbook.schemas.errors import BadInput


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the run's topics are. `is_embedded`: on a broker of ours, whose data lies in the run's folder."""

    settings: Settings
    is_embedded: bool

    @property
    def port(self) -> int:
        return int(self.settings.bootstrap_servers.rpartition(":")[2])


def fetch_files() -> None:
    """Fetch what an embedded broker needs, with progress, where one is going to be started and something is missing.
    Raises BadInput for settings that such a broker cannot take."""
    if not _is_given():
        _settings_of_own("127.0.0.1:0")
        broker_files()


@contextmanager
def demo_cluster(folder: RunFolder, run_id: str) -> Iterator[Cluster]:
    """A cluster with the six topics made. `ROLLBOOK_BOOTSTRAP_SERVERS` names an existing one."""
    if _is_given():
        settings = Settings.from_env()
        own = replace(settings, topic_prefix=f"{settings.topic_prefix}{run_id}.")
        create_topics(own)
        yield Cluster(own, is_embedded=False)
        return
    with EmbeddedBroker(folder.broker) as broker:
        own = _settings_of_own(broker.bootstrap_servers)
        create_topics(own)
        yield Cluster(own, is_embedded=True)


def keep_running(folder: RunFolder, cluster: Cluster) -> None:
    """Once the embedded broker has stopped: start it again, detached, with the same data on the same port."""
    start_daemon(folder.broker, cluster.port)


def _settings_of_own(servers: str) -> Settings:
    """Settings for a broker of ours. What is set for all Kafka clients counts for it, too, since the demo's processes
    and the commands afterwards read it; but whoever has set TLS or a password means another broker."""
    kafka = Settings.from_env().kafka
    protocol = dict(kafka).get("security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise BadInput(
            f"security.protocol is {protocol} ({variable_for('security.protocol')}, or a line of {FILE_VARIABLE}), and "
            f"the demo's own broker has neither TLS nor passwords: set {SERVERS_VARIABLE} to the cluster that is "
            "meant, or unset the protocol"
        )
    return Settings(bootstrap_servers=servers, kafka=kafka)


def _is_given() -> bool:
    return SERVERS_VARIABLE in os.environ
