"""The same history under other limits: what each answer would have been, and what nobody measured."""

import json
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Topic
from rollbook.replay.audit.anchor import anchor_of
from rollbook.replay.audit.audit import stretch_of
from rollbook.replay.audit.rules import Instead, parse_instead
from rollbook.replay.audit.seal import seal
from rollbook.replay.audit.whatif import what_if
from rollbook.replay.audit.whatif_report import RunWhatIf, Stage
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.policy import Activate, ActivationAck, EvidenceKind, PolicyPrepared
from rollbook.schemas.records.run import Artifact, ArtifactKind, DriftGate, Enforcement, LagUnit
from rollbook.schemas.records.update import (
    Claim,
    ClaimOrder,
    Commit,
    CommitStep,
    Disposition,
    DroppedItem,
    Reserve,
    ReserveItem,
    ReserveMode,
)
from rollbook.tests.replay.story import LIFECYCLE, SETTINGS, Story
from rollbook.tests.replay.story_parts import ROLLOUT_ID

RESERVE, ADMIT, TRAIN = Stage.RESERVE, Stage.ADMIT, Stage.TRAIN


def policies(story: Story, last: int) -> None:
    """The learner has exported that many policies; its workers still serve the initial one."""
    for version in range(1, last + 1):
        artifact = Artifact(hash=f"weights-{version}", kind=ArtifactKind.FILE)
        story.accepted(
            PolicyPrepared,
            version=version,
            artifact=artifact,
            parent_version=version - 1,
            update_ids=(),
            committed=True,
        )
    story.weights = PolicyRef(version=last, artifact_hash=f"weights-{last}")


def served(story: Story, version: int) -> None:
    """The worker turns to a policy."""
    ref = PolicyRef(version=version, artifact_hash=f"weights-{version}")
    report = {"worker_id": "worker-0", "incarnation": 1, "report_seq": version}
    story.accepted(ActivationAck, serves=ref, evidence=EvidenceKind.FILE_HASH, **report)
    story.accepted(Activate, policy=ref, expected_active_version=story.served.version)
    story.served = ref


def asked(story: Story, update_id: str, ids: list[str], mode: ReserveMode = ReserveMode.ALL) -> None:
    items = tuple(ReserveItem(trajectory_id=name, expected_revision=2) for name in ids)
    fields = {"update_id": update_id, "part": 0, "policy": story.weights, "items": items, "mode": mode}
    story.say(Reserve, learner=story.learner, **fields)


def claimed(story: Story, update_id: str, groups: int = 1) -> None:
    claim = Claim(max_groups=groups, order=ClaimOrder.OLDEST)
    fields = {"update_id": update_id, "part": 0, "policy": story.weights, "claim": claim, "mode": ReserveMode.ALL}
    story.say(Reserve, learner=story.learner, **fields)


def committed(story: Story, update_id: str, *ids: str, dropped: tuple[str, ...] = (), **more: object) -> None:
    steps = (CommitStep(rollout_id=ROLLOUT_ID, step_id=0, trajectory_ids=ids),)
    drops = tuple(DroppedItem(trajectory_id=one, reason="odd", disposition=Disposition.DISCARD) for one in dropped)
    story.accepted(Commit, learner=story.learner, update_id=update_id, steps=steps, dropped=drops, **more)


def judged(story: Story, **instead: object) -> RunWhatIf:
    texts = [f"{name}={value}" for name, value in instead.items()]
    stretch = stretch_of(story.log, SETTINGS, None, story.run_id)
    (found,) = what_if(story.log, stretch, parse_instead(texts)).runs
    return found


@pytest.fixture
def story() -> Story:
    return Story().opened()


def test_under_its_own_limits_everything_would_be_as_it_was(story: Story) -> None:
    story.update("u0", [story.group("a"), story.group("b")], drifted=["a.0"])
    policies(story, 2)
    asked(story, "u1", story.group("c"))
    found = judged(story)
    assert found.total(RESERVE) == {"reserved": (4, 4), "stale_policy": (2, 2)}
    assert found.total(ADMIT) == {"ok": (3, 3), "policy_drift": (1, 1)}
    assert found.total(TRAIN) == {"trained": (3, 3)}
    assert found.within_reach == ()


