"""The demo, run whole, twice side by side: what it prints, and what is on the log, counted by whoever trusts it not."""

import os
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.broker.daemon import stop_daemon
from rollbook.infra.demo.cluster import Cluster, keep_running
from rollbook.infra.demo.config import EVAL_MARGIN, DemoConfig
from rollbook.infra.demo.learning.schedule import episodes_due_at
from rollbook.infra.demo.processes.folder import RunFolder
from rollbook.infra.settings import Settings
from rollbook.infra.topics.topics import check_topics, create_topics
from rollbook.processors.ledger.fold import Ledger, SourceRecord
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.policy import Activate, ActivationAck, EvidenceKind
from rollbook.schemas.records.rollout import Generated, GenerationFailed, GenerationFailure, Purpose
from rollbook.schemas.records.run import RunConfigured
from rollbook.tests.demo.finished import BIN, FinishedDemo, start_demo
from rollbook.tests.nightly import nightly
from rollbook.tests.recount import Codec, check_decisions, figures, read_topic

CONFIG = DemoConfig()
STEPS = CONFIG.updates * CONFIG.steps_per_update
UNDONE = 2

Demos = tuple[FinishedDemo, ...]


def recounted(demo: FinishedDemo) -> dict[str, Any]:
    """The figures of a run by the independent recount, which checks its decisions first."""
    servers, prefix = demo.settings.bootstrap_servers, demo.settings.topic_prefix
    lifecycle, decisions = (read_topic(servers, f"{prefix}{topic}") for topic in ("lifecycle", "decisions"))
    codec = Codec()
    assert sum(check_decisions(lifecycle, decisions, codec).values()) == len(lifecycle)
    return figures(demo.run_id, lifecycle, decisions, codec)


def test_it_ends_well_and_every_bundle_passes(demos: Demos) -> None:
    for demo in demos:
        said = f"Replay: {STEPS} bundles of {STEPS} steps: all pass; {UNDONE} updates were rolled back and have none."
        assert said in demo.output
        assert [bundle["verdict"] for bundle in demo.summary["bundles"]] == ["pass"] * STEPS
        assert [bundle["verdict"] for bundle in demo.summary["update_bundles"]] == ["pass"] * CONFIG.updates


def test_its_figures_are_those_of_an_independent_recount(demo: FinishedDemo) -> None:
    assert demo.summary["figures"] == recounted(demo)


@nightly("another whole demo")
def test_the_commands_that_it_prints_bring_its_log_back(demos: Demos) -> None:
    demo = demos[0]
    *commands, stop = demo.commands
    assert commands[0].startswith("rollbook broker start")
    assert stop.startswith("rollbook broker stop")
    try:
        assert "Commit" in shell(commands, demo.folder.parent)
        assert demo.summary["figures"] == recounted(demo)
    finally:
        shell([stop], demo.folder.parent)


def test_the_commands_that_it_prints_look_at_an_existing_cluster(demo: FinishedDemo) -> None:
    said = shell(demo.commands, demo.folder.parent)
    assert "Commit" in said
    assert "loss.policy" in said
    assert not any("broker" in command for command in demo.commands if command.startswith("rollbook"))


def shell(commands: list[str], folder: Path) -> str:
    """What the commands print, typed one after the other; each must succeed."""
    done = subprocess.run(
        ["/bin/sh", "-e"],
        input="\n".join(commands),
        cwd=folder,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), commands
    return done.stdout


def test_a_fold_from_offset_0_gives_the_bytes_of_the_decisions_topic(demo: FinishedDemo) -> None:
    configured = next(record for record, _ in demo.records if isinstance(record, RunConfigured))
    ledger = Ledger(partition_of(demo.run_id, configured.partition_count), configured.partition_count)
    folded = [ledger.fold(SourceRecord(one.partition, one.offset, one.key, one.value)) for one in demo.lifecycle]
    assert demo.lifecycle[0].offset == 0
    assert [one.encoded for one in folded] == [one.value for one in demo.decided]


def test_updates_are_committed_and_policies_activated_in_turn(demo: FinishedDemo) -> None:
    found = demo.summary["figures"]
    assert found["updates"] == {"committed": CONFIG.updates, "rolled_back": UNDONE}
    assert found["steps"] == STEPS
    assert found["activated"] == list(range(1, CONFIG.updates + UNDONE + 1))


def test_every_activation_had_the_file_hash_from_both_workers(demo: FinishedDemo) -> None:
    serving: dict[str, tuple[int, str]] = {}
    for record, decision in demo.records:
        if isinstance(record, ActivationAck) and record.serves is not None:
            assert record.evidence is EvidenceKind.FILE_HASH
            serving[record.worker_id] = (record.serves.version, record.serves.artifact_hash)
        if isinstance(record, Activate) and decision.outcome is Outcome.ACCEPTED:
            wanted = (record.policy.version, record.policy.artifact_hash)
            assert serving == {"worker-0": wanted, "worker-1": wanted}


def test_fresh_and_tolerated_are_trained_on_stale_and_drifted_are_not(demo: FinishedDemo) -> None:
    found = demo.summary["figures"]
    assert min(found["freshness"][kind] for kind in ("fresh", "tolerated")) > 100
    assert found["freshness"].keys() == {"fresh", "tolerated"}
    assert found["refused"]["stale_policy lag 3"] > 10
    drifted = sum(found["refused"].get(f"policy_drift lag {lag}", 0) for lag in (1, 2))
    assert 0 < drifted < found["trajectories"]["quarantined"]
    assert found["trajectories"]["consumed"] == sum(found["admitted"].values()) - found["rolled_back"][0]["rows"]


