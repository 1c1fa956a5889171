"""Old trajectories re-evaluated after one real update of TRL's GRPOTrainer, on a real broker:

    python -m rollbook.tests.producers.trl.drift

All are one policy old. Which of them may still be trained on, only their drift says.
"""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings
from rollbook.processors import assess_policy_compatibility
from rollbook.producers import new_id
from rollbook.schemas.digests import FloatArray
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Decision, ItemDecision
from rollbook.tests.producers.trl.drift_world import LENGTH, LIMIT, MAX_LAG, DriftWorld, Sampled
from rollbook.tests.producers.trl.tiny import LETTERS, datasets, model, tokenizer, torch, trl, vowels
from rollbook.tests.producers.world import processor
from rollbook.tests.session_broker import own_topics

_GROUP = 8
_LEARNING_RATE = 2e-2


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the ledger and the published rule function say of one old trajectory."""

    sampled: Sampled
    lag: int | None
    freshness: str | None
    reserved: str
    admitted: str
    drift: float | None
    state: str | None
    rule: str
    rule_drift: float | None


class _Learner(trl.GRPOTrainer):  # type: ignore[misc]  # where TRL is not installed it is Any
    """TRL's trainer; it shows its one generation buffer before it trains on it, and its optimizer steps."""

    def __init__(self, world: "DriftWorld", folder: Path) -> None:
        self.world = world
        super().__init__(
            model=model(),
            processing_class=tokenizer(),
            reward_funcs=[vowels],
            train_dataset=datasets.Dataset.from_dict({"prompt": _prompts("abcd")}),
            args=trl.GRPOConfig(
                output_dir=str(folder),
                per_device_train_batch_size=_GROUP,
                gradient_accumulation_steps=1,
                steps_per_generation=1,
                num_generations=_GROUP,
                num_iterations=2,
                max_steps=2,
                max_completion_length=LENGTH,
                learning_rate=_LEARNING_RATE,
                lr_scheduler_type="constant",
                beta=0.0,
                use_cpu=True,
                bf16=False,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
                seed=3,
            ),
        )
        self.add_callback(_BeforeEachStep(self))

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        ids = _rows(output["prompt_ids"], output["prompt_mask"])
        responses = _rows(output["completion_ids"], output["completion_mask"])
        behavior = output["old_per_token_logps"].detach().numpy()
        self.world.begin([self._sampled(*row) for row in zip(ids, responses, behavior, strict=True)])
        return output

    def sample(self, prompts: Sequence[str]) -> list[Sampled]:
        """Completions of the weights as they are."""
        ids = self.processing_class(list(prompts), return_tensors="pt")["input_ids"]
        with torch.no_grad():
            whole = self.model.eval().generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                max_new_tokens=LENGTH,
                pad_token_id=self.processing_class.pad_token_id,
                eos_token_id=self.processing_class.eos_token_id,
            )
        rows = whole[:, ids.shape[1] :].tolist()
        end = self.processing_class.eos_token_id
        responses = [row[: row.index(end) + 1] if end in row else row for row in rows]
        pairs = list(zip(ids.tolist(), responses, strict=True))
        return [self._sampled(prompt, response, self._log_probs(prompt, response)) for prompt, response in pairs]

    def log_probs(self, sampled: Sampled) -> FloatArray:
        """Log-probs [T] of a completion under the weights as they are, by TRL's own forward pass."""
        return self._log_probs(sampled.prompt_ids, sampled.response_ids)

    def _log_probs(self, prompt: list[int], response: list[int]) -> FloatArray:
        ids = torch.tensor([prompt + response])
        with torch.no_grad():
            found = self._get_per_token_logps_and_entropies(
                self.model.eval(), ids, torch.ones_like(ids), len(response)
            )[0]
        values: FloatArray = found[0].numpy()
        return values

    def _sampled(self, prompt: list[int], response: list[int], behavior: FloatArray) -> Sampled:
        texts = self.processing_class.batch_decode([prompt, response], skip_special_tokens=True)
        prompt_text, text = ("".join(one.split(" ")) for one in texts)
        return Sampled(new_id(), prompt_text, text, prompt, response, behavior[: len(response)])

    def policy(self, version: int) -> PolicyRef:
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode() + tensor.detach().numpy().tobytes())
        return PolicyRef(version=version, artifact_hash=digest.hexdigest())


