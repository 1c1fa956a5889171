"""Anything in any field that format 1.1.0 adds, in one rank of a context-parallel group or in all of them: an answer,
or a refusal in one line with file and remedy.

    python -m rollbook.tests.replay.test_fuzz_grown

tries each field with each of the fuzzer's values (minutes); a share of it runs with the tests.
"""

import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from rollbook.tests.replay import fuzz, independent_shards
from rollbook.tests.replay.independent_shards import Json, layout_of

TOTALS = [11, 15]
NAMED: Json = {"framework": "slime", "version": "0.3.1", "name": "ppo"}
CONVENTIONS: Json = {
    "advantages": {**NAMED, "name": "grpo"},
    "loss": NAMED,
    "gamma": 1.0,
    "lam": 1.0,
    "eps_clip_c": 3.0,
    "tau_pos": 1.0,
    "tau_neg": 1.05,
    "whole_batch": {"tokens": 4, "sequences": 2, "length": 8, "ranks": 1},
    "corrections": [{"reach": "token", "least": 0.5, "most": 2.0, "outside": "truncate", "limit": 20}],
    "kl_term": {"coef": 0.04, "estimator": "k3", "by_ratio": True},
    "delta": 2.0,
    "entropy_mean": "micro_batch",
    "top_entropy_quantile": 0.4,
    "off_policy_mask": {"threshold": 0.1, "behavior": "old"},
    "vespo": {"k_pos": 2.0, "lambda_pos": 3.0, "k_neg": 3.0, "lambda_neg": 2.0},
    "micro_batch_tokens": [4],
}


def grown(content: Json) -> None:
    """One more of everything that the format may have."""
    index = content["index"]
    index["cohort"] = [{"sample_id": "c-0", "group_index": 0, "raw_reward": 0.5}]
    index["unmeasured"] = [{"sample_id": index["samples"][0]["sample_id"], "like": "c-0"}]
    index["config"] |= {"n_samples_per_prompt": 3, "conventions": deepcopy(CONVENTIONS)}
    index["links"] = {"update_id": "u", "update_bundle": "update-7"}
    content["manifest"]["stage_contracts"]["loss.policy"]["capability"] = "recorded-only"


def template() -> Json:
    found: Json = {}

    def keep(_: int, content: Json) -> None:
        grown(content)
        found.update(content["index"])

    with tempfile.TemporaryDirectory() as folder:
        independent_shards.write(Path(folder) / "b", layout_of(2, "zigzag", TOTALS), TOTALS, keep)
    return found


ADDED = ("cohort", "links", "context_parallel", "unmeasured")
FIELDS = [path for path in fuzz.fields_of(template()) if path[0] in ADDED or path[:2] == ("config", "conventions")]


def check(path: tuple[Any, ...], value: Any, *, everywhere: bool) -> bool:
    """A bundle with that value there; whether it is still valid."""

    def edit(rank: int, content: Json) -> None:
        grown(content)
        if rank == 1 or everywhere:
            fuzz.changed(content["index"], path, value if value is fuzz.GONE else deepcopy(value))

    with tempfile.TemporaryDirectory() as folder:
        try:
            bundle = independent_shards.write(Path(folder) / "b", layout_of(2, "zigzag", TOTALS), TOTALS, edit)
        except UnicodeEncodeError:
            return False  # no file can hold it
        return fuzz.check_bundle(bundle)


def test_it_is_valid_as_it_is() -> None:
    assert check(("links", "update_id"), "u", everywhere=True)
    assert len(FIELDS) > 35


@pytest.mark.parametrize("everywhere", [True, False], ids=["all ranks", "one rank"])
def test_every_field_is_refused_or_accepted_whatever_it_holds(everywhere: bool) -> None:
    places = [(path, fuzz.VALUES[(7 * at) % len(fuzz.VALUES)]) for at, path in enumerate(FIELDS)]
    found = [check(path, value, everywhere=everywhere) for path, value in places]
    assert sum(found) < len(found) / 2


if __name__ == "__main__":
    for at_all in (True, False):
        tried = [check(path, value, everywhere=at_all) for path in FIELDS for value in fuzz.VALUES]
        print(f"{'all ranks' if at_all else 'one rank'}: {len(tried):,} tried, {sum(tried):,} accepted")
