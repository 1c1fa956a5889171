"""What the ledger may do to a training's own thread: in observe mode nothing but take some of its time. And what both
trainers say of it."""

import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Generic, TypeVar

from rollbook.schemas.errors import RollbookError

_LOG = logging.getLogger("rollbook.producers")


class Guard:
    """`seconds`: the training's time that went into guarded blocks. `is_over`: nothing more is recorded."""

    def __init__(self, *, observes: bool) -> None:
        self._observes = observes
        self.is_over = False
        self.seconds = 0.0

    @property
    def lost(self) -> int:
        """In observe mode: how much was not told to the ledger."""
        raise NotImplementedError  # each knows its own

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """In observe mode whatever goes wrong in the block ends the recording, and the training goes on."""
        began = time.perf_counter()
        try:
            yield
        except Exception as error:
            if not self._observes:
                raise
            self.is_over = True
            known = isinstance(error, RollbookError)
            _LOG.warning("training goes on unrecorded from here on: %s", error, exc_info=not known)
        finally:
            self.seconds += time.perf_counter() - began


G = TypeVar("G", bound=Guard)


class Guarded(Generic[G]):
    """A trainer whose steps are told to a ledger, where `_ledger` is one."""

    _ledger: G | None

    @property
    def ledger_lost(self) -> int:
        """In observe mode: how many calls were not told to the ledger, in the main process."""
        return 0 if self._ledger is None else self._ledger.lost

    @property
    def ledger_seconds(self) -> float:
        """Seconds of the training's own thread that the ledger took once it was open: reading tensors, hashing weights,
        waiting for other processes and, in gate mode, for decisions."""
        return 0.0 if self._ledger is None else self._ledger.seconds

    @property
    def _ledger_records(self) -> bool:
        return self._ledger is not None and not self._ledger.is_over

    @property
    def _ledger_now(self) -> G:
        assert self._ledger is not None, "asked only where something records"
        return self._ledger

    def _ledger_guard(self) -> AbstractContextManager[None]:
        return nullcontext() if self._ledger is None else self._ledger.guarded()
