"""The metrics: the table is what is exposed, labels stay bounded, and what is counted is what is committed."""

import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host import watch
from rollbook.processors.host.batch import Batch
from rollbook.processors.host.metrics import Metrics
from rollbook.processors.metric import IDLE_RUN_S, MOST_RUNS, OTHER_RUNS, Kind, RunLabels
from rollbook.processors.metric_table import PROCESSOR, TABLE
from rollbook.processors.metric_table import PROCESSOR_PREFIX as PREFIX
from rollbook.schemas.partition import partition_of
from rollbook.tests import recount
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.hosting import send
from rollbook.tests.processors.test_host import RUNS, _await, _configured, _history


class HandClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at

    def now_ms(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(metrics: Metrics, short: str, **labels: str) -> float | None:
    return samples(metrics.exposition().decode()).get((f"{PREFIX}{short}", tuple(sorted(labels.items()))))


def test_what_is_exposed_is_the_table() -> None:
    exposed = {
        family.name: family
        for family in text_string_to_metric_families(Metrics(HandClock(), "p").exposition().decode())
        if family.name.startswith(PREFIX)
    }
    assert exposed.keys() == {one.name.removesuffix("_total") for one in PROCESSOR}
    for one in PROCESSOR:
        family = exposed[one.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (one.kind.value, one.help)


@pytest.mark.parametrize("one", TABLE, ids=lambda one: one.name)
def test_names_keep_to_the_rules_of_prometheus(one: Any) -> None:
    assert re.fullmatch(r"[a-z_]+", one.name)
    assert one.name.endswith("_total") == (one.kind is Kind.COUNTER)
    assert bool(one.buckets) == (one.kind is Kind.HISTOGRAM)
    assert list(one.buckets) == sorted(one.buckets)
    assert (one.unit == "seconds") == one.name.removesuffix("_total").endswith("_seconds")


def test_an_open_transaction_ages_until_it_ends() -> None:
    clock = HandClock()
    metrics = Metrics(clock, "p")
    for end, counted in (
        (watch.Aborted(), "aborts_total"),
        (watch.OutcomeLost(), "unknown_outcomes_total"),
        (watch.FencedOff(), "fences_total"),
        (watch.Committed(Batch()), "transaction_seconds_count"),
    ):
        metrics(watch.Began(long=False))
        clock.at += 4
        assert value(metrics, "open_transaction_seconds") == 4
        metrics(end)
        assert value(metrics, "open_transaction_seconds") == 0
        assert value(metrics, counted) == 1
    assert value(metrics, "transaction_seconds_sum") == 4


def test_a_partition_that_was_released_is_not_shown_any_more() -> None:
    metrics = Metrics(HandClock(), "p")
    for event in (
        watch.Restored(0, 7, 1_000, 2.0),
        watch.Restored(1, 9, 10, 1.0),
        watch.Assigned((0, 1)),
        watch.Lags({0: 5, 1: 0}),
        watch.PartitionStopped(0, 7),
    ):
        metrics(event)
    assert [value(metrics, name) for name in ("assigned_partitions", "stopped_partitions")] == [2, 1]
    assert value(metrics, "lag_records", partition="0") == 5
    assert value(metrics, "decided_offset", partition="0") == 6
    assert value(metrics, "restored_rows_total") == 1_010
    metrics(watch.Released((0,)))
    assert [value(metrics, name) for name in ("assigned_partitions", "stopped_partitions")] == [1, 0]
    assert value(metrics, "lag_records", partition="0") is None
    assert value(metrics, "decided_offset", partition="0") is None
    assert value(metrics, "lag_records", partition="1") == 0


def test_more_runs_than_labels_are_pooled() -> None:
    clock = HandClock()
    metrics = Metrics(clock, "p")
    metrics(watch.Committed(Batch(run_seconds={f"run-{at:02}": 1.0 for at in range(MOST_RUNS + 9)})))
    assert value(metrics, "run_fold_seconds_total", run="run-00") == 1
    assert value(metrics, "run_fold_seconds_total", run=f"run-{MOST_RUNS}") is None
    assert value(metrics, "run_fold_seconds_total", run=OTHER_RUNS) == 9
    clock.at += IDLE_RUN_S + 1
    metrics(watch.Committed(Batch(run_seconds={"late": 2.0})))
    assert value(metrics, "run_fold_seconds_total", run="late") == 2
    assert value(metrics, "run_fold_seconds_total", run="run-00") is None


def test_a_run_keeps_its_label_while_it_is_heard_of() -> None:
    runs = RunLabels(most=2, idle_s=10)
    assert [runs.label(name, 0) for name in "abc"] == ["a", "b", OTHER_RUNS]
    assert runs.label("a", 9) == "a"
    assert runs.silent(11) == ["b"]
    assert runs.free("b")
    assert not runs.free("b")
    assert runs.label("c", 11) == "c"


@contextmanager
def command(settings: Settings, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """`rollbook processor run` on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rollbook.infra.cli", "processor", "run", "--http", "127.0.0.1:0", *options],
        env={
            **os.environ,
            "ROLLBOOK_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
            "ROLLBOOK_TOPIC_PREFIX": settings.topic_prefix,
        },
        text=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_command_counts_what_is_committed_and_logs_json(settings: Settings) -> None:
    history = [*_history(200), (1 - partition_of(RUNS[0], PARTITIONS), RUNS[0].encode(), _configured(RUNS[0]))]
    send(settings, history)
    with command(settings, "--log-format", "json") as process:
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        base = re.search(r"http://127\.0\.0\.1:\d+", first["message"])
        assert base is not None
        _await(lambda: get(f"{base[0]}/readyz") == (200, f"ok: {PARTITIONS} partitions, restored and caught up\n"))
        assert get(f"{base[0]}/healthz")[0] == 200
        assert get(f"{base[0]}/nothing")[0] == 404
        lags = [(f"{PREFIX}lag_records", (("partition", str(one)),)) for one in range(PARTITIONS)]
        _await(lambda: [samples(get(f"{base[0]}/metrics")[1]).get(lag) for lag in lags] == [0] * PARTITIONS)
        found = samples(get(f"{base[0]}/metrics")[1])
        process.terminate()
        out, err = process.communicate(timeout=30)
    assert out == f"stopped; {len(history)} records decided by this process\n"
    lines = [first, *map(json.loads, err.splitlines())]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert {line["partition"] for line in lines if line["message"].startswith("restored")} == set(range(PARTITIONS))
    lifecycle = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.LIFECYCLE))
    decisions = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.DECISIONS))
    codec = recount.Codec()
    recount.check_decisions(lifecycle, decisions, codec)
    bodies = [codec.decode(record.value or b"")[1] for record in decisions]
    expected = Counter((body["record_type"] or "undecodable", body["outcome"]) for body in bodies)
    counted = {
        (dict(labels)["type"], dict(labels)["outcome"]): number
        for (name, labels), number in found.items()
        if name == f"{PREFIX}records_total"
    }
    assert counted == dict(expected)
    assert expected["RunConfigured", "invalid"] == 1
    assert found[f"{PREFIX}dead_letters_total", ()] == expected["undecodable", "undecodable"] == len(RUNS)
    assert found[f"{PREFIX}batch_records_sum", ()] == len(history)
    assert found[f"{PREFIX}batch_bytes_sum", ()] == sum(len(record) for _, _, record in history)
    assert found[f"{PREFIX}restore_seconds_count", ()] == PARTITIONS
    ends = Counter(record.partition for record in lifecycle)
    for partition in range(PARTITIONS):
        assert found[f"{PREFIX}decided_offset", (("partition", str(partition)),)] == ends[partition] - 1
    assert {dict(labels)["run"] for name, labels in found if name == f"{PREFIX}run_fold_seconds_total"} >= set(RUNS)


def test_an_address_that_is_taken_is_said_before_anything_is_done(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with command(settings, "--http", address) as process:
            _, told = process.communicate(timeout=60)
    assert process.returncode == 3
    assert told.startswith(f"Error: --http {address}: cannot listen there (Address already in use): choose another")
    assert told.count("\n") == 1


def test_a_stop_by_poison_is_the_last_line_of_the_log(settings: Settings) -> None:
    send(settings, [(0, b"k", b"{}") for _ in range(20)])
    with command(settings, "--log-format", "json", "--poison-consecutive", "10") as process:
        out, err = process.communicate(timeout=60)
    *lines, told = err.splitlines()
    last = [json.loads(line) for line in lines][-1]
    assert (process.returncode, out) == (3, "")
    assert last["level"] == "critical"
    assert told == f"Error: {last['message']}"
    assert "0: 10 records in a row up to offset 9 are undecodable or invalid" in told
