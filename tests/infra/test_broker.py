"""The embedded broker, for real: data survives stop and kill, ports and neighbours are respected, no orphan remains."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.broker.config import HOST
from rollbook.infra.broker.ports import free_port
from rollbook.infra.broker.probe import answering_cluster
from rollbook.infra.broker.process import ProcessId
from rollbook.infra.broker.temporary import temporary_directory
from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.topics import create_topics, describe_topics
from rollbook.schemas.errors import BadInput, EnvironmentFault

_GONE_WITHIN_S = 10.0


@pytest.fixture(scope="module")
def neighbour() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def write(settings: Settings, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    producer.produce(settings.topic(Topic.LIFECYCLE), value, partition=0)
    assert producer.flush(20) == 0


def read(settings: Settings, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": settings.bootstrap_servers, "group.id": "none", "log_level": 0})
    consumer.assign([TopicPartition(settings.topic(Topic.LIFECYCLE), 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=20)]
    finally:
        consumer.close()


def wait_until_gone(process: ProcessId) -> bool:
    deadline = time.monotonic() + _GONE_WITHIN_S
    while process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not process.is_alive()


def test_data_and_address_survive_a_stop_and_a_kill() -> None:
    with EmbeddedBroker() as broker:
        address, folder = broker.bootstrap_servers, broker.data_dir
        settings = Settings(address)
        create_topics(settings, 1)
        write(settings, b"before the stop")
        broker.stop()
        assert broker.pid is None
        broker.start()
        write(settings, b"before the kill")
        broker.kill()
        broker.start()
        assert broker.bootstrap_servers == address
        assert read(settings, 2) == [b"before the stop", b"before the kill"]
    assert not folder.exists(), "a temporary directory goes with its broker"


def test_brokers_side_by_side_do_not_see_each_other(neighbour: EmbeddedBroker) -> None:
    settings = Settings(neighbour.bootstrap_servers)
    with EmbeddedBroker() as other:
        assert other.bootstrap_servers != neighbour.bootstrap_servers
        create_topics(Settings(other.bootstrap_servers), 1)
        assert describe_topics(settings) == []
    assert answering_cluster(neighbour.bootstrap_servers, 10) is not None, "it outlives the other"


def test_a_port_that_another_broker_holds_is_refused(neighbour: EmbeddedBroker, tmp_path: Path) -> None:
    port = int(neighbour.bootstrap_servers.rpartition(":")[2])
    cluster = answering_cluster(neighbour.bootstrap_servers, 10)
    late = EmbeddedBroker(tmp_path / "late", port)
    with pytest.raises(EnvironmentFault, match=rf"port {port} .*another Kafka broker \(cluster {cluster}\).*--port"):
        late.start()
    assert late.pid is None


def test_a_port_that_another_program_holds_is_refused(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EnvironmentFault, match=rf"port {port} .*another program"):
            EmbeddedBroker(tmp_path / "late", port).start()


def test_a_data_directory_in_use_is_refused(neighbour: EmbeddedBroker) -> None:
    with pytest.raises(EnvironmentFault, match="another broker is using this data directory"):
        EmbeddedBroker(neighbour.data_dir, free_port()).start()


def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadInput, match="not a broker's data directory"):
        EmbeddedBroker(tmp_path, free_port()).start()


def test_a_broker_that_cannot_start_says_why_and_leaves_no_process(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        broker.stop()
        meta = tmp_path / "data" / "log" / "meta.properties"
        meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
        with pytest.raises(EnvironmentFault, match=r"ended while starting \(code 1\): Stored node id 2 .*broker\.log"):
            broker.start()
        assert broker.pid is None


def test_a_broker_outlives_the_thread_that_started_it() -> None:
    """The kernel's parent-death signal follows the creating thread, which must therefore be a lasting one."""
    broker = EmbeddedBroker()
    thread = threading.Thread(target=broker.start)
    thread.start()
    thread.join()
    with broker:
        assert broker.pid is not None
        assert answering_cluster(broker.bootstrap_servers, 10) is not None


def test_what_a_killed_process_left_behind_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, neighbour: EmbeddedBroker
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(["true"]) as ended:
        pass
    kept = {f"rollbook-broker-{os.getpid()}-owned", f"rollbook-broker-{ended.pid}-young", "rollbook-broker-notes"}
    for name in {*kept, f"rollbook-broker-{ended.pid}-old"}:
        (tmp_path / name).mkdir()
        if not name.endswith("young"):
            os.utime(tmp_path / name, (0, 0))
    in_use = tmp_path / f"rollbook-broker-{ended.pid}-used"
    in_use.symlink_to(neighbour.data_dir)
    os.utime(neighbour.data_dir, (0, 0))
    created = temporary_directory(os.getpid())
    assert {path.name for path in tmp_path.iterdir()} == {*kept, in_use.name, created.name}


def test_a_broker_dies_with_its_process_even_by_sigkill() -> None:
    script = (
        "import time; from rollbook.infra.broker import EmbeddedBroker; broker = EmbeddedBroker(); broker.start();"
        "print(broker.pid, broker.data_dir, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            pid, _, folder = owner.stdout.readline().strip().partition(" ")
            broker = ProcessId.of(int(pid))
            assert broker is not None
        finally:
            owner.send_signal(signal.SIGKILL)
    try:
        assert wait_until_gone(broker)
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)
