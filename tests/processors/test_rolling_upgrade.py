"""Instances that know a newer fold version beside some that do not: each record has one decision, by rules that the
run asks for. On the real broker."""

import logging
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.fold_version import FOLD_VERSION
from rollbook.processors.ledger import fold
from rollbook.processors.ledger.fold import NewerFoldVersion
from rollbook.schemas.codec import encode, make
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.run import RunConfigured
from rollbook.tests import recount
from rollbook.tests.processors.history import History
from rollbook.tests.processors.hosting import host_in_thread, send
from rollbook.tests.processors.newer_host import NEWER
from rollbook.tests.processors.test_host import _ack, _await, _header
from rollbook.tests.producers.world import read_topic
from rollbook.tests.session_broker import own_topics

PARTITIONS = 4
RUNS = {
    partition: [name for name in (f"run-{at}" for at in range(99)) if partition_of(name, PARTITIONS) == partition][:2]
    for partition in range(PARTITIONS)
}
"""Two runs in each partition."""
ALL = [name for names in RUNS.values() for name in names]
OLDER = "older"


@pytest.fixture
def shared(broker: str) -> Iterator[Settings]:
    with own_topics(broker, PARTITIONS) as settings:
        yield settings


def configured(run_id: str, config_version: int, fold_version: int) -> tuple[int, bytes, bytes]:
    record = make(
        RunConfigured,
        header=_header(run_id, -config_version),
        config_version=config_version,
        fold_version=fold_version,
        partition_count=PARTITIONS,
        enforcement="gate",
        admission={"max_lag": 1, "lag_unit": "depth", "max_mean_abs_log_ratio": 0.2, "drift_gate": "required"},
        required_workers=(),
        initial_policy={"version": 0, "artifact": {"hash": "h0", "kind": "file"}},
    )
    return partition_of(run_id, PARTITIONS), run_id.encode(), encode(record)


class Writing:
    """What a test writes, and what it finds."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._codec = recount.Codec()
        self._number = 0

    def configure(self, names: list[str], config_version: int, fold_version: int) -> None:
        send(self._settings, [configured(name, config_version, fold_version) for name in names])

    def acks(self, names: list[str]) -> None:
        """One record more of each run."""
        self._number += 1
        send(
            self._settings,
            [(partition_of(name, PARTITIONS), name.encode(), _ack(name, self._number)) for name in names],
        )

    def owners(self) -> dict[int, str]:
        """Who decided last in each partition."""
        found = {}
        for record in read_topic(self._settings, Topic.LEDGER):
            kind, fields = self._codec.decode(record.value) if record.value else ("", {})
            if kind == "Position":
                found[record.partition] = fields["transactional_id"].removeprefix(self._settings.topic_prefix)
        return found

    def waiting(self) -> dict[int, int]:
        """How many records have no decision yet, by partition."""
        topics = (Topic.LIFECYCLE, Topic.DECISIONS)
        written, decided = (Counter(one.partition for one in read_topic(self._settings, topic)) for topic in topics)
        return {partition: written[partition] - decided[partition] for partition in range(PARTITIONS)}

    def check(self) -> dict[str, list[tuple[str, int]]]:
        """After checking that each record has one decision, in order: of each run what was decided by which rules."""
        lifecycle, decisions = self._read(Topic.LIFECYCLE), self._read(Topic.DECISIONS)
        recount.check_decisions(lifecycle, decisions, self._codec)
        found: dict[str, list[tuple[str, int]]] = {name: [] for name in ALL}
        for record in decisions:
            fields = self._codec.decode(record.value or b"")[1]
            found[fields["run_id"]].append((fields["record_type"], fields["fold_version"]))
        return found

    def _read(self, topic: Topic) -> list[recount.Record]:
        return recount.read_topic(self._settings.bootstrap_servers, self._settings.topic(topic))


@contextmanager
def newer(settings: Settings) -> Iterator[None]:
    """An instance that knows the newer version, as a process of its own, which ends well."""
    arguments = [settings.bootstrap_servers, settings.topic_prefix, "newer", "", "0"]
    process = subprocess.Popen([sys.executable, "-m", "rollbook.tests.processors.newer_host", *arguments])
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
    assert code == 0


def test_instances_of_two_versions_never_disagree(shared: Settings, caplog: pytest.LogCaptureFixture) -> None:
    writing = Writing(shared)

    def are_both_at_work() -> bool:
        writing.acks(ALL)
        return sorted(Counter(writing.owners().values()).values()) == [PARTITIONS // 2, PARTITIONS // 2]

    def wait_only_for(partitions: set[int]) -> None:
        _await(lambda: {partition for partition, count in writing.waiting().items() if count} == partitions)

    with ExitStack() as newest:
        with caplog.at_level(logging.ERROR, "rollbook.processor"), host_in_thread(shared, OLDER):
            writing.configure(ALL, 1, FOLD_VERSION)
            wait_only_for(set())
            newest.enter_context(newer(shared))
            _await(are_both_at_work)
            wait_only_for(set())
            owners = writing.owners()
            stopped = next(partition for partition, owner in owners.items() if owner == OLDER)
            another = next(partition for partition, owner in owners.items() if owner != OLDER)
            raised = [RUNS[stopped][0], RUNS[another][0]]
            writing.configure(raised, 2, NEWER)
            writing.acks(ALL)
            wait_only_for({stopped})
            assert writing.waiting()[stopped] == 3, "the configuration, and a record of either run there"
            assert writing.owners() == owners
            assert f"NewerFoldVersion: lifecycle partition {stopped} " in caplog.text
            assert f"asks for fold version {NEWER}, this package knows {FOLD_VERSION}" in caplog.text
        writing.acks(ALL)
        wait_only_for(set())
        assert set(writing.owners().values()) == {"newer"}
    found = writing.check()
    for name in ALL:
        rules = [version for _, version in found[name]]
        at = found[name].index(("RunConfigured", NEWER)) if name in raised else len(rules)
        assert rules == [FOLD_VERSION] * at + [NEWER] * (len(rules) - at)


def test_an_older_instance_decides_nothing_of_a_run_that_a_newer_one_has_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the newer one leaves, and the older one restores what it wrote."""
    history = History().opened()
    with monkeypatch.context() as newest:
        newest.setattr(fold, "FOLD_VERSION", NEWER)
        history.configured(2, fold_version=NEWER)
    with pytest.raises(NewerFoldVersion):
        history.ack("worker-0", 1)
