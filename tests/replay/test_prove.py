"""What went into a policy's weights is told from its lineage, and what cannot be told is said."""

import hashlib
import json
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Topic
from rollbook.processors.ledger.fold import Ledger, SourceRecord
from rollbook.processors.ledger.keys import position_key
from rollbook.producers.redaction.policy import Redaction, Treatment
from rollbook.replay.audit.audit import audit, stretch_of
from rollbook.replay.audit.ledger import rows_of
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.prove.asked import Asked
from rollbook.replay.prove.proof import DoubtKind, Found, Membership, Proof, Standing
from rollbook.replay.prove.prove import OfPolicy, prove
from rollbook.replay.prove.report import lines
from rollbook.schemas.codec import encode
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.ledger import Position
from rollbook.schemas.records.policy import PolicyPrepared
from rollbook.schemas.records.rollout import TaskSource
from rollbook.schemas.records.run import Artifact, ArtifactKind, Enforcement, RunClosed
from rollbook.schemas.records.update import Abort, AbortDisposition, AbortReason, Commit, CommitStep
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story
from rollbook.tests.replay.story_parts import ROLLOUT_ID, RULE


def task(name: str) -> TaskSource:
    return TaskSource(task_id=name, prompt_hash=hash_of(name), dataset="made-up/train", row=len(name))


def hash_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def group(story: Story, name: str, of: str) -> list[str]:
    story.task = task(of)
    return story.group(name)


def policy(
    story: Story, version: int, parent: int, *updates: str, rollback_of: int | None = None, artifact: str = ""
) -> int:
    """Prepare a policy; the offset of its record."""
    story.accepted(
        PolicyPrepared,
        version=version,
        artifact=Artifact(hash=artifact or f"weights-{version}", kind=ArtifactKind.FILE),
        parent_version=parent,
        rollback_of=rollback_of,
        update_ids=updates,
        committed=True,
    )
    return story.end - 1


def proof(story: Story, version: int, *asked: str) -> Proof:
    stretch = stretch_of(story.log, SETTINGS, None, story.run_id)
    tasks = Asked.of(task_ids=asked) if asked else None
    return prove(story.log, stretch, OfPolicy(version), asked=tasks)


def doubts(found: Proof) -> list[DoubtKind]:
    return [doubt.kind for doubt in found.doubts]


@pytest.fixture
def story() -> Story:
    """Two policies of an update each, and a third that is another child of the first."""
    made = Story().opened()
    made.update("u0", [group(made, "a", "sums"), group(made, "b", "products")])
    policy(made, 1, 0, "u0")
    made.update("u1", [group(made, "c", "roots")])
    policy(made, 2, 1, "u1")
    group(made, "never trained on", "powers")
    return made


def test_a_policy_is_all_that_its_ancestors_trained_on(story: Story) -> None:
    found = proof(story, 2)
    assert [one.version for one in found.policies] == [0, 1, 2]
    assert [(one.update_id, one.policy_version, one.steps) for one in found.updates] == [
        ("u0", 1, (2, 2)),
        ("u1", 2, (2,)),
    ]
    assert [one.trajectory_id for one in found.trajectories] == ["a.0", "a.1", "b.0", "b.1", "c.0", "c.1"]
    assert doubts(found) == []
    head = story.ledger.run(story.run_id).head
    assert (found.chain, found.sequence, found.decided_to) == (head.chain, head.sequence, story.end)
    assert [one.update_id for one in proof(story, 1).updates] == ["u0"]
    assert proof(story, 0).trajectories == ()


def test_a_trajectory_has_its_task_its_behavior_its_reward_and_where_they_lie(story: Story) -> None:
    row = proof(story, 2).trajectories[2]
    assert (row.trajectory_id, row.group_id, row.update_id, row.steps) == ("b.0", "b", "u0", (1,))
    assert row.task == task("products")
    assert [one.version for one in row.behavior] == [0]
    assert row.reward is not None
    assert (row.reward.raw_reward, row.reward.rule, row.reward.label_hash) == (1.0, RULE, "labels-1")
    assert row.reason == "trained"
    assert row.mean_abs_log_ratio == pytest.approx(0.01)
    lies = dict(enumerate(story.log.read(LIFECYCLE, 0, 0, story.end)))
    assert row.generated_offset is not None
    assert row.reward_offset is not None
    assert b"b.0" in (lies[row.generated_offset].value or b"")
    assert b"labels-1" in (lies[row.reward_offset].value or b"")


