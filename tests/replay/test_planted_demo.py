"""A demo's update as `rollbook materialize` wrote it (`tests/data/bundles-demo`: of `rollbook demo`, its ninth update,
with rows refused for drift), and in it one planted error of each kind: the right first bundle, stage, sample and token,
by itself and in the chain of update, steps and ranks."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.model import Sample, StageId
from rollbook.replay.bundle.reading.cohort import read_bundle, validate
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.bundle.writing.writer import write_cohort
from rollbook.replay.engine.chain import replay_chain
from rollbook.replay.engine.engine import replay_bundle
from rollbook.replay.engine.result import Divergence, Verdict
from rollbook.replay.engine.selection import Selection
from rollbook.schemas.digests import float32_bytes, floats_of
from rollbook.schemas.records.payload import ArrayName, StepRecording, World
from rollbook.tests.replay.materialized import write
from rollbook.tests.replay.reseal import Json, edit_bundle
from rollbook.tests.replay.story import Story
from rollbook.tests.replay.test_materialize_ranks import of_ranks
from rollbook.tests.replay.test_materialize_ranks import update as told

DEMO = Path(__file__).parents[1] / "data" / "bundles-demo"
UPDATE, *STEPS = sorted(path.name for path in DEMO.iterdir())
BY = 0.25

Found = tuple[str, bool, StageId, str | None, int | None]
"""Bundle, whether on the way to it, stage, sample, token."""


@cache
def bundle_of(name: str) -> Bundle:
    return read_bundle(DEMO / name)


def start_of(bundle: Bundle, at: int) -> int:
    return sum(sample.response_length for sample in bundle.index.samples[:at])


def in_full_groups(bundle: Bundle) -> Iterator[int]:
    """Samples that were trained on and whose group has four different rewards: where two of a group are equal, a wrong
    third could be the fourth's fault just as well."""
    rewards = defaultdict(set)
    for sample in bundle.index.samples:
        rewards[sample.group_index].add(sample.raw_reward)
    for at, sample in enumerate(bundle.index.samples):
        if len(rewards[sample.group_index]) == 4 and any(sample.loss_mask) and sample.response_length > 2:
            yield at


def victim(name: str) -> int:
    """One of them, which is in a step and so in the update."""
    return next(in_full_groups(bundle_of(name)))


def sample_of(name: str) -> Sample:
    return bundle_of(name).index.samples[victim(name)]


@dataclass(frozen=True, slots=True)
class Planted:
    """An edit of a bundle's files, and where it must be found in that bundle; with `token` None its stage has none."""

    stage: StageId
    edit: Callable[[str], dict[str, Any]]
    token: int | None = None


def bumped(payload: str, token: int) -> Callable[[str], dict[str, Any]]:
    def edit(name: str) -> dict[str, Any]:
        at = start_of(bundle_of(name), victim(name)) + token

        def change(tensor: NDArray[Any]) -> NDArray[Any]:
            changed = tensor.copy()
            changed[at] += BY
            return changed

        return {"payload": {payload: change}}

    return edit


def in_index(field: str) -> Callable[[str], dict[str, Any]]:
    def edit(name: str) -> dict[str, Any]:
        def change(index: Json) -> None:
            index["samples"][victim(name)][field] += BY

        return {"index": change}

    return edit


def in_expected(stage: str, values: str) -> Callable[[str], dict[str, Any]]:
    def edit(name: str) -> dict[str, Any]:
        def change(expected: Json) -> None:
            expected[stage][values][victim(name)] += BY

        return {"expected": change}

    return edit


