"""What Prometheus scrapes in the tests: a run that trains and its processor, and beside them all that can be wrong.

Each look at a dashboard's metrics is one round of training later, so that counters grow as long as somebody looks.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import cast

from confluent_kafka import Message
from prometheus_client import CONTENT_TYPE_LATEST

from rollbook.processors.address import Address
from rollbook.processors.dashboard.metrics import ReaderFigures, RunFigures, RunMetrics
from rollbook.processors.freshness import snapshot
from rollbook.processors.host import watch
from rollbook.processors.host.batch import Batch
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.endpoint import Endpoint
from rollbook.processors.host.health import Health
from rollbook.processors.host.metrics import Metrics
from rollbook.processors.metric import MOST_RUNS
from rollbook.schemas.records.decision import DriftFloor, FreshnessSnapshot, RefusalCount
from rollbook.tests.processors.history import History
from rollbook.tests.processors.parts import policy

LIVING, STALE, STARVING, SILENT = "living", "stale", "starving", "silent"
_NO_MESSAGE = cast(Message, None)  # the metrics look at what was folded alone


class Training:
    """A run with figures of every sort: each round trains, drifts, fails, refuses, and activates a policy."""

    def __init__(self) -> None:
        self.history = History(LIVING).opened(max_lag=1, workers=("w0", "w1"), lease_ms=60_000)
        self._rounds = count()
        self._told = 0
        for learner in ("trainer", "doubtful", "waiting"):
            self.history.learner(learner)
        self.history.ready("doubted", "held")
        self.history.reserve("in doubt", "doubted", learner="doubtful")
        self.history.admit("in doubt", {"doubted": 0.0}, learner="doubtful")
        self.history.started("in doubt", learner="doubtful")
        self.history.expired("in doubt")
        self.history.reserve("held", "held", learner="waiting")

    def round(self) -> None:
        """Version n becomes n + 1."""
        now = next(self._rounds)
        past = self.history
        rows = [f"{now}.{at}" for at in range(6)]
        past.ready(*rows, version=now)
        past.dispatched(f"{now} dispatched", now)
        past.failed(f"{now} failed", now)
        past.generated(f"{now} unrewarded", now)
        past.reward_failed(f"{now} unrewarded")
        if now >= 2:
            past.reserve(f"stale {now}", f"{now - 2}.5")
        past.reserve(f"u{now}", *rows[:4])
        past.admit(f"u{now}", dict(zip(rows[:4], (0.004, 0.006, 0.03, 0.7), strict=True)))
        past.started(f"u{now}")
        past.commit(f"u{now}", *rows[:3])
        past.prepared(now + 1, f"u{now}")
        past.ack("w0", now + 1)
        past.activate(now + 1)
        past.ack("w1", now + 1)
        past.activate(now + 1)

    def batch(self) -> Batch:
        """What was folded since the last one, with a record that nobody can read."""
        self.history.log.append(b"nobody", b"nothing")
        folded = self.history.log.folded[self._told :]
        self._told += len(folded)
        return Batch(
            folded=[(_NO_MESSAGE, one) for one in folded],
            next_offsets={0: self._told},
            size=1_000,
            seconds=0.004,
            run_seconds={LIVING: 0.003},
        )

    def snapshot(self) -> FreshnessSnapshot:
        return snapshot(self.history.run)


class Restarting(Metrics):
    """Those of a processor that has just started, each time that somebody looks."""

    _starts = count(1_764_500_000)

    def exposition(self) -> bytes:
        started = b"process_start_time_seconds %d" % next(self._starts)
        return re.sub(rb"(?m)^process_start_time_seconds .*$", started, super().exposition())


class World:
    """All of it; `well` and `unwell` are what two dashboards tell."""

    def __init__(self) -> None:
        self.training = Training()
        self.processor = Metrics(SystemClock(), "p0")
        self.sick = Restarting(SystemClock(), "p1")
        self._metrics, self._others = RunMetrics(), RunMetrics()
        self._lock = threading.Lock()
        self.looks = 0
        self.processor(watch.Assigned((0,)))
        self.processor(watch.Lags({0: 3}))
        for event in (watch.Assigned((1,)), watch.Lags({1: 60_000}), watch.PartitionStopped(1, 7)):
            self.sick(event)
        self.training.round()

    def well(self) -> bytes:
        """One round later."""
        with self._lock:
            self.looks += 1
            self.training.round()
            self.processor(watch.Began(long=False))
            self.processor(watch.Committed(self.training.batch()))
            for _ in range(4):
                self.sick(watch.OutcomeLost())
            newest = self.training.snapshot()
            now = _now_ms()
            silent = newest.model_copy(update={"run_id": SILENT})
            runs = (RunFigures(newest, now, lease_left_s=50.0, lease_s=60.0), RunFigures(silent, now - 3_600_000))
            return self._metrics.exposition(runs, ReaderFigures(True, {0: 2}, 100 * self.looks))

    def unwell(self) -> bytes:
        """More runs than have a place, one that goes stale and one that starves."""
        with self._lock:
            newest = self.training.snapshot()
            stale, starving = self._stale(newest), self._starving(newest)
            young = snapshot(History("young").opened().run)
            now = _now_ms()
            runs = [RunFigures(stale, now + 1, lease_left_s=5.0, lease_s=60.0), RunFigures(starving, now + 1)]
            runs += [RunFigures(young.model_copy(update={"run_id": f"young-{at}"}), now) for at in range(MOST_RUNS)]
            return self._others.exposition(runs, ReaderFigures(False, {1: 60_000}, 0))

    def _stale(self, newest: FreshnessSnapshot) -> FreshnessSnapshot:
        floors = (
            DriftFloor(version=1, rows=64, mean_abs_log_ratio=0.01),
            DriftFloor(version=2, rows=64, mean_abs_log_ratio=0.09),
        )
        refused = tuple(
            RefusalCount(record_type=record, reason=reason, count=100 * self.looks)
            for record, reason in (("Reserve", "stale_policy"), ("Activate", "artifact_not_committed"))
        )
        return newest.model_copy(
            update={
                "run_id": STALE,
                "ready_fresh": 0,
                "ready_tolerated": 20,
                "ready_expiring": 20,
                "ready_stale": 9,
                "rows_per_update": 16,
                "drift_floor": floors,
                "refusals": refused,
                "active_policy": policy(1),
                "workers": tuple(one.model_copy(update={"serves_active": False}) for one in newest.workers),
            }
        )

    def _starving(self, newest: FreshnessSnapshot) -> FreshnessSnapshot:
        return newest.model_copy(
            update={
                "run_id": STARVING,
                "ready_fresh": 2,
                "ready_tolerated": 0,
                "rows_per_update": 16,
                "open_update_count": 0,
                "updates": (),
                "consumed_by_lag": (),
                "consumed_lag_unknown": 0,
            }
        )


def _now_ms() -> int:
    return int(time.time() * 1000)


@contextmanager
def served(world: World) -> Iterator[tuple[list[str], list[str]]]:
    """The addresses of the processors, and of the dashboards."""
    local = Address("127.0.0.1", 0)
    with ExitStack() as stack:
        processors = [
            stack.enter_context(Endpoint(local, metrics, Health(SystemClock())))
            for metrics in (world.processor, world.sick)
        ]
        dashboards = [stack.enter_context(_page(make)) for make in (world.well, world.unwell)]
        yield [str(one.address) for one in processors], dashboards


@contextmanager
def _page(make: Callable[[], bytes]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = make()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
