"""TRL's AsyncGRPOTrainer (1.16) as a learner of the ledger: `class Trainer(AsyncLedgerMixin, AsyncGRPOTrainer)`.

Neither torch nor TRL is imported with this package: the mixin is laid over a trainer that has both.
"""

from rollbook.producers.trl.asynchronous.mixin import AsyncLedgerMixin

__all__ = ["AsyncLedgerMixin"]
