"""The broker of a demo: one of its own that dies with it, or an existing cluster with topics of this run's own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.broker.daemon import start_daemon
from rollbook.infra.broker.files import broker_files
from rollbook.infra.demo.folder import RunFolder
from rollbook.infra.settings import Settings
from rollbook.infra.topics import create_topics


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the run's topics are. `is_embedded`: on a broker of ours, whose data lies in the run's folder."""

    settings: Settings
    is_embedded: bool

    @property
    def port(self) -> int:
        return int(self.settings.bootstrap_servers.rpartition(":")[2])


def fetch_files() -> None:
    """Fetch what an embedded broker needs, with progress, where one is going to be started and something is missing."""
    if not _is_given():
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
        own = Settings(bootstrap_servers=broker.bootstrap_servers)
        create_topics(own)
        yield Cluster(own, is_embedded=True)


def keep_running(folder: RunFolder, cluster: Cluster) -> None:
    """Once the embedded broker has stopped: start it again, detached, with the same data on the same port."""
    start_daemon(folder.broker, cluster.port)


def _is_given() -> bool:
    return "ROLLBOOK_BOOTSTRAP_SERVERS" in os.environ
