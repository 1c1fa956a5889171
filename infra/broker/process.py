"""Processes: attached ones that die with us, and an identity that a reused pid cannot fake."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_ATTACH = Path(__file__).with_name("attach.py")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid with the moment its process began (clock ticks after boot) and the boot: together never used twice."""

    pid: int
    started_ticks: int
    boot_id: str

    @staticmethod
    def of(pid: int) -> "ProcessId | None":
        """The process that has this pid now; None if there is none, or it is only waiting to be collected."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        except OSError:  # gone, perhaps while we looked, or no pid at all
            return None
        # The command's name, in brackets, may itself hold spaces and brackets.
        fields = stat[stat.rindex(")") + 2 :].split()
        if fields[0] in ("Z", "X"):
            return None
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return ProcessId(pid, int(fields[19]), boot_id)

    def is_alive(self) -> bool:
        return ProcessId.of(self.pid) == self


class _Spawner:
    """One long-lived thread that creates every attached process.

    The kernel takes the THREAD that created a process for its parent: a broker started from a short-lived thread
    would be killed when that thread ends. A forked child has no threads, so it makes its own.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rollbook-spawner")
        self._pid = os.getpid()

    def popen(self, command: list[str], output: Path) -> subprocess.Popen[bytes]:
        if os.getpid() != self._pid:
            self.__init__()  # type: ignore[misc]
        return self._thread.submit(_popen, command, output, new_session=True).result()


_spawner = _Spawner()


def start_attached(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    """A process that the kernel kills when ours dies, however it dies."""
    # -I -S: the script needs nothing from site-packages, and starts in 10 ms without them.
    return _spawner.popen([sys.executable, "-I", "-S", str(_ATTACH), str(os.getpid()), *command], output)


def start_detached(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    """A process in a session of its own, which outlives us and our terminal."""
    return _popen(command, output, new_session=True)


def _popen(command: list[str], output: Path, *, new_session: bool) -> subprocess.Popen[bytes]:
    with output.open("ab") as sink:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=new_session,
            close_fds=True,
            env=java_environment(),
        )


def java_environment() -> dict[str, str]:
    """Ours, in a locale of UTF-8: in any other, Java cannot open a path that is not ASCII."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}
