"""An audit of a run on the real broker while its workers go on: nothing differs, and its ledger is compared."""

import itertools
import time
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from rollbook.infra.settings import Settings
from rollbook.replay.audit.audit import audit, stretch_of
from rollbook.replay.history.kafka import KafkaLog
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.world import processor, world
from rollbook.tests.session_broker import own_topics

DEADLINE_S = 60.0
AUDITS = 3


@pytest.fixture(scope="module")
def own(broker: str) -> Iterator[Settings]:
    with own_topics(broker, PARTITIONS) as settings:
        yield settings


def test_a_run_that_goes_on_is_audited_to_where_its_ledger_stands(own: Settings) -> None:
    with processor(own), world(own) as made:
        stop = Event()

        def work() -> None:
            for seed in itertools.count(0, 2):
                if stop.is_set():
                    return
                made.group(first_seed=seed)

        worker = Thread(target=work)
        worker.start()
        try:
            went_on, done, end = 0, 0, time.monotonic() + DEADLINE_S
            while (done < AUDITS or not went_on) and time.monotonic() < end:
                with KafkaLog(own) as log:
                    stretch = stretch_of(log, own, None, made.run_id)
                    report = audit(log, own, stretch).report
                assert report.findings == ()
                assert report.unchecked == ()
                went_on += report.within.end > stretch.within.end
                done += 1
        finally:
            stop.set()
            worker.join()
    assert went_on
    assert done >= AUDITS
