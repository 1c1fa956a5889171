"""What is in the weights of this process, and whether they may leave it. Pure."""

from rollbook.producers.errors import OutOfOrder
from rollbook.producers.reading.epochs import Contents
from rollbook.producers.updates.handle import UpdateHandle


class Weights:
    """The weights of one process of a learner, by the decisions that it has read."""

    def __init__(self, learner_id: str) -> None:
        self._learner_id = learner_id
        self.own_updates = 0
        """Updates in them: those of the checkpoint, and those committed here."""
        self.last_update_id: str | None = None
        """The last of them in commit order; none: the initial policy's."""
        self._settled = True
        self._stepped = False
        self._handed_over: str | None = None
        self._adopted: str | None = None

    @property
    def may_leave(self) -> bool:
        """Whether the ledger knows all that is in them, and they are the learner's."""
        return self._settled and self._handed_over is None

    def loaded(self, contents: Contents) -> None:
        """They are a checkpoint's, or the initial policy's."""
        self.own_updates, self.last_update_id = contents.updates, contents.last_update_id
        self._settled, self._stepped = True, False
        self._handed_over = self._adopted = None

    def adopt(self, handle: UpdateHandle, *, known: bool) -> None:
        """An update of another process will be trained into them. `known`: somebody has said what they are. Raises
        OutOfOrder where they lack what was handed over before."""
        self.check_trained_here()
        if handle.after not in (None, self._adopted):
            raise OutOfOrder(
                f"update {handle.update_id} was handed over after {handle.after}, which these weights lack: adopt all "
                "that a process hands over in one other process, in order"
            )
        self._settled = self._settled and known
        self._adopted = handle.update_id
        self.own_updates = max(self.own_updates, handle.own_updates)

    def hand_over(self, update_id: str) -> str | None:
        """Another process trains on an update: these will not have it. Returns the one handed over before. Raises
        OutOfOrder between a step and its commit."""
        if self._stepped:
            raise OutOfOrder(
                f"update {update_id} cannot be handed over while a step of another one is not committed: its weights "
                "are only here; commit it first"
            )
        before, self._handed_over = self._handed_over, update_id
        return before

    def check_trained_here(self) -> None:
        """Raises OutOfOrder where an update was handed over."""
        if self._handed_over is not None:
            raise OutOfOrder(
                f"learner {self._learner_id} handed update {self._handed_over} over, so that its weights are in "
                "another process: start, adopt, commit and export there; this one reserves and hands over, until it "
                "starts anew"
            )

    def step(self) -> None:
        """An optimizer step changes them."""
        self._settled, self._stepped = False, True

    def committed(self, update_id: str) -> None:
        """The decision on the commit of an update was read."""
        self.own_updates += 1
        self.last_update_id = update_id
        self._settled, self._stepped = True, False
