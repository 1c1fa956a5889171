"""Samples that nothing scored and rows of one conversation: no mean and no deviation knows them (`unmeasured`)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rollbook.replay.bundle.convention import Unmeasured
from rollbook.replay.bundle.model import Config, Index, Producer, Redaction
from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.bundle.redaction import Redactor
from rollbook.replay.bundle.writing.rows import NotConsumed, Rows
from rollbook.replay.capture import Recorded
from rollbook.replay.capture.recorded import writer_of
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Outcome, ReplayReport
from rollbook.replay.engine.selection import Selection
from rollbook.replay.recognition.bundles import dialects_of
from rollbook.tests.replay.goldens.trlrun import trl_convention
from rollbook.tests.replay.reseal import Json, edit_bundle

RAW = [1.0, 0.0, 0.5, 7.0, 2.0, 2.5, 9.0, 9.0]
GROUPS = [0, 0, 0, 0, 1, 1, 1, 1]
LEFT_OUT = {"s-3": None, "s-6": None, "s-7": "s-5"}
PRODUCER = Producer(commit="", dirty_patch_digest="", torch_version="")


def deviation(values: list[float]) -> float:
    return float(np.std(values, ddof=1))


def advantages(name: str) -> list[float]:
    """By hand: the fourth has no score, nor has the seventh; the eighth is of the sixth's conversation."""
    first, second = [1.0, 0.0, 0.5], [2.0, 2.5]
    spread = {
        "scale_rewards group": (deviation(first), deviation(second)),
        "scale_rewards batch": (deviation(first + second),) * 2,
        "scale_rewards none": (1.0 - 1e-4,) * 2,
    }[name]
    of_first = [(one - 0.5) / (spread[0] + 1e-4) for one in first]
    of_second = [(one - 2.25) / (spread[1] + 1e-4) for one in second]
    return [*of_first, 0.0, *of_second, 0.0, of_second[1]]


def recorded(name: str, unmeasured: dict[str, str | None]) -> Recorded:
    found = advantages(name)
    return Recorded(
        rollout_id=0,
        step_id=None,
        rows=Rows(
            sample_ids=[f"s-{at}" for at in range(8)],
            group_index=GROUPS,
            response_lengths=[2] * 8,
            total_lengths=[3] * 8,
            loss_mask=[1] * 16,
            raw_rewards=RAW,
            rewards=found,
            unmeasured=unmeasured,
        ),
        config=Config(
            advantage_estimator="grpo",
            n_samples_per_prompt=4,
            grpo_std_normalization=True,
            kl_loss_type="k3",
            kl_coef=0.0,
            eps_clip=0.2,
            eps_clip_high=0.2,
            entropy_coef=0.0,
            conventions=trl_convention(advantages=name),
        ),
        tensors={"advantages": np.repeat(found, 2), "old_log_probs": np.zeros(16)},
    )


def written(one: Recorded, folder: Path, redactor: Redactor | None = None) -> Path:
    writer_of(one, folder, producer=PRODUCER, rank=0, attempt="", redactor=redactor or Redactor()).finalize()
    return folder / one.bundle_id


def replayed(path: Path, selection: Selection | None = None) -> ReplayReport:
    assert validate(path).problems == ()
    return replay_cohort(read_cohort(path), selection)


@pytest.mark.parametrize("name", ["scale_rewards group", "scale_rewards none", "scale_rewards batch"])
def test_they_count_in_no_mean_and_no_deviation(tmp_path: Path, name: str) -> None:
    path = written(recorded(name, LEFT_OUT), tmp_path / "with")
    assert replayed(path).verdict == "pass"
    assert replayed(written(recorded(name, {}), tmp_path / "without")).verdict == "diverges"
    (rank,) = dialects_of(read_cohort(path))
    assert rank.advantages.confirmed


