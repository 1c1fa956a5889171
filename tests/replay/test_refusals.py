"""Everything that a lenient reader lets pass: one line a case, all checksums recomputed, so only content is wrong."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.replay.bundle.problems import BadBundle
from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.bundle.tensorfile import tensor_bytes
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

NAN = math.nan
K1 = "full-k1"
ONE = np.ones(1, np.float32)


def walk(content: Json, path: str) -> tuple[Any, Any]:
    """The container and the key that a path like "samples|0|reward" ends at."""
    *steps, last = path.split("|")
    at: Any = content
    for step in steps:
        at = at[int(step)] if isinstance(at, list) else at[step]
    return at, int(last) if isinstance(at, list) else last


def put(path: str, value: Any) -> Any:
    def edit(content: Json) -> None:
        container, key = walk(content, path)
        container[key] = value

    return edit


def drop(path: str) -> Any:
    def edit(content: Json) -> None:
        container, key = walk(content, path)
        del container[key]

    return edit


def swap(old: str, new: str) -> Any:
    def edit(data: bytes) -> bytes:
        assert old.encode() in data
        return data.replace(old.encode(), new.encode(), 1)

    return edit


def entry(payload: str, **change: Any) -> Any:
    return lambda manifest: manifest["payloads"][payload].update(change)


def rename_payload(old: str, new: str) -> Any:
    def edit(manifest: Json) -> None:
        manifest["payloads"][new] = manifest["payloads"].pop(old) | {"name": new}

    return edit


REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    # what is done, bundle, edit, what the refusal names
    ("expected list shorter", K1, {"expected": drop("reward.raw|raw_rewards|0")}, "reward.raw.raw_rewards: 7 values"),
    ("expected list longer", K1, {"expected": put("reward.post_process|rewards", [0.5] * 9)}, "rewards: 9 values"),
    ("expected raw missing", K1, {"expected": drop("reward.raw")}, "reward.raw.raw_rewards: missing"),
    ("expected rewards missing", K1, {"expected": drop("reward.post_process")}, "post_process.rewards: missing"),
    ("expected loss missing", "loss-only", {"expected": drop("loss.policy")}, "loss.policy.loss: missing"),
    ("expected scalar missing", K1, {"expected": drop("loss.policy|ppo_kl")}, "loss.policy.ppo_kl: missing"),
    ("expected payload missing", K1, {"manifest": drop("payloads|kl")}, "payloads.kl: missing, stage advantage.kl"),
    ("input payload missing", K1, {"manifest": drop("payloads|ref_log_probs")}, "payloads.ref_log_probs: missing"),
    ("NaN expected", K1, {"expected": put("loss.policy|loss", NAN)}, "NaN is not a JSON number"),
    ("Infinity expected", K1, {"expected": put("loss.policy|loss", math.inf)}, "Infinity is not a JSON number"),
    ("1e999 expected", K1, {"raw": {"expected.json": swap("0.6199662089347839", "1e999")}}, "must be finite"),
    ("Infinity tolerated", "full-k1",
     {"manifest": put("comparison_policy|tolerances", {"loss.policy": {"atol": math.inf, "rtol": 0}})}, "Infinity"),
    ("negative tolerance", "full-k1",
     {"manifest": put("comparison_policy|tolerances", {"loss.policy": {"atol": -1, "rtol": 0}})}, "atol"),
    ("tolerance of everything", "full-k1",
     {"manifest": put("comparison_policy|tolerances", {"loss.policy": {"atol": 0, "rtol": 1}})}, "rtol"),
    ("tolerance of no stage", "full-k1",
     {"manifest": put("comparison_policy|tolerances", {"loss.polity": {"atol": 0, "rtol": 0}})}, "tolerances"),
    ("exact field of no stage", K1, {"manifest": put("comparison_policy|exact_fields", ["los"])}, "exact_fields"),
    ("contract of no stage", K1, {"manifest": put("stage_contracts|loss", {})}, "stage_contracts.loss"),
    ("contract under another key", K1, {"manifest": put("stage_contracts|sample|stage", "loss.policy")},
     "stage_contracts.sample.stage"),
    ("unknown capability", K1, {"manifest": put("stage_contracts|sample|capability", "some")}, "capability"),
    ("value loss promised", K1, {"manifest": put("stage_contracts|loss.value|capability", "recompute")},
     "stage_contracts.loss.value.capability"),
    ("loss in a rollout", "rollout", {"manifest": put("stage_contracts|loss.policy", {
        "stage": "loss.policy", "version": "v1", "capability": "unsupported", "implementation": "reuse",
        "inputs": [], "expected_outputs": []})}, "a stage of an optimizer step in a bundle of a rollout"),
    ("payload under another name", K1, {"manifest": entry("kl", name="advantages")}, "payloads.kl.name"),
    ("payload name outside", K1, {"manifest": rename_payload("kl", "../kl")}, "payloads"),
    ("payload name absolute", K1, {"manifest": rename_payload("kl", "/etc/passwd")}, "payloads"),
    ("payload not listed", K1, {"manifest": drop("payloads|entropy")}, "payloads/entropy.pt: not listed"),
    ("payload of one element", K1, {"payload": {"advantages": lambda _: ONE}}, "payloads.advantages.shape: [1]"),
    ("payload too short", K1, {"payload": {"kl": lambda old: old[:-1]}}, "payloads.kl.shape: [28]"),
    ("payload of two dimensions", K1, {"payload": {"kl": lambda old: old.reshape(1, -1)}}, "payloads.kl.shape"),
    ("payload of doubles", K1, {"payload": {"kl": lambda old: old.astype("f8")}}, "payloads.kl.dtype"),
    ("payload with NaN", K1, {"payload": {"log_probs": lambda old: np.where(old == old[5], np.nan, old)}},
     "payloads/log_probs.pt: [5]: nan is not a finite number"),
    ("payload with infinity", K1, {"payload": {"advantages": lambda old: old * np.inf}}, "not a finite number"),
    ("payload not a tensor", K1, {"payload": {"kl": lambda _: b"no tensor" * 20}}, "payloads/kl.pt: no zip end"),
    ("manifest shape lies", "full-k1",
     {"payload": {"kl": lambda _: tensor_bytes(ONE, "kl")}, "manifest": entry("kl", shape=[29])}, "shape: [1]"),
    ("manifest shape is vast", K1, {"manifest": entry("kl", shape=[2**40])}, "payloads.kl.shape"),
    ("manifest bytes lie", K1, {"manifest": entry("kl", bytes=1543)}, "payloads/kl.pt: 1,542 bytes"),
    ("manifest hash lies", K1, {"manifest": entry("kl", sha256="0" * 64)}, "checksum of `kl`"),
    ("boolean as number", K1, {"expected": put("loss.policy|loss", True)}, "loss.policy.loss"),
    ("string as number", K1, {"index": put("samples|0|raw_reward", "1")}, "samples.0.raw_reward"),
    ("boolean in a mask", K1, {"index": put("samples|0|loss_mask", [1, True, 1])}, "samples.0.loss_mask"),
    ("float in a mask", K1, {"index": put("samples|0|loss_mask", [1, 1.0, 1])}, "samples.0.loss_mask"),
    ("2 in a mask", K1, {"index": put("samples|0|loss_mask", [1, 2, 1])}, "samples.0.loss_mask"),
    ("number as boolean", K1, {"index": put("config|grpo_std_normalization", 1)}, "grpo_std_normalization"),
    ("float as length", K1, {"index": put("samples|0|response_length", 3.0)}, "samples.0.response_length"),
    ("negative length", K1, {"index": put("samples|0|response_length", -3)}, "samples.0.response_length"),
    ("negative clip", K1, {"index": put("config|eps_clip", -0.2)}, "config.eps_clip"),
    ("mask of another length", K1, {"index": put("samples|0|loss_mask", [1, 1])}, "samples.0.loss_mask: 2 entries"),
    ("total below response", K1, {"index": put("samples|0|total_length", 2)}, "samples.0.total_length"),
    ("key twice", K1, {"raw": {"index.json": swap('"bundle_id"', '"bundle_id": "x", "bundle_id"')}},
     "key 'bundle_id' twice"),
    ("unknown key", K1, {"manifest": put("more", 1)}, "more: unknown key"),
    ("unknown nested key", K1, {"index": put("samples|0|extra", 1)}, "samples.0.extra: unknown key"),
    ("missing key", K1, {"index": drop("samples|0|reward")}, "samples.0.reward: missing"),
    ("another version", K1, {"manifest": put("format_version", "2.0.0")}, "format_version"),
    ("ids of two bundles", K1, {"manifest": put("bundle_id", "other")}, "bundle_id"),
    ("both levels", K1, {"index": put("identity|rollout_id", 120)}, "exactly one of"),
    ("no level", K1, {"index": put("identity|actor_step_id", None)}, "exactly one of"),
    ("sample twice", K1, {"index": put("samples|1|sample_id", "s-0")}, "sample_id 's-0' twice"),
    ("empty id", K1, {"index": put("samples|1|sample_id", "")}, "samples.1.sample_id"),
    ("no samples", K1, {"index": put("samples", [])}, "samples"),
    ("membership of some", K1, {"index": put("samples|0|micro_batch_id", None)}, "for some samples only"),
    ("membership not listed", K1, {"index": put("samples|0|micro_batch_id", "mb-7")}, "'mb-7' is not among"),
    ("batch without samples", "full-k1",
     {"index": put("identity|micro_batch_ids", ["mb-0000", "mb-0001", "mb-0002"])}, "'mb-0002'"),
    ("batch twice", K1, {"index": put("identity|micro_batch_ids", ["mb-0000", "mb-0001", "mb-0001"])}, "twice"),
    ("group of another size", K1, {"index": put("samples|0|group_index", 1)}, "group 0 has 3 samples"),
    ("group size differs", K1, {"index": put("config|n_samples_per_prompt", 8)}, "n_samples_per_prompt is 8"),
    ("group of some", K1, {"index": put("samples|0|group_index", None)}, "group_index for some samples only"),
    ("step of another record", K1, {"rank_complete": put("actor_step_id|step_id", 1)}, "COMPLETE.0: actor_step_id"),
    ("digest of another record", K1, {"rank_complete": put("payloads|kl", "0" * 64)}, "COMPLETE.0: payloads.kl"),
    ("record without payload", K1, {"rank_complete": drop("payloads|kl")}, "COMPLETE.0: payloads.kl"),
    ("metadata digest missing", K1, {"complete": drop("metadata|index.json")}, "COMPLETE: metadata"),
    ("metadata digest wrong", K1, {"complete": put("metadata|index.json", "0" * 64)}, "COMPLETE.0: metadata"),
    ("ranks of a cohort", K1, {"rank_complete": put("expected_ranks", [0, 1]),
                                      "complete": put("expected_ranks", [0, 1])}, "../COMPLETE: missing or unreadable"),
    ("rank not expected", K1, {"complete": put("expected_ranks", [1])}, "COMPLETE: expected_ranks"),
    ("rank not there", K1, {"complete": put("ranks", [3])}, "COMPLETE.3: missing"),
    ("rank as path", K1, {"complete": put("ranks", ["../0"])}, "COMPLETE: ranks.0"),
    ("not JSON", K1, {"raw": {"index.json": lambda data: data[:100]}}, "index.json: not JSON"),
    ("not UTF-8", K1, {"raw": {"index.json": lambda data: data.replace(b"tq", b"\xff")}}, "index.json: not UTF-8"),
    ("lone surrogate", K1, {"raw": {"index.json": swap("tq-7", "tq-\\ud800")}}, "consumer_batch_ids.0"),
    ("nested without end", K1, {"raw": {"index.json": lambda _: b"[" * 200_000}}, "index.json"),
    ("number without end", K1, {"raw": {"index.json": swap("120", "1" * 6000)}}, "index.json"),
    ("an array", K1, {"raw": {"manifest.json": lambda _: b"[]"}}, "manifest.json"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "bundle", "edit", "named"), REFUSED, ids=[case[0] for case in REFUSED])
def test_refused(tmp_path: Path, what: str, bundle: str, edit: dict[str, Any], named: str) -> None:
    edited = edit_bundle(FIXTURES / bundle, tmp_path / "bundle", **edit)
    problems = validate(edited).problems
    assert any(named in str(problem) for problem in problems), [str(problem) for problem in problems]
    assert all(problem.file and problem.remedy for problem in problems)
    with pytest.raises(BadBundle) as refused:
        read_cohort(edited)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("value", "problems"), [(-1, 1), ("x", 1), (None, 2)])
def test_a_bad_group_is_told_and_nothing_untrue_beside_it(tmp_path: Path, value: Any, problems: int) -> None:
    def edit(index: Any) -> None:
        index["samples"][0]["group_index"] = value

    found = validate(edit_bundle(FIXTURES / "full-k1", tmp_path / "bundle", index=edit)).problems
    assert len(found) == problems, found
    assert all("group_index" in str(one) for one in found)


def test_an_untouched_bundle_resealed_is_valid(tmp_path: Path) -> None:
    assert validate(edit_bundle(FIXTURES / "full-k1", tmp_path / "bundle")).valid


FILES = ["manifest.json", "index.json", "expected.json", "COMPLETE", "COMPLETE.0", "payloads/kl.pt", "payloads"]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    bundle = edit_bundle(FIXTURES / "full-k1", tmp_path / "bundle")
    (bundle / name).rename(tmp_path / "elsewhere")
    assert [(problem.file, problem.what) for problem in validate(bundle).problems] == [(name, "missing")]


@pytest.mark.parametrize("name", FILES)
def test_a_symbolic_link_is_never_followed(tmp_path: Path, name: str) -> None:
    bundle = edit_bundle(FIXTURES / "full-k1", tmp_path / "bundle")
    (bundle / name).rename(tmp_path / "elsewhere")
    (bundle / name).symlink_to(tmp_path / "elsewhere")
    (problem,) = validate(bundle).problems
    assert problem.file == name
    assert "symbolic link" in problem.what


def test_a_pipe_does_not_hang_the_reader(tmp_path: Path) -> None:
    bundle = edit_bundle(FIXTURES / "full-k1", tmp_path / "bundle")
    (bundle / "index.json").unlink()
    os.mkfifo(bundle / "index.json")
    assert "not a regular file" in str(validate(bundle).problems[0])


def test_a_truncated_payload_is_named(tmp_path: Path) -> None:
    bundle = edit_bundle(FIXTURES / "full-k1", tmp_path / "bundle")
    payload = bundle / "payloads" / "kl.pt"
    payload.write_bytes(payload.read_bytes()[:-100])
    assert [str(problem) for problem in validate(bundle).problems] == [
        "payloads/kl.pt: 1,442 bytes, manifest.json says 1,542 (truncated); capture the bundle again"
    ]


def test_a_payload_larger_than_its_tokens_is_not_read(tmp_path: Path) -> None:
    bundle = edit_bundle(FIXTURES / "full-k1", tmp_path / "bundle")
    with (bundle / "payloads" / "kl.pt").open("r+b") as file:
        file.truncate(2**36)
    assert "more than the" in str(validate(bundle).problems[0])


def edit_cohort(tmp_path: Path) -> Path:
    cohort = tmp_path / "cohort"
    for rank in (0, 1):
        edit_bundle(FIXTURES / "two-rank" / f"rank-{rank}", cohort / f"rank-{rank}")
        (cohort / f"COMPLETE.{rank}").write_bytes((FIXTURES / "two-rank" / f"COMPLETE.{rank}").read_bytes())
    (cohort / "COMPLETE").write_bytes((FIXTURES / "two-rank" / "COMPLETE").read_bytes())
    return cohort


def test_a_cohort_copied_is_valid(tmp_path: Path) -> None:
    cohort = edit_cohort(tmp_path)
    assert validate(cohort).ranks == (0, 1)
    assert validate(cohort / "rank-1").valid


@pytest.mark.parametrize("name", ["rank-1", "COMPLETE.1", "COMPLETE", "rank-1/COMPLETE", "rank-1/payloads"])
def test_a_link_in_a_cohort_is_never_followed(tmp_path: Path, name: str) -> None:
    cohort = edit_cohort(tmp_path)
    (cohort / name).rename(tmp_path / "elsewhere")
    (cohort / name).symlink_to(tmp_path / "elsewhere")
    problems = validate(cohort).problems
    assert any(problem.file == name and "symbolic link" in problem.what for problem in problems), problems


def test_a_cohort_counts_only_with_its_final_complete(tmp_path: Path) -> None:
    cohort = edit_cohort(tmp_path)
    (cohort / "COMPLETE").unlink()
    assert "missing beside the ranks" in str(validate(cohort).problems[0])
    assert "missing or unreadable" in str(validate(cohort / "rank-0").problems[0])


COHORT = [
    # what is done to COMPLETE, what the refusal names
    (put("shards|1|relpath", "../elsewhere"), "shards.1.relpath"),
    (put("shards|1|expected_ranks", [0, 1, 2]), "shards.1.expected_ranks"),
    (put("ranks", [0]), "shards"),
    (put("ranks", [0, 0, 1]), "shards"),
    (drop("shards|1"), "shards"),
    (put("shards|1|metadata|index.json", "0" * 64), "COMPLETE.1: not the record in COMPLETE"),
    (put("shards|1|payloads|kl", "0" * 64), "COMPLETE.1: not the record in rank-1/COMPLETE.1"),
]


@pytest.mark.parametrize(("edit", "named"), COHORT, ids=[case[1] + str(at) for at, case in enumerate(COHORT)])
def test_a_cohort_is_what_its_complete_says(tmp_path: Path, edit: Any, named: str) -> None:
    cohort = edit_cohort(tmp_path)
    content = json.loads((cohort / "COMPLETE").read_text())
    edit(content)
    (cohort / "COMPLETE").write_text(json.dumps(content))
    assert any(named in str(problem) for problem in validate(cohort).problems), validate(cohort).problems


def test_a_stray_rank_is_refused(tmp_path: Path) -> None:
    cohort = edit_cohort(tmp_path)
    edit_bundle(FIXTURES / "full-k1", cohort / "rank-2")
    assert str(validate(cohort).problems[0]).startswith("rank-2: not among the ranks")


def test_a_fault_of_one_rank_is_named_with_its_folder(tmp_path: Path) -> None:
    cohort = edit_cohort(tmp_path)
    (cohort / "rank-1" / "payloads" / "kl.pt").write_bytes(b"")
    assert any(problem.file == "rank-1/payloads/kl.pt" for problem in validate(cohort).problems)
