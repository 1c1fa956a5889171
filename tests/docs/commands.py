"""The `rollbook` command for the pages' shells: the real one, in processes forked from one that has imported it all,
since a hundred commands would else import it a hundred times. A command that stays until it is interrupted (a
processor, a dashboard) is left running, as in a reader's other terminal, once it has said something.

python -m rollbook.tests.docs.commands SOCKET   # serves; the shells call it by a stub
"""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from rollbook.infra.command import run
from rollbook.infra.lazy import MountKind
from rollbook.infra.mounts import MOUNTS
from rollbook.infra.output import open_output
from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.kafka import KafkaLog
from rollbook.tests.replay.trained_run import await_decided

ELSEWHERE = {
    ("broker", "start"): "tests/infra/test_broker_daemon.py",
    ("broker", "stop"): "tests/infra/test_broker_daemon.py",
    ("broker", "fetch"): "tests/infra/test_broker_files.py",
    ("demo",): "tests/demo/test_demo.py",
}
"""Not carried out here, only their options are read: what runs them. The page has a broker, and a demo of every session
is another test's."""
STAYING = (("processor", "run"), ("dashboard",), ("watch",))
FOLLOWING = ("--follow", "-f")
STAYING_FOLDER = "ROLLBOOK_DOCS_STAYING"
ANSWER, ANSWERED = "ROLLBOOK_DOCS_ANSWER", "answered"
"""The exit code that an answer of no has in a block, and the file that says that it was given."""
_PAUSE_S, _SAYS_WITHIN_S, _ENDS_WITHIN_S = 0.01, 60.0, 60.0
_LONGEST = 1 << 16

_STUB = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({path!r})
    wanted = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(asked, [wanted], [0, 1, 2])
    asked.shutdown(socket.SHUT_WR)
    answer = asked.recv(16)
sys.exit(int(answer or b"70"))
"""


@contextmanager
def served(folder: Path) -> Iterator[Path]:
    """A folder with `rollbook` in it, to be put before others in PATH, as long as the block lasts."""
    path = folder / "commands.socket"
    programs = folder / "bin"
    programs.mkdir(parents=True)
    stub = programs / "rollbook"
    stub.write_text(_STUB.format(python=sys.executable, path=str(path)), encoding="utf-8")
    stub.chmod(0o755)
    server = subprocess.Popen([sys.executable, "-m", "rollbook.tests.docs.commands", str(path)], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield programs
    finally:
        server.terminate()
        server.communicate()


def end_staying(folder: Path, command: str = "*") -> list[str]:
    """Interrupt what stays, the last first; what is wrong with the ways in which they ended."""
    faults = []
    for started in sorted(folder.glob(f"*-{command}.pid"), reverse=True):
        end = started.with_suffix(".code")
        with suppress(ProcessLookupError):
            os.kill(int(started.read_text()), signal.SIGINT)
        deadline = time.monotonic() + _ENDS_WITHIN_S
        while not end.exists() and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
        code = end.read_text() if end.exists() else "none"
        if code not in ("0", str(128 + signal.SIGINT)):
            with suppress(ProcessLookupError):
                os.kill(int(started.read_text()), signal.SIGKILL)
            faults.append(f"ended with {code}: {started.with_suffix('.log').read_text(errors='replace')}")
        started.unlink()
    return faults


def is_elsewhere(arguments: list[str]) -> bool:
    return any(tuple(arguments[: len(one)]) == one for one in ELSEWHERE)


def stays(arguments: list[str]) -> bool:
    if "--help" in arguments or "--once" in arguments:
        return False
    return any(tuple(arguments[: len(one)]) == one for one in STAYING) or any(one in arguments for one in FOLLOWING)


def _serve(path: str) -> None:
    for mount in MOUNTS:
        if mount.exists():
            mount.load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            asked, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _answer(asked)
            asked.close()


def _answer(asked: socket.socket) -> None:
    """In a process of its own: become the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    text, given, _, _ = socket.recv_fds(asked, _LONGEST, 3)
    while more := asked.recv(_LONGEST):
        text += more
    arguments, folder, environment = json.loads(text)
    for number, descriptor in enumerate(given):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    piped = stat.S_ISFIFO(os.fstat(1).st_mode)
    if is_elsewhere(arguments):
        code = _read(arguments)
    elif stays(arguments) and not piped:
        _stay(asked, arguments, Path(environment[STAYING_FOLDER]))
        os._exit(0)
    else:
        code = _carry_out(arguments)
    if code != 0 and str(code) == environment.get(ANSWER):
        (Path(environment[STAYING_FOLDER]) / ANSWERED).touch()
        code = 0
    asked.send(str(code).encode())
    os._exit(0)


def _read(arguments: list[str]) -> int:
    """Only whether a command takes its arguments."""
    [mount] = (one for one in MOUNTS if one.name == arguments[0])
    command, rest = mount.load(), arguments[1:]
    if mount.kind is MountKind.GROUP:
        command, rest = command.commands[rest[0]], rest[1:]
    try:
        command.make_context(mount.name, rest)
    except Exception as refusal:  # typer brings its own copies of click's
        os.write(2, f"{refusal}\n".encode())
        return int(getattr(refusal, "exit_code", 70))
    return 0


def _carry_out(arguments: list[str]) -> int:
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process lives
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    open_output()
    code = run(arguments)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    return code


def _stay(asked: socket.socket, arguments: list[str], folder: Path) -> None:
    """Start it, answer when it has said something, and note how it ends. One of its kind at a time: its reader ends the
    last one first, as the port or the name of both is the same."""
    for fault in end_staying(folder, arguments[0]):
        os.write(2, fault.encode())
    number = f"{len(list(folder.glob('*.log'))):03}-{arguments[0]}"
    log = folder / f"{number}.log"
    log.touch()
    child = os.fork()
    if child == 0:
        into = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(into, 1)
        os.dup2(into, 2)
        os._exit(_carry_out(arguments))
    (folder / f"{number}.pid").write_text(str(child))
    deadline = time.monotonic() + _SAYS_WITHIN_S
    ended, status = 0, 0
    while log.stat().st_size == 0 and not ended and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended and arguments[0] == "processor":
        _await_decided()
    os.write(1, log.read_bytes())
    asked.send(str(os.waitstatus_to_exitcode(status) if ended else 0).encode())
    asked.close()
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    if not ended:
        _, status = os.waitpid(child, 0)
    written = folder / f"{number}.ended"
    written.write_text(str(os.waitstatus_to_exitcode(status)))
    written.rename(folder / f"{number}.code")


def _await_decided() -> None:
    """As its reader does, who sees it come to the end of the log."""
    settings = Settings.from_env()
    lifecycle = settings.topic(Topic.LIFECYCLE)
    with KafkaLog(settings) as log:
        partitions = range(log.partitions(lifecycle))
        written = [one for one in partitions if log.bounds(lifecycle, one).end > log.bounds(lifecycle, one).first]
    for partition in written:
        await_decided(settings, partition)


if __name__ == "__main__":
    _serve(sys.argv[1])
