"""The demo from start to end: broker, processor, trainer and workers as processes, then what the log has to say."""

import secrets
import shutil
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from rollbook.infra.broker.config import unusable_in
from rollbook.infra.demo.cluster import Cluster, demo_cluster, fetch_files, keep_running
from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.interrupt import Interrupt
from rollbook.infra.demo.processes.ends import Processes, python
from rollbook.infra.demo.processes.faults import planned_faults
from rollbook.infra.demo.processes.folder import PATIENCE_S, Plan, RunFolder
from rollbook.infra.demo.telling.feed import Feed
from rollbook.infra.demo.telling.figures import Figures, FiguresWatch, figures
from rollbook.infra.demo.telling.progress import Display
from rollbook.infra.demo.telling.topics import last_freshness, watch_again
from rollbook.infra.settings import Settings
from rollbook.producers import current_epoch
from rollbook.replay.engine.chain import replay_chain
from rollbook.replay.engine.result import Verdict
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.materialize.report import NotWritten
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.records.decision import Decision, FreshnessSnapshot, Outcome
from rollbook.schemas.text import visible

_LOOK_S = 0.1
_ELSE = "name another one with --out"


@dataclass(frozen=True, slots=True)
class Replayed:
    """A bundle and how its replay came out."""

    path: Path
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What a demo leaves behind."""

    plan: Plan
    folder: RunFolder
    cluster: Cluster
    figures: Figures
    freshness: FreshnessSnapshot | None
    bundles: tuple[Replayed, ...]
    """Of the optimizer steps."""
    update_bundles: tuple[Replayed, ...]
    """Of whole updates: each with its steps, as a chain."""
    undone: tuple[str, ...]
    """Updates without bundles because a roll-back undid them."""
    not_written: tuple[str, ...]
    """Why any other update could not be materialized; empty when all were."""
    trained_again: str | None
    """A trajectory that a roll-back gave back, and that was trained on again."""
    seconds: float
    is_kept: bool
    """Whether the embedded broker runs on."""

    @property
    def all_pass(self) -> bool:
        return (
            not self.not_written
            and len(self.undone) == self.figures.updates.get("rolled_back", 0)
            and len(self.bundles) == self.figures.steps
            and len(self.update_bundles) == self.figures.updates.get("committed", 0)
            and all(bundle.verdict is Verdict.PASSED for bundle in (*self.bundles, *self.update_bundles))
        )

    @property
    def eval_rise(self) -> float:
        """By how much the mean evaluation reward of the final policy exceeds that of the initial one."""
        return self.figures.eval_of(self.figures.last_version) - self.figures.eval_of(0)


def run_demo(
    config: DemoConfig, out: Path | None, console: Console, *, keep: bool = False, dashboard: str | None = None
) -> DemoResult:
    """Run it; `dashboard`: where its dashboard listens meanwhile.

    Raises BadInput for a folder that is not empty, EnvironmentFault when a process or the broker fails.
    """
    fetch_files()
    began = time.monotonic()
    plan = Plan(run_id=f"demo-{config.seed}-{secrets.token_hex(4)}", config=config)
    folder = _new_folder(out or Path("rollbook-demo") / plan.run_id, plan)
    with (
        Interrupt() as interrupt,
        Display(console, config) as display,
        closing(Processes(folder)) as processes,
    ):
        # They import torch and warm up while the broker starts.
        processes.start("trainer", _trainer(folder))
        for index, worker_id in enumerate(plan.workers):
            processes.start(worker_id, _worker(folder, index))
        display.say("starting the broker")
        with demo_cluster(folder, plan.run_id) as cluster, closing(processes):  # they end before the broker does
            processes.start("processor", _rollbook(cluster.settings, "processor", "run", "--quiet"))
            if dashboard is not None:
                processes.start("dashboard", _rollbook(cluster.settings, "dashboard", "--quiet", "--listen", dashboard))
                console.print(f"dashboard: http://{dashboard}/#run={plan.run_id}", soft_wrap=True)
            folder.share_cluster(cluster.settings)
            with Feed(cluster.settings, plan.run_id) as feed:
                _train(plan, folder, processes, feed, display, interrupt)
            processes.stop("processor")
            result = _look_back(plan, folder, cluster, display, began)
    if keep and cluster.is_embedded:
        keep_running(folder, cluster)
        return replace(result, is_kept=True)
    return result


def _new_folder(path: Path, plan: Plan) -> RunFolder:
    """With the plan in it, so that a folder that cannot be used is refused before anything starts."""
    path = path.absolute()
    unusable = unusable_in(path)
    if unusable is not None:
        raise BadInput(
            f"--out {visible(path)}: the broker cannot keep data below a path with {unusable!a} in it: {_ELSE}"
        )
    folder = RunFolder(path)
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise BadInput(f"{visible(path)} exists and is not an empty folder: {_ELSE}")
        path.mkdir(parents=True, exist_ok=True)
        folder.share_plan(plan)
    except OSError as fault:
        raise BadInput(f"--out {visible(path)} cannot be made or written ({fault.strerror}): {_ELSE}") from fault
    return folder


def _trainer(folder: RunFolder, *arguments: str) -> list[str]:
    return python("rollbook.infra.demo.processes.trainer", str(folder.path), *arguments)


def _worker(folder: RunFolder, index: int) -> list[str]:
    return python("rollbook.infra.demo.processes.worker", str(folder.path), str(index))


def _rollbook(settings: Settings, *arguments: str) -> list[str]:
    """A command of rollbook, told by its environment which cluster and topics are meant."""
    env = shutil.which("env")
    assert env is not None, "POSIX has env"
    return [
        env,
        f"ROLLBOOK_BOOTSTRAP_SERVERS={settings.bootstrap_servers}",
        f"ROLLBOOK_TOPIC_PREFIX={settings.topic_prefix}",
        *python("rollbook.infra.cli", *arguments),
    ]


def _train(
    plan: Plan, folder: RunFolder, processes: Processes, feed: Feed, display: Display, interrupt: Interrupt
) -> None:
    """Watch the decisions until trainer and workers are done and the processor has decided all; lose a worker once, and
    the trainer once."""
    faults = planned_faults(plan.config)
    lost = plan.workers[faults.lost_worker]
    killed = trainer_follows = False
    display.say("warming up the policy")
    while any(processes.is_running(name) for name in ("trainer", *plan.workers)):
        decisions = feed.look()
        _show(decisions, display)
        if decisions and not killed:
            display.say("training")
        is_time = any(_activates(decision, faults.lost_at_version) for decision in decisions)
        if is_time and not killed and processes.is_running(lost):
            processes.kill(lost)
            processes.start(lost, _worker(folder, faults.lost_worker))
            display.say(f"training; {lost} was killed and comes back under a higher incarnation")
            killed = True
        if not trainer_follows and processes.was_killed("trainer"):
            # Whoever starts the next one looks the epoch up: a trainer that lost a race must not help itself to it.
            epoch = current_epoch(feed.settings, plan.run_id, plan.learner)
            processes.start("trainer", _trainer(folder, str(epoch)))
            display.say("training; the trainer was killed and starts again from its last checkpoint")
            trainer_follows = True
        processes.check()
        interrupt.check()
        time.sleep(_LOOK_S)
    deadline = time.monotonic() + PATIENCE_S
    while not feed.is_caught_up():
        processes.check()
        _show(feed.look(), display)
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"the processor is behind for {PATIENCE_S:.0f} s: see {folder.log('processor')}")


def _show(decisions: Iterable[Decision], display: Display) -> None:
    for decision in decisions:
        display.decided(decision)


def _activates(decision: Decision, version: int) -> bool:
    return (
        decision.record_type == "Activate"
        and decision.outcome is Outcome.ACCEPTED
        and decision.active_policy is not None
        and decision.active_policy.version == version
    )


def _look_back(plan: Plan, folder: RunFolder, cluster: Cluster, display: Display, began: float) -> DemoResult:
    """Everything that is known afterwards comes from the topics alone."""
    display.say("reading the topics, writing and replaying the bundles")
    settings, run_id = cluster.settings, plan.run_id
    with KafkaLog(settings) as log:
        count = FiguresWatch()
        watch_again(log, settings, run_id, count)
        freshness = last_freshness(log, settings, run_id)
        folder.bundles.mkdir()
        report = materialize(log, Wanted.of_run(run_id, log, settings), folder.bundles)
    bundles, updates = [], []
    for written in report.written:
        if written.step_id is not None:
            continue
        found = replay_chain(written.path)
        updates.append(Replayed(written.path, found.verdict))
        for link in found.links[1:]:
            bundles.append(Replayed(link.report.path, link.report.verdict))
            display.replayed()
    return DemoResult(
        plan=plan,
        folder=folder,
        cluster=cluster,
        figures=figures(run_id, count),
        trained_again=count.roll_backs.trained_again,
        freshness=freshness,
        bundles=tuple(bundles),
        update_bundles=tuple(updates),
        undone=tuple(dict.fromkeys(p.update_id for p in report.problems if p.reason is NotWritten.ROLLED_BACK)),
        not_written=tuple(
            f"update {problem.update_id}: {problem.reason.value}: {problem.what}"
            for problem in report.problems
            if problem.reason is not NotWritten.ROLLED_BACK
        ),
        seconds=time.monotonic() - began,
        is_kept=False,
    )
