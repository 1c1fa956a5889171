"""`rollbook monitoring`: what it prints is the file, so that a package without its checkout is enough."""

import pytest

from rollbook.infra.command import run
from rollbook.infra.monitoring.files import File


@pytest.mark.parametrize(("command", "file"), [("rules", File.RULES), ("grafana", File.GRAFANA)])
def test_it_prints_the_file(command: str, file: File, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["monitoring", command]) == 0
    assert capsys.readouterr().out == file.text()


def test_without_a_command_it_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["monitoring"]) == 2
    assert "grafana" in "".join(capsys.readouterr())
