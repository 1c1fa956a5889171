"""The way into the `rollbook` command: what is imported here is next to nothing, so that Ctrl-C finds it in order from
its first moment on. What it does is in `infra/command.py`.
"""

import _signal as signal  # type: ignore[import-not-found]  # of the interpreter: `signal` itself brings enumerations
import sys


def main() -> None:
    """The console script."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:  # while modules are imported nothing is begun, and an interruption needs no traceback of theirs
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rollbook.infra.command import run
    from rollbook.infra.output import open_output

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    open_output()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
