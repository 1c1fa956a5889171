"""A trainer as a process that pauses where the test says, for the test to stop it there.

python -m rollbook.tests.producers.pausing SERVERS PREFIX RUN LEASE_MS before|after

It claims a group, and starts its update before or after the pause; it says on stdout where it is, and goes on when a
line comes on stdin.
"""

import sys

from rollbook.infra.settings import Settings
from rollbook.producers import Trainer, UpdateEnded
from rollbook.schemas.records.run import DriftGate
from rollbook.tests.producers.world import PATIENT, POLICY


def main(servers: str, prefix: str, run_id: str, lease_ms: str, pause: str) -> None:
    settings = Settings(bootstrap_servers=servers, topic_prefix=prefix)
    with Trainer(
        settings, run_id, "learner-0", lease_ms=int(lease_ms), drift_gate=DriftGate.OFF, options=PATIENT
    ) as trainer:
        trainer.start()
        with trainer.update(rollout_id=0) as update:
            update.claim(POLICY, max_groups=1, wait_s=60)
            if pause == "after":
                update.start()
            say("paused")
            sys.stdin.readline()
            try:
                if pause == "before":
                    update.start()
                update.step(update.trainable)
                say("stepped")
            except UpdateEnded:
                say("ended")
        say(f"{update.phase.value} {trainer.may_export}")


def say(word: str) -> None:
    print(word, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
