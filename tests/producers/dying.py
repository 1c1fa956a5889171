"""A worker with its reward service that publishes until it is killed.

python -m rollbook.tests.producers.dying SERVERS PREFIX RUN COUNT

It publishes COUNT trajectories, each with its payload and then a reward for it, and says so when all are acknowledged;
at a line on stdin it publishes as many again, says how many of all records were acknowledged, and waits.
"""

import sys

from rollbook.infra.settings import Settings
from rollbook.producers import RewardService, RolloutWorker, new_identity
from rollbook.schemas.records.rollout import FinishReason
from rollbook.tests.producers.world import CONTRACT_HASH, RULE, TASK, row


def main(servers: str, prefix: str, run_id: str, count: str) -> None:
    settings = Settings(bootstrap_servers=servers, topic_prefix=prefix)
    with RolloutWorker(settings, run_id, "worker-0") as worker, RewardService(settings, run_id, "r-0", RULE) as rewards:
        publish(worker, rewards, int(count))
        assert worker.flush(20) == rewards.flush(20) == 0
        say("acknowledged")
        sys.stdin.readline()
        publish(worker, rewards, int(count))
        say(f"{worker.counters.delivered} {rewards.counters.delivered}")
        sys.stdin.readline()


def publish(worker: RolloutWorker, rewards: RewardService, count: int) -> None:
    for index in range(count):
        identity = new_identity(f"group-{index}", 0, 1)
        worker.generated(
            identity,
            [row(index)],
            task=TASK,
            contract_hash=CONTRACT_HASH,
            finish_reason=FinishReason.STOP,
            rollout_partition_id="batch-0",
        )
        rewards.reward(identity.trajectory_id, 1.0)


def say(word: str) -> None:
    print(word, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
