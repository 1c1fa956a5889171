"""Capture: bundles out of a running training loop, which it neither delays, changes nor breaks.

The training thread only copies (on the device where an array is) and enqueues; another thread brings the copies to the
host and writes. The queue is bounded in records and bytes: what does not fit is dropped and counted. Whatever goes
wrong is counted and logged, and never raised in the training thread.
"""

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final

from rollbook.replay.bundle.model import Producer
from rollbook.replay.bundle.redaction import Redactor
from rollbook.replay.bundle.writing.bundle_writer import BundleWriter
from rollbook.replay.capture.plan import CapturePlan
from rollbook.replay.capture.recorded import Recorded, copied, size_bytes, writer_of
from rollbook.schemas.errors import BadInput, RollbookError

log = logging.getLogger(__name__)

_CLOSE_S: Final = 60.0
_MAX_UNFINISHED: Final = 64
"""Bundles whose other ranks had not written yet, that are looked at again."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which rank this is. `expected_ranks` are all that record, as whoever configures the training says: those of the
    last pipeline stage, one for each data-parallel shard, or where the context is parallel each rank of its groups.
    `attempt`: one text for all ranks, another at each start; needed where several record."""

    rank: int = 0
    expected_ranks: Sequence[int] = (0,)
    pipeline_rank: int = 0
    pipeline_size: int = 1
    attempt: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.expected_ranks, int | str):
            raise BadInput(
                f"expected_ranks={self.expected_ranks!a} is one, and no list: give the ranks that record, such as "
                "range(2) for two"
            )

    @property
    def records(self) -> bool:
        """The other stages of a pipeline do not see what the loss is made of."""
        return self.pipeline_rank == self.pipeline_size - 1 and self.rank in self.expected_ranks


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of everything that was handed over: taken = written + failed + what still waits."""

    taken: int = 0
    written: int = 0
    dropped: int = 0
    failed: int = 0
    unfinished: int = 0
    """Written here, while other ranks had not; the last rank publishes them."""


class Capture:
    """Records what the plan wants. `plan=None` (capture is off) and ranks that do not record cost one comparison.

    Raises BadInput here, at the start, for what can never work; nothing afterwards.
    """

    def __init__(
        self,
        plan: CapturePlan | None,
        *,
        producer: Producer,
        place: Place | None = None,
        redactor: Redactor | None = None,
        max_waiting: int = 16,
        max_waiting_bytes: int = 2 * 2**30,
    ) -> None:
        where = place or Place()
        self._plan = plan if where.records else None
        if self._plan is not None and len(where.expected_ranks) > 1 and not where.attempt:
            raise BadInput(
                "several ranks capture, and no attempt is given: give one text to all, another at each start"
            )
        if self._plan is not None and len(set(where.expected_ranks)) != len(where.expected_ranks):
            raise BadInput(f"expected_ranks {list(where.expected_ranks)} has a rank twice: list each that writes once")
        self._producer, self._place, self._redactor = producer, where, redactor or Redactor()
        self._max_bytes = max_waiting_bytes
        self._queue: queue.Queue[tuple[Recorded, int] | None] = queue.Queue(max(1, max_waiting))
        self._lock = threading.Lock()
        self._counts = Counts()
        self._waiting_bytes = 0
        self._unfinished: list[BundleWriter] = []
        self._closed = False
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        if self._plan is not None:
            self._thread = threading.Thread(target=self._run, name="rollbook-capture", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    @classmethod
    def from_env(
        cls,
        *,
        producer: Producer,
        place: Place | None = None,
        redactor: Redactor | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> "Capture":
        """As ROLLBOOK_CAPTURE and its companions say. Raises BadInput for values that mean nothing."""
        return cls(CapturePlan.from_env(environ), producer=producer, place=place, redactor=redactor)

    @property
    def counts(self) -> Counts:
        if os.getpid() != self._process:
            return Counts()
        with self._lock:
            return replace(self._counts, unfinished=len(self._unfinished))

    def wants_step(self, rollout_id: int, step_id: int) -> bool:
        """Whether to record it; ask before gathering what it takes."""
        return self._plan is not None and self._plan.wants_step(rollout_id, step_id)

    def wants_rollout(self, rollout_id: int) -> bool:
        return self._plan is not None and self._plan.wants_rollout(rollout_id)

    def record(self, make: Recorded | Callable[[], Recorded]) -> bool:
        """Hand over a step or rollout, or a function that makes it, whose errors are capture's then.

        Copies and enqueues; never waits, never raises. False when it was not wanted, was dropped or went wrong.
        """
        if self._plan is None:
            return False
        try:
            return self._take(make() if callable(make) else make)
        except Exception as error:
            self._count(failed=1)
            _tell("a step or rollout could not be taken", error)
            return False

    def close(self, timeout_s: float = _CLOSE_S) -> Counts:
        """Write what waits, for as long as that, and stop. Never raises; may be called again."""
        if self._thread is None or os.getpid() != self._process:
            return self.counts
        self._closed = True
        deadline = time.monotonic() + timeout_s
        try:
            self._queue.put(None, timeout=timeout_s)
            self._thread.join(max(0.0, deadline - time.monotonic()))
        except queue.Full:
            pass
        if self._thread.is_alive():
            log.warning("capture: not all was written within %.0f s; the rest is lost", timeout_s)
        atexit.unregister(self.close)
        return self.counts

    def __enter__(self) -> "Capture":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, recorded: Recorded) -> bool:
        if not self._wants(recorded):
            return False
        if self._closed or os.getpid() != self._process:
            self._count(dropped=1)
            log.warning("capture: %s dropped: capture is closed, or of another process", recorded.bundle_id)
            return False
        size = size_bytes(recorded)
        with self._lock:
            full = self._queue.full() or self._waiting_bytes + size > self._max_bytes
            if not full:
                self._waiting_bytes += size
        if full:
            return self._drop(recorded)
        try:
            self._queue.put_nowait((copied(recorded), size))
        except BaseException as error:
            with self._lock:
                self._waiting_bytes -= size
            if isinstance(error, queue.Full):
                return self._drop(recorded)
            raise
        self._count(taken=1)
        return True

    def _wants(self, recorded: Recorded) -> bool:
        if recorded.step_id is None:
            return self.wants_rollout(recorded.rollout_id)
        return self.wants_step(recorded.rollout_id, recorded.step_id)

    def _drop(self, recorded: Recorded) -> bool:
        self._count(dropped=1)
        log.warning("capture: %s dropped: what waits to be written fills its bounds", recorded.bundle_id)
        return False

    def _count(self, *, taken: int = 0, written: int = 0, dropped: int = 0, failed: int = 0) -> None:
        if os.getpid() != self._process:
            return  # a fork has our lock as it was, perhaps held by a thread that it does not have
        with self._lock:
            old = self._counts
            self._counts = Counts(old.taken + taken, old.written + written, old.dropped + dropped, old.failed + failed)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            recorded, size = item
            try:
                self._write(recorded)
                self._count(written=1)
            except Exception as error:
                self._count(failed=1)
                _tell(f"{recorded.bundle_id} was not written", error)
            finally:
                with self._lock:
                    self._waiting_bytes -= size
            del recorded, item  # else a copy of the last step would stay until the next comes
            self._try_again()
        self._try_again()

    def _write(self, recorded: Recorded) -> None:
        assert self._plan is not None, "a capture without a plan takes nothing"
        writer = writer_of(
            recorded,
            self._plan.folder,
            producer=self._producer,
            rank=self._place.rank,
            attempt=self._place.attempt,
            redactor=self._redactor,
        )
        if not writer.finalize(self._place.expected_ranks).published:
            with self._lock:
                self._unfinished = [*self._unfinished, writer][-_MAX_UNFINISHED:]

    def _try_again(self) -> None:
        """Bundles that waited for other ranks, which may have died between their share and the publication."""
        left: list[BundleWriter] = []
        for writer in self._unfinished:
            try:
                if not writer.finalize(self._place.expected_ranks).published:
                    left.append(writer)
            except Exception as error:
                _tell("a bundle of several ranks could not be published", error)
        with self._lock:
            self._unfinished = left


def _tell(what: str, error: Exception) -> None:
    """Ours say what was wrong and where; of others the place in the code, since their text may hold anything."""
    if isinstance(error, RollbookError):
        log.warning("capture: %s: %s", what, error)
    else:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "an unknown place"
        log.warning("capture: %s: %s at %s", what, type(error).__name__, place)
