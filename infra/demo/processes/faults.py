"""What goes wrong in a demo, on purpose: real runs lose processes, generations and rewards, and the ledger shows it."""

from dataclasses import dataclass

from rollbook.infra.demo.config import DemoConfig


@dataclass(frozen=True, slots=True)
class Faults:
    """Rows are those of the training data; each fails once, in its first attempt, in the member `sample_index`."""

    lost_worker: int
    """Index of the worker that is killed without warning."""
    lost_at_version: int
    """As soon as this policy is active."""
    crash_after_update: int
    """The trainer is killed once it has made so many, the policy of the last one active and no checkpoint of it."""
    failed_generation_row: int
    failed_reward_row: int
    sample_index: int = 2

    def generation_fails(self, row: int, attempt: int, sample_index: int) -> bool:
        return (row, attempt, sample_index) == (self.failed_generation_row, 0, self.sample_index)

    def reward_fails(self, row: int, attempt: int, sample_index: int) -> bool:
        return (row, attempt, sample_index) == (self.failed_reward_row, 0, self.sample_index)


def planned_faults(config: DemoConfig) -> Faults:
    """A generation in the second wave, a reward in the third, a worker early on and the trainer late, two updates after
    its last checkpoint."""
    wave = len(config.latencies)
    return Faults(
        lost_worker=1,
        lost_at_version=config.updates // 4,
        crash_after_update=config.updates // 2 // config.checkpoint_every * config.checkpoint_every + 2,
        failed_generation_row=wave + 1,
        failed_reward_row=2 * wave + 2,
    )