def test_the_evaluation_reward_rises_by_the_stated_margin(demos: Demos) -> None:
    for demo in demos:
        evaluation = demo.summary["evaluation"]
        assert evaluation["after"] - evaluation["before"] >= EVAL_MARGIN
        by_version = {"0": evaluation["before"], str(CONFIG.updates + UNDONE): evaluation["after"]}
        assert demo.summary["figures"]["eval_by_version"] == by_version


def test_evaluation_is_never_trained_on(demo: FinishedDemo) -> None:
    evaluated = [
        record.identity.trajectory_id
        for record, _ in demo.records
        if isinstance(record, Generated) and record.purpose is Purpose.EVAL
    ]
    assert len(evaluated) == 2 * CONFIG.eval_prompts * CONFIG.samples_per_prompt
    assert {demo.states[one] for one in evaluated} == {"rewarded"}


def test_a_worker_is_lost_and_comes_back_under_a_higher_incarnation(demo: FinishedDemo) -> None:
    incarnations: dict[str, list[int]] = defaultdict(list)
    for record, _ in demo.records:
        if isinstance(record, ActivationAck) and record.incarnation not in incarnations[record.worker_id]:
            incarnations[record.worker_id].append(record.incarnation)
    assert len(incarnations["worker-0"]) == 1
    before, after = incarnations["worker-1"]
    assert before < after
    assert demo.summary["figures"]["failures"]["GenerationFailed worker_lost"] >= CONFIG.samples_per_prompt


def test_one_generation_and_one_reward_fail_and_are_no_reward_of_0(demo: FinishedDemo) -> None:
    failures = demo.summary["figures"]["failures"]
    assert failures["GenerationFailed engine_error"] == failures["RewardFailed service_error"] == 1
    assert failures.keys() <= {
        "GenerationFailed engine_error",
        "GenerationFailed worker_lost",
        "RewardFailed service_error",
    }


def test_a_group_with_a_failed_member_is_not_trained_on(demo: FinishedDemo) -> None:
    groups: dict[str, set[str]] = defaultdict(set)
    failed: dict[str, set[GenerationFailure]] = defaultdict(set)
    for record, decision in demo.records:
        if isinstance(record, Generated | GenerationFailed) and decision.outcome is Outcome.ACCEPTED:
            groups[record.identity.group_id].add(record.identity.trajectory_id)
            if isinstance(record, GenerationFailed):
                failed[record.identity.group_id].add(record.reason)
    for group, reasons in failed.items():
        states = Counter(demo.states[one] for one in groups[group])
        assert states.keys() <= {"generation_failed", "discarded"}
        if reasons == {GenerationFailure.ENGINE_ERROR}:
            assert states == {"generation_failed": 1, "discarded": CONFIG.samples_per_prompt - 1}


def test_what_failed_or_was_lost_is_generated_again_in_a_new_group(demo: FinishedDemo) -> None:
    members: dict[tuple[int, str], int] = Counter(
        (record.task.row, record.identity.group_id)
        for record, decision in demo.records
        if isinstance(record, Generated) and record.purpose is Purpose.TRAIN and decision.outcome is Outcome.ACCEPTED
    )
    whole = {row for (row, _), size in members.items() if size == CONFIG.samples_per_prompt}
    assert whole == {e.row for version in range(CONFIG.updates) for e in episodes_due_at(CONFIG, version)}


@nightly("another whole demo")
def test_the_two_demos_had_nothing_in_common(demos: Demos) -> None:
    one, other = demos
    assert one.run_id != other.run_id
    assert one.settings.bootstrap_servers != other.settings.bootstrap_servers
    assert other.settings.topic_prefix == f"rollbook.{other.run_id}."
    assert {record.header.run_id for record, _ in other.records} == {other.run_id}


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    process = start_demo(tmp_path)
    output, errors = process.communicate()
    assert (process.returncode, output) == (2, "")
    assert errors == f"Error: {tmp_path} exists and is not an empty folder: name another one with --out\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_a_demo_that_is_ended_leaves_no_process_behind(number: signal.Signals, code: int, tmp_path: Path) -> None:
    process = start_demo(tmp_path / "demo")
    folder = RunFolder(tmp_path / "demo")
    wait_until(lambda: folder.log("processor").exists())
    assert len(pids_that_name(folder.path)) >= 4, "trainer, workers and broker"
    process.send_signal(number)
    output, errors = process.communicate()
    assert (process.returncode, output, errors) == (code, "", "")
    wait_until(lambda: not pids_that_name(folder.path))


def pids_that_name(path: Path) -> list[int]:
    """Processes with the path in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(path).encode() in command:
                found.append(int(entry.name))
    return found


def wait_until(condition: Callable[[], bool], deadline_s: float = 60.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.05)


def test_a_kept_broker_runs_on_with_the_demos_data(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with EmbeddedBroker(folder.broker) as broker:
        cluster = Cluster(Settings(bootstrap_servers=broker.bootstrap_servers), is_embedded=True)
        create_topics(cluster.settings)
    try:
        keep_running(folder, cluster)
        assert check_topics(cluster.settings) == []
    finally:
        stop_daemon(folder.broker)
