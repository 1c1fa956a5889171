"""An installed function beside ours: which of three numbers are one; what foreign code does wrong is one line."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from rollbook.replay.bundle.convention import RewardOnly
from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_bundle, read_cohort
from rollbook.replay.commands.replay import app
from rollbook.replay.engine.engine import replay_bundle, replay_cohort
from rollbook.replay.engine.installed import InstalledKernel, installed
from rollbook.replay.engine.result import Agreement, Beside, Verdict
from rollbook.replay.engine.selection import Selection
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

K1, PAIR = FIXTURES / "full-k1", FIXTURES / "two-rank"

MODULE = """
import os, sys
import numpy as np

def kl(old_log_probs, ref_log_probs):
    return old_log_probs - ref_log_probs

def other_kl(old_log_probs, ref_log_probs):
    return old_log_probs - ref_log_probs + np.float32(0.5)

def recorded_kl(old_log_probs, ref_log_probs):
    return {"kl": old_log_probs - ref_log_probs + np.float32(0.25)}

def rewards(raw_reward, group_index, grpo_std_normalization, **others):
    found = np.zeros_like(raw_reward)
    for group in np.unique(group_index):
        of = group_index == group
        found[of] = raw_reward[of] - raw_reward[of].mean()
        if grpo_std_normalization:
            found[of] /= raw_reward[of].std(ddof=1) + 1e-6
    return found

def rewards_of_samples_only(raw_reward, group_index, grpo_std_normalization):
    return rewards(raw_reward, group_index, grpo_std_normalization)[:8]

def advantages(rewards, response_length):
    found = np.repeat(rewards, response_length)
    return {"advantages": found, "returns": found}

def loss(old_log_probs, log_probs, advantages, entropy, loss_mask, response_length, eps_clip, eps_clip_high):
    ratio = np.exp(np.float64(1) * log_probs - old_log_probs)
    pg = np.maximum(-ratio * advantages, -np.clip(ratio, 1 - eps_clip, 1 + eps_clip_high) * advantages)
    ends = np.cumsum(response_length)
    rows = [slice(end - size, end) for end, size in zip(ends, response_length)]
    return {"pg_loss": sum((pg[row] * loss_mask[row]).sum() / max(loss_mask[row].sum(), 1) for row in rows)}

def noisy(old_log_probs, ref_log_probs):
    for _ in range(20_000):
        print("x" * 1000)
    os.write(1, b"past python")
    return kl(old_log_probs, ref_log_probs)

def destroys(old_log_probs, ref_log_probs):
    found = old_log_probs - ref_log_probs
    old_log_probs[:] = np.nan
    ref_log_probs[:] = np.nan
    return found

def not_a_number(old_log_probs):
    return np.full(old_log_probs.shape, np.nan)

def leaves(old_log_probs):
    raise SystemExit(0)

class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text either")

def raises(old_log_probs):
    raise Unprintable

def hostile(old_log_probs):
    raise ValueError("\\x1b[2Jpass\\nfirst divergence: none")

def short(old_log_probs):
    return old_log_probs[:-1]

def one(old_log_probs):
    return np.zeros(1)

def column(old_log_probs):
    return old_log_probs[:, None]

def words(old_log_probs):
    return np.array(["a"] * old_log_probs.size)

def complex_numbers(old_log_probs):
    return old_log_probs * 1j

def ragged(old_log_probs):
    return [[1.0], [1.0, 2.0]]

def pair(old_log_probs):
    return old_log_probs, old_log_probs

def nothing(old_log_probs):
    return None

def empty(old_log_probs):
    return {}

def misnamed(old_log_probs):
    return {"kll": old_log_probs}

def unnamed(old_log_probs):
    return {1: old_log_probs}

async def later(old_log_probs):
    return old_log_probs

def asks_more(old_log_probs, temperature):
    return old_log_probs

def array_for_many(old_log_probs, log_probs):
    return old_log_probs

constant = 7

class Losses:
    @staticmethod
    def kl(old_log_probs, ref_log_probs):
        return old_log_probs - ref_log_probs

def adapter(old_log_probs, ref_log_probs):
    return kl(old_log_probs, ref_log_probs)

