"""The home-made loop of the examples runs as it stands there, and what it recorded replays."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Settings, Topic
from rollbook.processors.reasons import Reason
from rollbook.producers import new_id
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.world import read_topic
from rollbook.tests.replay.materialized import passing
from rollbook.tests.replay.trained_run import await_decided

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "home_made.py"


def test_the_home_made_loop_trains_through_the_ledger_and_its_steps_replay(
    processed: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example, run_id = _load(EXAMPLE), f"home-made-{new_id()}"
    logits = example.train(processed, run_id)
    assert int(np.argmax(logits)) == 0, "it is rewarded for zeros"
    partition = partition_of(run_id, PARTITIONS)
    await_decided(processed, partition)
    found = [one.record for one in read_topic(processed, Topic.DECISIONS, partition) if one.key == run_id.encode()]
    decisions = [one for one in found if isinstance(one, Decision)]
    # Publishing waits for nothing: a claim may come before the rewards, and an activation before the worker's report.
    refused = {one.reason for one in decisions if one.outcome not in (Outcome.ACCEPTED, Outcome.PENDING)}
    assert refused <= {Reason.NOTHING_TAKEN, Reason.WORKER_MISMATCH, Reason.MISSING_WORKER_ACK}
    lags = [{item.lag for item in one.items} for one in decisions if one.record_type == "Admit"]
    assert lags == [{0}] + [{1}] * (example.UPDATES - 1)
    with KafkaLog(processed) as log:
        report = materialize(log, Wanted.of_run(run_id, log, processed), tmp_path)
    assert report.problems == ()
    assert len(report.written) == 2 * example.UPDATES
    for written in report.written:
        passing(written.path)
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", processed.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", processed.topic_prefix)
    capsys.readouterr()
    assert rollbook(["checklist", "--run", run_id, "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    # Nothing fails in it, and what it generates last it does not train on.
    assert {step["step"] for step in steps if step["verdict"] != "seen"} <= {
        "Behavior log-probs",
        "What fails",
        "The end",
    }


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
