"""Recordings that name conventions: bundles of format 1.1.0 that state them, with whatever cohort, array and result
they need, and the reason where one is not there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from rollbook.replay.bundle.convention import Conventions as Stated
from rollbook.replay.bundle.convention import NamedConvention as Named
from rollbook.replay.bundle.convention import Unmeasured
from rollbook.replay.bundle.model import Capability, Redaction, StageId
from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.bundle.redaction import DEFAULT_REDACTION, Redactor
from rollbook.replay.engine.chain import replay_chain
from rollbook.replay.engine.engine import replay_bundle, replay_cohort
from rollbook.replay.engine.result import Outcome, Verdict
from rollbook.replay.materialize.draft import config_of, unmeasured_of
from rollbook.replay.materialize.evidence import Recording
from rollbook.replay.materialize.form import Form
from rollbook.schemas.digests import float32_bytes, floats_of, mask_of
from rollbook.schemas.records.convention import (
    Conventions,
    Correction,
    KlTerm,
    NamedConvention,
    NamedValueLoss,
    WholeBatch,
)
from rollbook.schemas.records.payload import ArrayName, Cohort, CohortMember, RecordedArray, StepRecording, World
from rollbook.schemas.records.update import ReserveMode
from rollbook.schemas.types import NamedNumber
from rollbook.tests.replay.materialized import STEPS_ALONE, passing, problem, write
from rollbook.tests.replay.story import Plant, Story
from rollbook.tests.replay.test_materialize_ranks import of_ranks, update

UPDATE = "run-a-uu0-r3"


def trl(name: str) -> NamedConvention:
    return NamedConvention(framework="trl", version="1.16.0", name=name)


PLAIN = Conventions()


@dataclass(frozen=True)
class Dapo:
    """What TRL's dapo computes of a recording's arrays, in plain numpy. `tokens` of the whole batch, over `ranks`."""

    tokens: float
    scale: str = "batch"
    ranks: int = 1
    unscored: frozenset[str] = frozenset()
    conventions: Conventions = PLAIN
    weights: Callable[[dict[ArrayName, Any]], Any] = lambda arrays: 1.0
    penalty: Callable[[dict[ArrayName, Any]], Any] = lambda arrays: 0.0

    def of(self, recording: StepRecording, raws: dict[str, dict[str, float]]) -> StepRecording:
        arrays: dict[ArrayName, Any] = {one.name: floats_of(one.data).astype(np.float64) for one in recording.arrays}
        mask = np.concatenate([mask_of(row.loss_mask) for row in recording.rows])
        every = np.array([raw for group in raws.values() for raw in group.values()])
        rewards = []
        for row in recording.rows:
            group = raws[row.group_id]
            of_group = np.array(list(group.values()))
            deviation = every.std(ddof=1) if self.scale == "batch" else of_group.std(ddof=1)
            measured = (group.get(row.trajectory_id, 0.0) - of_group.mean()) / (deviation + 1e-4)
            rewards.append(0.0 if row.trajectory_id in self.unscored else float(np.float32(measured)))
        advantages = np.repeat(rewards, [len(row.loss_mask) for row in recording.rows])
        ratio = np.exp(arrays[ArrayName.LOG_PROBS] - arrays[ArrayName.OLD_LOG_PROBS])
        config = recording.config.model_copy(update={"entropy_coef": 0.0, "kl_coef": 0.0})
        clipped = np.clip(ratio, 1 - config.eps_clip, 1 + config.eps_clip_high)
        losses = -np.minimum(ratio * advantages, clipped * advantages) * self.weights(arrays) + self.penalty(arrays)
        divisor = self.tokens / self.ranks
        loss = float((losses * mask).sum() / divisor)
        results = {
            "loss": loss,
            "pg_loss": loss,
            "entropy_loss": float((arrays[ArrayName.ENTROPY] * mask).sum() / divisor),
            "pg_clipfrac": float((mask & (clipped * advantages < ratio * advantages)).sum() / mask.sum()),
            "ppo_kl": float(-(np.log(ratio) * mask).sum() / mask.sum()),
        }
        kept = [one for one in recording.arrays if one.name not in (ArrayName.ADVANTAGES, ArrayName.KL)]
        advantage = RecordedArray(name=ArrayName.ADVANTAGES, data=float32_bytes(advantages.astype(np.float32)))
        named = {"advantages": trl(f"scale_rewards {self.scale}"), "loss": trl("dapo")}
        whole = WholeBatch(tokens=self.tokens, ranks=float(self.ranks))
        return recording.model_copy(
            update={
                "config": config,
                "rows": tuple(
                    row.model_copy(update={"reward": reward})
                    for row, reward in zip(recording.rows, rewards, strict=True)
                ),
                "arrays": (*kept, advantage),
                "results": tuple(NamedNumber(name=name, value=value) for name, value in results.items()),
                "row_terms": (),
                "normalizer": divisor,
                "cohorts": tuple(
                    Cohort(
                        cohort_id="everything" if self.scale == "batch" else name,
                        group_id=name,
                        members=tuple(CohortMember(trajectory_id=one, raw_reward=raw) for one, raw in members.items()),
                    )
                    for name, members in raws.items()
                ),
                "conventions": self.conventions.model_copy(update={**named, "whole_batch": whole}),
            }
        )


@pytest.fixture
def story() -> Story:
    return Story().opened()


def changed(**fields: Any) -> Plant:
    return lambda recording: recording.model_copy(update=fields)


def raws(*groups: tuple[str, Sequence[float | None]]) -> dict[str, dict[str, float]]:
    return {
        name: {f"{name}.{at}": raw for at, raw in enumerate(rewards) if raw is not None} for name, rewards in groups
    }


def told(story: Story, dapo: Dapo, then: Plant = lambda recording: recording) -> None:
    """An update of one step over a group."""
    ids = story.group("a", (1.0, 0.25))
    story.update("u0", [ids], plant=lambda recording: then(dapo.of(recording, raws(("a", (1.0, 0.25))))))


def test_a_named_loss_explains_what_it_is_divided_by(story: Story, tmp_path: Path) -> None:
    told(story, Dapo(tokens=16, scale="group"))
    (step,) = write(story, tmp_path).steps
    bundle = passing(step.path)
    assert bundle.manifest.format_version == "1.1.0"
    stated = bundle.index.config.conventions
    assert stated is not None
    assert (str(stated.loss), stated.whole_batch.tokens) == ("trl 1.16.0 dapo", 16)
    outcomes = {stage.stage: stage.outcome for stage in replay_bundle(bundle).ranks[0].stages}
    assert outcomes[StageId.LOSS_POLICY] is outcomes[StageId.REWARD_POST_PROCESS] is Outcome.PASSED


def test_a_loss_without_a_name_is_a_plain_sum(story: Story, tmp_path: Path) -> None:
    told(story, Dapo(tokens=16, scale="group"), changed(conventions=Conventions(advantages=trl("scale_rewards group"))))
    found = problem(write(story, tmp_path))
    assert "normalizer 16.0" in found
    assert "name the convention of the loss in conventions" in found


def test_a_name_that_nobody_knows_is_stated_and_promises_nothing(story: Story, tmp_path: Path) -> None:
    told(
        story,
        Dapo(tokens=16, scale="group"),
        lambda recording: recording.model_copy(
            update={"conventions": Conventions(advantages=trl("scale_rewards group"), loss=trl("of our own"))}
        ),
    )
    (step,) = write(story, tmp_path).steps
    contracts = passing(step.path).manifest.stage_contracts
    assert contracts[StageId.LOSS_POLICY].capability is Capability.RECORDED_ONLY
    assert contracts[StageId.ADVANTAGE_ESTIMATE].capability is Capability.RECOMPUTE


def test_format_1_0_0_refuses_what_it_cannot_name(story: Story, tmp_path: Path) -> None:
    told(story, Dapo(tokens=16, scale="group"))
    found = problem(write(story, tmp_path, form=STEPS_ALONE))
    assert found.startswith("u0 step 0 not_representable: ")
    assert "states conventions (trl 1.16.0 scale_rewards group, trl 1.16.0 dapo), for which format 1.0.0 has" in found
    assert "ask for 1.1.0" in found


def test_a_cohort_of_several_groups_is_whole_in_each_step(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a", (1.0, 0.25)), story.group("b", (0.5, 0.75))
    every = raws(("a", (1.0, 0.25)), ("b", (0.5, 0.75)))
    story.update("u0", [a, b], plant=lambda recording: Dapo(tokens=16 + recording.step_id).of(recording, every))
    report = write(story, tmp_path)
    assert (report.problems, report.without_update) == ((), ())
    for written, own, other in zip(report.steps, (a, b), (b, a), strict=True):
        index = passing(written.path).index
        assert [one.sample_id for one in index.samples] == own
        assert [(one.sample_id, one.group_index) for one in index.cohort or ()] == [(one, 1) for one in other]
        assert index.identity.normalization_cohort_ids == ("everything",)
    # The update has all of them, and no convention of a loss, of which each step has its own.
    update_bundle = passing(tmp_path / UPDATE)
    assert update_bundle.index.cohort is None
    assert update_bundle.index.config.conventions == Stated(
        advantages=Named(framework="trl", version="1.16.0", name="scale_rewards batch")
    )
    assert replay_chain(tmp_path).verdict is Verdict.PASSED


def test_steps_under_different_advantages_have_no_update(story: Story, tmp_path: Path) -> None:
    a, every = story.group("a", (1.0, 0.25)), raws(("a", (1.0, 0.25)))
    scales = ("group", "batch")
    story.update("u0", [a, a], plant=lambda recording: Dapo(16, scale=scales[recording.step_id]).of(recording, every))
    report = write(story, tmp_path)
    assert len(report.steps) == 2
    (why,) = report.without_update
    assert "conventions.advantages 'trl 1.16.0 scale_rewards batch'" in why.what


def test_ranks_divide_by_what_all_have(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a", (1.0, 0.25)), story.group("b", (0.5, 0.75))
    every, dapo = raws(("a", (1.0, 0.25)), ("b", (0.5, 0.75))), Dapo(tokens=14, ranks=2)
    first, second = (dapo.of(story.recording("u0", 0, ids), every) for ids in (a, b))
    update(story, [*a, *b], [of_ranks([first, second.model_copy(update={"normalizer": 3.0})], World(dp=2))])
    (step,) = write(story, tmp_path).steps
    cohort = read_cohort(step.path)
    assert validate(step.path).problems == ()
    assert replay_cohort(cohort).verdict is Verdict.PASSED
    of_others = [[one.sample_id for one in bundle.index.cohort or ()] for bundle in cohort.bundles]
    assert of_others == [b, a]


def test_ranks_under_different_conventions_contradict_each_other(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a", (1.0, 0.25)), story.group("b", (0.5, 0.75))
    every = raws(("a", (1.0, 0.25)), ("b", (0.5, 0.75)))
    recordings = [Dapo(tokens, ranks=2).of(story.recording("u0", 0, ids), every) for tokens, ids in ((14, a), (15, b))]
    update(story, [*a, *b], [of_ranks(recordings, World(dp=2))])
    assert "has conventions " in problem(write(story, tmp_path))


def weights(arrays: dict[ArrayName, Any]) -> Any:
    return np.minimum(np.exp(arrays[ArrayName.OLD_LOG_PROBS] - arrays[ArrayName.BEHAVIOR_LOG_PROBS]), 1.01)


def sampled(recording: StepRecording) -> StepRecording:
    """Old log-probs are the trainer's own, the sampler's are those of the rollout."""
    arrays = {one.name: one for one in recording.arrays}
    old = floats_of(arrays[ArrayName.OLD_LOG_PROBS].data)
    moved = RecordedArray(name=ArrayName.OLD_LOG_PROBS, data=float32_bytes(old + np.float32(0.02)))
    behavior = RecordedArray(name=ArrayName.BEHAVIOR_LOG_PROBS, data=float32_bytes(old))
    others = (one for one in recording.arrays if one.name is not ArrayName.OLD_LOG_PROBS)
    return recording.model_copy(update={"arrays": (*others, moved, behavior), "old_source": "recomputed"})


CORRECTED = Dapo(16, "group", conventions=Conventions(corrections=(Correction(most=1.01),)), weights=weights)


def without(name: ArrayName) -> Plant:
    return lambda found: found.model_copy(update={"arrays": tuple(one for one in found.arrays if one.name is not name)})


def test_a_correction_takes_the_samplers_log_probs(story: Story, tmp_path: Path) -> None:
    ids, every = story.group("a", (1.0, 0.25)), raws(("a", (1.0, 0.25)))
    story.update("u0", [ids], plant=lambda recording: CORRECTED.of(sampled(recording), every))
    (step,) = write(story, tmp_path).steps
    bundle = passing(step.path)
    assert "rollout_log_probs" in bundle.tensors
    assert not np.array_equal(bundle.tensors["rollout_log_probs"], bundle.tensors["old_log_probs"])


PENALTY = KlTerm(coef=0.5)


def distance(arrays: dict[ArrayName, Any]) -> Any:
    gap = arrays[ArrayName.REF_LOG_PROBS] - arrays[ArrayName.LOG_PROBS]
    return PENALTY.coef * (np.exp(gap) - gap - 1)


def test_a_distance_within_the_loss_takes_the_references_log_probs(story: Story, tmp_path: Path) -> None:
    dapo = Dapo(16, "group", conventions=Conventions(kl_term=PENALTY), penalty=distance)
    told(story, dapo)
    (step,) = write(story, tmp_path).steps
    bundle = passing(step.path)
    assert StageId.ADVANTAGE_KL not in bundle.manifest.stage_contracts
    assert "ref_log_probs" in bundle.tensors


@pytest.mark.parametrize(
    ("dapo", "missing"),
    [
        (CORRECTED, ArrayName.BEHAVIOR_LOG_PROBS),
        (Dapo(16, "group", conventions=Conventions(kl_term=PENALTY), penalty=distance), ArrayName.REF_LOG_PROBS),
    ],
)
def test_an_array_that_a_convention_needs_is_asked_for(
    story: Story, tmp_path: Path, dapo: Dapo, missing: ArrayName
) -> None:
    ids, every = story.group("a", (1.0, 0.25)), raws(("a", (1.0, 0.25)))
    story.update("u0", [ids], plant=lambda recording: without(missing)(dapo.of(sampled(recording), every)))
    found = problem(write(story, tmp_path))
    assert found.startswith("u0 step 0 incomplete_recording: ")
    assert f"has no array {missing.value}: record it" in found


# --- a critic's loss beside it

VALUE = NamedValueLoss(framework="openrlhf", version="0.11.2", name="value, token mean", clip=0.2)


def with_critic(recording: StepRecording) -> StepRecording:
    """Half the squared distance, of values that are clipped around those of the rollout, over all tokens that count;
    returns of format 1.0.0 are its advantages."""
    mask = np.concatenate([mask_of(row.loss_mask) for row in recording.rows])
    random = np.random.default_rng(5)
    returns = next(floats_of(one.data) for one in recording.arrays if one.name is ArrayName.ADVANTAGES)
    old = random.normal(size=len(mask)).astype(np.float32)
    new = (old + random.normal(0, 0.3, len(mask))).astype(np.float32)
    held = old + np.clip(new - old, -np.float32(0.2), np.float32(0.2))
    loss = 0.5 * float((np.maximum((held - returns) ** 2, (new - returns) ** 2) * mask).sum() / mask.sum())
    arrays = {ArrayName.VALUES: old, ArrayName.NEW_VALUES: new, ArrayName.RETURNS: returns}
    more = tuple(RecordedArray(name=name, data=float32_bytes(data)) for name, data in arrays.items())
    return recording.model_copy(
        update={
            "arrays": (*recording.arrays, *more),
            "results": (*recording.results, NamedNumber(name="value_loss", value=loss)),
            "conventions": Conventions(value_loss=VALUE),
        }
    )


def test_a_critics_loss_is_recomputed_where_its_convention_is_named(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")], plant=with_critic)
    (step,) = write(story, tmp_path).steps
    outcomes = {stage.stage: stage.outcome for stage in replay_bundle(passing(step.path)).ranks[0].stages}
    assert outcomes[StageId.LOSS_VALUE] is outcomes[StageId.LOSS_POLICY] is Outcome.PASSED


def test_a_critics_loss_that_is_named_is_recorded(story: Story, tmp_path: Path) -> None:
    story.update(
        "u0",
        [story.group("a")],
        plant=lambda recording: with_critic(recording).model_copy(update={"results": recording.results}),
    )
    assert "results lack value_loss: record it" in problem(write(story, tmp_path))


# --- who is not measured


def unscored(story: Story, plant: Callable[[StepRecording, Dapo], StepRecording]) -> str:
    """An update whose last row nothing scored; that row."""
    ids = [*story.group("a", (1.0, 0.25)), *story.group("b", (0.5, None))]
    story.reserve("u0", ids, mode=ReserveMode.AVAILABLE)
    story.start("u0")
    story.commit("u0", [ids[:3]])
    recording = story.recording("u0", 0, ids, masked=ids[3:])
    story.seal("u0", [plant(recording, Dapo(tokens=8, unscored=frozenset(ids[3:])))])
    return ids[3]


def measured(recording: StepRecording, dapo: Dapo) -> StepRecording:
    return dapo.of(recording, raws(("a", (1.0, 0.25)), ("b", (0.5, None))))


def test_a_row_that_nothing_scored_is_in_the_bundle_and_measured_nowhere(story: Story, tmp_path: Path) -> None:
    name = unscored(story, measured)
    report = write(story, tmp_path)
    assert report.without_update == ()
    for written in report.written:
        index = passing(written.path).index
        assert index.unmeasured == (Unmeasured(sample_id=name),)
        assert (index.samples[3].raw_reward, index.samples[3].reward) == (0.0, 0.0)


def test_its_name_is_redacted_in_both_places(story: Story, tmp_path: Path) -> None:
    unscored(story, measured)
    redactor = Redactor({**DEFAULT_REDACTION, "sample_id": Redaction.DROP})
    for written in write(story, tmp_path, form=Form(redactor=redactor)).written:
        index = passing(written.path).index
        assert [one.sample_id for one in index.samples] == ["s-0", "s-1", "s-2", "s-3"]
        assert index.unmeasured == (Unmeasured(sample_id="s-3"),)


def test_a_row_that_nothing_scored_was_normalised_with_nothing(story: Story, tmp_path: Path) -> None:
    name = unscored(story, lambda found, dapo: dapo.of(found, raws(("a", (1.0, 0.25)), ("b", (0.5, 0.0)))))
    assert f"has {name}, which the log has no reward of" in problem(write(story, tmp_path))


def test_a_row_that_nothing_scored_has_no_place_in_format_1_0_0(story: Story, tmp_path: Path) -> None:
    unscored(story, lambda found, _: found)
    assert "has no offset of its Generated and RewardReady" in problem(write(story, tmp_path))


def test_of_a_trajectorys_rows_one_is_measured(story: Story) -> None:
    named = changed(conventions=Conventions(advantages=trl("async")))
    recording = Recording(named(story.recording("u0", 0, story.group("a"))), "somewhere", cast(Any, None))

    def row(name: str, segment: int) -> Any:
        record = SimpleNamespace(identity=SimpleNamespace(trajectory_id=name), segments=(0, 1))
        trajectory = SimpleNamespace(generated=SimpleNamespace(record=record), reward="scored")
        return SimpleNamespace(row=SimpleNamespace(trajectory_id=name, segment=segment), trajectory=trajectory)

    config, rows = config_of(recording), [row("a", 1), row("b", 0), row("a", 0)]
    assert unmeasured_of(config, rows) == (Unmeasured(sample_id="a/0", like="a/1"),)
    assert unmeasured_of(config.model_copy(update={"conventions": None}), rows) is None
