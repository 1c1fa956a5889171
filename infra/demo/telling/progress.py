"""How far a demo is, read off its decisions: bars on a terminal, silence elsewhere."""

from collections.abc import Iterable
from types import TracebackType

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.schedule import episodes_due_at
from rollbook.processors.ledger.verdict import UPDATES_ROLLED_BACK
from rollbook.replay.progress import is_seen
from rollbook.schemas.records.decision import Decision, Outcome


class _Bars(Progress):
    """Bars below a line that says what is going on."""

    word = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield Text(self.word, style="bold")
        yield self.make_tasks_table(self.tasks)


class Display:
    """A context manager; what it shows is gone when the result is printed."""

    def __init__(self, console: Console, config: DemoConfig) -> None:
        groups = sum(len(episodes_due_at(config, version)) for version in range(config.updates))
        trajectories = (groups + 2 * config.eval_prompts) * config.samples_per_prompt
        self._bars = _Bars(
            TextColumn("{task.description:<22}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not is_seen(console),
            transient=True,
        )
        self._trajectories = self._bars.add_task("trajectories", total=trajectories)
        self._updates = self._bars.add_task("updates committed", total=config.updates)
        self._policies = self._bars.add_task("policies activated", total=config.updates)
        self._bundles = self._bars.add_task("bundles replayed", total=config.updates * config.steps_per_update)

    def say(self, word: str) -> None:
        """What is going on."""
        self._bars.word = word
        self._bars.refresh()

    def decided(self, decision: Decision) -> None:
        """Count an accepted decision."""
        if decision.outcome is not Outcome.ACCEPTED:
            return
        if decision.record_type == "Generated":
            self._bars.advance(self._trajectories)
        elif decision.record_type == "Commit":
            self._bars.advance(self._updates)
        elif decision.record_type == "Activate":
            self._bars.advance(self._policies)
        for change in decision.mass_changes if decision.record_type == "LearnerStarted" else ():
            if change.predicate == UPDATES_ROLLED_BACK:
                self._bars.advance(self._updates, -change.count)
            elif change.predicate == "policies orphaned":
                self._bars.advance(self._policies, -change.count)

    def replayed(self) -> None:
        """Count a bundle."""
        self._bars.advance(self._bundles)

    def __enter__(self) -> "Display":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()
