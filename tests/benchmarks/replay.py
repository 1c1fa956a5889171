"""What validate and replay cost, as multiples of reading, hashing and loading the same payloads in the same run:

    python -m rollbook.tests.benchmarks.replay --samples 64 4096 --rounds 5 --json figures.json

Bundles of GRPO steps with every stage, samples of 1,024 tokens in groups of 8, are written to a temporary folder. Each
measurement is a process of its own, so that its peak memory is its own; the times are without interpreter and imports,
and of each the quickest round is taken. Memory is the peak above what the process needs before it reads anything, as a
multiple of the payloads' bytes. Compare figures of one run with each other only.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from rollbook.replay.bundle.model import (
    ActorStepId,
    Config,
    Expected,
    Identity,
    Index,
    PolicyLoss,
    Producer,
    Sample,
    StageId,
    WeightLineage,
    World,
)
from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.bundle.tensorfile import parse_tensor
from rollbook.replay.bundle.writing.drafts import Draft, recomputable
from rollbook.replay.bundle.writing.writer import write_bundle
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Verdict
from rollbook.replay.kernels.advantages import grpo_advantages
from rollbook.replay.kernels.kl import token_kl
from rollbook.replay.kernels.policy_loss import policy_loss
from rollbook.replay.kernels.rewards import group_rewards

LENGTH = 1_024
GROUP_SIZE = 8
AIMS = {"validate": 3.0, "replay": 5.0}
MEMORY_AIM = 3.0
_STATUS = Path("/proc/self/status")
_CONFIG = Config(
    advantage_estimator="grpo",
    n_samples_per_prompt=GROUP_SIZE,
    grpo_std_normalization=True,
    kl_loss_type="low_var_kl",
    kl_coef=0.1,
    eps_clip=0.2,
    eps_clip_high=0.28,
    entropy_coef=0.01,
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One process. Memory in bytes: at its peak, and before it read anything (0 where the system does not say)."""

    seconds: float
    peak: int
    before: int


@dataclass(frozen=True, slots=True)
class Figures:
    """One task on one bundle: quickest time, peak memory, and both as multiples."""

    tokens: int
    task: str
    payload_bytes: int
    seconds: float
    times_baseline: float
    peak_bytes: int
    times_payload: float