adapter.adapts = np.linalg.norm
"""


@pytest.fixture(autouse=True)
def trainer(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "tiny_trainer.py").write_text(MODULE)
    (folder / "broken_trainer.py").write_text("raise OSError('no CUDA')")
    (folder / "leaving_trainer.py").write_text("import sys; sys.exit(0)")
    (folder / "lacking_trainer.py").write_text("import not_there_at_all")
    monkeypatch.syspath_prepend(str(folder))
    for name in ("tiny_trainer", "broken_trainer", "leaving_trainer", "lacking_trainer"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


@pytest.fixture
def wrong_kl(tmp_path: Path) -> Path:
    """What a trainer records that adds a quarter to each distance."""
    return edit_bundle(K1, tmp_path / "wrong", payload={"kl": lambda tensor: tensor + np.float32(0.25)})


def beside(path: Path, spec: str, **selection: Any) -> tuple[Verdict, Beside]:
    report = replay_cohort(read_cohort(path), Selection(**selection), kernels=(installed(spec),))
    (found,) = report.beside
    return report.verdict, found


def command(path: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["replay", str(path), *options])


ANSWERS = [
    # is the record wrong, the function, what agrees with what, the verdict
    (False, "kl", Agreement.ALL, Verdict.PASSED),
    (False, "other_kl", Agreement.THEIRS_DIFFERS, Verdict.PASSED),
    (False, "not_a_number", Agreement.THEIRS_DIFFERS, Verdict.PASSED),
    (True, "recorded_kl", Agreement.OURS_DIFFERS, Verdict.DIVERGES),
    (True, "kl", Agreement.RECORD_DIFFERS, Verdict.DIVERGES),
    (True, "other_kl", Agreement.NONE, Verdict.DIVERGES),
]


@pytest.mark.parametrize(("wrong", "function", "agreement", "verdict"), ANSWERS)
def test_which_of_three_numbers_are_one(
    wrong_kl: Path, wrong: bool, function: str, agreement: Agreement, verdict: Verdict
) -> None:
    found = beside(wrong_kl if wrong else K1, f"advantage.kl=tiny_trainer:{function}")
    assert (found[0], found[1].agreement) == (verdict, agreement)


AGREES = [
    # a function of which stage; the field that it is held against
    ("tiny_trainer:kl", "advantage.kl", ["kl"]),
    ("tiny_trainer:Losses.kl", "advantage.kl", ["kl"]),
    ("tiny_trainer:rewards", "reward.post_process", ["rewards", "reward"]),
    ("tiny_trainer:advantages", "advantage.estimate", ["advantages"]),
    ("tiny_trainer:loss", "loss.policy", ["pg_loss"]),
]


@pytest.mark.parametrize(("spec", "stage", "fields"), AGREES)
@pytest.mark.parametrize("bundle", ["full-k1", "two-rank"])
def test_a_function_of_each_stage_is_found_by_its_arguments(
    bundle: str, spec: str, stage: str, fields: list[str]
) -> None:
    _, found = beside(FIXTURES / bundle, spec)
    assert (found.stage, found.agreement) == (stage, Agreement.ALL)
    for rank in found.ranks:
        assert [one.theirs.field for one in rank.fields] == fields


def test_each_rank_is_told() -> None:
    wrong = read_cohort(PAIR)
    second = wrong.bundles[1]
    tensors = {**second.tensors, "kl": second.tensors["kl"] + np.float32(0.25)}
    cohort = replace(wrong, bundles=(wrong.bundles[0], replace(second, tensors=tensors)))
    (found,) = replay_cohort(cohort, kernels=(installed("tiny_trainer:kl"),)).beside
    assert [(rank.rank, rank.agreement) for rank in found.ranks] == [(0, Agreement.ALL), (1, Agreement.RECORD_DIFFERS)]
    assert found.agreement is Agreement.RECORD_DIFFERS


def test_a_part_gets_the_inputs_of_a_part() -> None:
    _, found = beside(PAIR, "tiny_trainer:kl", groups=("g-0",))
    assert found.agreement is Agreement.ALL
    whole = sum(one.theirs.values for rank in beside(PAIR, "tiny_trainer:kl")[1].ranks for one in rank.fields)
    assert 0 < sum(one.theirs.values for rank in found.ranks for one in rank.fields) <= whole


def test_what_a_part_cannot_show_is_not_compared_and_says_so() -> None:
    verdict, found = beside(K1, "tiny_trainer:loss", samples=("s-0",))
    assert (verdict, found.agreement) == (Verdict.PASSED, Agreement.NOT_COMPARED)
    assert "only a part was selected" in found.ranks[0].reason


def test_a_stage_without_a_contract_is_not_compared() -> None:
    _, found = beside(FIXTURES / "loss-only", "tiny_trainer:kl")
    assert (found.agreement, found.ranks[0].reason) == (Agreement.NOT_COMPARED, "the stage's outcome is: no contract")


def test_a_stage_that_ours_does_not_compute_may_be_theirs(tmp_path: Path) -> None:
    def foreign(index: Json) -> None:
        index["config"]["kl_loss_type"] = "k7"

    bundle = edit_bundle(K1, tmp_path / "k7", index=foreign)
    for function, agreement in (("kl", Agreement.REPRODUCED), ("other_kl", Agreement.NOT_REPRODUCED)):
        verdict, found = beside(bundle, f"tiny_trainer:{function}")
        assert (verdict, found.agreement) == (Verdict.UNVERIFIED, agreement)


@pytest.mark.parametrize("function", ["rewards", "rewards_of_samples_only"])
def test_members_that_were_not_consumed_are_among_the_inputs(function: str) -> None:
    bundle = read_bundle(K1)
    others = tuple(RewardOnly(sample_id=f"other-{group}", group_index=group, raw_reward=0.5) for group in (0, 1))
    config = bundle.index.config.model_copy(update={"n_samples_per_prompt": 5})
    index = bundle.index.model_copy(update={"cohort": others, "config": config})
    (found,) = replay_bundle_with(replace(bundle, index=index), installed(f"tiny_trainer:{function}"))
    # The record was computed without them: ours and theirs agree on another number.
    assert found.agreement is Agreement.RECORD_DIFFERS


def replay_bundle_with(bundle: Any, *kernels: InstalledKernel) -> tuple[Beside, ...]:
    return replay_bundle(bundle, kernels=kernels).beside


def test_what_it_does_to_its_inputs_reaches_nothing() -> None:
    plain = replay_cohort(read_cohort(K1))
    watched = replay_cohort(read_cohort(K1), kernels=(installed("tiny_trainer:destroys"), installed("tiny_trainer:kl")))
    assert watched.ranks == plain.ranks
    assert [found.agreement for found in watched.beside] == [Agreement.ALL, Agreement.ALL]


def test_what_it_prints_is_dropped(trainer: Path) -> None:
    code = (
        "import sys; from rollbook.replay.commands.replay import app; "
        "app(['replay', sys.argv[1], '--json', '--kernel', 'tiny_trainer:noisy'])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(K1)], capture_output=True, check=True, env={"PYTHONPATH": str(trainer)}
    )
    assert json.loads(run.stdout)["kernels"][0]["agreement"] == "all agree"


FAILS = [
    # the function, what the one line says after its name
    ("leaves", "failed: SystemExit at tiny_trainer.py:"),
    ("raises", "failed: Unprintable at tiny_trainer.py:"),
    ("hostile", ": \\x1b[2Jpass\\nfirst divergence: none"),
    ("short", "returned kl of shape (28,), not (29,)"),
    ("one", "returned kl of shape (1,), not (29,)"),
    ("column", "returned kl of shape (29, 1), not (29,)"),
    ("words", "returned an array of <U1 for its answer"),
    ("complex_numbers", "returned an array of complex"),
    ("ragged", "failed: ValueError"),
    ("pair", "returned a tuple for its answer"),
    ("nothing", "returned nothing for its answer"),
    ("empty", "returned an empty dict: advantage.kl has the outputs kl"),
    ("misnamed", "returned 'kll': advantage.kl has the outputs kl"),
    ("unnamed", "whose keys are no names"),
    ("later", "returned an array of object"),
    ("asks_more", "asks for temperature, which the stage does not have in this bundle: it has old_log_probs"),
    ("constant", "is no function but a int"),
    ("gone", "tiny_trainer has no 'gone'"),
]


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize(("function", "message"), FAILS)
def test_what_fails_is_one_line_with_its_name(function: str, message: str) -> None:
    result = command(K1, "--kernel", f"advantage.kl=tiny_trainer:{function}")
    assert isinstance(result.exception, BadInput)
    told = str(result.exception)
    assert told.startswith(f"kernel tiny_trainer:{function}")
    assert message in told
    assert told.isprintable()


REFUSED = [
    # the option's value, what the one line says
    ("no_such_trainer:kl", "no module 'no_such_trainer' is installed"),
    ("tiny_trainer.core:kl", "no module"),
    ("broken_trainer:kl", "cannot be imported: OSError at broken_trainer.py:1: no CUDA"),
    ("leaving_trainer:kl", "cannot be imported: SystemExit"),
    ("lacking_trainer:kl", "cannot be imported: ModuleNotFoundError"),
    ("kl", "is no function: give [STAGE=]PACKAGE:FUNCTION"),
    ("../tiny_trainer:kl", "is no function: give"),
    ("tiny_trainer:", "is no function: give"),
    ("advantage.k=tiny_trainer:kl", "no stage 'advantage.k'"),
    ("tiny_trainer:leaves", "may be one of advantage.kl, loss.policy: name the stage, STAGE="),
    ("tiny_trainer:asks_more", "asks for what no stage has"),
    ("tiny_trainer:array_for_many", "returned one array, but loss.policy has several outputs"),
]


@pytest.mark.parametrize(("spec", "message"), REFUSED)
def test_what_is_no_function_of_a_stage_is_bad_use(spec: str, message: str) -> None:
    result = command(K1, "--kernel", spec)
    assert isinstance(result.exception, BadInput)
    assert message in str(result.exception)
    assert result.stdout == ""


def test_a_chosen_stage_is_that_of_the_function() -> None:
    _, found = beside(K1, "tiny_trainer:not_a_number", stages=(StageId.ADVANTAGE_KL,))
    assert found.stage is StageId.ADVANTAGE_KL
    with pytest.raises(BadInput, match="which --stage leaves out"):
        beside(K1, "loss.policy=tiny_trainer:loss", stages=(StageId.ADVANTAGE_KL,))


def test_a_disagreement_of_theirs_does_not_change_the_exit_code(wrong_kl: Path) -> None:
    assert command(K1, "--kernel", "tiny_trainer:other_kl").exit_code == 0
    assert command(wrong_kl, "--kernel", "advantage.kl=tiny_trainer:recorded_kl").exit_code == 1


def test_text_json_and_page_show_what_is_recorded_and_what_is_installed(trainer: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256((trainer / "tiny_trainer.py").read_bytes()).hexdigest()
    html = tmp_path / "answer.html"
    text = command(K1, "--kernel", "tiny_trainer:adapter", "--html", str(html)).stdout
    page = html.read_text(encoding="utf-8")
    for shown in (text, page):
        assert "installed tiny_trainer:adapter beside advantage.kl: all agree" in shown
        assert f"tiny_trainer.py sha256 {digest}" in shown
        assert f"numpy {np.__version__}" in shown
        assert "commit 0000000000000000000000000000000000000000, torch 2.13.0+cpu" in shown
    (found,) = json.loads(command(K1, "--kernel", "tiny_trainer:adapter", "--json").stdout)["kernels"]
    assert (found["installed"]["sha256"], found["adapts"]["package"]) == (digest, "numpy")
    assert found["recorded"]["implementation"] == "reuse"
    assert found["ranks"][0]["fields"][0]["ours_agrees"] is True
    assert json.loads(command(K1, "--json").stdout)["kernels"] == []


def test_a_chain_runs_it_on_each_bundle(tmp_path: Path) -> None:
    edit_bundle(K1, tmp_path / "one")
    answer = json.loads(command(tmp_path, "--chain", "--json", "--kernel", "tiny_trainer:kl").stdout)
    assert [one["kernels"][0]["agreement"] for one in answer["bundles"]] == ["all agree"]


def test_without_the_option_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr("rollbook.replay.engine.installed.importlib.import_module", imported.append)
    assert command(K1).exit_code == 0
    assert imported == []


VERL = """
import torch