def test_an_update_that_was_rolled_back_is_in_no_weights_that_were_made_later(story: Story) -> None:
    story.save("after-u1", "u1")
    story.update("u2", [group(story, "e", "evaluation")])
    story.start_learner("after-u1")
    story.update("u3", [group(story, "d", "logarithms")])
    policy(story, 3, 2, "u3")
    found = proof(story, 3, "evaluation")
    assert [one.update_id for one in found.updates] == ["u0", "u1", "u3"]
    assert doubts(found) == []
    assert found.absence is not None
    assert found.absence.proven
    assert [(hit.found, hit.update_id) for hit in found.absence.hits] == [(Found.OTHER_WEIGHTS, "u2")] * 2


def test_an_update_that_was_rolled_back_is_in_weights_whose_lineage_names_it(story: Story) -> None:
    story.save("after-u1", "u1")
    story.update("u2", [group(story, "e", "evaluation")])
    policy(story, 3, 2, "u2")
    story.start_learner("after-u1")
    found = proof(story, 3, "evaluation")
    assert found.updates[-1].standing is Standing.ROLLED_BACK
    assert found.updates[-1].undone_offset == story.end - 1
    assert doubts(found) == [DoubtKind.UNDONE]
    assert found.absence is not None
    assert [hit.found for hit in found.absence.present] == [Found.IN_WEIGHTS] * 2


def test_what_was_undone_was_undone_once(story: Story) -> None:
    story.start_learner()
    first = story.end - 1
    story.update("u2", [group(story, "d", "logarithms")])
    story.start_learner()
    assert {one.undone_offset for one in proof(story, 2).updates} == {first}


def test_a_roll_back_has_what_it_restores(story: Story) -> None:
    policy(story, 3, 2, rollback_of=1, artifact="weights-1")
    found = proof(story, 3)
    assert [(one.version, one.source_version) for one in found.policies] == [(0, None), (1, 0), (3, 1)]
    assert [one.update_id for one in found.updates] == ["u0"]
    stretch = stretch_of(story.log, SETTINGS, None, story.run_id)
    assert prove(story.log, stretch, OfPolicy(artifact_hash="weights-1")).policy.version == 3
    policy(story, 4, 2, artifact="weights-1")
    with pytest.raises(BadInput, match=r"policies 1, 3, 4 have this artifact, of different updates"):
        prove(story.log, stretch_of(story.log, SETTINGS, None, story.run_id), OfPolicy(artifact_hash="weights-1"))


def test_a_commit_that_no_policy_names_is_not_ruled_out(story: Story) -> None:
    story.update("u2", [group(story, "e", "evaluation")])
    policy(story, 3, 2)
    story.update("u3", [group(story, "d", "logarithms")])
    found = proof(story, 3, "evaluation")
    assert [(one.update_id, one.membership) for one in found.updates][2:] == [("u2", Membership.NOT_RULED_OUT)]
    assert doubts(found) == [DoubtKind.NOT_NAMED]
    assert found.absence is not None
    assert not found.absence.proven
    assert {hit.found for hit in found.absence.present} == {Found.NOT_RULED_OUT}
    assert proof(story, 2).doubts == ()
    assert "  not ruled out: 1 update that the lineage does not name, of 2 trajectories" in lines(found, 9)


def went_on(story: Story) -> Story:
    """Beside policy 2, which is made of policy 1, the learner trains on, is told to be at policy 1, and trains on."""
    story.update("u2", [group(story, "e", "evaluation")])
    policy(story, 3, 2, "u2")
    story.update("u3", [group(story, "d", "logarithms")])
    return story


