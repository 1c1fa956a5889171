"""What scripts read: one JSON value a line and nothing else on standard output, with keys that only ever grow."""

import json
from pathlib import Path
from typing import Any

import pytest

from rollbook.infra.command import run
from rollbook.infra.settings import Settings
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, PAYLOADS, SETTINGS
from rollbook.tests.replay.test_replay_history import three_updates

PLACE = {"bootstrap_servers", "topic_prefix"}


def answered(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[Any]:
    assert run([*arguments, "--json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_topics(settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", settings.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", settings.topic_prefix)
    (made,) = answered(capsys, "topics", "create")
    assert made.keys() >= PLACE | {"created", "repaired", "unchanged", "partitions"}
    assert len(made["unchanged"]) == 6
    (shown,) = answered(capsys, "topics", "describe")
    assert shown.keys() >= PLACE | {"topics", "problems"}
    assert shown["problems"] == []
    assert shown["topics"][0]["settings"][0].keys() >= {"setting", "actual", "wanted"}
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", "nowhere.")
    (missing,) = answered(capsys, "topics", "describe", code=1)
    assert missing["problems"][0].keys() >= {"topic", "setting", "actual", "wanted", "remedy"}


def test_the_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state,) = answered(capsys, "broker", "status", "--data-dir", str(tmp_path), code=1)
    assert state == {
        "running": False,
        "bootstrap_servers": None,
        "pid": None,
        "cluster_id": None,
        "data_dir": str(tmp_path),
    }


@pytest.fixture
def history(tmp_path: Path) -> str:
    """Three updates as a file."""
    ranges = [OffsetRange(topic, 0) for topic in (LIFECYCLE, DECISIONS, PAYLOADS)]
    return str(export(three_updates().log, SETTINGS, ranges, tmp_path / "history.avro").path)


SECTION = {"topic", "partition", "start", "end", "run", "only_referenced"}
EXPORTED = {"path", "sections", "payloads_gone", "references_left_out"}


def test_exports_and_seals(history: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "again.avro")
    (found,) = answered(capsys, "history", "export", history, "--run", "run-a", "--out", out)
    assert found.keys() >= EXPORTED
    assert found["path"] == out
    assert found["sections"][0].keys() >= SECTION | {"records", "digest"}
    sealed = str(tmp_path / "sealed.avro")
    (found,) = answered(capsys, "history", "seal", history, f"{LIFECYCLE}:0:-", "--out", sealed)
    assert found.keys() >= {"audit", "exported", "anchor", "may_leave_kafka"}
    assert found["audit"]["passed"]
    assert found["exported"].keys() >= EXPORTED
    assert found["anchor"].keys() >= {"lifecycle", "partition", "next_offset", "next_decision", "run", "digest"}
    assert found["may_leave_kafka"][0].keys() >= SECTION


def test_materialize(history: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = answered(capsys, "materialize", history, "--run", "run-a", "--out", str(tmp_path / "bundles"))
    assert found.keys() >= {"complete", "updates", "bundles", "not_written", "without_update", "undecided"}
    assert (found["complete"], found["updates"], found["not_written"]) == (True, 3, [])
    of_a_bundle = {"run_id", "update_id", "rollout_id", "step_id", "path", "provenance", "samples", "was_there"}
    assert all(one.keys() >= of_a_bundle and Path(one["path"]).is_dir() for one in found["bundles"])
    bundles, one = str(tmp_path / "bundles"), found["bundles"][0]["path"]
    for command in (["inspect", one], ["validate", one], ["replay", one], ["replay", bundles, "--chain"]):
        assert len(answered(capsys, *command)) == 1, command
    assert len(answered(capsys, "dialect", one)) == 1