def both(*edits: Callable[[str], dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
    return lambda name: {key: value for edit in edits for key, value in edit(name).items()}


ROLLOUT_LEVEL = {
    "a raw reward in the index": Planted(StageId.REWARD_RAW, in_index("raw_reward")),
    "a raw reward as it was recorded": Planted(StageId.REWARD_RAW, in_expected("reward.raw", "raw_rewards")),
    "a raw reward everywhere": Planted(
        StageId.REWARD_POST_PROCESS, both(in_index("raw_reward"), in_expected("reward.raw", "raw_rewards"))
    ),
    "a reward in the index": Planted(StageId.REWARD_POST_PROCESS, in_index("reward")),
    "a reward as it was recorded": Planted(StageId.REWARD_POST_PROCESS, in_expected("reward.post_process", "rewards")),
    "an old log-prob": Planted(StageId.ADVANTAGE_KL, bumped("old_log_probs", 1), 1),
    "a reference log-prob": Planted(StageId.ADVANTAGE_KL, bumped("ref_log_probs", 2), 2),
    "a distance": Planted(StageId.ADVANTAGE_KL, bumped("kl", 0), 0),
    "an advantage": Planted(StageId.ADVANTAGE_ESTIMATE, bumped("advantages", 1), 1),
}
STEP_LEVEL = {
    **ROLLOUT_LEVEL,
    "a log-prob": Planted(StageId.LOSS_POLICY, bumped("log_probs", 1), 1),
    "an entropy": Planted(StageId.LOSS_POLICY, bumped("entropy", 1)),
}
CASES = [
    *((name, case) for name in (UPDATE,) for case in ROLLOUT_LEVEL),
    *((name, case) for name in STEPS for case in STEP_LEVEL),
]
IDS = [f"{name.removeprefix(UPDATE) or 'update'}: {case}" for name, case in CASES]


def where(divergence: Divergence) -> tuple[StageId, str | None, int | None]:
    return divergence.stage, divergence.point.sample_id, divergence.point.token_offset


def first_of_chain(folder: Path) -> Found:
    report = replay_chain(folder)
    assert report.verdict is Verdict.DIVERGES
    assert report.first_divergence is not None
    found = report.first_divergence
    return found.bundle_id, found.in_handover, *where(found.divergence)


def edited_chain(tmp_path: Path, name: str, edit: Mapping[str, Any]) -> Path:
    """The demo's update with one of its bundles edited, and sealed again."""
    folder = tmp_path / "chain"
    shutil.copytree(DEMO, folder)
    shutil.rmtree(folder / name)
    assert validate(edit_bundle(DEMO / name, folder / name, **edit)).problems == ()
    return folder


def test_as_it_was_written_it_passes() -> None:
    report = replay_chain(DEMO)
    assert (report.verdict, report.first_divergence) == (Verdict.PASSED, None)
    assert [link.report.bundle_id for link in report.links] == [UPDATE, *STEPS]
    assert sum(not any(sample.loss_mask) for sample in bundle_of(STEPS[0]).index.samples) > 0


@pytest.mark.parametrize(("name", "case"), CASES, ids=IDS)
def test_an_error_is_found_in_its_bundle(tmp_path: Path, name: str, case: str) -> None:
    planted = STEP_LEVEL[case]
    edited = edit_bundle(DEMO / name, tmp_path / name, **planted.edit(name))
    assert validate(edited).problems == ()
    first = replay_bundle(read_bundle(edited)).first_divergence
    assert first is not None
    assert where(first) == (planted.stage, sample_of(name).sample_id, planted.token)
    assert first.diverging_samples == 1 or planted.stage is StageId.REWARD_POST_PROCESS


TAKEN_OVER = {
    "a raw reward in the index": (StageId.REWARD_RAW, None),
    "a raw reward everywhere": (StageId.REWARD_RAW, None),
    "a reward in the index": (StageId.REWARD_POST_PROCESS, None),
    "an advantage": (StageId.ADVANTAGE_ESTIMATE, 1),
}
"""What a step took over from its update, so that there a planted error shows before the step itself is replayed."""


@pytest.mark.parametrize(("name", "case"), CASES, ids=IDS)
def test_an_error_is_found_in_the_chain(tmp_path: Path, name: str, case: str) -> None:
    planted, sample = STEP_LEVEL[case], sample_of(name).sample_id
    in_handover = name != UPDATE and case in TAKEN_OVER
    stage, token = TAKEN_OVER[case] if in_handover else (planted.stage, planted.token)
    folder = edited_chain(tmp_path, name, planted.edit(name))
    assert first_of_chain(folder) == (name, in_handover, stage, sample, token)


def one_token_less(name: str) -> dict[str, Any]:
    """A step that lost a sample's last token, wherever it is recorded."""
    bundle, at = bundle_of(name), victim(name)
    last = start_of(bundle, at) + bundle.index.samples[at].response_length - 1

    def change(index: Json) -> None:
        sample = index["samples"][at]
        sample["loss_mask"].pop()
        sample["response_length"] -= 1

    return {"index": change, "payload": {payload: lambda tensor: np.delete(tensor, last) for payload in bundle.tensors}}


@pytest.mark.parametrize("name", STEPS)
def test_a_token_that_got_lost_on_the_way_to_a_step(tmp_path: Path, name: str) -> None:
    folder = edited_chain(tmp_path, name, one_token_less(name))
    assert first_of_chain(folder) == (name, True, StageId.SAMPLE, sample_of(name).sample_id, None)


@pytest.mark.parametrize("name", [UPDATE, *STEPS])
def test_a_length_that_is_not_the_masks(tmp_path: Path, name: str) -> None:
    """A reader refuses it, with the place; what was read otherwise diverges in the first stage."""
    at, bundle = victim(name), bundle_of(name)

    def change(index: Json) -> None:
        index["samples"][at]["loss_mask"].append(1)

    problems = validate(edit_bundle(DEMO / name, tmp_path / name, index=change)).problems
    assert f"samples.{at}.loss_mask" in {problem.field for problem in problems}
    longer = bundle.index.samples[at].model_copy(update={"loss_mask": bundle.index.samples[at].loss_mask + b"\1"})
    samples = tuple(longer if n == at else sample for n, sample in enumerate(bundle.index.samples))
    wrong = replace(bundle, index=bundle.index.model_copy(update={"samples": samples}))
    first = replay_bundle(wrong, Selection(stages=(StageId.SAMPLE,))).first_divergence
    assert first is not None
    assert where(first) == (StageId.SAMPLE, sample_of(name).sample_id, None)


def bumped_recording(recording: StepRecording, array: ArrayName, token: int) -> StepRecording:
    """What a rank records whose trainer went wrong at one token."""

    def data(one: bytes) -> bytes:
        values = floats_of(one).copy()
        values[token] += BY
        return float32_bytes(values)

    arrays = (one.model_copy(update={"data": data(one.data)}) if one.name is array else one for one in recording.arrays)
    return recording.model_copy(update={"arrays": tuple(arrays)})


def two_ranks(story: Story, wrong: Sequence[tuple[int, int, ArrayName, int]]) -> list[str]:
    """Two steps on two ranks; wrong: step, rank, array, token. The second rank's trajectories."""
    a, b = story.group("a"), story.group("b", (0.25, 0.75))
    steps = [of_ranks([story.recording("u0", at, a), story.recording("u0", at, b)], World(dp=2)) for at in range(2)]
    for step, rank, array, token in wrong:
        steps[step][rank] = bumped_recording(steps[step][rank], array, token)
    told(story, [*a, *b], steps)
    return b


RANKS = [
    # step, array -> bundle, on the way to it, rank, stage, token of the rank's second sample
    (0, ArrayName.KL, "", False, 0, StageId.ADVANTAGE_KL, 2),
    (1, ArrayName.KL, "-s1", False, 1, StageId.ADVANTAGE_KL, 2),
    (0, ArrayName.ADVANTAGES, "", False, 0, StageId.ADVANTAGE_ESTIMATE, 2),
    (1, ArrayName.ADVANTAGES, "-s1", True, 1, StageId.ADVANTAGE_ESTIMATE, 2),
    (0, ArrayName.LOG_PROBS, "-s0", False, 1, StageId.LOSS_POLICY, 1),
    (1, ArrayName.LOG_PROBS, "-s1", False, 1, StageId.LOSS_POLICY, 1),
]


@pytest.mark.parametrize(("step", "array", "name", "on_the_way", "rank", "stage", "token"), RANKS)
def test_what_one_rank_of_a_trainer_did_wrong(
    tmp_path: Path, step: int, array: ArrayName, name: str, on_the_way: bool, rank: int, stage: StageId, token: int
) -> None:
    story = Story().opened()
    second = two_ranks(story, [(step, 1, array, 4 + token)])[1]
    write(story, tmp_path)
    found = replay_chain(tmp_path).first_divergence
    assert found is not None
    assert (found.bundle_id, found.in_handover, found.divergence.rank) == (f"run-a-uu0-r3{name}", on_the_way, rank)
    assert where(found.divergence) == (stage, second, token)


def test_the_earliest_of_several_is_the_first(tmp_path: Path) -> None:
    story = Story().opened()
    wrong = [(1, 0, ArrayName.KL, 0), (0, 1, ArrayName.LOG_PROBS, 1), (1, 1, ArrayName.ADVANTAGES, 0)]
    first = two_ranks(story, wrong)[0]
    write(story, tmp_path)
    assert first_of_chain(tmp_path) == ("run-a-uu0-r3-s0", False, StageId.LOSS_POLICY, first, 1)


def ranks_of_a_rollout(tmp_path: Path, in_step: Sequence[float]) -> Path:
    """A rollout and a step of it on two ranks that share all samples; at one token the rollout's second rank has an
    advantage that is off by 1, the step's ranks ones that are off by `in_step`."""
    sound, step = bundle_of(UPDATE), bundle_of(STEPS[0])
    folder = tmp_path / "ranks"
    for bundle, offs in ((sound, (0.0, 1.0)), (step, in_step)):
        drafts = {}
        at = start_of(bundle, [one.sample_id for one in bundle.index.samples].index(sample_of(STEPS[0]).sample_id))
        for rank, off in enumerate(offs):
            advantages = bundle.tensors["advantages"].copy()
            advantages[at] += np.float32(off)
            changed = replace(bundle, tensors={**bundle.tensors, "advantages": advantages}, rank=rank)
            drafts[rank] = replace(Draft.of(changed), terms={}, expected_ranks=(0, 1))
        write_cohort(folder / bundle.bundle_id, drafts)
    shutil.copytree(DEMO / STEPS[1], folder / STEPS[1])
    return folder


@pytest.mark.parametrize(("in_step", "wrong"), [((0.0, 1.0), []), ((0.0, 0.0), [1]), ((1.0, 1.0), [0])])
def test_each_rank_is_held_against_its_own_copy(tmp_path: Path, in_step: Sequence[float], wrong: list[int]) -> None:
    links = replay_chain(ranks_of_a_rollout(tmp_path, in_step)).links
    assert [found.rank for found in links[1].handovers if found.divergence is not None] == wrong
