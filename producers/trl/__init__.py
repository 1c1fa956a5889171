"""TRL's GRPOTrainer (1.16) as a learner of the ledger: `class Trainer(LedgerMixin, GRPOTrainer)`.

Neither torch nor TRL is imported with this package: the mixin is laid over a trainer that has both.
"""

from rollbook.producers.trl.facts import Conditions, Generation, MicroStep, RowFacts, StepFacts
from rollbook.producers.trl.mixin import LedgerMixin
from rollbook.producers.trl.run import LedgerRun

__all__ = ["Conditions", "Generation", "LedgerMixin", "LedgerRun", "MicroStep", "RowFacts", "StepFacts"]
