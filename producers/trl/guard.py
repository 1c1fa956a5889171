"""What the ledger may do to a training's own thread: in observe mode nothing but take some of its time."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rollbook.schemas.errors import RollbookError

_LOG = logging.getLogger("rollbook.producers")


class Guard:
    """`seconds`: the training's time that went into guarded blocks. `is_over`: nothing more is recorded."""

    def __init__(self, *, observes: bool) -> None:
        self._observes = observes
        self.is_over = False
        self.seconds = 0.0

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