def compute_grpo_outcome_advantage(
    token_level_rewards, response_mask, index, epsilon=1e-6, norm_adv_by_std_in_grpo=True
):
    scores = token_level_rewards.sum(dim=-1)
    for group in set(index.tolist()):
        of = torch.as_tensor(index == group)
        centred = scores[of] - scores[of].mean()
        scores[of] = centred / (scores[of].std() + epsilon) if norm_adv_by_std_in_grpo else centred
    found = scores.unsqueeze(-1) * response_mask
    return found, found
"""


def test_the_adapter_of_the_page_adapts_verls_signature(
    trainer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "replay.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    core = trainer / "verl" / "trainer" / "ppo"
    core.mkdir(parents=True)
    (core / "core_algos.py").write_text(VERL)
    (trainer / "docs_adapter.py").write_text(code)
    for name in [name for name in sys.modules if name == "verl" or name.startswith("verl.") or name == "docs_adapter"]:
        monkeypatch.delitem(sys.modules, name)
    for bundle in (K1, FIXTURES / "full-nostd-kl0", PAIR):
        _, found = beside(bundle, "docs_adapter:rewards")
        assert (found.stage, found.agreement) == (StageId.REWARD_POST_PROCESS, Agreement.ALL)
        assert found.adapts is not None
        assert found.adapts.file == "core_algos.py"
