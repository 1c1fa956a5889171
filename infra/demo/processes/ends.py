"""The processes of a demo: each dies with the one that started it, and its last word is not lost."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from rollbook.infra.broker.process import start_attached
from rollbook.infra.demo.processes.folder import RunFolder
from rollbook.schemas.errors import EnvironmentFault, RollbookError

_STOP_S = 20.0


class Processes:
    """Started children by name."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str]) -> None:
        """Start a process whose output goes to its log in the run's folder."""
        self._running[name] = start_attached(command, self._folder.log(name))

    def kill(self, name: str) -> None:
        """SIGKILL: the process gets no chance to say goodbye."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> None:
        """SIGTERM, and SIGKILL for one that does not listen."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def check(self) -> None:
        """Collect those that are done. Raises EnvironmentFault, with its last word, for one that ended badly."""
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[name]
                if code != 0:
                    raise EnvironmentFault(f"the demo's {name} ended with code {code}: {self._last_word(name)}")

    def was_killed(self, name: str) -> bool:
        """Whether somebody's SIGKILL has ended the process; it is forgotten then, and may be started again."""
        process = self._running.get(name)
        if process is None or process.poll() != -signal.SIGKILL:
            return False
        del self._running[name]
        return True

    def is_running(self, name: str) -> bool:
        return name in self._running

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)

    def _last_word(self, name: str) -> str:
        log = self._folder.log(name)
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return f"{said.removeprefix('Error: ')} (its log is {log})"


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of rollbook."""
    return [sys.executable, "-m", module, *arguments]


def run_as_process(work: Callable[[RunFolder, list[str]], None]) -> NoReturn:
    """What the modules of processes call as scripts: the first argument is the run's folder."""
    try:
        work(RunFolder(Path(sys.argv[1])), sys.argv[2:])
    except RollbookError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    sys.exit(0)
