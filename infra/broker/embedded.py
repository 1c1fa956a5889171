"""A broker that lives as long as the process that made it: for tests and the demo."""

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

from rollbook.infra.broker.config import HOST, NodeExtras, NodeLayout
from rollbook.infra.broker.files import broker_files
from rollbook.infra.broker.node import start_node, stop_process
from rollbook.infra.broker.ports import free_port, is_free
from rollbook.infra.broker.process import start_attached
from rollbook.infra.broker.temporary import temporary_directory
from rollbook.schemas.errors import EnvironmentFault

_PORT_DRAWS = 3


class EmbeddedBroker:
    """A real Kafka broker on 127.0.0.1, killed by the kernel when this process dies, however it dies.

    Without `data_dir` it keeps its data in a temporary directory that `close` removes; without `port` it takes a free
    one and keeps it over `stop`, `kill` and `start`. Any number can run side by side. `extras` are further listeners
    and properties of the node.

        with EmbeddedBroker() as broker:
            settings = Settings(bootstrap_servers=broker.bootstrap_servers)
    """

    def __init__(self, data_dir: Path | None = None, port: int | None = None, extras: NodeExtras | None = None) -> None:
        self._extras = extras
        self._temporary = data_dir is None
        self._data_dir = temporary_directory(os.getpid()) if data_dir is None else data_dir.absolute()
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data_dir(self) -> Path:
        return self._data_dir

    @property
    def bootstrap_servers(self) -> str:
        """The address, known once the broker has been started."""
        if self._port is None:
            raise ValueError("no address before the first start(): call start(), or use the broker in a with block")
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process, while one is alive."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start, and return when it answers; a no-op while it runs. Raises EnvironmentFault."""
        if self.pid is not None:
            return
        files = broker_files()
        for draws_left in reversed(range(_PORT_DRAWS if self._port is None else 1)):
            port = free_port() if self._port is None else self._port
            try:
                node = start_node(NodeLayout(self._data_dir), port, files, start_attached, self._extras)
            except EnvironmentFault:
                # Someone else may have taken a drawn port before Kafka bound it: draw again.
                if draws_left == 0 or is_free(port):
                    raise
                continue
            self._port, self._process = node.port, node.process
            return

    def stop(self) -> None:
        """Stop in an orderly way (SIGTERM), keeping the data. A no-op when it does not run."""
        if self.pid is not None and self._process is not None:
            stop_process(self._process)
        self._process = None

    def kill(self) -> None:
        """SIGKILL, keeping the data, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def close(self) -> None:
        """Stop, and remove the temporary directory if it is one."""
        if not self._temporary:
            self.stop()
            return
        self.kill()  # nobody will read the data again
        shutil.rmtree(self._data_dir, ignore_errors=True)

    def __enter__(self) -> "EmbeddedBroker":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
