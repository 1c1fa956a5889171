"""Records the runs that the pages' commands find: a small demo `my-run` with all that a demo goes through, and `run-a`
and `run-b`, two runs of the same tasks of which the second learns more slowly. One file, and it is never made anew
without need: pages show what comes out of it.

python -m rollbook.tests.docs.record
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from rich.console import Console

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.demo import run as demo
from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.processes.folder import Plan
from rollbook.infra.settings import PREFIX_VARIABLE, SERVERS_VARIABLE, Settings, Topic
from rollbook.replay.history.export import export
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.ranges import OffsetRange

PATH = Path(__file__).resolve().parents[1] / "data" / "docs" / "runs.avro"
CONFIG = DemoConfig(
    updates=7, checkpoint_every=3, groups_per_update=8, latencies=(0, 0, 0, 1, 1, 1, 2, 2, 3), eval_prompts=4
)
LOOP = Path(__file__).resolve().parents[2] / "examples" / "home_made.py"
SIZES = "GROUPS, GROUP, LENGTH, VOCABULARY, UPDATES, RATE, CLIP"
PREFIX = "docs-my-run."
"""Records name their topics, so they are put back under this prefix."""


def record(path: Path = PATH) -> None:
    """Run them on a broker of their own, and export all lifecycle records and payloads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    named = mock.patch.object(demo, "Plan", lambda run_id, config: Plan("my-run", config))
    with TemporaryDirectory() as folder, named, EmbeddedBroker() as broker:
        there = {SERVERS_VARIABLE: broker.bootstrap_servers, PREFIX_VARIABLE: "docs-"}
        with mock.patch.dict(os.environ, there):  # a demo on a cluster has topics of its own
            settings = demo.run_demo(CONFIG, Path(folder) / "demo", Console(stderr=True)).cluster.settings
        assert settings.topic_prefix == PREFIX
        _home_made(settings)
        _export(settings, path)


def _home_made(settings: Settings) -> None:
    text = LOOP.read_text(encoding="utf-8")
    given = next(line for line in text.splitlines() if line.startswith(SIZES))
    environment = {**os.environ, SERVERS_VARIABLE: settings.bootstrap_servers, PREFIX_VARIABLE: settings.topic_prefix}
    command = [sys.executable, "-m", "rollbook.infra.cli", "processor", "run", "--quiet"]
    processor = subprocess.Popen(command, env=environment)
    try:
        for run, rate in (("run-a", 2.0), ("run-b", 1.0)):
            loop = text.replace(given, f"{SIZES} = 2, 4, 6, 5, 3, {rate}, 0.2")
            subprocess.run([sys.executable, "-", run], input=loop, text=True, check=True, env=environment)
    finally:
        processor.terminate()
        processor.wait()


def _export(settings: Settings, path: Path) -> None:
    lifecycle = settings.topic(Topic.LIFECYCLE)
    with KafkaLog(settings) as log:
        partitions = range(log.partitions(lifecycle))
        ranges = [OffsetRange(lifecycle, one) for one in partitions if log.bounds(lifecycle, one).end]
        export(log, settings, ranges, path, payloads=True)


if __name__ == "__main__":
    record()
