"""What /metrics says: the view's runs and the reader's standing, as the metrics take them."""

import threading
import time
from collections.abc import Iterator

from rollbook.processors.dashboard.answers import Reading
from rollbook.processors.dashboard.fold.places import Times
from rollbook.processors.dashboard.fold.run import RunView
from rollbook.processors.dashboard.metrics import ReaderFigures, RunFigures, RunMetrics
from rollbook.processors.dashboard.shared import Shared


class Exposition:
    """Called by many threads, one at a time."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._lock = threading.Lock()
        self._metrics = RunMetrics()

    def __call__(self) -> bytes:
        with self._lock:
            runs, records, left_out, unreadable = self._shared.looked(
                lambda view: (list(_figures(view.figures())), view.records, view.left_out, view.unreadable)
            )
            if not self._shared.was_live:  # figures of a log that is half read would look like alarms and resets
                runs = []
            standing = self._shared.standing
            connected = standing.reading in (Reading.CATCHING_UP, Reading.LIVE)
            reader = ReaderFigures(connected, standing.behind, records, left_out, unreadable)
            return self._metrics.exposition(runs, reader)


def _figures(runs: Iterator[tuple[RunView, Times]]) -> Iterator[RunFigures]:
    now_ms = time.time() * 1000
    for run, times in runs:
        snapshot = run.snapshot
        if snapshot is None:
            continue
        until = run.leases(times)
        running = [
            (max(0.0, (until[one.update_id] - now_ms) / 1000), one.lease_ms / 1000)
            for one in snapshot.updates
            if not one.in_doubt and one.update_id in until
        ]
        left_s, lease_s = min(running) if running else (None, None)
        yield RunFigures(snapshot, run.snapshot_ms() or run.last_ms, left_s, lease_s, run.closed)
