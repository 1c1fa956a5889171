"""Started between us and `java`: asks the kernel to kill the process when its parent dies, then becomes `java`.

Runs as a script, without the package: `python attach.py PARENT_PID COMMAND...`. A preexec function would do the same,
but may deadlock in a process with threads, such as one that trains.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent_pid, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it died before the kernel knew what to do
        sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
