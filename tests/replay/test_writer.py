"""Bundles travel both ways: what was read is written byte for byte, whole or not at all, and torch loads it."""

import filecmp
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rollbook.replay.bundle.layout import is_leftover
from rollbook.replay.bundle.model import Expected, PolicyLoss, StageId
from rollbook.replay.bundle.reading.cohort import read_bundle, validate
from rollbook.replay.bundle.tensorfile import Tensor
from rollbook.replay.bundle.writing import drafts
from rollbook.replay.bundle.writing.drafts import Draft, check_draft, recomputable
from rollbook.replay.bundle.writing.writer import write_bundle
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.tests.replay.reseal import FIXTURES

BUNDLES = [
    "full-k1", "full-k2", "full-k3", "full-low_var_kl", "full-nostd-kl0",
    "loss-only", "rollout", "pr65", "two-rank/rank-0", "two-rank/rank-1",
]  # fmt: skip


def draft_of(name: str) -> Draft:
    return Draft.of(read_bundle(FIXTURES / name))


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", BUNDLES)
def test_read_and_written_again_is_the_same_bundle(tmp_path: Path, name: str) -> None:
    written = write_bundle(tmp_path / "again", draft_of(name))
    names = files_below(FIXTURES / name)
    assert files_below(written) == names
    assert filecmp.cmpfiles(FIXTURES / name, written, names, shallow=False) == (names, [], [])


def test_torch_loads_every_payload(tmp_path: Path) -> None:
    draft = draft_of("full-k1")
    written = write_bundle(tmp_path / "again", draft)
    for name, tensor in draft.tensors.items():
        loaded = torch.load(written / "payloads" / f"{name}.pt", weights_only=True)
        assert np.array_equal(loaded.numpy(), tensor)


def test_json_keeps_what_is_not_ascii(tmp_path: Path) -> None:
    draft = draft_of("full-k1")
    draft = replace(draft, index=draft.index.model_copy(update={"bundle_id": "schritt-ä-步"}))
    written = write_bundle(tmp_path / "again", draft)
    text = (written / "index.json").read_text(encoding="utf-8")
    assert '\n  "bundle_id": "schritt-ä-步",\n' in text
    assert text.endswith("}\n")
    assert json.loads(text)["bundle_id"] == read_bundle(written).bundle_id


def test_an_existing_path_is_refused(tmp_path: Path) -> None:
    for make in (Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")):
        path = tmp_path / f"there-{len(list(tmp_path.iterdir()))}"
        make(path)
        with pytest.raises(BadInput, match="exists: bundles are never overwritten"):
            write_bundle(path, draft_of("full-k1"))
    assert not any(is_leftover(path.name) for path in tmp_path.iterdir())


def tensor(name: str, edit: Callable[[Tensor], Tensor]) -> Callable[[Draft], Draft]:
    return lambda draft: replace(draft, tensors={**draft.tensors, name: edit(draft.tensors[name])})


REFUSED: list[tuple[Callable[[Draft], Draft], str]] = [
    # change of the draft, what the refusal names
    (tensor("log_probs", lambda old: old * np.nan), r"log_probs.pt: \[0\]: nan is not a finite number"),
    (tensor("log_probs", lambda old: old[1:]), "payloads.log_probs.shape"),
    (tensor("kl", lambda old: old.astype("f8")), "payloads.kl.dtype"),
    (tensor("kl", lambda old: old.astype("c8")), "dtype complex64"),
    (lambda d: replace(d, tensors={**d.tensors, "../kl": d.tensors["kl"]}), "manifest.json"),
    (lambda d: replace(d, tensors={"kl": d.tensors["kl"]}), "payloads.advantages: missing"),
    (lambda d: replace(d, expected=Expected.of(raw_rewards=(1.0,))), "reward.raw.raw_rewards: 1 values for 8 samples"),
    (lambda d: replace(d, rank=3), "rank 3 is not among them"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "named"), REFUSED, ids=[case[1] for case in REFUSED])
def test_what_a_reader_would_refuse_is_never_written(
    tmp_path: Path, change: Callable[[Draft], Draft], named: str
) -> None:
    with pytest.raises(BadInput, match=named):
        write_bundle(tmp_path / "bundle", change(draft_of("full-k1")))
    assert list(tmp_path.iterdir()) == []


def test_a_record_refuses_what_json_cannot_hold() -> None:
    with pytest.raises(ValueError, match="finite"):
        PolicyLoss(loss=float("nan"), pg_loss=0, entropy_loss=0, pg_clipfrac=0, ppo_kl=0)


def test_contracts_promise_the_stages_that_are_named(tmp_path: Path) -> None:
    draft = replace(draft_of("full-k1"), contracts=recomputable(StageId.REWARD_RAW, StageId.LOSS_POLICY))
    written = read_bundle(write_bundle(tmp_path / "bundle", draft))
    assert list(written.manifest.stage_contracts) == [StageId.LOSS_POLICY, StageId.REWARD_RAW]


def test_a_failing_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentFault, match="No space left on device"):
        write_bundle(tmp_path / "bundle", draft_of("full-k1"))
    assert list(tmp_path.iterdir()) == []


