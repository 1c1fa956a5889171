"""Keeps the lease of one update alive from a thread of its own, so that training need not think of it."""

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from rollbook.producers.errors import ClientClosed, ForkedClient, Refused
from rollbook.producers.sending.command import Command
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.decision import Decision

RENEWALS_A_LEASE = 3
"""How often a lease is renewed within its time: one that is lost or late must not cost the update."""


class Sender(Protocol):
    """Sends commands; both may be called from another thread than the training's."""

    def send(self, command: Command) -> None:
        """Queue it. Raises QueueFull."""

    def answer(self, command: Command) -> Decision:
        """Its decision. Raises Refused, DecisionTimeout, DeliveryFailed."""


class Owner(Protocol):
    """Whose lease it is."""

    def renewal_refused(self, refusal: Refused) -> None:
        """A renewal was refused, so that no more are sent."""


class Renewal:
    """Renews every `every_s` from `begin` to `end`, or until nobody holds the owner any more: what a training has let
    go of must not keep its rows. A refusal is the last: then it is over.

    A decision that does not come costs nothing: the next renewal is as good.
    """

    def __init__(self, sender: Sender, make: Callable[[], Lifecycle], every_s: float, owner: Owner) -> None:
        self._sender = sender
        self._make = make
        self.every_s = every_s
        """0: there is no lease to keep."""
        self._owner = weakref.ref(owner)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Renew from now on; once is enough."""
        if self._thread is None and self.every_s > 0:
            self._thread = threading.Thread(target=self._serve, name="rollbook-renewal", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Nothing is sent any more: what ends the update comes after its last renewal in the log."""
        with self._lock:
            self._over.set()

    def _serve(self) -> None:
        while not self._over.wait(self.every_s) and self._owner() is not None:
            try:
                command = Command(self._make())
                with self._lock:
                    if self._over.is_set():
                        return
                    self._sender.send(command)
                self._sender.answer(command)
            except Refused as refusal:
                owner = self._owner()
                if owner is not None and not self._over.is_set():
                    owner.renewal_refused(refusal)
                return
            except (ClientClosed, ForkedClient):
                return
            except RollbookError:
                continue
