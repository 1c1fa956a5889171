"""A broker that outlives the command that started it: start, stop and status by a state file in its data directory."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rollbook.infra.broker.config import HOST, NodeLayout
from rollbook.infra.broker.files import BrokerFiles, broker_files
from rollbook.infra.broker.node import start_node
from rollbook.infra.broker.probe import answering_cluster
from rollbook.infra.broker.process import ProcessId, start_detached
from rollbook.infra.broker.storage import cluster_id, make_directory
from rollbook.infra.settings import data_dir
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.text import visible

DEFAULT_PORT = 9092
_STOP_TIMEOUT_S = 20.0
_ANSWER_TIMEOUT_S = 10.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class FolderId:
    """Which folder, whatever its path: a copy is another one, and its state file speaks of the original's broker."""

    device: int
    inode: int

    @staticmethod
    def of(path: Path) -> "FolderId":
        status = path.stat()
        return FolderId(status.st_dev, status.st_ino)


@dataclass(frozen=True, slots=True)
class DaemonState:
    """A running detached broker, and the data directory that it was started for."""

    process: ProcessId
    folder: FolderId
    port: int
    cluster_id: str

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"


_STATE = TypeAdapter(DaemonState)


@dataclass(frozen=True, slots=True)
class Started:
    """What `start_daemon` found or did."""

    state: DaemonState
    was_running: bool


def default_data_dir() -> Path:
    return data_dir() / "broker"


def start_daemon(folder: Path, port: int | None = None) -> Started:
    """Start the broker of this data directory, detached, and return when it answers. A running one is left alone.

    Raises BadInput for a folder that is not a broker's, EnvironmentFault for a busy port or a broker on another port.
    """
    layout = NodeLayout(folder.absolute())
    wanted_port = DEFAULT_PORT if port is None else port
    files = broker_files()
    make_directory(layout)
    with _one_start_at_a_time(layout):
        running = daemon_state(folder)
        if running is None:
            return Started(_start(layout, wanted_port, files), was_running=False)
    if port not in (None, running.port):
        raise EnvironmentFault(
            f"the broker of {folder} already runs on port {running.port}: use that, or stop it with "
            "`rollbook broker stop` first"
        )
    if answering_cluster(running.bootstrap_servers, _ANSWER_TIMEOUT_S) != running.cluster_id:
        raise EnvironmentFault(
            f"the broker of {folder} (pid {running.process.pid}) runs but does not answer at "
            f"{running.bootstrap_servers}: stop it with `rollbook broker stop`, see {layout.log_file}"
        )
    return Started(running, was_running=True)


def stop_daemon(folder: Path) -> DaemonState | None:
    """Stop the broker of this data directory in an orderly way; the one that was stopped, None if none was running."""
    state = daemon_state(folder)
    if state is not None:
        _end(state.process)
    with suppress(FileNotFoundError, NotADirectoryError):
        NodeLayout(folder).state_file.unlink()
    return state


def daemon_state(folder: Path) -> DaemonState | None:
    """The broker of this data directory if it is running; a state file that a dead process left says nothing.

    Nor does one that was copied with its folder. Raises EnvironmentFault for one that cannot be read.
    """
    path = NodeLayout(folder).state_file
    try:
        if path.exists() and not path.is_file():
            raise _unreadable(path, "not a regular file")
        state = _STATE.validate_json(path.read_bytes(), strict=True)
        is_ours = state.folder == FolderId.of(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        raise EnvironmentFault(
            f"{visible(path)}: {fault.strerror}: see that it can be read, or choose another data directory"
        ) from fault
    except ValidationError as fault:
        raise _unreadable(path, "damaged, or of another version of rollbook") from fault
    return state if is_ours and state.process.is_alive() else None


def _unreadable(path: Path, why: str) -> EnvironmentFault:
    return EnvironmentFault(f"{visible(path)}: {why}: delete it, and stop the broker by hand if one is running")


def _start(layout: NodeLayout, port: int, files: BrokerFiles) -> DaemonState:
    def spawn(command: list[str], output: Path) -> "subprocess.Popen[bytes]":
        """Note the process at once: should we be killed while it starts, `stop` still finds it."""
        process = start_detached(command, output)
        identity, cluster = ProcessId.of(process.pid), cluster_id(layout)
        if identity is not None and cluster is not None:
            _write(layout, DaemonState(identity, FolderId.of(layout.data_dir), port, cluster))
        return process

    try:
        node = start_node(layout, port, files, spawn)
    except BaseException:
        layout.state_file.unlink(missing_ok=True)
        raise
    state = daemon_state(layout.data_dir)
    if state is None:
        node.process.kill()  # none may stay of which nobody knows
        raise EnvironmentFault(f"the broker ended right after its start: see {visible(layout.log_file)}")
    return state


@contextmanager
def _one_start_at_a_time(layout: NodeLayout) -> Iterator[None]:
    with layout.start_lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _end(process: ProcessId) -> None:
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    _send(process, signal.SIGTERM)
    while process.is_alive():
        if time.monotonic() > deadline:
            _send(process, signal.SIGKILL)
        time.sleep(_POLL_S)


def _send(process: ProcessId, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        try:
            os.kill(process.pid, number)
        except PermissionError as fault:
            raise EnvironmentFault(f"the broker (pid {process.pid}) is another user's: ask them to stop it") from fault


def _write(layout: NodeLayout, state: DaemonState) -> None:
    """In one step, so that a reader never meets half a file."""
    draft = layout.state_file.with_suffix(".tmp")
    draft.write_bytes(_STATE.dump_json(state, indent=1))
    draft.replace(layout.state_file)
