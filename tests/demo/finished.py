"""Demos that have been run as a user would run them, and what they left behind."""

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import decode, decode_as
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.decision import Decision, ItemDecision, Outcome
from rollbook.tests.nightly import NIGHTLY

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class FinishedDemo:
    """A demo's exit code, what it printed, and where its topics are."""

    folder: Path
    seed: int
    code: int
    output: str
    errors: str

    @cached_property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return summary

    @cached_property
    def run_id(self) -> str:
        return str(self.summary["run"])

    @cached_property
    def settings(self) -> Settings:
        return Settings(self.summary["bootstrap_servers"], self.summary["topic_prefix"])

    @cached_property
    def bundles(self) -> list[Path]:
        return [Path(bundle["path"]) for bundle in self.summary["bundles"]]

    @cached_property
    def lifecycle(self) -> list[StoredRecord]:
        return self._read(Topic.LIFECYCLE)

    @cached_property
    def decided(self) -> list[StoredRecord]:
        return self._read(Topic.DECISIONS)

    @cached_property
    def records(self) -> list[tuple[Lifecycle, Decision]]:
        """Each lifecycle record of the run with its decision."""
        found = []
        for record, decision in zip(self.lifecycle, self.decided, strict=True):
            typed = decode(record.value or b"")
            assert isinstance(typed, Lifecycle)
            found.append((typed, decode_as(Decision, decision.value or b"")))
        return found

    @cached_property
    def states(self) -> dict[str, str]:
        """The last state of each trajectory that a decision gives by name."""
        return {
            item.trajectory_id: item.state_after
            for _, decision in self.records
            for item in decision.items
            if item.state_after is not None
        }

    @cached_property
    def undone(self) -> frozenset[str]:
        """Updates that a start of their learner rolled back."""
        return frozenset(
            name
            for _, decision in self.records
            for change in decision.mass_changes
            if change.predicate == "updates rolled back"
            for name in change.first_ids
        )

    def items(self, record_type: str) -> list[ItemDecision]:
        """What accepted records of this type of the updates that stand decided, row by row."""
        return [
            item
            for _, decision in self.records
            if decision.record_type == record_type and decision.outcome is Outcome.ACCEPTED
            if decision.update_id not in self.undone
            for item in decision.items
        ]

    @property
    def commands(self) -> list[str]:
        """What it says to try next."""
        _, _, further = self.output.partition("To look further:\n")
        return [line.strip() for line in further.splitlines() if line.strip()]

    def _read(self, topic: Topic) -> list[StoredRecord]:
        name = self.settings.topic(topic)
        with KafkaLog(self.settings) as log:
            partition = partition_of(self.run_id, log.partitions(name))
            bounds = log.bounds(name, partition)
            return list(log.read(name, partition, bounds.first, bounds.end))


def start_demo(folder: Path, *options: str, servers: str | None = None) -> "subprocess.Popen[str]":
    """`rollbook demo --out FOLDER`, in the folder above; on the cluster `servers`, or on a broker of its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROLLBOOK_BOOTSTRAP")}
    if servers is not None:
        env["ROLLBOOK_BOOTSTRAP_SERVERS"] = servers
    return subprocess.Popen(
        [BIN / "rollbook", "demo", "--out", str(folder), *options],
        cwd=folder.parent,
        env={**env, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def demos_of(folder: Path, servers: str) -> tuple[FinishedDemo, ...]:
    """A demo of seed 1 on the cluster `servers`, and each night before it, at its side, one of seed 0 on a broker of
    its own."""
    alone, beside = folder / "own-broker", folder / "existing-cluster"
    running = {1: (beside, start_demo(beside, "--seed", "1", servers=servers))}
    if NIGHTLY:
        running = {0: (alone, start_demo(alone)), **running}
    try:
        said = {seed: process.communicate() for seed, (_, process) in running.items()}
    finally:
        for _, process in running.values():
            process.kill()
    return tuple(
        FinishedDemo(where, seed, process.returncode, *said[seed]) for seed, (where, process) in running.items()
    )


def once(folder: Path, servers: str) -> tuple[FinishedDemo, ...]:
    """`demos_of`, run by the first who asks; the processes that share the tests out wait for it and read it up."""
    with (folder / "demos.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "demos.json"
        kept = TypeAdapter(tuple[FinishedDemo, ...])
        if not done.exists():
            done.write_bytes(kept.dump_json(demos_of(folder, servers)))
        return kept.validate_json(done.read_bytes())
