"""What format 1.1.0 adds, written by a trainer: the names of its conventions, members of the cohort that were not
consumed, and both out of a running loop."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.replay.bundle.model import Capability, Redaction, StageId
from rollbook.replay.bundle.problems import BadBundle
from rollbook.replay.bundle.reading.cohort import read_bundle, read_cohort, validate
from rollbook.replay.bundle.redaction import Redactor
from rollbook.replay.bundle.writing.bundle_writer import BundleWriter
from rollbook.replay.bundle.writing.drafts import Draft, check_draft
from rollbook.replay.bundle.writing.rows import index_of
from rollbook.replay.capture import (
    Capture,
    CapturePlan,
    Config,
    Conventions,
    NamedConvention,
    NotConsumed,
    Order,
    Origin,
    Place,
    Recorded,
    Rows,
    WholeBatch,
    World,
    context_parallel,
)
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Verdict
from rollbook.tests.replay import by_hand
from rollbook.tests.replay.test_conventions import VERL, flat

SURPLUS = NotConsumed(["s-2"], torch.tensor([0]), torch.tensor([0.5]))
OF_THREE = by_hand.CONFIG.model_copy(update={"n_samples_per_prompt": 3})


def test_a_loss_is_written_with_the_name_of_its_convention(tmp_path: Path) -> None:
    call = VERL["policy_loss.vanilla/trail-large/1"]
    inputs, params, metrics = call["inputs"], call["params"], call["outputs"]["metrics"]
    mask = np.asarray(inputs["response_mask"]).astype(int)
    rows = Rows(
        sample_ids=[f"s-{row}" for row in range(len(mask))],
        group_index=None,
        response_lengths=[mask.shape[1]] * len(mask),
        total_lengths=[mask.shape[1] + 1] * len(mask),
        loss_mask=mask.ravel(),
        raw_rewards=np.zeros(len(mask)),
        rewards=np.zeros(len(mask)),
    )
    config = Config(
        advantage_estimator="grpo",
        n_samples_per_prompt=1,
        grpo_std_normalization=False,
        kl_loss_type="k1",
        kl_coef=0.0,
        eps_clip=params["clip_ratio_low"],
        eps_clip_high=params["clip_ratio_high"],
        entropy_coef=0.0,
        conventions=Conventions(
            loss=NamedConvention(framework="verl", version="0.9.1", name="vanilla, token-mean"),
            eps_clip_c=params["clip_ratio_c"],
            whole_batch=WholeBatch(tokens=params.get("batch_num_tokens")),
        ),
    )
    index = index_of("step", rows, config, rollout_id=1, step_id=0)
    writer = BundleWriter(tmp_path / "step", index=index, producer=by_hand.PRODUCER)
    for name, theirs in {"log_probs": "log_prob", "old_log_probs": "old_log_prob", "advantages": "advantages"}.items():
        writer.payload(name, flat(inputs[theirs]))
    writer.payload("entropy", np.zeros(mask.size))
    loss = call["outputs"]["loss"]
    shown = {"pg_clipfrac": metrics["actor/pg_clipfrac"], "ppo_kl": metrics["actor/ppo_kl"]}
    writer.expect(loss={"loss": loss, "pg_loss": loss, "entropy_loss": 0.0, **shown})
    writer.promise(StageId.ADVANTAGE_ESTIMATE, capability=Capability.RECORDED_ONLY)
    assert writer.finalize().published
    bundle = read_bundle(tmp_path / "step")
    assert bundle.manifest.format_version == "1.1.0"
    assert bundle.index.config == config
    assert replay_cohort(read_cohort(tmp_path / "step")).verdict is Verdict.PASSED


def surplus(path: Path, cohort: NotConsumed | None = SURPLUS, **changed: Any) -> BundleWriter:
    index = by_hand.index(path.name, config=OF_THREE, cohort=cohort)
    return by_hand.writer(path, index=index, **changed)


def test_a_group_with_members_that_were_not_consumed_is_whole(tmp_path: Path) -> None:
    assert surplus(tmp_path / "b").finalize().published
    contracts = read_bundle(tmp_path / "b").manifest.stage_contracts
    assert contracts[StageId.REWARD_POST_PROCESS].capability == "recompute"
    assert replay_cohort(read_cohort(tmp_path / "b")).verdict is Verdict.PASSED


def test_without_them_it_is_a_part_of_a_group(tmp_path: Path) -> None:
    surplus(tmp_path / "b", cohort=None).finalize()
    contracts = read_bundle(tmp_path / "b").manifest.stage_contracts
    assert contracts[StageId.REWARD_POST_PROCESS].capability == "recorded-only"


def test_a_cohort_of_nobody_is_an_absent_key(tmp_path: Path) -> None:
    writer = by_hand.writer(tmp_path / "b", index=by_hand.index("b", cohort=NotConsumed([], [], [])))
    writer.finalize()
    assert read_bundle(tmp_path / "b").manifest.format_version == "1.0.0"


BAD_COHORTS = [
    (NotConsumed(["s-2"], [0, 0], [0.5]), "cohort.group_index: 2 values for 1 sample_ids"),
    (NotConsumed(["s-2"], [0], []), "cohort.raw_reward: 0 values for 1 sample_ids"),
    (NotConsumed(["s-2"], [0.5], [0.5]), "cohort.group_index: has a value that is no whole number"),
    (NotConsumed(["s-2"], [0], ["secret"]), "cohort.raw_reward: has a value that is no number"),
    (NotConsumed([""], [0], [0.5]), "sample_id"),
    (NotConsumed(["s-2"], [0], [float("nan")]), "raw_reward"),
]


@pytest.mark.parametrize(("cohort", "message"), BAD_COHORTS, ids=[case[1] for case in BAD_COHORTS])
def test_what_no_cohort_can_be_is_told_by_its_field(cohort: NotConsumed, message: str) -> None:
    with pytest.raises(BadBundle, match=message) as told:
        by_hand.index(cohort=cohort)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("how", list(Redaction))
def test_ids_of_the_cohort_are_redacted_as_those_of_samples(tmp_path: Path, how: Redaction) -> None:
    redactor = Redactor(policy={"sample_id": how})
    cohort = NotConsumed(["trajectory-of-alice", "/home/bob/3"], [0, 1], [0.5, 1.0])
    writer = by_hand.writer(tmp_path / "b", index=by_hand.index("b", cohort=cohort), redactor=redactor)
    writer.promise(StageId.REWARD_POST_PROCESS, capability=Capability.RECORDED_ONLY)
    assert writer.check() == ()
    writer.finalize()
    text = (tmp_path / "b" / "index.json").read_text()
    assert "of-alice" not in text
    assert "/home/bob/3" not in text


def test_an_id_of_the_cohort_that_was_not_redacted_is_not_written(tmp_path: Path) -> None:
    surplus(tmp_path / "b").finalize()
    draft = replace(Draft.of(read_bundle(tmp_path / "b")), redaction={"sample_id": Redaction.HASH})
    assert any(problem.field == "cohort.0.sample_id" for problem in check_draft(draft))


def test_capture_passes_all_of_it_through(tmp_path: Path) -> None:
    named = Conventions(advantages=NamedConvention(framework="slime", version="0.3.1", name="grpo"))
    config = OF_THREE.model_copy(update={"conventions": named})
    rewards = torch.tensor([0.5])
    for rank in (0, 1):
        layout = context_parallel(Order.ZIGZAG, ranks=(0, 1), rank=rank, total_lengths=[6, 7])
        held = {0: [], 1: [0, 1, 2, 3, 4]}[rank]
        place = Place(rank, (0, 1), attempt="one")
        with Capture(CapturePlan(tmp_path), producer=by_hand.PRODUCER, place=place) as capture:
            recorded = Recorded(
                7,
                0,
                by_hand.rows(),
                config,
                {name: tensor[held] for name, tensor in by_hand.TENSORS.items()},
                loss=by_hand.LOSS,
                origin=Origin(world=World(cp=2)),
                cohort=NotConsumed(["s-2"], [0], rewards),
                context_parallel=layout,
            )
            assert capture.record(recorded)
            rewards += 0.0
        assert capture.counts.failed == 0
    assert validate(tmp_path / "replay-7-0").problems == ()
    (bundle,) = read_cohort(tmp_path / "replay-7-0").bundles
    assert bundle.index.config.conventions == named
    assert [member.sample_id for member in bundle.index.cohort or ()] == ["s-2"]
    assert np.array_equal(bundle.tensors["kl"], by_hand.TENSORS["kl"].numpy())


def test_a_copy_of_the_cohort_is_captured(tmp_path: Path) -> None:
    rewards = torch.tensor([0.5])
    with Capture(CapturePlan(tmp_path), producer=by_hand.PRODUCER) as capture:
        cohort = NotConsumed(["s-2"], [0], rewards)
        assert capture.record(Recorded(7, 0, by_hand.rows(), OF_THREE, by_hand.TENSORS, by_hand.LOSS, cohort=cohort))
        rewards += 1.0
    (member,) = read_bundle(tmp_path / "replay-7-0").index.cohort or ()
    assert member.raw_reward == 0.5


def two_ranks(path: Path, **second: Any) -> list[bool]:
    published = []
    for rank in (0, 1):
        given = {"cohort": SURPLUS, "config": OF_THREE, **(second if rank == 1 else {})}
        rows = by_hand.rows(sample_ids=[f"r{rank}-0", f"r{rank}-1"])
        writer = by_hand.writer(path, index=by_hand.index(path.name, rows=rows, **given), rank=rank, attempt="one")
        published.append(writer.finalize((0, 1)).published)
    return published


def test_ranks_of_other_conventions_never_meet(tmp_path: Path) -> None:
    named = Conventions(loss=NamedConvention(framework="slime", version="0.3.1", name="ppo"))
    assert two_ranks(tmp_path / "same") == [False, True]
    assert two_ranks(tmp_path / "b", config=OF_THREE.model_copy(update={"conventions": named})) == [False, False]


def test_a_member_has_one_reward_in_all_ranks(tmp_path: Path) -> None:
    two_ranks(tmp_path / "other", cohort=NotConsumed(["s-2"], [0], [0.75]))
    (problem,) = validate(tmp_path / "other").problems
    assert str(problem).startswith("rank-1/index.json: cohort: raw_reward of 's-2' is not the one of rank-0")
    two_ranks(tmp_path / "consumed", cohort=NotConsumed(["r0-1"], [0], [0.5]))
    (problem,) = validate(tmp_path / "consumed").problems
    assert "raw_reward of 'r0-1' is not the one of rank-0" in str(problem)
    two_ranks(tmp_path / "good", cohort=NotConsumed(["r0-0"], [0], [1.0]))
    assert validate(tmp_path / "good").valid