def test_a_learners_weights_have_what_it_committed_whatever_their_lineage_leaves_out(story: Story) -> None:
    """Nothing has undone u1 and u2 when u3 is committed: a checkpoint behind it has them, and so do the weights."""
    policy(went_on(story), 4, 1, "u3")
    found = proof(story, 4, "evaluation")
    assert [(one.update_id, one.membership) for one in found.updates] == [
        ("u0", Membership.IN_WEIGHTS),
        ("u3", Membership.IN_WEIGHTS),
        ("u1", Membership.NOT_RULED_OUT),
        ("u2", Membership.NOT_RULED_OUT),
    ]
    assert doubts(found) == [DoubtKind.LEFT_OUT] * 2
    assert found.absence is not None
    assert not found.absence.proven
    assert {hit.found for hit in found.absence.present} == {Found.NOT_RULED_OUT}
    assert proof(story, 3, "logarithms").doubts == ()


def test_what_a_lineage_leaves_out_counts_also_where_a_later_policy_names_it(story: Story) -> None:
    story.update("u2", [group(story, "e", "evaluation")])
    story.update("u3", [group(story, "d", "logarithms")])
    policy(story, 3, 2, "u3")
    policy(story, 4, 2, "u2")
    assert doubts(proof(story, 3, "evaluation")) == [DoubtKind.LEFT_OUT]


@pytest.mark.parametrize("parent", [1, 2])
def test_weights_that_add_nothing_have_what_earlier_weights_of_their_learner_had(story: Story, parent: int) -> None:
    policy(went_on(story), 4, parent)
    found = [one.update_id for one in proof(story, 4).updates if one.membership is Membership.NOT_RULED_OUT]
    assert found == [name for name in ("u1", "u2", "u3") if name not in ("u0", "u1")[:parent]]


def test_weights_have_nothing_of_what_was_undone_or_came_later(story: Story) -> None:
    story.save("after-u0", "u0")
    story.start_learner("after-u0")
    policy(story, 3, 1)
    assert doubts(proof(story, 3)) == [], "u1 was undone"
    policy(story, 6, 3, "u2")
    policy(story, 7, 3)
    story.update("u2", [group(story, "e", "evaluation")])
    policy(story, 4, 3)
    assert doubts(proof(story, 7)) == [], "u2 was committed behind it"
    assert doubts(proof(story, 4)) == [], "weights of a lower version were written before those that name u2"


def test_what_was_left_out_is_in_no_weights_that_another_learner_made(story: Story) -> None:
    went_on(story)
    other = Story(log=story.log, ledger=story.ledger, learner_id="learner-1", events=100)
    other.start_learner()
    other.update("u4", [group(other, "f", "tensors")])
    policy(story, 4, 3, "u3")
    policy(story, 5, 0, "u4")
    found = proof(story, 5, "evaluation")
    assert [one.update_id for one in found.updates] == ["u4"]
    assert found.absence is not None
    assert found.absence.proven
    assert {hit.found for hit in found.absence.hits} == {Found.OTHER_WEIGHTS}


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_roll_back_restores_and_what_a_learner_then_adds_is_added_to_its_own_weights(
    story: Story, goes_on: bool
) -> None:
    policy(went_on(story), 4, 3, "u3")
    policy(story, 5, 4, rollback_of=1)
    assert doubts(proof(story, 5, "evaluation")) == []
    if not goes_on:
        story.save("after-u0", "u0")
        story.start_learner("after-u0")
    story.update("u4", [group(story, "f", "tensors")])
    policy(story, 6, 5, "u4")
    assert doubts(proof(story, 6, "evaluation")) == ([DoubtKind.LEFT_OUT] * 3 if goes_on else [])


def test_an_update_without_a_commit_leaves_the_question_open(story: Story) -> None:
    story.reserve("u2", group(story, "e", "evaluation"))
    policy(story, 3, 2, "u2", "never heard of")
    story.accepted(
        Abort,
        learner=story.learner,
        update_id="u2",
        reason=AbortReason.UPDATE_FAILED,
        disposition=AbortDisposition.RELEASE,
    )
    found = proof(story, 3, "tensors")
    assert [one.standing for one in found.updates][2:] == [Standing.ABORTED, Standing.UNKNOWN]
    assert doubts(found) == [DoubtKind.NO_COMMIT] * 2
    assert found.absence is not None
    assert (found.absence.hits, found.absence.proven) == ((), False)
    story.accepted(RunClosed)
    closed = proof(story, 3, "roots")
    assert [one.standing for one in closed.updates] == [one.standing for one in found.updates]
    assert closed.absence is not None
    assert [hit.trajectory_id for hit in closed.absence.present] == ["c.0", "c.1"]


