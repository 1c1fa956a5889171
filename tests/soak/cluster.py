"""The brokers of a soak: one node, or three of which each record has three copies."""

import base64
import shutil
import subprocess
import tempfile
import threading
import uuid
from pathlib import Path

from confluent_kafka import Consumer

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.broker.config import HOST, NodeExtras, NodeLayout, write_config
from rollbook.infra.broker.files import broker_files
from rollbook.infra.broker.jvm import java_command
from rollbook.infra.broker.ports import free_port
from rollbook.infra.broker.process import java_environment
from rollbook.infra.broker.storage import make_directory

_COPIES = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}


class Brokers:
    """Nodes that can be killed and started again, each under its number."""

    def __init__(self, count: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rollbook-soak-"))
        self.nodes = [EmbeddedBroker()] if count == 1 else _cluster(self._folder, count)
        self._starting: dict[int, threading.Thread] = {}
        self.failures: list[BaseException] = []

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes)

    @property
    def up(self) -> bool:
        """Whether all nodes run and answer."""
        return not any(thread.is_alive() for thread in self._starting.values()) and all(
            node.pid is not None for node in self.nodes
        )

    def start(self) -> None:
        """All of them, at once: none answers before most of them are there."""
        for number in range(len(self.nodes)):
            self.start_again(number)
        self.join()
        if self.failures:
            raise self.failures[0]

    def start_again(self, number: int) -> None:
        """In a thread of its own: a node may wait for others."""

        def start() -> None:
            try:
                self.nodes[number].start()
            except Exception as failure:
                self.failures.append(failure)

        self.join(number)
        self._starting[number] = threading.Thread(target=start, name=f"node-{number}")
        self._starting[number].start()

    def join(self, number: int | None = None) -> None:
        for at, thread in list(self._starting.items()):
            if number in (None, at):
                thread.join()

    def is_up(self, number: int) -> bool:
        thread = self._starting.get(number)
        return self.nodes[number].pid is not None and not (thread is not None and thread.is_alive())

    def leader(self, topic: str, partition: int) -> int:
        """The number of the node that leads the partition; the first one if nobody says."""
        if len(self.nodes) == 1:
            return 0
        asking = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "soak-leader", "log_level": 0})
        try:
            found = asking.list_topics(topic, timeout=5).topics[topic].partitions[partition].leader
        except Exception:  # whoever leads now, a node is killed
            return 0
        finally:
            asking.close()
        return max(0, int(found) - 1)

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        self.join()
        for node in self.nodes:
            node.kill()
            node.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _cluster(folder: Path, count: int) -> list[EmbeddedBroker]:
    controllers = [free_port() for _ in range(count)]
    cluster_id = base64.urlsafe_b64encode(b"\x01" + uuid.uuid4().bytes[1:]).rstrip(b"=").decode()
    return [_node(folder / f"node-{number}", number, controllers, cluster_id) for number in range(count)]


def _node(path: Path, number: int, controllers: list[int], cluster_id: str) -> EmbeddedBroker:
    """Formatted with the cluster's id before its first start; a single node makes one for itself."""
    port, controller = free_port(), controllers[number]
    extras = NodeExtras(
        properties={
            "node.id": str(number + 1),
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
            "controller.quorum.voters": ",".join(f"{at + 1}@{HOST}:{one}" for at, one in enumerate(controllers)),
            **_COPIES,
        }
    )
    layout, files = NodeLayout(path), broker_files()
    make_directory(layout)
    write_config(layout, port, controller, extras)
    tool = ("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(layout.server_properties))
    subprocess.run(java_command(files, *tool), check=True, capture_output=True, env=java_environment(), timeout=60)
    return EmbeddedBroker(path, port, extras)
