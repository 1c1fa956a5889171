"""Bundles that came out of the log: what was refused is in them without a loss, and a planted error is found."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rollbook.replay.bundle.reading.cohort import read_bundle, read_cohort
from rollbook.replay.engine.engine import replay_bundle, replay_cohort
from rollbook.replay.engine.result import Divergence, Verdict
from rollbook.tests.demo.finished import FinishedDemo
from rollbook.tests.replay.reseal import Json, edit_bundle


@pytest.fixture
def bundle(demo: FinishedDemo) -> Path:
    """A bundle as it came, the first after the beginning in which one of a group's rewards can be told to be wrong."""
    bundle = next(path for path in demo.bundles[4:] if victims(path))
    assert replay_cohort(read_cohort(bundle)).verdict is Verdict.PASSED
    return bundle


def index_of(bundle: Path) -> Json:
    index: Json = json.loads((bundle / "index.json").read_text())
    return index


def test_a_row_refused_for_drift_stays_in_its_group_with_a_zero_loss_mask(demo: FinishedDemo) -> None:
    samples = [sample for bundle in demo.bundles for sample in index_of(bundle)["samples"]]
    masked = {sample["sample_id"] for sample in samples if not any(sample["loss_mask"])}
    assert masked == {item.trajectory_id for item in demo.items("Admit") if item.reason == "policy_drift"}
    assert {item.trajectory_id for item in demo.items("Commit") if item.reason == "trained"} == {
        sample["sample_id"] for sample in samples if all(sample["loss_mask"])
    }


def test_torch_loads_what_we_wrote_without_trusting_it(bundle: Path) -> None:
    import torch

    for path in (bundle / "payloads").glob("*.pt"):
        assert isinstance(torch.load(path, weights_only=True), torch.Tensor)


def victims(bundle: Path) -> list[int]:
    """Samples that were trained on and whose group has four different rewards.

    Where two of a group are equal, a wrong third could be the fourth's fault just as well.
    """
    samples = index_of(bundle)["samples"]
    groups: dict[int, set[float]] = defaultdict(set)
    for sample in samples:
        groups[sample["group_index"]].add(sample["raw_reward"])
    return [
        at for at, sample in enumerate(samples) if len(groups[sample["group_index"]]) == 4 and any(sample["loss_mask"])
    ]


def victim(bundle: Path) -> int:
    """The sample that the errors are planted in."""
    return victims(bundle)[-1]


def first_divergence(tmp_path: Path, bundle: Path, **edits: Any) -> Divergence:
    report = replay_bundle(read_bundle(edit_bundle(bundle, tmp_path / "edited", **edits)))
    assert report.first_divergence is not None
    return report.first_divergence


def raw_reward(at: int, value: float) -> Callable[[Json], None]:
    return lambda index: index["samples"][at].update(raw_reward=value)


def expected_raw(at: int, value: float) -> Callable[[Json], None]:
    return lambda expected: expected["reward.raw"]["raw_rewards"].__setitem__(at, value)


def second_token(bundle: Path) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Adds a quarter nat at the sample's second token."""
    lengths = [sample["response_length"] for sample in index_of(bundle)["samples"]]
    at = int(np.sum(lengths[: victim(bundle)])) + 1

    def edit(tensor: NDArray[Any]) -> NDArray[Any]:
        changed = tensor.copy()
        changed[at] += 0.25
        return changed

    return edit


def other_reward(bundle: Path) -> float:
    return float(index_of(bundle)["samples"][victim(bundle)]["raw_reward"]) + 0.5


def test_a_raw_reward_changed_in_the_index_alone(bundle: Path, tmp_path: Path) -> None:
    found = first_divergence(tmp_path, bundle, index=raw_reward(victim(bundle), other_reward(bundle)))
    assert (found.stage, found.point.sample_id) == ("reward.raw", sample_id(bundle))


def test_a_raw_reward_changed_wherever_it_is_recorded(bundle: Path, tmp_path: Path) -> None:
    at, value = victim(bundle), other_reward(bundle)
    found = first_divergence(tmp_path, bundle, index=raw_reward(at, value), expected=expected_raw(at, value))
    assert (found.stage, found.point.sample_id) == ("reward.post_process", sample_id(bundle))


def test_one_old_log_prob_changed(bundle: Path, tmp_path: Path) -> None:
    found = first_divergence(tmp_path, bundle, payload={"old_log_probs": second_token(bundle)})
    assert (found.stage, found.point.sample_id) == ("advantage.kl", sample_id(bundle))
    assert found.point.token_offset == 1


def test_one_log_prob_changed(bundle: Path, tmp_path: Path) -> None:
    found = first_divergence(tmp_path, bundle, payload={"log_probs": second_token(bundle)})
    assert (found.stage, found.point.sample_id) == ("loss.policy", sample_id(bundle))


def sample_id(bundle: Path) -> str:
    return str(index_of(bundle)["samples"][victim(bundle)]["sample_id"])