def test_a_group_of_which_nothing_is_scored_has_no_advantage(tmp_path: Path) -> None:
    one = recorded("scale_rewards group", {**LEFT_OUT, "s-4": None, "s-5": None, "s-7": None})
    rewards = [*advantages("scale_rewards group")[:4], 0.0, 0.0, 0.0, 0.0]
    one = replace(
        one, rows=replace(one.rows, rewards=rewards), tensors={**one.tensors, "advantages": np.repeat(rewards, 2)}
    )
    assert replayed(written(one, tmp_path)).verdict == "pass"


def test_a_group_by_itself(tmp_path: Path) -> None:
    path = written(recorded("scale_rewards group", LEFT_OUT), tmp_path)
    assert replayed(path, Selection(groups=("1",))).verdict == "pass"


def test_whom_a_row_is_like_may_be_of_another_step(tmp_path: Path) -> None:
    one = recorded("scale_rewards group", LEFT_OUT)
    kept = [0, 1, 2, 3, 4, 6, 7]
    rows = replace(
        one.rows,
        sample_ids=[f"s-{at}" for at in kept],
        group_index=[GROUPS[at] for at in kept],
        response_lengths=[2] * 7,
        total_lengths=[3] * 7,
        loss_mask=[1] * 14,
        raw_rewards=[RAW[at] for at in kept],
        rewards=[advantages("scale_rewards group")[at] for at in kept],
    )
    tensors = {name: np.asarray(values).reshape(8, 2)[kept].ravel() for name, values in one.tensors.items()}
    part = replace(one, rows=rows, tensors=tensors, cohort=NotConsumed(["s-5"], [1], [2.5]))
    assert replayed(written(part, tmp_path)).verdict == "pass"


def test_only_a_named_convention_knows_them(tmp_path: Path) -> None:
    path = written(recorded("scale_rewards group", LEFT_OUT), tmp_path)
    bare = edit_bundle(path, tmp_path / "bare", index=lambda index: index["config"].pop("conventions"))
    found = {stage.stage: stage for stage in replayed(bare).ranks[0].stages}
    assert found["reward.post_process"].outcome is Outcome.UNSUPPORTED  # type: ignore[index]
    assert "not measured" in found["reward.post_process"].reason  # type: ignore[index]


BAD: list[tuple[str, Callable[[Json], None], str]] = [
    ("stranger", lambda index: index["unmeasured"][0].update(sample_id="nobody"), "is no sample of the bundle"),
    ("twice", lambda index: index["unmeasured"][1].update(sample_id="s-3"), "'s-3' twice"),
    ("like-unmeasured", lambda index: index["unmeasured"][2].update(like="s-6"), "not measured itself"),
    ("other-group", lambda index: index["unmeasured"][2].update(like="s-0"), "of another group"),
    ("null", lambda index: index["unmeasured"][0].update(like=None), "leave the key out"),
    ("none", lambda index: index.update(unmeasured=None), "leave the key out"),
]


@pytest.mark.parametrize(("name", "edit", "message"), BAD, ids=[one[0] for one in BAD])
def test_who_is_not_measured_is_checked(tmp_path: Path, name: str, edit: Callable[[Json], None], message: str) -> None:
    path = written(recorded("scale_rewards group", LEFT_OUT), tmp_path)
    problems = validate(edit_bundle(path, tmp_path / name, index=edit)).problems
    assert any(message in str(problem) for problem in problems), problems


@pytest.mark.parametrize("how", list(Redaction))
def test_their_names_are_redacted_alike(tmp_path: Path, how: Redaction) -> None:
    redactor = Redactor({"sample_id": how}, key=b"0123456789abcdef")
    path = written(recorded("scale_rewards group", LEFT_OUT), tmp_path, redactor)
    assert replayed(path).verdict == "pass"
    index: Index = read_cohort(path).bundles[0].index
    names = [one.sample_id for one in index.samples]
    assert index.unmeasured == (
        Unmeasured(sample_id=names[3]),
        Unmeasured(sample_id=names[6]),
        Unmeasured(sample_id=names[7], like=names[5]),
    )