def test_an_update_that_went_down_with_another_is_aborted_too(story: Story) -> None:
    """An operator's abort of a started update ends the others of its learner."""
    story.reserve("u2", group(story, "d", "logarithms"))
    story.reserve("u3", group(story, "e", "evaluation"))
    policy(story, 3, 2, "u3")
    story.start("u2")
    reason, disposition = AbortReason.OPERATOR, AbortDisposition.RELEASE
    story.accepted(Abort, learner=None, update_id="u2", reason=reason, disposition=disposition)
    assert proof(story, 3).updates[-1].standing is Standing.ABORTED


def test_what_was_dropped_was_not_trained_on_by_the_trainers_word(story: Story) -> None:
    kept, dropped = group(story, "d", "logarithms"), group(story, "e", "evaluation")
    story.reserve("u2", [*kept, *dropped])
    story.start("u2")
    story.commit("u2", [kept], dropped=dropped)
    policy(story, 3, 2, "u2")
    found = proof(story, 3, "evaluation")
    assert doubts(found) == [DoubtKind.DROPPED]
    assert found.absence is not None
    assert found.absence.proven
    assert [(hit.found, hit.trajectory_id) for hit in found.absence.hits] == [
        (Found.DROPPED, "e.0"),
        (Found.DROPPED, "e.1"),
    ]


@pytest.mark.parametrize("enforcement", [Enforcement.GATE, Enforcement.OBSERVE])
def test_a_commit_without_leave_is_a_fact_also_of_rows_that_come_later(enforcement: Enforcement) -> None:
    """The rows and their rewards are told behind the Commit; one of them never is."""
    story = Story(enforcement=enforcement).opened()
    story.accepted(
        Commit,
        learner=story.learner,
        update_id="u0",
        steps=(CommitStep(rollout_id=ROLLOUT_ID, step_id=0, trajectory_ids=("a.0", "a.1", "ghost")),),
        unreserved=True,
    )
    group(story, "a", "evaluation")
    policy(story, 1, 0, "u0")
    found = proof(story, 1, "evaluation")
    rows = {one.trajectory_id: one for one in found.trajectories}
    assert rows["a.0"].task == task("evaluation")
    assert rows["a.0"].reward is not None
    assert (rows["ghost"].task, rows["ghost"].reward) == (None, None)
    said = [DoubtKind.TAKEN_AS_FACT, DoubtKind.NO_GENERATED]
    assert doubts(found) == ([DoubtKind.TAKEN_AS_FACT, *said] if enforcement is Enforcement.OBSERVE else said)
    assert found.absence is not None
    assert [hit.trajectory_id for hit in found.absence.present] == ["a.0", "a.1"]
    elsewhere = proof(story, 1, "tensors").absence
    assert elsewhere is not None
    assert not elsewhere.proven


def test_other_runs_of_the_partition_are_left_out(story: Story) -> None:
    other = Story("run-b", log=story.log, ledger=story.ledger).opened()
    other.update("theirs", [group(other, "z", "evaluation")])
    policy(other, 1, 0, "theirs")
    found = proof(story, 2, "evaluation")
    assert found.absence is not None
    assert found.absence.hits == ()
    assert [one.trajectory_id for one in proof(other, 1).trajectories] == ["z.0", "z.1"]


def test_what_cannot_be_decoded_under_the_runs_key_belongs_to_no_run(story: Story) -> None:
    key = story.run_id.encode()
    offset = story.log.append(LIFECYCLE, 0, key, b"no record of ours")
    folded = story.ledger.fold(SourceRecord(0, offset, key, b"no record of ours"))
    story.log.append(DECISIONS, 0, folded.decision.run_id.encode(), folded.encoded)
    policy(story, 3, 2)
    assert len(proof(story, 3).trajectories) == 6
    assert audit(story.log, SETTINGS, stretch_of(story.log, SETTINGS, None, story.run_id)).report.passed


