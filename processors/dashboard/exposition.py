"""What /metrics says: the view's runs and the reader's standing, as the metrics take them."""

import threading
import time
from collections.abc import Iterator

from rollbook.processors.dashboard.answers import Reading
from rollbook.processors.dashboard.metrics import ReaderFigures, RunFigures, RunMetrics
from rollbook.processors.dashboard.places import Times
from rollbook.processors.dashboard.run import RunView
from rollbook.processors.dashboard.shared import Shared


class Exposition:
    """Called by many threads, one at a time."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._lock = threading.Lock()
        self._metrics = RunMetrics()

    def __call__(self) -> bytes:
        with self._lock:
            runs, records, left_out = self._shared.looked(
                lambda view: (list(_figures(view.figures())), view.records, view.left_out)
            )
            standing = self._shared.standing
            connected = standing.reading in (Reading.CATCHING_UP, Reading.LIVE)
            return self._metrics.exposition(runs, ReaderFigures(connected, standing.behind, records, left_out))


def _figures(runs: Iterator[tuple[RunView, Times]]) -> Iterator[RunFigures]:
    now_ms = time.time() * 1000
    for run, times in runs:
        snapshot = run.snapshot
        if snapshot is None:
            continue
        leases = run.leases(times)
        running = [leases[one.update_id] for one in snapshot.updates if not one.in_doubt and one.update_id in leases]
        left_s = max(0.0, (min(running) - now_ms) / 1000) if running else None
        yield RunFigures(snapshot, run.snapshot_ms() or run.last_ms, left_s, run.closed)
