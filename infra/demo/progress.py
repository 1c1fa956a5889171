"""How far a demo is, read off its decisions: bars on a terminal, silence elsewhere."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.schedule import episodes_due_at
from rollbook.schemas.records.decision import Decision, Outcome


class Display:
    """Three bars and a word on what is going on. A context manager."""

    def __init__(self, console: Console, config: DemoConfig) -> None:
        groups = sum(len(episodes_due_at(config, version)) for version in range(config.updates))
        trajectories = (groups + 2 * config.eval_prompts) * config.samples_per_prompt
        self._progress = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[word]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._trajectories = self._progress.add_task("trajectories decided", total=trajectories, word="")
        self._updates = self._progress.add_task("updates committed", total=config.updates, word="")
        self._policies = self._progress.add_task("policies activated", total=config.updates, word="")
        self._bundles = self._progress.add_task(
            "bundles replayed", total=config.updates * config.steps_per_update, word=""
        )

    def say(self, word: str) -> None:
        """What is going on."""
        self._progress.update(self._trajectories, word=word)

    def decided(self, decision: Decision) -> None:
        """Count an accepted decision."""
        if decision.outcome is Outcome.ACCEPTED:
            task = {
                "Generated": self._trajectories,
                "GenerationFailed": self._trajectories,
                "Commit": self._updates,
                "Activate": self._policies,
            }.get(decision.record_type)
            if task is not None:
                self._progress.advance(task)

    def replayed(self) -> None:
        """Count a bundle."""
        self._progress.advance(self._bundles)

    def __enter__(self) -> "Display":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
