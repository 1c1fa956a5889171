"""Which broker a demo runs on, and what its folder tells of it."""

from pathlib import Path

import pytest

from rollbook.infra.broker.ports import free_port
from rollbook.infra.command import run
from rollbook.infra.demo.processes.folder import RunFolder
from rollbook.infra.settings import Settings

SECRET = "hunter2"
GIVEN = {
    "ROLLBOOK_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "ROLLBOOK_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "ROLLBOOK_KAFKA_SASL_USERNAME": "trainer",
    "ROLLBOOK_KAFKA_SASL_PASSWORD": SECRET,
}


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROLLBOOK_BOOTSTRAP_SERVERS", raising=False)


def test_a_password_without_the_cluster_that_it_is_for_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable, value in GIVEN.items():
        monkeypatch.setenv(variable, value)
    out = tmp_path / "out"
    assert run(["demo", "--out", str(out)]) == 2
    told = capsys.readouterr().err
    for named in ("ROLLBOOK_KAFKA_SECURITY_PROTOCOL", "SASL_SSL", "set ROLLBOOK_BOOTSTRAP_SERVERS"):
        assert named in told.replace("\n", " ")
    assert SECRET not in told
    assert not out.exists()


def test_its_folder_holds_no_secret_and_its_processes_have_it_from_their_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in GIVEN.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", f"127.0.0.1:{free_port()}")
    settings, folder = Settings.from_env(), RunFolder(tmp_path)
    folder.share_cluster(settings)
    assert SECRET not in "".join(path.read_text(encoding="utf-8") for path in tmp_path.iterdir())
    assert folder.cluster() == settings
