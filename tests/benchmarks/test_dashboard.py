"""What the dashboard's fold costs, beside the codec on the same decisions: a ratio within one run."""

from time import thread_time_ns

from rollbook.processors.dashboard.fold.view import View
from rollbook.schemas.codec import unwrap
from rollbook.tests.benchmarks.long_run import LongRun
from rollbook.tests.processors.dashboard.stored import decisions
from rollbook.tests.processors.log import Log

ROUNDS = 5


def test_all_that_is_counted_costs_less_than_to_decode_once() -> None:
    log = Log()
    for _ in LongRun(log, groups=25, single=True).versions(2):
        pass
    messages = decisions(log, apart_ms=1)
    folded, decoded = [], []
    for _ in range(ROUNDS):
        view, began = View(), thread_time_ns()
        view.take_decisions(messages)
        folded.append(thread_time_ns() - began)
        began = thread_time_ns()
        for message in messages:
            unwrap(message.value())
        decoded.append(thread_time_ns() - began)
    assert min(folded) < min(decoded) * 0.75