def test_a_lower_limit_of_drift_refuses_rows_that_were_trained_on(story: Story) -> None:
    story.update("u0", [story.group("a"), story.group("b")], drifted=["a.0"])
    found = judged(story, max_mean_abs_log_ratio=0.001)
    assert found.total(ADMIT) == {"ok": (3, 0), "policy_drift": (1, 4)}
    assert found.total(TRAIN) == {"trained": (3, 0), "policy_drift": (0, 3)}


def test_a_higher_limit_of_drift_trains_on_what_was_refused_where_the_update_was_committed(story: Story) -> None:
    story.update("u0", [story.group("a")], drifted=["a.0"])
    story.reserve("u1", story.group("b"), drifted=["b.0"])
    found = judged(story, max_mean_abs_log_ratio=1.0)
    assert found.total(ADMIT) == {"ok": (2, 4), "policy_drift": (2, 0)}
    assert found.total(TRAIN) == {"trained": (1, 2)}
    assert judged(story, drift_gate="off").total(TRAIN) == {"trained": (1, 2)}


def test_a_lower_limit_of_lag_refuses_at_reserve_and_then_everywhere(story: Story) -> None:
    old = story.group("a")
    policies(story, 1)
    story.update("u0", [old])
    found = judged(story, max_lag=0)
    assert found.total(RESERVE) == {"reserved": (2, 0), "stale_policy": (0, 2)}
    assert found.total(ADMIT) == {"ok": (2, 0), "not_reserved": (0, 2)}
    assert found.total(TRAIN) == {"trained": (2, 0), "stale_policy": (0, 2)}


def test_rows_that_were_stale_would_be_reserved_and_their_drift_is_unmeasured(story: Story) -> None:
    """Also those that claims passed over without a word; a row that was taken after all is not among them."""
    old = story.group("a")
    story.group("b")
    policies(story, 2)
    asked(story, "u0", old)
    claimed(story, "u1")
    found = judged(story, max_lag=2)
    assert found.total(RESERVE) == {"stale_policy": (2, 0), "reserved": (0, 2)}
    assert found.within_reach == ((0, 4),)
    story.weights = PolicyRef(version=1, artifact_hash="weights-1")
    story.update("u2", [old])
    assert judged(story, max_lag=2).within_reach == ((0, 2),)
    assert judged(story).within_reach == ()


def test_all_or_none_is_judged_again_as_one(story: Story) -> None:
    """With a row that nobody knows none is taken under any limits; without it all or none."""
    ids = story.group("a")
    policies(story, 2)
    asked(story, "u0", [*ids, "nobody knows it"])
    assert judged(story, max_lag=2).total(RESERVE) == {
        "stale_policy": (2, 0),
        "all_or_none": (0, 2),
        "missing_rollout": (1, 1),
    }
    versions = {one.version for one in judged(story).counts}
    assert versions == {0, None}


def test_rows_that_were_never_shown_are_unmeasured_once_a_gate_asks(story: Story) -> None:
    ids = story.group("a")
    committed(story, "u0", *ids, unreserved=True)
    assert judged(story, max_lag=3).total(TRAIN) == {"trained": (2, 0), "unmeasured": (0, 2)}


def test_a_run_that_was_only_observed_is_judged_as_if_it_had_been_gated() -> None:
    story = Story(enforcement=Enforcement.OBSERVE).opened()
    old = story.group("a")
    policies(story, 2)
    story.update("u0", [old])
    found = judged(story)
    assert found.observed
    assert found.total(RESERVE) == {"stale_policy": (2, 2)}
    assert found.total(TRAIN) == {"trained": (2, 0), "stale_policy": (0, 2)}
    assert judged(story, max_lag=2).total(TRAIN) == {"trained": (2, 2)}
    asked(story, "u1", story.group("b"))
    committed(story, "u1", "b.0", "b.1")
    assert judged(story, max_lag=2).total(TRAIN) == {"trained": (4, 2), "unmeasured": (0, 2)}


