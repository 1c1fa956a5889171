"""`--redact`: what may not leave is in no file and in no name, and what is left still replays as one chain."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from rollbook.replay.bundle.model import Redaction
from rollbook.replay.bundle.reading.cohort import read_bundle, validate
from rollbook.replay.bundle.redaction import DEFAULT_REDACTION, Redactor
from rollbook.replay.engine.chain import replay_chain
from rollbook.replay.engine.result import Verdict
from rollbook.replay.materialize.form import BundleFormat, Form
from rollbook.replay.materialize.report import MaterializeReport
from rollbook.tests.replay.materialized import tree, write
from rollbook.tests.replay.story import Plant, Story
from rollbook.tests.replay.test_materialize_ranks import part

KEY = b"a key of sixteen or more bytes"
RUN = "runs.internal.example:9092"
UPDATES = ("s3://bucket/alice", "token=hunter2")
GROUPS = ("/home/alice/prompts", "bob@example.com")
WORKER = "https://node-7.example/rollouts"
SECRETS = (RUN, "internal", "bucket", "alice", "hunter2", "bob", "node-7", "labels-1", "weights-0")
"""No part of them may be found."""

EVERYTHING = (
    "update_id",
    "sample_id",
    "micro_batch_id",
    "rollout_partition_ids",
    "consumer_batch_ids",
    "semantic_group_ids",
    "normalization_cohort_ids",
    "rollout_weight",
    "actor_weight",
)


def policy(how: Redaction) -> Mapping[str, Redaction]:
    return {**DEFAULT_REDACTION, "label": how, **dict.fromkeys(EVERYTHING, how)}


def told(plant: Plant = lambda recording: recording) -> Story:
    """A run all of whose names give something away: two updates of two steps each, and in each a member of a group that
    was not consumed."""
    story = Story(RUN).opened()
    for update_id, group_id in zip(UPDATES, GROUPS, strict=True):
        ids = story.group(group_id, worker=WORKER)
        story.reserve(update_id, ids[:1])
        story.start(update_id)
        story.commit(update_id, [ids[:1]] * 2)
        story.seal(update_id, [plant(part(story.recording(update_id, at, ids), 0)) for at in range(2)])
    return story


def redacted(story: Story, out: Path, policy: Mapping[str, Redaction], key: bytes = b"") -> MaterializeReport:
    return write(story, out, form=Form(redactor=Redactor(policy, key)))


def found(out: Path, secrets: tuple[str, ...] = SECRETS) -> set[str]:
    """Which of the secrets are in a file's name or bytes."""
    every = [(name, data) for name, data in tree(out).items()]
    return {secret for secret in secrets for name, data in every if secret in name or secret.encode() in data}


def test_without_redaction_they_are_all_there(tmp_path: Path) -> None:
    """Or else the tests below could not fail."""
    assert write(told(), tmp_path).complete
    assert found(tmp_path) == set(SECRETS)


@pytest.mark.parametrize("key", [b"", KEY], ids=["sha256", "hmac"])
@pytest.mark.parametrize("how", [Redaction.HASH, Redaction.DROP])
def test_nothing_of_what_is_redacted_is_in_any_file_or_name(tmp_path: Path, how: Redaction, key: bytes) -> None:
    report = redacted(told(), tmp_path, policy(how), key)
    assert (report.problems, report.without_update) == ((), ())
    assert len(report.written) == 6
    assert found(tmp_path) == set()
    for written in report.written:
        assert validate(written.path).problems == ()
        assert read_bundle(written.path).manifest.redaction["sample_id"] is how
    assert replay_chain(tmp_path).verdict is Verdict.PASSED


def test_the_default_takes_what_looks_like_an_address_a_path_or_a_secret_and_leaves_other_ids(tmp_path: Path) -> None:
    # The story's cohorts are `cohort-<group>`: a path that something is written before is not seen to be one.
    report = redacted(told(), tmp_path, {**DEFAULT_REDACTION, "normalization_cohort_ids": Redaction.HASH})
    assert report.complete
    assert found(tmp_path) == {"weights-0"}
    story = Story("run-a").opened()
    story.update("u0", [story.group("a")])
    (of_update, _) = redacted(story, tmp_path / "plain", DEFAULT_REDACTION).written
    assert of_update.path.name == "run-a-uu0-r3"
    assert [sample.sample_id for sample in read_bundle(of_update.path).index.samples] == ["a.0", "a.1"]


@pytest.mark.parametrize("how", [Redaction.HASH, Redaction.DROP])
def test_a_row_has_one_name_in_update_steps_and_terms(tmp_path: Path, how: Redaction) -> None:
    story = Story("run-a").opened()
    a, b = story.group("a"), story.group("b")
    story.update("u0", [b, a])
    of_update, *of_steps = redacted(story, tmp_path, policy(how)).written
    every = [sample.sample_id for sample in read_bundle(of_update.path).index.samples]
    parts = [[sample.sample_id for sample in read_bundle(step.path).index.samples] for step in of_steps]
    assert every == [*parts[0], *parts[1]]
    assert len(set(every)) == 4
    assert read_bundle(of_steps[1].path).terms


def test_an_update_that_may_not_be_named_has_its_offset(tmp_path: Path) -> None:
    story = Story("run-a").opened()
    commits = [story.update(name, [story.group(name)]).source.offset for name in ("u0", "u1")]
    report = redacted(story, tmp_path, {"update_id": Redaction.DROP})
    assert [one.path.name for one in report.steps] == [f"run-a-uat-offset-{offset}-r3-s0" for offset in commits]
    for offset, written in zip(commits, report.written[::2], strict=True):
        assert f'"update_id": "at-offset-{offset}"' in written.provenance.read_text()


def test_what_cannot_be_told_apart_any_more_is_refused(tmp_path: Path) -> None:
    story = Story("run-a").opened()
    story.update("u0", [story.group("a-group-whose-id-is-long")])
    (problem,) = redacted(story, tmp_path, {"sample_id": Redaction.TRUNCATE}).problems
    assert "sample_id 'a-group-' twice" in problem.what
    assert tree(tmp_path) == {}


def test_the_same_redaction_gives_the_same_bytes_and_another_is_another_bundle(tmp_path: Path) -> None:
    story = told()
    redacted(story, tmp_path, policy(Redaction.HASH), KEY)
    before = tree(tmp_path)
    again = redacted(story, tmp_path, policy(Redaction.HASH), KEY)
    assert all(written.was_there for written in again.written)
    other = redacted(story, tmp_path, policy(Redaction.HASH), KEY[::-1])
    assert {problem.reason.value for problem in other.problems} <= {"exists"}
    assert {name: data for name, data in tree(tmp_path).items() if name in before} == before


def test_format_1_0_0_is_redacted_as_well(tmp_path: Path) -> None:
    story = Story(RUN).opened()
    story.update(UPDATES[0], [story.group(GROUPS[0], worker=WORKER)])
    form = Form(BundleFormat.V1_0, Redactor(policy(Redaction.HASH), KEY))
    report = write(story, tmp_path, form=form)
    assert [read_bundle(one.path).manifest.format_version for one in report.written] == ["1.0.0"]
    assert found(tmp_path) == set()