def write_step(path: Path, samples: int, length: int = LENGTH) -> Path:
    """A step whose every stage can be recomputed."""
    random = np.random.default_rng(samples)
    tokens = samples * length
    old = random.uniform(-3, -0.01, tokens).astype(np.float32)
    new, ref = ((old + random.normal(0, scale, tokens)).astype(np.float32) for scale in (0.1, 0.2))
    entropy = random.uniform(0.1, 1.5, tokens).astype(np.float32)
    mask = random.random(tokens) < 0.9
    raw = random.choice([0.0, 0.25, 1.0], samples).astype(np.float32)
    groups, lengths = np.arange(samples) // GROUP_SIZE, np.full(samples, length)
    rewards = group_rewards(raw, groups, GROUP_SIZE, divide_by_std=True)
    advantages = grpo_advantages(rewards, lengths)
    found = policy_loss(
        old, new, advantages, entropy, mask, lengths, eps_clip=0.2, eps_clip_high=0.28, entropy_coef=0.01
    )
    names = ("loss", "pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl")
    index = Index(
        bundle_id=path.name,
        identity=Identity(
            actor_step_id=ActorStepId(rollout_id=1, step_id=0),
            rollout_id=None,
            rollout_partition_ids=(),
            consumer_batch_ids=("c",),
            micro_batch_ids=("mb-0000",),
            semantic_group_ids=tuple(f"g-{group}" for group in range(samples // GROUP_SIZE)),
            normalization_cohort_ids=("n",),
            weight_lineage=WeightLineage(rollout_weight="w-0", actor_weight="w-1"),
            rank=World(),
        ),
        samples=tuple(
            Sample(
                sample_id=f"s-{at}",
                group_index=at // GROUP_SIZE,
                response_length=length,
                total_length=2 * length,
                loss_mask=mask[at * length : (at + 1) * length].tobytes(),
                raw_reward=float(raw[at]),
                reward=float(rewards[at]),
                micro_batch_id="mb-0000",
            )
            for at in range(samples)
        ),
        config=_CONFIG,
    )
    draft = Draft(
        producer=Producer(commit="benchmark", dirty_patch_digest="", torch_version=""),
        index=index,
        expected=Expected.of(
            raw_rewards=tuple(map(float, raw)),
            rewards=tuple(map(float, rewards)),
            loss=PolicyLoss(**{name: float(getattr(found, name)) for name in names}),
        ),
        tensors={
            "old_log_probs": old,
            "log_probs": new,
            "ref_log_probs": ref,
            "entropy": entropy,
            "kl": token_kl(old, ref, "low_var_kl"),
            "advantages": advantages,
        },
        contracts=recomputable(*(stage for stage in StageId if stage is not StageId.LOSS_VALUE)),
    )
    return write_bundle(path, draft)


def load_payloads(path: Path) -> None:
    """The baseline: every payload read, hashed and parsed, and all kept, as a replay keeps them."""
    kept = []
    for file in sorted((path / "payloads").iterdir()):
        data = file.read_bytes()
        hashlib.sha256(data).hexdigest()
        kept.append(parse_tensor(data))


def validated(path: Path) -> None:
    if not validate(path).valid:
        raise SystemExit(f"{path} is not valid")


def replayed(path: Path) -> None:
    if replay_cohort(read_cohort(path)).verdict is not Verdict.PASSED:
        raise SystemExit(f"{path} did not pass")


TASKS: dict[str, Callable[[Path], None]] = {"load": load_payloads, "validate": validated, "replay": replayed}


def run_here(task: str, path: Path, warm_up: Path) -> Measured:
    """Do it in this process, after a bundle of a few tokens: what is imported on the way is no part of it."""
    TASKS[task](warm_up)
    before = _peak()
    began = perf_counter()
    TASKS[task](path)
    return Measured(perf_counter() - began, _peak(), before)


def run_apart(task: str, path: Path, warm_up: Path) -> Measured:
    """Do it in a process of its own."""
    line = [sys.executable, "-m", "rollbook.tests.benchmarks.replay", "--task", task, str(path), str(warm_up)]
    return Measured(**json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout))


def measure(folder: Path, samples: int, rounds: int, length: int = LENGTH) -> list[Figures]:
    """All tasks on one bundle, round by round in turn, so that what else the machine does meets all of them."""
    path = write_step(folder / f"step-{samples}", samples, length)
    warm_up = write_step(folder / f"warm-up-{samples}", GROUP_SIZE, 4)
    found: dict[str, list[Measured]] = {task: [] for task in TASKS}
    for _ in range(rounds):
        for task in TASKS:
            found[task].append(run_apart(task, path, warm_up))
    payload_bytes = sum(file.stat().st_size for file in (path / "payloads").iterdir())
    baseline = min(one.seconds for one in found["load"])
    figures = []
    for task, measured in found.items():
        seconds = min(one.seconds for one in measured)
        peak = min(one.peak - one.before for one in measured)
        figures.append(
            Figures(
                tokens=samples * length,
                task=task,
                payload_bytes=payload_bytes,
                seconds=seconds,
                times_baseline=seconds / baseline,
                peak_bytes=peak,
                times_payload=peak / payload_bytes,
            )
        )
    return figures


def report(figures: Sequence[Figures]) -> list[str]:
    """The table; what is over an aim has a mark."""
    lines = [f"{'tokens':>10} {'task':<9}{'seconds':>9}{'times load':>12}{'aim':>5}{'peak MB':>9}{'times payload':>15}"]
    for one in figures:
        aim = AIMS.get(one.task)
        over = aim is not None and (one.times_baseline > aim or one.times_payload > MEMORY_AIM)
        lines.append(
            f"{one.tokens:>10,} {one.task:<9}{one.seconds:>9.3f}{one.times_baseline:>12.1f}"
            f"{'' if aim is None else f'{aim:g}':>5}{one.peak_bytes / 1e6:>9.0f}{one.times_payload:>15.1f}"
            f"{' over' if over else ''}"
        )
    return lines


def main() -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description="cost of validate and replay beside loading the payloads")
    parser.add_argument("--samples", type=int, nargs="+", default=[64, 4_096], help=f"of {LENGTH:,} tokens each")
    parser.add_argument("--rounds", type=int, default=5, help="the quickest is taken")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    parser.add_argument("--task", nargs=3, metavar=("TASK", "BUNDLE", "WARM_UP"), help="measure here, as JSON")
    asked = parser.parse_args()
    if asked.task:
        task, *paths = asked.task
        print(json.dumps(asdict(run_here(task, *map(Path, paths)))))
        return
    figures: list[Figures] = []
    with TemporaryDirectory() as folder:
        for samples in asked.samples:
            figures += measure(Path(folder), samples, asked.rounds)
    print("\n".join(report(figures)))
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(one) for one in figures], indent=2) + "\n", encoding="utf-8")


def _peak() -> int:
    """Of this process since it began, not of the one that started it, which getrusage would count as well."""
    if not _STATUS.exists():
        return 0
    line = next(line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1_024


if __name__ == "__main__":
    main()
