"""The processor's benchmark measures what it says: each loop decides the whole log, a restore has every trajectory."""

from rollbook.tests.benchmarks.processor import long_log, restore, throughput


def test_both_loops_take_the_same_log(broker: str) -> None:
    records = long_log(1, 4)
    bare, host = throughput(broker, records)
    assert (bare.records, host.records) == (len(records), len(records))
    assert host.cpu_us_per_record > bare.cpu_us_per_record > 0


def test_a_restore_is_measured_over_what_is_live(broker: str) -> None:
    figures = restore(broker, 500)
    assert figures.live == 500
    assert figures.topic_bytes_per_live > 100
