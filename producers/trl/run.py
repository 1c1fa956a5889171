"""What the user's script says about its run in the ledger."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from rollbook.infra.settings import Settings
from rollbook.producers.clients.client import Options
from rollbook.producers.trl.facts import StepFacts
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.run import Enforcement

_LOG = logging.getLogger("rollbook.producers")


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """One training is one run: `run_id` is used once, and again where that training is resumed.
    `max_mean_abs_log_ratio` is the drift limit in nats, between the sampler's log-probs and the trainer's own.
    `on_step` hears of each optimizer step with everything that went into it, in the thread of the main process, for
    each process's share of it; what it raises is logged."""

    settings: Settings
    run_id: str
    enforcement: Enforcement = Enforcement.GATE
    learner_id: str = "trl"
    worker_id: str = "trl-rollout"
    max_lag: int = 1
    max_mean_abs_log_ratio: float = 1.0
    dataset: str = "train"
    options: Options = field(default_factory=Options)
    on_step: Callable[[StepFacts], None] | None = None

    def __post_init__(self) -> None:
        # By its value, too, as scripts read it from their own settings: a mere string is neither mode.
        try:
            object.__setattr__(self, "enforcement", Enforcement(self.enforcement))
        except ValueError:
            known = ", ".join(one.value for one in Enforcement)
            raise BadInput(f"LedgerRun: enforcement is {self.enforcement!r}, it must be one of {known}") from None

    def show(self, step: StepFacts) -> None:
        """Have `on_step` hear of it."""
        if self.on_step is None:
            return
        try:
            self.on_step(step)
        except Exception:  # it is the user's, and only looks on
            _LOG.warning("on_step failed at step %d of update %s", step.step_id, step.update_id, exc_info=True)


def checked(ledger: object) -> LedgerRun:
    """What a trainer was given as its ledger. Raises BadInput where that is something else, before it trains."""
    if not isinstance(ledger, LedgerRun):
        raise BadInput(f"ledger is a {type(ledger).__name__}: give the trainer a LedgerRun(settings, run_id)")
    return ledger