def test_what_an_observed_update_does_not_name_or_drops_was_not_trained_on() -> None:
    story = Story(enforcement=Enforcement.OBSERVE).opened()
    story.reserve("u0", [*story.group("a"), *story.group("b")], drifted=["b.0", "b.1"])
    committed(story, "u0", "a.0", dropped=("b.0",))
    assert judged(story, max_mean_abs_log_ratio=2.0).total(TRAIN) == {"trained": (1, 2)}
    assert judged(story).total(TRAIN) == {"trained": (1, 1)}


def test_a_first_answer_is_counted_once(story: Story) -> None:
    """Asked again for what it holds, and shown again what was admitted."""
    ids = story.group("a")
    story.reserve("u0", ids, drifted=["a.1"])
    story.reserve("u0", ids[:1], part=1)
    found = judged(story)
    assert found.total(RESERVE) == {"reserved": (2, 2)}
    assert found.total(ADMIT) == {"ok": (1, 1), "policy_drift": (1, 1)}


def test_a_claim_takes_whole_groups_and_each_is_judged_by_itself(story: Story) -> None:
    story.group("a")
    policies(story, 1)
    served(story, 1)
    story.group("b")
    claimed(story, "u0", 2)
    found = judged(story, max_lag=0)
    assert found.total(RESERVE) == {"reserved": (4, 2), "stale_policy": (0, 2)}
    assert {(one.version, one.reason) for one in found.counts if one.would} == {(0, "stale_policy"), (1, "reserved")}


def test_what_was_left_for_the_sake_of_a_stale_row_is_within_reach_too(story: Story) -> None:
    old = story.group("a")
    policies(story, 2)
    served(story, 1)
    asked(story, "u0", [*old, *story.group("b")])
    found = judged(story, max_lag=2)
    assert found.total(RESERVE) == {"stale_policy": (2, 0), "all_or_none": (2, 0), "reserved": (0, 4)}
    assert found.within_reach == ((0, 2), (1, 2))


def test_lag_in_another_unit_is_counted_from_the_policies(story: Story) -> None:
    """Two exports without an update: two behind by depth, none by ordinal; the second open update is one ahead."""
    old = story.group("a")
    policies(story, 2)
    asked(story, "u0", old)
    by_ordinal = judged(story, lag_unit="ordinal", max_lag=0)
    assert by_ordinal.total(RESERVE) == {"stale_policy": (2, 0), "reserved": (0, 2)}
    story.weights = PolicyRef(version=0, artifact_hash="weights-0")
    story.reserve("u1", old)
    story.reserve("u2", story.group("b"))
    found = judged(story, lag_unit="ordinal", max_lag=0)
    assert found.total(RESERVE) == {"stale_policy": (2, 2), "reserved": (4, 4)}
    assert found.total(ADMIT) == {"ok": (4, 2), "not_reserved": (0, 2)}


def test_from_an_anchor_in_the_midst_of_an_update(story: Story, tmp_path: Path) -> None:
    """What was admitted before it is judged by its figures."""
    ids = story.group("a")
    story.reserve("u0", ids, drifted=["a.0"])
    stretch = stretch_of(story.log, SETTINGS, None, story.run_id)
    seal(story.log, SETTINGS, stretch, tmp_path / "sealed.avro")
    middle = story.end
    story.start("u0")
    story.commit("u0", [ids[1:]], ())
    rest = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0, middle), story.run_id)
    with pytest.raises(BadInput, match="at the --anchor of a sealed file"):
        what_if(story.log, rest, Instead())
    anchor = anchor_of(tmp_path / "sealed.avro")
    for ratio, would in ((0.2, "trained"), (0.001, "policy_drift")):
        found = what_if(story.log, rest, Instead(max_mean_abs_log_ratio=ratio), anchor=anchor).runs[0].total(TRAIN)
        assert {reason: count for reason, (_, count) in found.items() if count} == {would: 1}


def test_runs_of_a_partition_are_told_apart(story: Story) -> None:
    story.update("u0", [story.group("a"), story.group("b")])
    other = Story("run-b", log=story.log, ledger=story.ledger).opened()
    other.update("theirs", [other.group("z")])
    stretch = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)
    report = what_if(story.log, stretch, Instead(max_mean_abs_log_ratio=0.0))
    assert [(run.run_id, run.total(ADMIT)["policy_drift"]) for run in report.runs] == [
        ("run-a", (0, 4)),
        ("run-b", (0, 2)),
    ]


