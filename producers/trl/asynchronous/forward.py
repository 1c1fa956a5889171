"""TRL's loss from within: between its forward pass and its loss the ledger has its say about the rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from rollbook.producers.trl.asynchronous.reading import micro_step_of, terms_of
from rollbook.producers.trl.asynchronous.session import AsyncSession
from rollbook.producers.trl.asynchronous.taps import Terms
from rollbook.schemas.digests import FloatArray


class Watched:
    """Stands for the model in TRL's loss, which is given `inputs`. TRL selects the loss terms before the forward pass
    and reads the divisor after it."""

    def __init__(self, session: AsyncSession, number: int, model: Any, inputs: Mapping[str, Any]) -> None:
        self._session = session
        self._number = number
        self._model = model
        self.inputs = inputs
        self._terms: tuple[Terms, Terms] | None = None
        if session.may_refuse:
            old, advantages = self._terms = Terms(inputs["old_log_probs"]), Terms(inputs["advantages"])
            tokens = inputs["global_n_tokens"].clone()
            self.inputs = {**inputs, "old_log_probs": old, "advantages": advantages, "global_n_tokens": tokens}
        self._outputs: Any = None
        self._log_probs: list[FloatArray] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._outputs = self._model(*args, **kwargs)
        session = self._session
        with session.guarded():
            rows = session.rows(self._number)
            self._log_probs = terms_of(self._outputs.log_probs, self.inputs, rows)
            refused = session.admit(self._number, self._log_probs)
            places = [place for place, one in enumerate(rows) if one is not None and one.trajectory_id in refused]
            if places:
                self._leave_out(places)
        return self._outputs

    def done(self, loss: Any, accumulated: int) -> None:
        """TRL has formed the loss of one of `accumulated` micro-batches."""
        rows, log_probs = self._session.rows(self._number), self._log_probs
        entropies = terms_of(self._outputs.entropy, self.inputs, rows)
        known = [place for place, one in enumerate(rows) if one is not None]
        self._session.forwarded(
            lambda places: micro_step_of(
                places, [log_probs[one] for one in known], [entropies[one] for one in known], loss, accumulated
            ),
            len(known),
        )

    def _leave_out(self, places: Sequence[int]) -> None:
        """Ratio 1 and advantage 0: a loss and a gradient of exactly 0, however far the row has drifted."""
        assert self._terms is not None, "only where something may be refused"
        old, advantages = self._terms
        chosen = self.inputs["token_index"] >= 0
        segments = self.inputs["segment_id"][chosen]
        out = sum((segments == place for place in places), segments < 0)
        current = self._outputs.log_probs.detach().flatten()[self.inputs["token_index"][chosen]]
        old.selected[out] = current[out].to(old.selected.dtype)
        advantages.selected[out] = 0
        self.inputs["global_n_tokens"].sub_(out.sum())