def test_a_history_that_does_not_fit_proves_nothing(story: Story) -> None:
    reward = next(one for one in story.log.read(LIFECYCLE, 0, 0, story.end) if b"labels-1" in (one.value or b""))
    story.log.tamper(LIFECYCLE, 0, reward.offset, (reward.value or b"").replace(b"labels-1", b"labels-2"))
    with pytest.raises(BadInput, match=rf"^{reward.place}: .* was another record: .*`rollbook audit`"):
        proof(story, 2)


def test_a_history_that_was_rewritten_is_told_by_a_head_that_was_noted(story: Story) -> None:
    stretch = stretch_of(story.log, SETTINGS, None, story.run_id)
    noted = proof(story, 1).policies[1].prepared_chain
    assert prove(story.log, stretch, OfPolicy(2), heads=[noted]).policy.version == 2
    with pytest.raises(BadInput, match=f"^{LIFECYCLE}:0: the head .* {'f' * 64}: .* rewritten"):
        prove(story.log, stretch, OfPolicy(2), heads=["f" * 64])


def rewritten(story: Story, old: str, new: str) -> None:
    """Another task in its records, and all decisions derived anew from there."""
    ledger = Ledger(0, 1)
    decided = [one.offset for one in story.log.read(DECISIONS, 0, 0, story.log.bounds(DECISIONS, 0).end)]
    for offset, one in zip(decided, list(story.log.read(LIFECYCLE, 0, 0, story.end)), strict=True):
        value = (one.value or b"").replace(old.encode(), new.encode())
        story.log.tamper(LIFECYCLE, 0, one.offset, value)
        story.log.tamper(DECISIONS, 0, offset, ledger.fold(SourceRecord(0, one.offset, one.key, value)).encoded)
        ledger.journal.keep()


def test_a_history_that_was_rewritten_is_told_by_what_its_own_checkpoints_note(story: Story) -> None:
    """Each decision follows from the records; the checkpoint was saved when they were others."""
    story.save("after-u1", "u1")
    rewritten(story, hash_of("sums"), hash_of("clean"))
    with pytest.raises(BadInput, match=r"checkpoint after-u1 [0-9a-f]{64}: .* rewritten; .* proves nothing"):
        proof(story, 2, "sums")


def test_a_history_that_was_rewritten_is_told_by_the_compacted_ledger(story: Story) -> None:
    ledger = SETTINGS.topic(Topic.LEDGER)
    for key, row in rows_of(story.ledger):
        story.log.append(ledger, 0, key, row)
    story.log.append(ledger, 0, position_key(0), encode(Position(next_offset=story.end, transactional_id="p0")))
    assert proof(story, 2).policy.version == 2
    rewritten(story, hash_of("sums"), hash_of("clean"))
    with pytest.raises(BadInput, match=rf"^{ledger}:0@\d+: row .*: the compacted ledger is not what"):
        proof(story, 2, "sums")
    at = story.log.append(ledger, 0, position_key(0), b"x")
    with pytest.raises(BadInput, match=rf"^{ledger}:0@{at}: row .*: the compacted ledger is not what"):
        proof(story, 2, "sums")


@pytest.mark.parametrize(
    ("naming", "old", "new"), [(b"batch-", hash_of("sums"), hash_of("swapped")), (b"a.1", "b.0", "b.9")]
)
def test_a_log_that_changes_while_it_is_read_is_told(
    story: Story, monkeypatch: pytest.MonkeyPatch, naming: bytes, old: str, new: str
) -> None:
    """A Generated, and a Commit."""
    records = [one for one in story.log.read(LIFECYCLE, 0, 0, story.end) if naming in (one.value or b"")]
    changed = next(one for one in reversed(records) if old.encode() in (one.value or b""))
    other = (changed.value or b"").replace(old.encode(), new.encode())
    read_at = story.log.read_at

    def tampering(topic: str, partition: int, offsets: list[int]) -> object:
        story.log.tamper(LIFECYCLE, 0, changed.offset, other)
        return read_at(topic, partition, offsets)

    monkeypatch.setattr(story.log, "read_at", tampering)
    with pytest.raises(BadInput, match="is not what it was a moment ago"):
        proof(story, 2)


