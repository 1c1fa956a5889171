"""What the reader and the pages share: the view of the log, where reading stands, and one lock around both."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TypeVar

from rollbook.infra.settings import Settings
from rollbook.processors.dashboard.answers import Decisions, Frame, Now, Reading, Runs, Series, Size, Status
from rollbook.processors.dashboard.fold.view import Remembered, Stored, View

T = TypeVar("T")

logger = logging.getLogger("rollbook.dashboard")

UNREADABLE = (
    "records of the topics are no decision or snapshot, and are skipped: nobody but the processor may write there; "
    "/api/status counts them"
)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where reading stands. `behind`: offsets left to read, by partition of the decisions topic; `left`: of all."""

    reading: Reading
    fault: str = ""
    behind: Mapping[int, int] = field(default_factory=dict)
    left: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Up to where a client has been told. Another instance's revisions are not to be compared with ours."""

    instance: str
    revision: int

    @staticmethod
    def parse(text: str | None) -> "Mark | None":
        """What `str` made; None for anything else, whose sender is then told everything."""
        instance, _, revision = (text or "").rpartition("-")
        if not instance or not (revision.isascii() and revision.isdigit() and len(revision) < 19):
            return None
        return Mark(instance, int(revision))

    def __str__(self) -> str:
        return f"{self.instance}-{self.revision}"


class Shared:
    """The reader puts in, pages take out, each from threads of their own; no call takes long."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._version = version("rollbook")
        self._lock = threading.Lock()
        self._view = View()
        self._instance = _new_instance()
        self._standing = Standing(Reading.WAITING, "nothing was read yet")
        self._was_live = False
        self._warned = False

    # The reader's side

    def take(self, decisions: Sequence[Stored], snapshots: Sequence[Stored]) -> None:
        """Fold messages of the two topics, in each partition in the order of the log."""
        with self._lock:
            if decisions:
                self._view.take_decisions(decisions)
            if snapshots:
                self._view.take_snapshots(snapshots)
            if self._view.unreadable and not self._warned:
                self._warned = True
                logger.warning("%s", UNREADABLE)

    def begin_anew(self) -> None:
        """Forget what was read. Another instance from here on: no client may keep what it was told."""
        with self._lock:
            self._view = View()
            self._instance = _new_instance()
            self._was_live = False

    def stand(self, standing: Standing) -> None:
        """Say where reading stands."""
        with self._lock:
            self._standing = standing
            self._was_live = self._was_live or standing.reading is Reading.LIVE

    @property
    def has_read(self) -> bool:
        """Whether there is anything to show."""
        return self._view.records > 0

    @property
    def was_live(self) -> bool:
        """Whether all that there was has been read once: until then figures are of a part of the log."""
        return self._was_live

    @property
    def standing(self) -> Standing:
        return self._standing

    # The pages' side

    def news(self) -> object:
        """Differs from what it was before as soon as a frame would, but for its clock."""
        return (self._instance, self._view.revision, self._standing)

    def status(self) -> Status:
        with self._lock:
            return self._status()

    def runs(self) -> Runs:
        with self._lock:
            return self._view.runs()

    def now(self, run_id: str) -> Now | None:
        with self._lock:
            return self._view.now(run_id)

    def series(self, run_id: str, size: Size, since: int | None) -> Series | None:
        with self._lock:
            return self._view.series(run_id, size, since)

    def decisions(self, run_id: str, most: int) -> Decisions | None:
        with self._lock:
            return self._view.decisions(run_id, most)

    def remembered(self, run_id: str, trajectory_id: str) -> Remembered | None:
        with self._lock:
            return self._view.remembered(run_id, trajectory_id)

    def looked(self, look: Callable[[View], T]) -> T:
        """What somebody sees who looks at the view; he keeps nothing of it."""
        with self._lock:
            return look(self._view)

    def frame(self, run_id: str | None, size: Size, since: Mark | None) -> tuple[Frame, Mark]:
        """Everything at one moment, and the mark after it."""
        with self._lock:
            told = since.revision if since is not None and since.instance == self._instance else None
            frame = Frame(
                status=self._status(),
                runs=self._view.runs(),
                now=None if run_id is None else self._view.now(run_id),
                series=None if run_id is None else self._view.series(run_id, size, told),
            )
            return frame, Mark(self._instance, self._view.revision)

    def _status(self) -> Status:
        standing = self._standing
        return Status(
            version=self._version,
            instance=self._instance,
            now_ms=int(time.time() * 1000),
            reading=standing.reading,
            fault=standing.fault,
            records=self._view.records,
            unreadable=self._view.unreadable,
            behind=standing.left,
            topic_prefix=self.settings.topic_prefix,
        )


def _new_instance() -> str:
    return uuid.uuid4().hex[:12]