def test_a_history_that_does_not_fit_is_told(story: Story) -> None:
    story.group("a")
    reward = next(one for one in story.log.read(LIFECYCLE, 0, 0, story.end) if b"labels-1" in (one.value or b""))
    story.log.tamper(LIFECYCLE, 0, reward.offset, (reward.value or b"").replace(b"labels-1", b"labels-2"))
    with pytest.raises(BadInput, match=rf"^{reward.place}: .*`rollbook audit` shows both sides"):
        what_if(story.log, stretch_of(story.log, SETTINGS, None, story.run_id), Instead())


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["max_lagg=2"], "is no rule of admission: give NAME=VALUE of max_lag="),
        (["max_lag"], "is no rule of admission"),
        (["max_lag=two"], "max_lag=two: it must be a whole number from 0 on"),
        (["max_lag=\N{FULLWIDTH DIGIT ONE}"], "it must be a whole number from 0 on"),
        (["max_lag=1_0"], "max_lag=1_0: it must be a whole number from 0 on"),
        (["max_lag=+1"], "max_lag=+1: it must be a whole number from 0 on"),
        (["max_lag= 1"], "max_lag= 1: it must be a whole number from 0 on"),
        (["max_mean_abs_log_ratio=0.1_0"], "max_mean_abs_log_ratio=0.1_0: it must be a number of nats from 0 on"),
        (["max_lag=-1"], "max_lag=-1: it must be a whole number from 0 on"),
        (["max_lag=1", "max_lag=2"], "max_lag is given twice"),
        (["max_mean_abs_log_ratio=nan"], "max_mean_abs_log_ratio=nan: it must be a number of nats from 0 on"),
        (["max_mean_abs_log_ratio=inf"], "max_mean_abs_log_ratio=inf: it must be a number of nats from 0 on"),
        (["lag_unit=steps"], "lag_unit=steps: it must be depth or ordinal"),
        (["drift_gate=on"], "drift_gate=on: it must be required or off"),
    ],
)
def test_rules_that_there_are_not_are_told_with_those_that_there_are(texts: list[str], told: str) -> None:
    with pytest.raises(BadInput) as problem:
        parse_instead(texts)
    assert told in str(problem.value)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"max_lag": -1}, "max_lag=-1: it must be a whole number from 0 on"),
        ({"max_lag": "2"}, "max_lag='2': it must be a whole number from 0 on"),
        ({"max_mean_abs_log_ratio": float("nan")}, "max_mean_abs_log_ratio=nan: it must be a number of nats from 0 on"),
        ({"drift_gate": "on"}, "drift_gate='on': it must be required or off"),
    ],
)
def test_from_python_they_are_told_by_the_same_words(limits: dict[str, object], told: str) -> None:
    with pytest.raises(BadInput) as problem:
        Instead(**limits)  # type: ignore[arg-type]
    assert str(problem.value) == told


def test_rules_are_read() -> None:
    texts = ["max_lag=2", "max_mean_abs_log_ratio=0.1", "lag_unit=ordinal", "drift_gate=off"]
    assert parse_instead(texts) == Instead(2, LagUnit.ORDINAL, 0.1, DriftGate.OFF)


def test_by_command_from_a_file(story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story.update("u0", [story.group("a"), story.group("b")], drifted=["a.0"])
    ranges = [OffsetRange(SETTINGS.topic(topic), 0) for topic in (Topic.LIFECYCLE, Topic.DECISIONS)]
    file = str(export(story.log, SETTINGS, ranges, tmp_path / "run.avro").path)
    ask = ["audit", file, "--with", "max_lag=2", "--with", "max_mean_abs_log_ratio=0.001"]
    assert rollbook(ask) == 0
    out = capsys.readouterr().out
    assert "max_lag 1 -> 2" in out
    assert "held fixed" in out
    assert [line.split() for line in out.splitlines() if "trained" in line] == [["trained", "3", "0"]]
    assert rollbook([*ask, "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert {"stage": "admit", "version": 0, "reason": "policy_drift", "was": 1, "would": 4} in run["counts"]
    assert rollbook([*ask, "--head", "0" * 64]) == 2
    assert rollbook(["audit", file, "--with", "lag=2"]) == 2
