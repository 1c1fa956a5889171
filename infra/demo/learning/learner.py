"""The GRPO learner: current log-probs for admission, and optimizer steps that record every number they used."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.adam import Adam
from rollbook.infra.demo.learning.loss import RowTensors, low_var_kl, policy_terms, row_terms
from rollbook.infra.demo.learning.model import TinyTransformer, TokenSequence, batch_log_probs
from rollbook.infra.demo.learning.plan import PlannedRow, StepPlan
from rollbook.infra.demo.learning.records import FloatArray, RowRecord, StepRecord, TrainingRow


@dataclass(frozen=True, slots=True)
class _StepRow:
    """A planned row as tensors, before and after the forward."""

    plan: PlannedRow
    reference: Tensor
    tensors: RowTensors
    terms: Tensor


class Learner:
    """Owns the policy's weights and their optimizer; the reference policy is a frozen copy of the initial weights.

    The old policy of the loss is the behaviour policy, with the log-probs that the rollout worker recorded: the ratio
    then corrects for the versions that a trajectory is late, and a bundle's `old_log_probs` are bytes of the log.
    """

    def __init__(self, model: TinyTransformer, config: DemoConfig) -> None:
        self.model = model
        self._config = config
        self._reference = copy.deepcopy(model).requires_grad_(False)
        self._optimizer = Adam(model.parameters(), config.learning_rate, config.adam_betas)

    def state(self) -> dict[str, Tensor]:
        """Weights and optimizer: what a checkpoint holds."""
        weights = {f"weights.{name}": tensor for name, tensor in self.model.state_dict().items()}
        return {**weights, **{f"optimizer.{name}": tensor for name, tensor in self._optimizer.state().items()}}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a checkpoint; the reference policy stays the one that this learner was made with."""
        self.model.load_state_dict(_below("weights.", state))
        self._optimizer.load_state(_below("optimizer.", state))

    def current_log_probs(self, rows: Sequence[TrainingRow]) -> list[FloatArray]:
        """Log-probs of the response tokens under the current weights, float32 [T] a row: what drift is judged by."""
        with torch.no_grad():
            return [log_probs.numpy() for log_probs, _ in batch_log_probs(self.model, [_sequence(row) for row in rows])]

    def step(self, plan: StepPlan) -> StepRecord:
        """One optimizer step on the sum over rows of their masked means; gradients accumulate over micro-batches."""
        self._optimizer.zero_grad()
        done: list[_StepRow] = []
        for micro_batch in sorted({row.micro_batch for row in plan.rows}):
            part = self._forward([row for row in plan.rows if row.micro_batch == micro_batch])
            torch.stack([row.terms[0] for row in part]).sum().backward()  # type: ignore[no-untyped-call]
            done.extend(part)
        self._optimizer.step()
        return StepRecord(
            rollout_id=plan.rollout_id,
            step_id=plan.step_id,
            rows=tuple(_record(row) for row in done),
            # In float64: whole groups cancel, so that in float32 the order of summation would show in the result.
            terms=policy_terms(torch.stack([row.terms for row in done]).double().sum(dim=0).float()),
        )

    def _forward(self, rows: Sequence[PlannedRow]) -> list[_StepRow]:
        sequences = [_sequence(planned.row) for planned in rows]
        with torch.no_grad():
            references = [log_probs for log_probs, _ in batch_log_probs(self._reference, sequences)]
        current = batch_log_probs(self.model, sequences)
        return [
            self._step_row(planned, reference, log_probs, entropy)
            for planned, reference, (log_probs, entropy) in zip(rows, references, current, strict=True)
        ]

    def _step_row(self, planned: PlannedRow, reference: Tensor, log_probs: Tensor, entropy: Tensor) -> _StepRow:
        tensors = RowTensors(
            old_log_probs=torch.tensor(planned.row.behavior_log_probs),
            log_probs=log_probs,
            entropy=entropy,
            advantages=torch.full_like(log_probs, planned.reward, requires_grad=False),
            loss_mask=torch.full_like(log_probs, float(planned.row.admitted), requires_grad=False),
        )
        return _StepRow(planned, reference, tensors, row_terms(tensors, self._config))


def _below(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def _sequence(row: TrainingRow) -> TokenSequence:
    return TokenSequence(row.prompt_ids, row.response_ids)


def _record(row: _StepRow) -> RowRecord:
    planned, tensors = row.plan, row.tensors
    return RowRecord(
        trajectory_id=planned.row.trajectory_id,
        group_id=planned.group_id,
        group_index=planned.group_index,
        micro_batch_id=f"mb-{planned.micro_batch:04d}",
        prompt_length=len(planned.row.prompt_ids),
        loss_mask=(int(planned.row.admitted),) * len(planned.row.response_ids),
        raw_reward=planned.row.raw_reward,
        reward=planned.reward,
        old_log_probs=_array(tensors.old_log_probs),
        log_probs=_array(tensors.log_probs),
        ref_log_probs=_array(row.reference),
        entropy=_array(tensors.entropy),
        kl=_array(low_var_kl(tensors.old_log_probs, row.reference)),
        advantages=_array(tensors.advantages),
        terms=policy_terms(row.terms),
    )


def _array(tensor: Tensor) -> FloatArray:
    values: FloatArray = tensor.detach().numpy().copy()
    return values