def test_what_was_not_published_cannot_be_compared(story: Story) -> None:
    story.task = Redaction(prompts=Treatment.DROP).task(task("secret"))
    story.update("u2", [story.group("e")])
    policy(story, 3, 2, "u2")
    stretch = stretch_of(story.log, SETTINGS, None, story.run_id)
    by_hash = prove(story.log, stretch, OfPolicy(3), asked=Asked.of([hash_of("evaluation")])).absence
    assert by_hash is not None
    assert [doubt.kind for doubt in by_hash.open_questions] == [DoubtKind.NOT_PUBLISHED]
    assert not by_hash.proven
    by_id = prove(story.log, stretch, OfPolicy(3), asked=Asked.of(task_ids=["evaluation", "powers"])).absence
    assert by_id is not None
    assert by_id.proven
    assert by_id.occurring == 1


def test_by_command_from_a_file(story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranges = [OffsetRange(SETTINGS.topic(topic), 0) for topic in (Topic.LIFECYCLE, Topic.DECISIONS)]
    file = str(export(story.log, SETTINGS, ranges, tmp_path / "run.avro").path)
    (tmp_path / "clean.txt").write_text(hash_of("powers"))
    (tmp_path / "trained.txt").write_text(f"{hash_of('roots')}\nsums\n{hash_of('nothing')}\n")
    ask = ["prove", "--run", story.run_id, file]
    assert rollbook([*ask, "--policy", "2", "--limit", "3"]) == 0
    out = capsys.readouterr().out
    assert "3 policies, 2 updates, 3 optimizer steps, 6 trajectories, 3 tasks" in out
    assert "... and 3 more; --limit" in out
    assert rollbook([*ask, "--artifact", "weights-2", "--absent", str(tmp_path / "clean.txt")]) == 0
    assert "ABSENT  1 prompt hash and 0 task ids: none was trained on in this run" in capsys.readouterr().out
    assert rollbook([*ask, "--policy", "2", "--absent", str(tmp_path / "trained.txt"), "--json"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [one["kind"] for one in found]
    assert kinds == ["proof", *["policy"] * 3, *["update"] * 2, *["trajectory"] * 6, "absence", *["hit"] * 4]
    assert {one["asked"] for one in found if one["kind"] == "hit"} == {"sums", hash_of("roots")}
    assert rollbook([*ask, "--policy", "1", "--absent", str(tmp_path / "trained.txt")]) == 1
    assert "PRESENT  2 prompt hashes and 1 task id: 1 of them, in 2 trajectories" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--policy", "7"], "the run has no policy 7 below offset 27, only versions 0 to 2: name another"),
        (["--artifact", "weights"], "no policy with the artifact weights"),
        ([], "either --policy VERSION or --artifact HASH"),
        (["--policy", "1", "--artifact", "weights-1"], "either --policy VERSION or --artifact HASH"),
        (["--policy", "1", "decisions:0:-"], "name one of t.lifecycle"),
        (["--policy", "1", "lifecycle:0:-9"], "the run has no policy 1 below offset 9, only version 0"),
        (
            ["--policy", "1", "lifecycle:0:5-"],
            "begin with the run's first record; the files that hold it may be given together",
        ),
    ],
)
def test_bad_questions_are_told(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    ranges = [OffsetRange(SETTINGS.topic(topic), 0) for topic in (Topic.LIFECYCLE, Topic.DECISIONS)]
    file = str(export(story.log, SETTINGS, ranges, tmp_path / "run.avro").path)
    assert rollbook(["prove", "--run", story.run_id, file, *arguments]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "--anchor" not in said


def test_versions_that_a_run_has_are_named_one_by_one_where_some_between_are_missing() -> None:
    made = Story().opened()
    for version, parent in ((4, 0), (8, 4)):
        policy(made, version, parent)
    stretch = stretch_of(made.log, SETTINGS, None, made.run_id)
    with pytest.raises(BadInput, match=r"no policy 1 below offset \d+, only versions 0, 4, 8: name another"):
        prove(made.log, stretch, OfPolicy(1))
    for version in range(12, 4 * 40, 4):
        policy(made, version, version - 4)
    stretch = stretch_of(made.log, SETTINGS, None, made.run_id)
    with pytest.raises(BadInput, match=r"only versions 0, 4, .*, 68, \.\.\., 156: name another"):
        prove(made.log, stretch, OfPolicy(1))
