"""Hosts for tests: in a thread of the test, or as a process of their own that dies at a named point."""

import atexit
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host.loop import Host
from rollbook.processors.host.watch import Watch

SESSION_TIMEOUT_MS = 1_500


@contextmanager
def host_in_thread(settings: Settings, name: str = "p0", watches: Iterable[Watch] = ()) -> Iterator[Host]:
    """A host that works as long as the block lasts; its failure is raised at the end of the block."""
    host = Host(settings, name, SESSION_TIMEOUT_MS, watches=watches)
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            host.run(stop)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work, name=f"host-{name}")
    thread.start()
    try:
        yield host
    except BaseException as error:
        for failure in failures:
            error.add_note(f"meanwhile the host {name} died: {failure!r}")
        raise
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive(), "the host did not stop"
    if failures:
        raise failures[0]


def spawn_host(settings: Settings, name: str = "p0", kill_at: str = "", kill_after: int = 0) -> "subprocess.Popen[str]":
    """A host process. `kill_at` names the point of the transaction at which it kills itself (SIGKILL), in its
    transaction number `kill_after`: produced (nothing committed), offsets (sent, not committed), committed."""
    arguments = [settings.bootstrap_servers, settings.topic_prefix, name, kill_at, str(kill_after)]
    process = subprocess.Popen(
        [sys.executable, "-m", "rollbook.tests.processors.crashing_host", *arguments],
        text=True,
        stderr=subprocess.PIPE,
    )
    atexit.register(process.kill)  # of a test that failed: it would ask for its broker for ever
    return process


def send(settings: Settings, records: list[tuple[int, bytes, bytes]]) -> None:
    """Put (partition, key, value) records on the lifecycle topic, and wait until they are there."""
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
    for partition, key, value in records:
        producer.produce(settings.topic(Topic.LIFECYCLE), value, key, partition)
    assert producer.flush(30) == 0
