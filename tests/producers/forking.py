"""A program that forks with an open client: the child is refused and can still exit, the parent goes on."""

import os
import sys

from rollbook.infra.settings import Settings
from rollbook.producers import ForkedClient, RewardService, Trainer
from rollbook.tests.producers.world import RULE


def main(bootstrap_servers: str, topic_prefix: str) -> None:
    settings = Settings(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    with (
        RewardService(settings, "run-0", "rewards-0", RULE) as rewards,
        Trainer(settings, "run-0", "learner-0"),
    ):
        rewards.reward("t-0", 1.0)
        child = os.fork()
        if child == 0:
            try:
                rewards.reward("t-1", 1.0)
            except ForkedClient as refusal:
                print(f"child: ForkedClient: {str(refusal).rpartition(': ')[2]}", flush=True)
            sys.exit(0)
        print(f"child exited with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
        rewards.reward("t-1", 1.0)
    print(f"parent delivered {rewards.counters.delivered}")


if __name__ == "__main__":
    main(*sys.argv[1:])
