"""What gives something away does not get into a bundle: secrets are planted wherever a text may be, and looked for."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollbook.replay.bundle.model import ActorStepId, Links, Producer, Redaction
from rollbook.replay.bundle.problems import BadBundle
from rollbook.replay.bundle.reading.cohort import read_bundle, validate
from rollbook.replay.bundle.redaction import DEFAULT_REDACTION, FIELDS, Redactor
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.bundle.writing.rows import Origin
from rollbook.replay.bundle.writing.writer import write_bundle
from rollbook.replay.capture import Capture, CapturePlan
from rollbook.replay.engine.engine import replay_bundle
from rollbook.replay.engine.result import Verdict
from rollbook.tests.replay import by_hand
from rollbook.tests.replay.reseal import FIXTURES
from rollbook.tests.replay.tiny_training import train

SECRETS = {
    "a label": "the answer is PLANTED-1",
    "a path": "/home/PLANTED-2/checkpoints/step-7",
    "a path in a text": "loaded from ~/PLANTED-3/weights.pt",
    "a Windows path": "C:\\\\PLANTED-4\\weights",
    "an address": "https://user:PLANTED-5@reward.internal/v1",
    "a bucket": "s3://PLANTED-6/run",
    "a host": "PLANTED-7.internal:8080",
    "a mail address": "PLANTED-8@example.com",
    "a key": "sk-PLANTED9abcdefghijklmnop",
    "a password": "password=PLANTED-10",
    "a token": "eyJPLANTED11abcdef.eyJhbGciOi",
    "a cloud key": "AKIAPLANTED0123456AB",
}


def found_in(folder: Path) -> set[str]:
    """The secrets that stand in any file, in its bytes or in any name."""
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    texts += [str(path.relative_to(folder)).encode() for path in folder.rglob("*")]
    return {name for name, secret in SECRETS.items() if any(secret.encode() in text for text in texts)} | {
        "a piece" for text in texts if b"PLANTED" in text
    }


def planted(secret: str, **changed: Any) -> dict[str, Any]:
    """A bundle with a text wherever a trainer can put one."""
    rows = by_hand.rows(
        sample_ids=[secret, f"{secret} again"],
        micro_batch_ids=[secret, secret],
        labels=[secret, secret],
    )
    origin = Origin(
        rollout_partition_ids=[secret],
        consumer_batch_ids=[secret],
        semantic_group_ids=[secret],
        normalization_cohort_ids=[secret],
        rollout_weight=secret,
        actor_weight=secret,
    )
    index = by_hand.index("b", rows=rows, origin=origin, links=Links(update_id=secret), **changed)
    return {"index": index, "producer": Producer(commit=secret, dirty_patch_digest=secret, torch_version=secret)}


@pytest.mark.parametrize("secret", [value for name, value in SECRETS.items() if name != "a label"])
def test_what_looks_like_a_secret_path_or_address_is_written_nowhere(tmp_path: Path, secret: str) -> None:
    made = by_hand.writer(tmp_path / "b", **planted(secret))
    made.finalize()
    assert found_in(tmp_path) == set()
    bundle = read_bundle(tmp_path / "b")
    assert dict(bundle.manifest.redaction) == dict(DEFAULT_REDACTION)
    assert replay_bundle(bundle).verdict is Verdict.PASSED


def test_without_a_policy_all_of_it_would_stand_there(tmp_path: Path) -> None:
    """Else the test above could not fail."""
    by_hand.writer(tmp_path / "b", **planted(SECRETS["a path"]), redactor=Redactor({})).finalize()
    assert found_in(tmp_path) == {"a path", "a piece"}


def test_a_label_is_never_written_as_it_is_whatever_the_policy(tmp_path: Path) -> None:
    secret = SECRETS["a label"]
    for number, redactor in enumerate((Redactor(), Redactor({}), Redactor(key=b"k" * 16))):
        rows = by_hand.rows(labels=[secret, ""])
        index = by_hand.index("b", rows=rows, redactor=redactor)
        by_hand.writer(tmp_path / str(number) / "b", index=index, redactor=redactor).finalize()
        assert found_in(tmp_path / str(number)) == set()
        first, second = read_bundle(tmp_path / str(number) / "b").index.samples
        assert first.label_hash.endswith(first.label_hash[-64:])
        assert second.label_hash == ""


HOW = [
    # policy, what becomes of the actor's weights
    ({"actor_weight": Redaction.DROP}, ""),
    ({"actor_weight": Redaction.TRUNCATE}, "step-120"),
    ({"actor_weight": Redaction.HASH}, "sha256:"),
    ({"rollout_weight": Redaction.HASH}, "step-120 of the run PLANTED"),
]


@pytest.mark.parametrize(("policy", "becomes"), HOW, ids=[str(case[0]) for case in HOW])
def test_a_field_is_redacted_as_the_policy_says(tmp_path: Path, policy: dict[str, Redaction], becomes: str) -> None:
    index = by_hand.index("b", origin=Origin(actor_weight="step-120 of the run PLANTED"))
    by_hand.writer(tmp_path / "b", index=index, redactor=Redactor(policy)).finalize()
    bundle = read_bundle(tmp_path / "b")
    assert bundle.index.identity.weight_lineage.actor_weight.startswith(becomes)
    assert dict(bundle.manifest.redaction) == policy


def test_equal_texts_stay_equal_and_a_key_makes_guesses_useless(tmp_path: Path) -> None:
    plain, keyed = Redactor({"sample_id": Redaction.HASH}), Redactor({"sample_id": Redaction.HASH}, key=b"k" * 16)
    assert plain.text("sample_id", "x") == plain.text("sample_id", "x") != plain.text("sample_id", "y")
    assert keyed.text("sample_id", "x") != plain.text("sample_id", "x")
    assert "kkk" not in repr(keyed)
    assert keyed.text("sample_id", plain.text("sample_id", "x")).startswith("hmac-sha256:")
    index = by_hand.index("b", rows=by_hand.rows(sample_ids=["x", "y"]))
    for once in (plain, keyed):
        assert once.index(once.index(index)) == once.index(index)


@pytest.mark.parametrize(
    "name", ["w-120", "120:0a1b", "qwen2.5:120", "run/step/7", "tq-7", "mb-0000", "tokens=5", "3f2a91c", "a.b.c", "g:0"]
)
def test_names_that_are_just_names_stay_as_they_are(name: str) -> None:
    assert Redactor().text("actor_weight", name) == name


def test_dropped_ids_leave_a_bundle_that_holds(tmp_path: Path) -> None:
    policy = dict.fromkeys(sorted(FIELDS), Redaction.DROP)
    made = by_hand.writer(tmp_path / "b", **planted("PLANTED"), redactor=Redactor(policy))
    made.finalize()
    assert found_in(tmp_path) == set()
    index = read_bundle(tmp_path / "b").index
    assert [sample.sample_id for sample in index.samples] == ["s-0", "s-1"]
    assert (index.identity.micro_batch_ids, index.samples[0].micro_batch_id) == ((), None)


def test_what_a_manifest_promises_and_was_not_done_is_not_written(tmp_path: Path) -> None:
    """For whoever makes drafts without BundleWriter."""
    draft = Draft.of(read_bundle(FIXTURES / "full-k1"))
    secret = draft.index.model_copy(
        update={
            "identity": draft.index.identity.model_copy(update={"consumer_batch_ids": (SECRETS["a path"],)}),
            "samples": tuple(sample.model_copy(update={"label_hash": "PLANTED"}) for sample in draft.index.samples),
        }
    )
    with pytest.raises(BadBundle) as refused:
        write_bundle(tmp_path / "b", replace(draft, index=secret, redaction=DEFAULT_REDACTION))
    fields = {problem.field for problem in refused.value.problems}
    assert fields == {"identity.consumer_batch_ids", *(f"samples.{number}.label_hash" for number in range(8))}
    assert "PLANTED" not in str(refused.value) + "".join(map(str, refused.value.problems))
    assert list(tmp_path.iterdir()) == []


def test_a_policy_that_nothing_could_be_done_about_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match="'propmt' is no field that can be redacted; name one of actor_weight"):
        by_hand.writer(tmp_path / "b", redactor=Redactor({"propmt": Redaction.HASH}))


def test_capture_redacts_what_it_writes_and_what_it_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secrets = list(SECRETS.values())

    def hook(rollout_id: int, step_id: int, make: Any) -> None:
        step = make()
        origin = Origin(consumer_batch_ids=secrets, actor_weight=secrets[1], rollout_partition_ids=secrets[2:])
        rows = replace(step.rows, labels=secrets[:4], sample_ids=secrets[4:8])
        capture.record(replace(step, rows=rows, origin=origin))
        capture.record(replace(step, rows=replace(rows, total_lengths=[0] * 4), origin=origin))

    policy = {**DEFAULT_REDACTION, "consumer_batch_ids": Redaction.HASH}
    with (
        caplog.at_level(logging.DEBUG),
        Capture(CapturePlan(tmp_path), producer=by_hand.PRODUCER, redactor=Redactor(policy)) as capture,
    ):
        train(hook, updates=1)
    assert capture.counts.written == capture.counts.failed == 2
    assert len(caplog.records) == 2
    assert found_in(tmp_path) == set()
    assert "PLANTED" not in caplog.text
    assert validate(tmp_path / "replay-0-1").valid
    assert read_bundle(tmp_path / "replay-0-1").index.identity.actor_step_id == ActorStepId(rollout_id=0, step_id=1)