class _BeforeEachStep:
    def __init__(self, learner: _Learner) -> None:
        self._learner = learner

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._learner.world.step()

    def __getattr__(self, event: str) -> Any:
        if not event.startswith("on_"):
            raise AttributeError(event)
        return lambda *_, **__: None


def reevaluate(settings: Settings) -> tuple[Verdict, ...]:
    """Sample, train once on something else, and ask who of the old ones may still be trained on."""
    torch.set_num_threads(1)
    world = DriftWorld(settings)
    try:
        with TemporaryDirectory() as folder:
            return _reevaluate(world, _Learner(world, Path(folder)))
    finally:
        world.close()


def _reevaluate(world: DriftWorld, learner: _Learner) -> tuple[Verdict, ...]:
    world.open(learner.policy(0))
    torch.manual_seed(5)
    old = [one for prompt in _prompts("efg")[::3] for one in _published(world, learner.sample([prompt] * _GROUP))]
    with redirect_stdout(sys.stderr):  # TRL prints its summary
        learner.train()
    world.commit(learner.policy(1))
    current = {one.trajectory_id: learner.log_probs(one) for one in old}
    update = world.trainer.update(rollout_id=1)
    reserved = _items(world.reserve(update, old))
    admitted = _items(update.admit(current, world.policy))
    update.abort("shown")
    return tuple(
        _verdict(one, reserved[one.trajectory_id], admitted[one.trajectory_id], current[one.trajectory_id])
        for one in old
    )


def _published(world: DriftWorld, group: list[Sampled]) -> list[Sampled]:
    world.publish(group)
    return group


def _verdict(old: Sampled, reserved: ItemDecision, admitted: ItemDecision, current: FloatArray) -> Verdict:
    rule = assess_policy_compatibility(
        old.behavior.tolist(),
        current.tolist(),
        [True] * len(old.response_ids),
        behavior_version=0,
        current_version=1,
        max_lag=MAX_LAG,
        max_mean_abs_log_ratio=LIMIT,
    )
    return Verdict(
        sampled=old,
        lag=reserved.lag,
        freshness=reserved.freshness,
        reserved=reserved.reason,
        admitted=admitted.reason,
        drift=admitted.mean_abs_log_ratio,
        state=admitted.state_after,
        rule=rule["reason"],
        rule_drift=rule["mean_abs_log_ratio"],
    )


def table(verdicts: Sequence[Verdict]) -> str:
    """In Markdown, the least drifted first."""
    lines = [
        "| prompt | completion | tokens | lag | drift | the ledger | becomes | the rule function |",
        "|---" * 8 + "|",
    ]
    for one in sorted(verdicts, key=lambda verdict: verdict.drift or 0.0):
        row = one.sampled
        figures = [f"`{row.prompt}`", f"`{row.text}`", len(row.response_ids), one.lag, f"{one.drift:.5f}"]
        lines.append(
            f"| {' | '.join(map(str, [*figures, one.admitted, one.state, f'{one.rule}, {one.rule_drift:.5f}']))} |"
        )
    return "\n".join(lines)


def _items(decision: Decision) -> dict[str, ItemDecision]:
    return {item.trajectory_id: item for item in decision.items}


def _prompts(first: str) -> list[str]:
    return [f"{one}{two} " for one in first for two in LETTERS[-4:-1]]


def _rows(ids: Any, mask: Any) -> list[list[int]]:
    return [row[kept].tolist() for row, kept in zip(ids, mask.bool(), strict=True)]


@contextmanager
def _cluster() -> Iterator[Settings]:
    with EmbeddedBroker() as broker, own_topics(broker.bootstrap_servers, 2) as settings, processor(settings):
        yield settings


def main() -> None:
    with _cluster() as settings:
        verdicts = reevaluate(settings)
    refused = sum(one.admitted != "ok" for one in verdicts)
    print(table(verdicts))
    print(f"\n{len(verdicts)} old trajectories, {len(verdicts) - refused} admitted, {refused} refused")


if __name__ == "__main__":
    main()
