"""Context-parallel shards: dealt out in any layout, the worked example replays to exactly the result of the whole; what
contradicts itself or another shard is refused by file, field and remedy."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.contextparallel import (
    ContextParallel,
    HeldBy,
    Order,
    context_parallel,
    held_spans,
)
from rollbook.replay.bundle.folder import open_folder
from rollbook.replay.bundle.model import StageId, World
from rollbook.replay.bundle.problems import BadBundle
from rollbook.replay.bundle.reading import cohort
from rollbook.replay.bundle.reading.cohort import inspect, read_bundle, read_cohort, validate
from rollbook.replay.bundle.reading.reader import load
from rollbook.replay.bundle.reading.reassembly import reassembled
from rollbook.replay.bundle.writing.bundle_writer import BundleWriter
from rollbook.replay.bundle.writing.drafts import Draft, check_cohort
from rollbook.replay.bundle.writing.rows import Origin
from rollbook.replay.bundle.writing.writer import write_bundle, write_cohort
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import ReplayReport, Verdict
from rollbook.replay.engine.selection import Selection
from rollbook.tests.replay import by_hand, independent_shards
from rollbook.tests.replay.independent_shards import Json, layout_of

LAYOUTS = [(cp, order, totals) for cp in (2, 4) for order in Order for totals in ([6, 7], [11, 4], [3, 40])]


def ids(case: Any) -> str:
    return str(getattr(case, "value", case)).replace(" ", "")


def result(report: ReplayReport) -> Json:
    """All that a report says, but for where it lay."""
    return {name: value for name, value in asdict(report).items() if name not in ("path", "bundle_id")}


def whole(folder: Path, totals: list[int]) -> Path:
    index = by_hand.index("whole", rows=by_hand.rows(total_lengths=totals))
    writer = by_hand.writer(folder / "whole", index=index)
    writer.finalize()
    return folder / "whole"


def write_shards(path: Path, layouts: list[ContextParallel], totals: list[int]) -> list[bool]:
    """Each rank by itself, as in a training: its own share of the tensors, dealt out token by token."""
    published = []
    for layout in layouts:
        described = {**layout.model_dump(mode="json")}
        held = independent_shards.owners(described, totals, [2, 3])
        chosen = [at for at, place in enumerate(held) if place == layout.cp_rank]
        index = by_hand.index(
            path.name,
            rows=by_hand.rows(total_lengths=totals),
            origin=Origin(world=World(cp=len(layout.ranks))),
            context_parallel=layout,
        )
        rank = layout.ranks[layout.cp_rank]
        writer = BundleWriter(path, index=index, producer=by_hand.PRODUCER, rank=rank, attempt="one")
        for name, tensor in by_hand.TENSORS.items():
            writer.payload(name, tensor[chosen])
        writer.expect(raw_rewards=[1.0, 0.0], rewards=[0.5, -0.5], loss=by_hand.LOSS)
        assert writer.check(layout.ranks) == ()
        published.append(writer.finalize(layout.ranks).published)
    return published


def layouts(cp: int, order: Order, totals: list[int], **given: Any) -> list[ContextParallel]:
    return [context_parallel(order, ranks=range(cp), rank=rank, total_lengths=totals, **given) for rank in range(cp)]


@pytest.mark.parametrize(("cp", "order", "totals"), LAYOUTS, ids=ids)
def test_written_by_a_trainer_it_replays_to_exactly_the_result_of_the_whole(
    tmp_path: Path, cp: int, order: Order, totals: list[int]
) -> None:
    assert write_shards(tmp_path / "shards", layouts(cp, order, totals), totals) == [False] * (cp - 1) + [True]
    assert validate(tmp_path / "shards").problems == ()
    expected = replay_cohort(read_cohort(whole(tmp_path, totals)))
    found = replay_cohort(read_cohort(tmp_path / "shards"))
    assert found.verdict is Verdict.PASSED
    assert result(found) == result(expected)
    read = {
        name: np.asarray(values, np.float32) for name, values in independent_shards.tensors(tmp_path / "shards").items()
    }
    assert all(np.array_equal(read[name], tensor.numpy()) for name, tensor in by_hand.TENSORS.items())


@pytest.mark.parametrize(("cp", "order", "totals"), LAYOUTS, ids=ids)
def test_written_by_hand_it_replays_to_exactly_the_result_of_the_whole(
    tmp_path: Path, cp: int, order: Order, totals: list[int]
) -> None:
    path = independent_shards.write(tmp_path / "shards", layout_of(cp, order.value, totals), totals)
    assert [str(problem) for problem in validate(path).problems] == []
    assert validate(path).ranks == tuple(range(cp))
    assert result(replay_cohort(read_cohort(path))) == result(replay_cohort(read_cohort(whole(tmp_path, totals))))


LAID_OUT: list[tuple[str, Json]] = [
    ("one sequence of both, padded at its end", {"packed": [2], "padded_lengths": [16]}),
    ("one sequence, held where the token is", {"packed": [2], "padded_lengths": [24], "held_by": "token"}),
    ("padded to the longest", {"padded_lengths": [4096, 4096]}),
    ("not in the order of ranks", {"ranks": [1, 0]}),
]


@pytest.mark.parametrize("order", ["contiguous", "zigzag"])
@pytest.mark.parametrize("changed", [case[1] for case in LAID_OUT], ids=[case[0] for case in LAID_OUT])
def test_other_layouts(tmp_path: Path, order: str, changed: Json) -> None:
    path = independent_shards.write(tmp_path / "shards", layout_of(2, order, [6, 7], **changed), [6, 7])
    assert result(replay_cohort(read_cohort(path))) == result(replay_cohort(read_cohort(whole(tmp_path, [6, 7]))))


def test_a_divergence_names_sample_and_token_of_the_whole_sample(tmp_path: Path) -> None:
    def wrong(rank: int, content: Json) -> None:
        if rank == 1:
            content["tensors"]["kl"][0] += 0.25  # the first token of rank 1 is the second of s-1

    path = independent_shards.write(tmp_path / "shards", layout_of(2, "contiguous", [3, 9]), [3, 9], wrong)
    first = replay_cohort(read_cohort(path)).first_divergence
    assert first is not None
    assert (first.stage, first.field, first.point.sample_id) == (StageId.ADVANTAGE_KL, "kl", "s-1")
    assert first.point.token_offset == 1


def test_a_part_is_selected_of_whole_samples(tmp_path: Path) -> None:
    path = independent_shards.write(tmp_path / "shards", layout_of(2, "zigzag", [11, 4]), [11, 4])
    report = replay_cohort(read_cohort(path), Selection(stages=(StageId.ADVANTAGE_KL,), samples=("s-1",)))
    assert report.verdict is Verdict.PASSED


def test_shares_of_the_loss_are_added_up(tmp_path: Path) -> None:
    losses = [{name: value * share for name, value in by_hand.LOSS.items()} for share in (0.25, 0.75)]
    layout = layout_of(2, "zigzag", [6, 7], scalars="share")
    path = independent_shards.write(tmp_path / "shares", layout, [6, 7], losses=losses)
    assert replay_cohort(read_cohort(path)).verdict is Verdict.PASSED
    path = independent_shards.write(tmp_path / "twice", layout, [6, 7])
    first = replay_cohort(read_cohort(path)).first_divergence
    assert first is not None
    assert first.stage is StageId.LOSS_POLICY


def test_shares_that_no_number_holds_together_are_refused(tmp_path: Path) -> None:
    losses = [dict.fromkeys(by_hand.LOSS, 1.7e308)] * 2
    layout = layout_of(2, "zigzag", [6, 7], scalars="share")
    problems = validate(independent_shards.write(tmp_path / "b", layout, [6, 7], losses=losses)).problems
    assert "finite" in str(problems[0])


def test_what_was_put_together_is_written_as_a_bundle_of_one_rank(tmp_path: Path) -> None:
    path = independent_shards.write(tmp_path / "shards", layout_of(4, "zigzag", [11, 4]), [11, 4])
    bundle = read_bundle(path)
    written = write_bundle(tmp_path / "one", Draft.of(bundle))
    assert read_bundle(written).manifest.format_version == "1.0.0"
    assert result(replay_cohort(read_cohort(written))) == result(replay_cohort(read_cohort(path)))


def in_index(rank: int, **changed: Any) -> Callable[[int, Json], object]:
    return lambda at, content: content["index"]["context_parallel"].update(changed) if at == rank else None


def of_all(**changed: Any) -> Callable[[int, Json], object]:
    return lambda _, content: content["index"]["context_parallel"].update(changed)


def edited(rank: int, change: Callable[[Json], object]) -> Callable[[int, Json], object]:
    return lambda at, content: change(content) if at == rank else None


def shorter(content: Json) -> None:
    content["tensors"]["kl"] = content["tensors"]["kl"][:-1].clone()


def without_entropy(content: Json) -> None:
    del content["tensors"]["entropy"]
    del content["manifest"]["stage_contracts"]["loss.policy"]


def cp_of(world: int) -> Callable[[int, Json], object]:
    return lambda _, content: content["index"]["identity"]["rank"].update(cp=world)


REFUSED: list[tuple[str, Callable[[int, Json], object], str]] = [
    ("a token twice", in_index(1, cp_rank=0), "rank-1/index.json: context_parallel.cp_rank: 0 is rank 0's place"),
    ("an order of its own", in_index(1, order="contiguous"), "context_parallel.order: not the one of rank-0"),
    ("a padding of its own", in_index(1, padded_lengths=[28, 28]), "padded_lengths: not the one of rank-0"),
    ("held by another", in_index(1, held_by="token"), "context_parallel.held_by: not the one of rank-0"),
    ("a group of its own", in_index(1, ranks=[2, 1]), "rank-1/index.json: context_parallel.ranks: rank 2 is not among"),
    ("no layout", edited(1, lambda content: content["index"].pop("context_parallel")), "missing, other ranks have it"),
    ("a wrong size", edited(1, shorter), "payloads.kl.shape"),
    ("too short a padding", of_all(padded_lengths=[24, 12]), "padded_lengths.1: 12, but its samples have 17 tokens"),
    ("a padding that is not cut", of_all(padded_lengths=[26, 24]), "padded_lengths.0: 26 is no multiple of the 4"),
    ("paddings missing", of_all(padded_lengths=[24]), "padded_lengths: 1 sequences of 1 samples, the index has 2"),
    ("packed wrongly", of_all(packed=[3], padded_lengths=[48]), "packed: 1 sequences of 3 samples"),
    ("a place beyond", of_all(cp_rank=2), "cp_rank: 2, of 2 ranks"),
    ("a rank twice", of_all(ranks=[0, 0]), "context_parallel.ranks: a rank twice"),
    ("another world", cp_of(4), "2 ranks, but identity.rank.cp is 4"),
    ("a group of one", of_all(ranks=[0]), "context_parallel.ranks"),
    ("other samples", edited(1, lambda content: content["index"]["samples"][0].update(raw_reward=2.0)), "not those of"),
    ("another mask", edited(1, lambda content: content["index"]["samples"][0].update(loss_mask=[1, 0])), "samples"),
    ("other partitions", edited(1, lambda c: c["index"]["identity"].update(rollout_partition_ids=["p"])), "identity"),
    (
        "another loss",
        edited(1, lambda c: c["expected"].update({"loss.policy": {**by_hand.LOSS, "loss": 1.0}})),
        "scalars",
    ),
    (
        "other rewards",
        edited(1, lambda c: c["expected"].update({"reward.raw": {"raw_rewards": [1.0, 1.0]}})),
        "reward.raw",
    ),
    ("other tensors", edited(1, without_entropy), "payloads.entropy: not in all shards"),
    ("an unknown order", of_all(order="striped"), "context_parallel.order"),
    ("an unknown key", of_all(stride=2), "context_parallel.stride: unknown key"),
    ("format 1.0.0", lambda _, c: c["manifest"].update(format_version="1.0.0"), "unknown key in format 1.0.0"),
]


@pytest.mark.parametrize(("edit", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused(tmp_path: Path, edit: Callable[[int, Json], object], message: str) -> None:
    # Rank 1 holds all tokens under any of these layouts, so that no size gives away what is wrong.
    layout = layout_of(2, "zigzag", [17, 17], padded_lengths=[24, 24])
    path = independent_shards.write(tmp_path / "shards", layout, [17, 17], edit)
    assert any(message in str(problem) for problem in validate(path).problems), validate(path).problems
    with pytest.raises(BadBundle):
        read_cohort(path)


def test_a_first_token_that_nothing_predicts_is_refused(tmp_path: Path) -> None:
    layout = layout_of(2, "zigzag", [2, 7], held_by="token")
    path = independent_shards.write(
        tmp_path / "shards", layout, [2, 7], lambda _, c: c["index"]["context_parallel"].update(held_by="predictor")
    )
    assert any("nothing predicts its first token" in str(problem) for problem in validate(path).problems)


def test_a_missing_shard_is_refused(tmp_path: Path) -> None:
    whole_group = independent_shards.write(tmp_path / "shards", layout_of(2, "zigzag", [6, 7]), [6, 7])
    shutil.rmtree(whole_group / "rank-1")
    assert any("rank-1: missing" in str(problem) for problem in validate(whole_group).problems)
    # A group of which one rank never wrote, sealed as if it were all.
    alone = independent_shards.write(tmp_path / "alone", layout_of(2, "zigzag", [6, 7]), [6, 7])
    drafts = {0: replace(Draft.of(_shard(alone, 0)), expected_ranks=(0,))}
    assert any("rank 1 is not among the expected ranks" in str(problem) for problem in check_cohort(drafts))
    with pytest.raises(BadBundle, match="the shard of rank 1 is missing: its tokens are in no other"):
        write_cohort(tmp_path / "sealed", drafts)


def _shard(path: Path, rank: int) -> Bundle:
    with open_folder(path / f"rank-{rank}") as folder:
        bundle = load(folder).bundle
    assert bundle is not None
    return bundle


def test_a_shard_by_itself_is_refused_and_inspected(tmp_path: Path) -> None:
    path = independent_shards.write(tmp_path / "shards", layout_of(2, "zigzag", [6, 7]), [6, 7])
    with pytest.raises(BadBundle, match=r"holds a share of the tokens only.*name the folder that holds all ranks"):
        read_cohort(path / "rank-0")
    assert inspect(path / "rank-0")[0].metadata.index.context_parallel is not None


def test_groups_beside_one_another_are_put_together_each(tmp_path: Path) -> None:
    """Two data-parallel groups of two context-parallel ranks each."""
    parts: dict[int, Draft] = {}
    for group in ((0, 2), (1, 3)):
        layout = layout_of(2, "zigzag", [11, 4], ranks=list(group))
        path = independent_shards.write(tmp_path / f"g{group[0]}", layout, [11, 4])
        parts |= {rank: Draft.of(_shard(path, rank)) for rank in group}

    def joined(draft: Draft) -> Draft:
        return replace(draft, expected_ranks=(0, 1, 2, 3), index=draft.index.model_copy(update={"bundle_id": "both"}))

    written = write_cohort(tmp_path / "both", {rank: joined(draft) for rank, draft in parts.items()})
    cohort = read_cohort(written)
    assert [bundle.rank for bundle in cohort.bundles] == [0, 1]
    assert replay_cohort(cohort).verdict is Verdict.PASSED


def test_whoever_deals_out_otherwise_never_meets(tmp_path: Path) -> None:
    zigzag = layouts(2, Order.ZIGZAG, [6, 7])[0]
    contiguous = layouts(2, Order.CONTIGUOUS, [6, 7])[1]
    assert write_shards(tmp_path / "b", [zigzag, contiguous], [6, 7]) == [False, False]
    assert not (tmp_path / "b").exists()


SAMPLES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=6)


@given(SAMPLES, st.sampled_from(list(Order)), st.integers(2, 5), st.integers(1, 12), st.booleans(), st.booleans())
def test_every_token_is_held_exactly_once(
    samples: list[tuple[int, int]], order: Order, cp: int, multiple: int, packed: bool, predictor: bool
) -> None:
    lengths = [(prompt + response, response) for prompt, response in samples]
    totals = [total for total, _ in lengths]
    held_by = HeldBy.PREDICTOR if predictor else HeldBy.TOKEN
    padding: dict[str, Any] = {
        "pad_to_multiple_of": multiple,
        "packed": [len(samples)] if packed else [],
        "held_by": held_by,
    }
    shards = layouts(cp, order, totals, **padding)
    counts = [np.zeros(response, np.int64) for _, response in lengths]
    for shard in shards:
        for count, spans in zip(counts, held_spans(shard, lengths), strict=True):
            for start, end in spans:
                count[start:end] += 1
    assert all((count == 1).all() for count in counts)
    own = independent_shards.owners(shards[0].model_dump(), totals, [response for _, response in lengths])
    for shard in shards:
        held = sum(end - start for spans in held_spans(shard, lengths) for start, end in spans)
        assert held == own.count(shard.cp_rank)


def test_samples_of_a_group_are_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shard lists all of them, with a mask entry a token."""
    seen: list[Bundle] = []

    def watched(bundles: Sequence[Bundle]) -> tuple[Bundle, ...]:
        seen.extend(bundles)
        return reassembled(bundles)

    monkeypatch.setattr(cohort, "reassembled", watched)
    write_shards(tmp_path / "shards", layouts(4, Order.ZIGZAG, [6, 7]), [6, 7])
    assert validate(tmp_path / "shards").problems == ()
    assert len({id(bundle.index.samples) for bundle in seen}) == 1 < len(seen)
