"""Which prompts a worker answers, with which policy at the earliest, and when the answers are due. Pure."""

from dataclasses import dataclass

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.schedule import Episode, episodes_started_at
from rollbook.infra.demo.learning.task import Prompt, eval_prompts, train_prompt
from rollbook.schemas.records.rollout import Purpose


@dataclass(frozen=True, slots=True)
class Assignment:
    """One group to generate. It is published when the policy `due_version` is there, or a later one."""

    prompt: Prompt
    purpose: Purpose
    due_version: int

    @property
    def is_training(self) -> bool:
        return self.purpose is Purpose.TRAIN

    @property
    def key(self) -> str:
        """Its name in the worker's journal."""
        return f"{self.prompt.task_id}@{self.due_version}"


def assignments_until(config: DemoConfig, version: int, worker: int, workers: int) -> list[Assignment]:
    """Everything that worker number `worker` is to have begun once this policy is there, in order.

    All versions up to this one, since a worker that comes back catches up. The initial and the final policy are
    evaluated besides; evaluation comes last, so that the trainer need not wait for it.
    """
    found: list[Assignment] = []
    for reached in range(version + 1):
        found += [_training(config, episode) for episode in episodes_started_at(config, reached)]
        if reached in (0, config.updates):
            found += [Assignment(prompt, Purpose.EVAL, reached) for prompt in eval_prompts(config)]
    return [assignment for assignment in found if assignment.prompt.row % workers == worker]


def _training(config: DemoConfig, episode: Episode) -> Assignment:
    return Assignment(train_prompt(config, episode.row), Purpose.TRAIN, episode.due_version)
