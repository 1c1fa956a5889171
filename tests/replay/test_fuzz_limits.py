"""Files made to exhaust memory or time: refused by what they are, at a small multiple of their own length."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.replay.bundle.model import Expected, Index
from rollbook.replay.bundle.problems import Refused
from rollbook.replay.bundle.reading.cohort import validate
from rollbook.replay.bundle.strictjson import parse
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

MIB = 2**20
K1 = FIXTURES / "full-k1"

# Each 16 MiB. What they are made of, and what a refusal says, or None where it is no fault.
VAST: dict[str, tuple[str, str | None]] = {
    "wrong numbers": ("RAW + 'true,' * (n // 5) + END", "raw_rewards.0: it must be a float"),
    "texts": ("RAW + '\"a\",' * (n // 4) + END", "more texts than"),
    "long texts": ("RAW + '\"abcdefgh\",' * (n // 11) + END", "raw_rewards.0: it must be a float"),
    "lists": ("RAW + '[],' * (n // 3) + END", "more lists and objects"),
    "nested lists": ("'[' * n", "more lists and objects"),
    "keys": ("'{' + ','.join(f'\"key {i}\":1' for i in range(n // 16)) + '}'", "keys in one object"),
    "objects of keys": (
        "'[' + ','.join(['{' + ','.join(f'\"k{i:08}\":1' for i in range(4000)) + '}'] * (n // 56000)) + ']'",
        "it must be an object",
    ),
    "one long text": ("'{\"' + 'a' * n + '\":1}'", "unknown key"),
    "one long number": ("'{\"reward.raw\":{\"raw_rewards\":[0.' + '1' * n + ']}}'", None),
    "good numbers": ("RAW + '0.5,' * (n // 4) + END", None),
}  # fmt: skip

MEASURE = """
import resource, sys
from rollbook.replay.bundle.model import Expected
from rollbook.replay.bundle.problems import Refused
from rollbook.replay.bundle.strictjson import parse
n = 16 * 2**20
RAW, END = '{{"reward.raw":{{"raw_rewards":[', '1]}}}}'
data = ({made}).encode()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
try:
    parse("expected.json", data, Expected)
    print("accepted")
except Refused as refused:
    print(*refused.problems, sep="\\n")
    assert len(str(refused.problems[0])) < 1000
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
assert grown < 20 * 16, f"{{grown:.0f}} MiB for a file of 16"
"""


@pytest.mark.parametrize(("made", "told"), list(VAST.values()), ids=list(VAST))
def test_a_file_takes_a_small_multiple_of_its_length(made: str, told: str | None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(made=made)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (told or "accepted") in done.stdout


LIMITS = {"manifest.json": MIB, "index.json": 256 * MIB, "expected.json": 64 * MIB, "COMPLETE": 4 * MIB,
          "COMPLETE.0": 4 * MIB, "rollbook-terms.json": 64 * MIB}  # fmt: skip


@pytest.mark.parametrize(("name", "limit"), LIMITS.items())
def test_a_file_longer_than_it_can_need_is_not_read(tmp_path: Path, name: str, limit: int) -> None:
    bundle = edit_bundle(K1, tmp_path / "bundle")
    with (bundle / name).open("ab") as file:
        file.truncate(limit + 1)  # sparse
    assert str(validate(bundle).problems[0]).startswith(f"{name}: {limit + 1:,} bytes, more than the {limit:,} that")


def test_payloads_that_no_stage_knows_share_one_bound(tmp_path: Path) -> None:
    tokens = sum(len(sample["loss_mask"]) for sample in json.loads((K1 / "index.json").read_text())["samples"])
    rows = tokens + 8
    extra = {f"extra{number}": lambda _: np.zeros(rows * 10, np.float64) for number in range(8)}
    # 64 KiB beyond the values are left for what a file has around them; eight of them are more than that.
    extra |= {f"more{number}": lambda _: np.zeros(8000, np.float64) for number in range(2)}
    bundle = edit_bundle(K1, tmp_path / "bundle", payload=extra)
    assert any("that it can need" in str(problem) for problem in validate(bundle).problems)
    assert validate(edit_bundle(K1, tmp_path / "one", payload={"extra": lambda _: np.zeros(rows, np.float32)})).valid


def test_more_payloads_than_a_bundle_can_have_are_refused(tmp_path: Path) -> None:
    def many(manifest: Json) -> None:
        entry = manifest["payloads"]["kl"]
        manifest["payloads"] |= {f"kl{number}": {**entry, "name": f"kl{number}"} for number in range(100)}

    bundle = edit_bundle(K1, tmp_path / "bundle", manifest=many)
    assert "payloads: it must have at most 64 items" in str(validate(bundle).problems[0])


def test_a_bundle_of_faults_tells_a_thousand(tmp_path: Path) -> None:
    def wrong(index: Json) -> None:
        sample = {**index["samples"][0], "response_length": 1, "total_length": 0}
        index["samples"] = [{**sample, "sample_id": f"s-{number}"} for number in range(3000)]
        index["identity"]["micro_batch_ids"] = ["mb-0000"]

    problems = validate(edit_bundle(K1, tmp_path / "bundle", index=wrong)).problems
    assert 1000 <= len(problems) < 1100


def test_a_real_index_is_within_the_bounds_however_it_is_written() -> None:
    """As compactly as JSON can be, with the shortest names that there are."""
    content: dict[str, Any] = json.loads((K1 / "index.json").read_text())
    names = [f"{number:x}" for number in range(20_000)]
    content["samples"] = [
        {
            **content["samples"][0],
            "sample_id": name,
            "loss_mask": [1],
            "response_length": 1,
            "raw_reward": 1,
            "reward": 0,
        }
        for name in names
    ]
    content["identity"] |= {"semantic_group_ids": names, "normalization_cohort_ids": names}
    parse("index.json", json.dumps(content, separators=(",", ":")).encode(), Index)


def test_a_list_tells_its_first_fault() -> None:
    with pytest.raises(Refused) as refused:
        parse("expected.json", b'{"reward.raw": {"raw_rewards": [1, true, "x", null]}}', Expected)
    assert len(refused.value.problems) == 1
