"""`rollbook broker`, as a user types it: it stays until it is stopped, and says what is in its way."""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from rollbook.infra.broker.daemon import DaemonState, FolderId, daemon_state, stop_daemon
from rollbook.infra.broker.ports import free_port, is_free
from rollbook.infra.broker.process import ProcessId
from rollbook.infra.settings import Settings
from rollbook.infra.topics.topics import create_topics, describe_topics
from rollbook.schemas.errors import EnvironmentFault


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str


Rollbook = Callable[..., Outcome]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data" / "broker"
    yield folder
    if folder.exists():
        (folder / "broker.json").exists() and stop_daemon(folder)


@pytest.fixture
def broker_command(data_dir: Path) -> Rollbook:
    def run(*arguments: str) -> Outcome:
        environment = {**os.environ, "ROLLBOOK_DATA_DIR": str(data_dir.parent)}
        command = [sys.executable, "-m", "rollbook.infra.cli", "broker", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


def test_start_status_stop_and_the_data_survives(broker_command: Rollbook, data_dir: Path) -> None:
    port = free_port()
    settings = Settings(f"127.0.0.1:{port}")
    assert broker_command("status").code == 1

    started = broker_command("start", "--port", str(port))
    assert (started.code, started.err) == (0, "")
    assert f"started: Apache Kafka at 127.0.0.1:{port}" in started.out
    create_topics(settings, 3)

    assert broker_command("status").out.startswith(f"running: Apache Kafka at 127.0.0.1:{port}")
    assert broker_command("start").out.startswith("already running")
    elsewhere = broker_command("start", "--port", str(free_port()))
    assert (elsewhere.code, elsewhere.err.count("\n")) == (3, 1)
    assert f"already runs on port {port}" in elsewhere.err

    assert broker_command("stop").out.startswith("stopped")
    assert broker_command("status").code == 1
    assert broker_command("stop").code == 0

    assert broker_command("start", "--port", str(port)).code == 0
    assert describe_topics(settings)[0].partitions == 3

    # After a crash the state file is stale; the next start does not take it for a broker.
    state = daemon_state(data_dir)
    assert state is not None
    os.kill(state.process.pid, signal.SIGKILL)
    assert broker_command("status").code == 1
    assert broker_command("start", "--port", str(port)).code == 0
    assert describe_topics(settings)[0].partitions == 3


def test_a_copied_folder_does_not_speak_for_the_original(
    broker_command: Rollbook, data_dir: Path, tmp_path: Path
) -> None:
    port = free_port()
    assert broker_command("start", "--port", str(port)).code == 0
    original = daemon_state(data_dir)
    assert original is not None
    copy = tmp_path / "copy"
    shutil.copytree(data_dir, copy)

    assert broker_command("status", "--data-dir", str(copy)).code == 1
    assert broker_command("stop", "--data-dir", str(copy)).out.startswith("not running")
    refused = broker_command("start", "--data-dir", str(copy), "--port", str(port))
    assert (refused.code, refused.err.count("\n")) == (3, 1)
    assert "is used by another Kafka broker" in refused.err
    assert original.process.is_alive()

    moved, link = tmp_path / "moved", tmp_path / "link"
    data_dir.rename(moved)
    link.symlink_to(moved)
    assert daemon_state(link) == original, "under another name it is the same folder"
    assert stop_daemon(link) == original
    assert not original.process.is_alive()


@pytest.mark.parametrize("content", [b"\xff", b"{", b'{"process": 1}', "folder", "pipe"])
def test_a_state_file_that_cannot_be_read(content: bytes | str, broker_command: Rollbook, tmp_path: Path) -> None:
    state = tmp_path / "broker.json"
    if isinstance(content, bytes):
        state.write_bytes(content)
    elif content == "folder":
        state.mkdir()
    else:
        os.mkfifo(state)
    for command in ("status", "stop"):
        told = broker_command(command, "--data-dir", str(tmp_path))
        assert (told.code, told.out, told.err.count("\n")) == (3, "", 1)
        assert told.err.startswith(f"Error: {state}: ")
        assert "delete it, and stop the broker by hand if one is running" in told.err


@pytest.mark.parametrize(
    ("content", "why"),
    [("folder", "Is a directory"), (b"cluster.id=\xff\n", "it names no cluster.id"), (b"", "it names no cluster.id")],
)
def test_a_damaged_log_directory(content: bytes | str, why: str, broker_command: Rollbook, tmp_path: Path) -> None:
    (tmp_path / "server.properties").touch()
    meta = tmp_path / "log" / "meta.properties"
    meta.parent.mkdir()
    meta.write_bytes(content) if isinstance(content, bytes) else meta.mkdir()
    refused = broker_command("start", "--data-dir", str(tmp_path), "--port", str(free_port()))
    assert (refused.code, refused.err.count("\n")) == (3, 1)
    assert f"{meta}: damaged ({why}): restore or delete {tmp_path}" in refused.err


def test_a_cache_that_cannot_be_is_told_by_its_variable(
    broker_command: Rollbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLBOOK_CACHE_DIR", "/dev/null/cache")
    refused = broker_command("fetch")
    assert (refused.code, refused.err.count("\n")) == (3, 1)
    assert "/dev/null/cache/kafka cannot be made (Not a directory): set ROLLBOOK_CACHE_DIR" in refused.err


def test_a_path_that_kafka_would_read_otherwise_is_refused(broker_command: Rollbook, tmp_path: Path) -> None:
    for name in ("a,b", "a\\b", "${x}", "a%i", "a\nb"):
        refused = broker_command("start", "--data-dir", str(tmp_path / name))
        assert (refused.code, refused.err.count("\n")) == (2, 1), refused.err
        assert "Kafka cannot keep data in a path with" in refused.err
        assert not (tmp_path / name).exists()


def test_a_path_need_not_be_ascii(broker_command: Rollbook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")  # in which Java by itself opens no such path
    folder = tmp_path / "José 日本😀"
    started = broker_command("start", "--data-dir", str(folder), "--port", str(free_port()))
    try:
        assert (started.code, started.err) == (0, "")
        assert {entry.name for entry in tmp_path.iterdir()} == {folder.name}
        assert (folder / "log" / "meta.properties").exists()
    finally:
        assert broker_command("stop", "--data-dir", str(folder)).code == 0


def test_a_busy_port_is_one_line_and_code_3(broker: str, broker_command: Rollbook, data_dir: Path) -> None:
    refused = broker_command("start", "--port", broker.rpartition(":")[2])
    assert refused.code == 3
    assert refused.err.count("\n") == 1
    assert "is used by another Kafka broker" in refused.err
    assert daemon_state(data_dir) is None


def test_a_port_of_the_system_is_not_called_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: socket.socket, address: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(EnvironmentFault, match=r"you may not listen on port 80 of .*: choose one from 1024 on"):
        is_free(80)


def test_a_foreign_directory_is_one_line_and_code_2(broker_command: Rollbook, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    refused = broker_command("start", "--data-dir", str(tmp_path), "--port", str(free_port()))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "not a broker's data directory" in refused.err


def test_a_reused_pid_is_not_taken_for_the_broker(tmp_path: Path) -> None:
    ourselves = ProcessId.of(os.getpid())
    assert ourselves is not None
    before = replace(ourselves, started_ticks=ourselves.started_ticks - 1)
    for process in (before, replace(ourselves, pid=-1), replace(ourselves, pid=10**30)):
        state = DaemonState(process, FolderId.of(tmp_path), 9092, "x")
        (tmp_path / "broker.json").write_text(json.dumps(asdict(state)))
        assert daemon_state(tmp_path) is None
        assert stop_daemon(tmp_path) is None, "and it lives on to say so"
