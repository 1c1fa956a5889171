"""One broker for a whole test session, whoever of its processes asks first.

The controller owns it, so that it outlives any worker and dies with the session; workers ask for it over a socket whose
path they inherit in their environment. A session that needs no broker starts none.
"""

import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from tempfile import TemporaryDirectory

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings
from rollbook.infra.topics.topics import create_topics, delete_topics
from rollbook.schemas.errors import EnvironmentFault

_SOCKET_VARIABLE = "ROLLBOOK_TEST_BROKER_SOCKET"
_EXISTING_VARIABLE = "ROLLBOOK_BOOTSTRAP_SERVERS"


class SessionBroker:
    """Answers each connection with the bootstrap servers, or with the reason why there are none."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="rollbook-tests-")
        self._path = str(Path(self._folder.name) / "broker.socket")
        self._listener = Listener(self._path, "AF_UNIX")
        self._broker: EmbeddedBroker | None = None
        self._fault: str | None = None

    def open(self) -> None:
        os.environ[_SOCKET_VARIABLE] = self._path
        threading.Thread(target=self._serve, name="session-broker", daemon=True).start()

    def close(self) -> None:
        os.environ.pop(_SOCKET_VARIABLE, None)
        self._listener.close()
        if self._broker is not None:
            self._broker.close()
        self._folder.cleanup()

    def _serve(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                with self._listener.accept() as connection:
                    self._answer(connection)

    def _answer(self, connection: "Connection[tuple[str, str], object]") -> None:
        if self._broker is None and self._fault is None:
            try:
                self._broker = EmbeddedBroker()
                self._broker.start()
            except EnvironmentFault as fault:
                self._fault = str(fault)
        if self._fault is not None or self._broker is None:
            connection.send(("fault", str(self._fault)))
        else:
            connection.send(("servers", self._broker.bootstrap_servers))


def session_bootstrap_servers() -> str:
    """The existing cluster that the environment names, or the session's own broker."""
    existing = os.environ.get(_EXISTING_VARIABLE)
    if existing:
        return existing
    with Client(os.environ[_SOCKET_VARIABLE], "AF_UNIX") as connection:
        kind, text = connection.recv()
    if kind == "fault":
        raise EnvironmentFault(text)
    return str(text)


@contextmanager
def own_topics(bootstrap_servers: str, partitions: int) -> Iterator[Settings]:
    """Settings with an unused prefix and its topics, which are deleted in the end."""
    own = Settings(bootstrap_servers=bootstrap_servers, topic_prefix=f"test-{uuid.uuid4().hex[:12]}.")
    create_topics(own, partitions)
    yield own
    # A test may have stopped the cluster or deleted topics itself.
    with suppress(EnvironmentFault):
        delete_topics(own)
