"""What an import brings with it: nothing of an extra, nothing of the command line for clients, and little time."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rollbook.tests.install.extras import EXTRAS

OF_EXTRAS = frozenset(module for extra in EXTRAS.values() for module in extra.modules)
OF_THE_COMMAND_LINE = frozenset({"typer", "rich", "click"})
HEAVY = frozenset({"numpy", "pydantic", "confluent_kafka", "fastavro"})

LIBRARIES = "import confluent_kafka, fastavro, numpy, pydantic"
TIMES = 5
MOST = 2.2
"""Of the time that the libraries take by themselves: 1.6 to 1.9 on busy cores."""

FIRST_USES = """
import sys, threading
from rollbook.schemas.codec import decode, encode
from rollbook.schemas.records.ledger import Position
from rollbook.schemas.types import ContractViolation

sys.setswitchinterval(1e-6)
start, faults = threading.Barrier(8), []

def use() -> None:
    start.wait()
    position = Position(next_offset=7, transactional_id="instance-0")
    if decode(encode(position)) != position:
        faults.append("another record")
    try:
        Position(next_offset=-1, transactional_id="instance-0")
        faults.append("nothing was checked")
    except ContractViolation:
        pass

threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(", ".join(faults) or None)
"""


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Modules are compiled once, as where a package is installed, also where the environment asks for no such files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("compiled")))
        yield


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(statement: str) -> frozenset[str]:
    """The packages that a fresh interpreter has after it."""
    told = run(f"{statement}\nimport json, sys\nprint(json.dumps([name.partition('.')[0] for name in sys.modules]))")
    return frozenset(json.loads(told.splitlines()[-1]))


@pytest.mark.parametrize(
    "module",
    [
        "rollbook.schemas.codec",
        "rollbook.producers",
        "rollbook.processors",
        "rollbook.processors.host.loop",
        "rollbook.replay.capture",
        "rollbook.replay.engine.engine",
        "rollbook.producers.trl",
    ],
)
def test_what_programs_import_brings_neither_an_extra_nor_the_command_line(module: str) -> None:
    assert loaded_by(f"import {module}") & (OF_EXTRAS | OF_THE_COMMAND_LINE) == frozenset()


def test_histories_in_a_notebook_bring_no_extra() -> None:
    assert loaded_by("import rollbook.replay.histories") & OF_EXTRAS == frozenset()


def test_every_command_can_be_told_without_an_extra() -> None:
    """Each command's module is imported for its help: so nothing that it needs is imported before it is called."""
    script = "from rollbook.infra import mounts\nfor mount in mounts.MOUNTS: mount.load()"
    assert loaded_by(script) & OF_EXTRAS == frozenset()


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_command_s_own_help_needs_none_of_the_heavy_libraries(option: str) -> None:
    script = f"from rollbook.infra.command import run; assert run([{option!r}]) == 0"
    assert loaded_by(script) & (OF_EXTRAS | HEAVY) == frozenset()


def test_the_clients_take_little_longer_to_import_than_their_libraries() -> None:
    pairs = [(seconds_of(LIBRARIES), seconds_of("import rollbook.producers")) for _ in range(TIMES)]
    assert min(clients for _, clients in pairs) < MOST * min(libraries for libraries, _ in pairs)


def test_threads_that_are_first_to_use_a_record_at_once_all_get_it_checked() -> None:
    """Models are built at their first use, which may be in several threads."""
    run(FIRST_USES)


def seconds_of(statement: str) -> float:
    """Of processor time: others on the machine lengthen it less than the clock's."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(statement)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
