"""What reading a record at once costs, beside fastavro and the model on the same bytes: a ratio within one run."""

from time import thread_time_ns

from rollbook.schemas.codec import read, unwrap, validate
from rollbook.tests.benchmarks.long_run import LongRun
from rollbook.tests.processors.log import Log

ROUNDS = 7


def test_to_read_a_record_at_once_is_worth_a_reader_of_its_own() -> None:
    log = Log()
    for _ in LongRun(log, groups=25, single=True).versions(1):
        pass
    values = [record.value or b"" for record in log.records]
    at_once, judged = [], []
    for _ in range(ROUNDS):
        began = thread_time_ns()
        for value in values:
            read(value)
        at_once.append(thread_time_ns() - began)
        began = thread_time_ns()
        for value in values:
            validate(unwrap(value))
        judged.append(thread_time_ns() - began)
    assert min(at_once) < min(judged) * 0.8
