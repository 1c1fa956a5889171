"""The examples train as they stand there, each in a process, with a broker and a processor of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="TRL is not installed: install rollbook[trl]")

from rollbook.infra.settings import SERVERS_VARIABLE

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.skipif(not os.environ.get("ROLLBOOK_TRL_ALL"), reason="one of the nightly tests: set ROLLBOOK_TRL_ALL=1")
@pytest.mark.parametrize("name", ["trl_grpo.py", "trl_async_grpo.py"])
def test_an_example_trains_as_it_stands_there(name: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != SERVERS_VARIABLE}
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert "the ledger's" in done.stdout
