"""A reader's terminal: bash in the folder of a page, whose blocks run one after the other and share what they export.

What a page asks for and is not carried out here is in `ELSEWHERE`, with what does. Where something can be said of what
it is given, a stand-in looks at that (`stand_ins.py`).
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rollbook.tests.docs.commands import ANSWER, ANSWERED, STAYING_FOLDER
from rollbook.tests.docs.stand_ins import CHECKED

ELSEWHERE = {
    "pip": "tests/install",
    "make": "what .ci/run is",
    "pytest": "the tests themselves",
    "docker": "tests/infra/test_compose.py, as far as there is no Docker",
    "kafka-configs.sh": "Kafka's own tool",
    "sudo": "the reader's system",
    "apt-get": "the reader's system",
    "systemctl": "the reader's system",
    "git": "the reader's system",
}
_PATIENCE_S = 120
_PRELUDE = """
set -eo pipefail
{stand_ins}
python() {{
    if [ "$1" = -m ] && [[ "$2" == rollbook.tests.* ]]; then  # programmes of ours that other tests run
        {python} -m rollbook.tests.docs.stand_ins python "${{@:2}}"
    elif [ "$1 $2" != "-m venv" ]; then
        {python} "$@"
    fi
}}
python3() {{ python "$@"; }}
if [ -e {state} ]; then source {state}; fi
{remember}
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a piece of shell ended, and what it printed, errors among it."""

    code: int
    output: str


@dataclass(frozen=True, slots=True)
class Shell:
    """`folder` is what the reader sees; `own` keeps what the shell needs; `programs` comes first in PATH."""

    folder: Path
    own: Path
    programs: Path
    environment: dict[str, str]

    def run(self, text: str, *, alone: bool = False, exits: int = 0) -> Answer:
        """Run it as it was pasted; what it exports is there for the next one, but where it is `alone`. `exits`: how a
        command of ours in it answers; the block's own exit code is then 1 where none does."""
        self.own.mkdir(parents=True, exist_ok=True)
        state = self.own / "exported"
        remember = "" if alone else f"trap 'export -p > {state}; env -0 > {self._variables}' EXIT"
        checks = {name: f'{sys.executable} -m rollbook.tests.docs.stand_ins {name} "$@"' for name in CHECKED}
        stand_ins = "\n".join(f"{name}() {{ {checks.get(name, ':')}; }}" for name in ELSEWHERE)
        prelude = _PRELUDE.format(stand_ins=stand_ins, python=sys.executable, state=state, remember=remember)
        script, printed = self.own / "block.sh", self.own / "printed"
        script.write_text(f"{prelude}\n{text}", encoding="utf-8")
        with printed.open("wb") as out:  # a file, since what stays would keep a pipe open
            done = subprocess.run(
                ["bash", str(script)],
                cwd=self.folder,
                env={**self._environment(), ANSWER: str(exits)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=_PATIENCE_S,
            )
        unanswered = exits != 0 and not (self.own / ANSWERED).exists()
        (self.own / ANSWERED).unlink(missing_ok=True)
        return Answer(done.returncode or int(unanswered), printed.read_text(encoding="utf-8", errors="replace"))

    def exported(self) -> dict[str, str]:
        """The variables that stand behind the blocks so far."""
        if not self._variables.exists():
            return {}
        pairs = self._variables.read_text(encoding="utf-8", errors="replace").split("\0")
        return dict(pair.split("=", 1) for pair in pairs if "=" in pair)

    @property
    def _variables(self) -> Path:
        return self.own / "variables"

    def _environment(self) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("ROLLBOOK_")},
            **self.environment,
            "PATH": f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            STAYING_FOLDER: str(self.own),
            "COLUMNS": "120",
        }