def test_two_writers_on_one_path_never_mix(tmp_path: Path) -> None:
    target, drafts = tmp_path / "bundle", [draft_of("full-k1"), draft_of("full-nostd-kl0")]
    gate = threading.Barrier(2)
    outcomes: list[str] = []

    def run(draft: Draft) -> None:
        gate.wait()
        try:
            write_bundle(target, draft)
            outcomes.append("written")
        except BadInput:
            outcomes.append("refused")

    threads = [threading.Thread(target=run, args=(draft,)) for draft in drafts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused", "written"]
    assert validate(target).valid
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


KILLED = """
import os, signal, sys
from pathlib import Path
from rollbook.replay.bundle.reading.cohort import read_bundle
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.bundle.writing.writer import write_bundle
source, target, syncs = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
def die(fd, left=[syncs]):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = die
write_bundle(target, Draft.of(read_bundle(source)))
"""


@pytest.mark.parametrize("syncs", [3, 12])
def test_a_crash_leaves_what_is_never_taken_for_a_bundle(tmp_path: Path, syncs: int) -> None:
    target = tmp_path / "bundle"
    command = [sys.executable, "-c", KILLED, str(FIXTURES / "full-k1"), str(target), str(syncs)]
    assert subprocess.run(command, check=False).returncode == -9
    assert not target.exists()
    (leftover,) = tmp_path.iterdir()
    assert is_leftover(leftover.name)
    with pytest.raises(BadInput, match="left behind: delete it"):
        validate(leftover)
    assert validate(write_bundle(target, draft_of("full-k1"))).valid


def test_the_writer_needs_no_torch() -> None:
    code = (
        "import sys, rollbook.replay.commands.replay;"
        "import rollbook.replay.bundle.writing.writer, rollbook.replay.engine.engine;"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_lies_beside_the_format_is_left_alone(tmp_path: Path) -> None:
    written = write_bundle(tmp_path / "bundle", draft_of("full-k1"))
    (written / "provenance.json").write_text("{}")
    assert validate(written).valid


def test_a_draft_is_checked_without_being_written() -> None:
    draft = draft_of("full-k1")
    assert check_draft(draft) == ()
    bad = replace(draft, tensors={**draft.tensors, "kl": draft.tensors["kl"][1:], "new": np.zeros(2, np.complex64)})
    assert [str(problem) for problem in check_draft(bad)] == [
        "payloads/new.pt: dtype complex64 is not one that payloads may have; record flat float32 tensors"
    ]
    del bad.tensors["new"]  # type: ignore[attr-defined]
    assert "payloads.kl.shape: [28], but the index has 29 response tokens" in str(check_draft(bad)[0])


def test_what_a_reader_would_find_too_long_is_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "max_json_bytes", lambda _: 1000)
    problems = [str(problem) for problem in check_draft(draft_of("full-k1"))]
    assert any(problem.startswith("index.json: ") and "more than the 1,000 that" in problem for problem in problems)
