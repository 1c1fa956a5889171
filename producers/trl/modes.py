"""What the books of both trainers do alike in gate mode, and in observe mode."""

from rollbook.producers.observing.facts import Facts
from rollbook.producers.sending.command import Command
from rollbook.producers.trl.clients import Clients
from rollbook.producers.updates.update import Update
from rollbook.schemas.records.update import Checkpoint


class Gating(Clients):
    """An update is open while the training makes it; the ledger is asked, and waited for."""

    _update: Update | None = None

    def saved(self, checkpoint: Checkpoint) -> str:
        self.settle()
        # Not Trainer.checkpoint_saved, which knows no weights that hold a part of an open update.
        self._trainer.ask(Command(self._checkpoint_saved(checkpoint)))
        return self._trainer.decisions.chain

    def give_up(self, error: BaseException) -> None:
        update, self._update = self._update, None
        if update is not None:
            update.__exit__(type(error), error, error.__traceback__)


class Observing(Clients):
    """The ledger is told, and never waited for."""

    _facts: Facts | None = None

    def saved(self, checkpoint: Checkpoint) -> str:
        record = self._checkpoint_saved(checkpoint)
        self._trainer.outbox.publish(lambda _: record)
        return ""

    def give_up(self, error: BaseException) -> None:
        """A started update stays open: its rows may be in the weights."""
        self._facts = None
