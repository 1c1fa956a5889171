"""Bad input, whoever meets it: one line that says what was wrong, where, and what to do; the exit code; no traceback.

One row a mistake. The first table is typed by a user into the real command, the second made by a program that uses the
clients.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from rollbook.infra.broker.ports import free_port
from rollbook.infra.settings import Settings, Topic
from rollbook.producers import RolloutWorker, SegmentArrays, new_identity
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.records.rollout import FinishReason
from rollbook.schemas.records.run import Admission, DriftGate, LagUnit
from rollbook.tests.infra.test_topics import set_topic
from rollbook.tests.producers.world import CONTRACT_HASH, TASK, read_topic, row
from rollbook.tests.replay.reseal import FIXTURES


@dataclass(frozen=True, slots=True)
class Typed:
    """A command line, and where it is typed."""

    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)


Prepare = Callable[[Path, Settings], Typed]


def unknown_command(_: Path, __: Settings) -> Typed:
    return Typed(["reply", "bundles/b"])


def missing_bundle(folder: Path, _: Settings) -> Typed:
    return Typed(["replay", str(folder / "nowhere")])


def truncated_payload(folder: Path, _: Settings) -> Typed:
    bundle = folder / "bundle"
    shutil.copytree(FIXTURES / "full-k1", bundle)
    payload = bundle / "payloads" / "old_log_probs.pt"
    payload.write_bytes(payload.read_bytes()[:-7])
    return Typed(["replay", str(bundle)])


def broker_down(_: Path, __: Settings) -> Typed:
    return Typed(["decisions", "--run", "r"], {"ROLLBOOK_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}"})


def wrong_topic_setting(_: Path, settings: Settings) -> Typed:
    set_topic(settings, Topic.LIFECYCLE, "message.timestamp.type", "CreateTime")
    return Typed(["processor", "run"], of(settings))


def missing_topics(_: Path, settings: Settings) -> Typed:
    return Typed(["processor", "run"], of(replace(settings, topic_prefix="nowhere.")))


def wrong_prefix(_: Path, settings: Settings) -> Typed:
    return Typed(["topics", "create"], {**of(settings), "ROLLBOOK_TOPIC_PREFIX": "team a/\x1b[31m"})


def empty_servers(_: Path, __: Settings) -> Typed:
    return Typed(["topics", "create"], {"ROLLBOOK_BOOTSTRAP_SERVERS": ""})


def unknown_run(_: Path, settings: Settings) -> Typed:
    return Typed(["freshness", "--run", "nobody's"], of(settings))


def unknown_reason(_: Path, settings: Settings) -> Typed:
    return Typed(["decisions", "--run", "r", "--reason", "stale"], of(settings))


def range_beyond_the_end(folder: Path, settings: Settings) -> Typed:
    return Typed(["materialize", "lifecycle:0:0-5000", "--out", str(folder)], of(settings))


def foreign_folder(folder: Path, _: Settings) -> Typed:
    (folder / "notes.txt").touch()
    return Typed(["broker", "start", "--data-dir", str(folder)])


def full_folder(folder: Path, _: Settings) -> Typed:
    (folder / "notes.txt").touch()
    return Typed(["demo", "--out", str(folder)])


def of(settings: Settings) -> dict[str, str]:
    return {
        "ROLLBOOK_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "ROLLBOOK_TOPIC_PREFIX": settings.topic_prefix,
    }


TYPED: list[tuple[Prepare, int, str, str]] = [
    (unknown_command, 2, "No such command 'reply'", "Did you mean 'replay'?"),
    (missing_bundle, 2, "no bundle at", "check the path"),
    (truncated_payload, 2, "payloads/old_log_probs.pt: ", "(truncated); capture the bundle again"),
    (broker_down, 3, "no Kafka broker answers at 127.0.0.1:", "start one with `rollbook broker start`"),
    (wrong_topic_setting, 2, "is CreateTime, wanted LogAppendTime", "run `rollbook topics create --repair`"),
    (missing_topics, 2, "topic nowhere.lifecycle is missing", "run `rollbook topics create`"),
    (wrong_prefix, 2, r"ROLLBOOK_TOPIC_PREFIX is 'team a/\x1b[31m'", "such as rollbook."),
    (empty_servers, 2, "ROLLBOOK_BOOTSTRAP_SERVERS is set but empty", "unset it"),
    (unknown_run, 2, "run nobody's has no freshness snapshot", "check the name"),
    (unknown_reason, 2, "'stale' is no reason", "did you mean stale_"),
    (range_beyond_the_end, 2, "offset 4999 is beyond the end", "it is empty"),
    (foreign_folder, 2, "not a broker's data directory", "choose an empty or a new one"),
    (full_folder, 2, "exists and is not an empty folder", "name another one with --out"),
]


@pytest.mark.parametrize(("prepare", "code", "fault", "remedy"), TYPED, ids=[case[0].__name__ for case in TYPED])
def test_a_user_is_told_on_one_line(
    prepare: Prepare, code: int, fault: str, remedy: str, tmp_path: Path, settings: Settings
) -> None:
    typed = prepare(tmp_path, settings)
    done = subprocess.run(
        [sys.executable, "-m", "rollbook.infra.cli", *typed.arguments],
        env={**os.environ, **typed.environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.removesuffix("\n").isprintable()
    assert fault in done.stderr
    assert remedy in done.stderr


def admission(**change: object) -> Admission:
    fields = {"max_lag": 1, "lag_unit": LagUnit.DEPTH, "max_mean_abs_log_ratio": 0.2, "drift_gate": DriftGate.REQUIRED}
    return Admission(**{**fields, **change})


def generate(worker: RolloutWorker, segment: SegmentArrays) -> str:
    return worker.generated(
        new_identity("group-0", 0, 1),
        [segment],
        task=TASK,
        contract_hash=CONTRACT_HASH,
        finish_reason=FinishReason.STOP,
        rollout_partition_id="batch-0",
    )


NAN = float("nan")
Call = Callable[[RolloutWorker], object]
CALLED: list[tuple[str, Call, str]] = [
    ("negative threshold", lambda _: admission(max_mean_abs_log_ratio=-0.1), "max_mean_abs_log_ratio"),
    ("threshold that is no number", lambda _: admission(max_mean_abs_log_ratio=NAN), "max_mean_abs_log_ratio"),
    ("negative lag", lambda _: admission(max_lag=-1), "max_lag"),
    ("lag that is a text", lambda _: admission(max_lag="1"), "max_lag"),
    ("NaN log-prob", lambda worker: generate(worker, replace(row(), log_probs=[NAN] * 5)), "segments.0.log_probs"),
    ("log-prob too few", lambda worker: generate(worker, replace(row(), log_probs=[-1.0])), "segments.0.log_probs"),
]


@pytest.mark.parametrize(("call", "named"), [case[1:] for case in CALLED], ids=[case[0] for case in CALLED])
def test_a_program_is_told_on_one_line_and_nothing_reaches_kafka(call: Call, named: str, settings: Settings) -> None:
    with RolloutWorker(settings, "run-0", "worker-0") as worker:
        with pytest.raises(RollbookError) as refusal:
            call(worker)
        worker.flush(20)
    told = str(refusal.value)
    assert refusal.value.exit_code == 2
    assert told.isprintable()
    assert f"field {named}: " in told
    assert told.endswith("correct the field and send the event again")
    assert read_topic(settings, Topic.LIFECYCLE) == read_topic(settings, Topic.PAYLOADS) == []
