"""A broker of the tests' own, which they may stop, freeze or kill."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings
from rollbook.infra.topics.topics import create_topics
from rollbook.producers import Options, RewardService
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.world import RULE


class Cluster:
    """The broker with its topics made; each test has a run of its own."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.settings = Settings(bootstrap_servers=broker.bootstrap_servers)
        create_topics(self.settings, PARTITIONS)

    def freeze(self) -> None:
        """From now on it takes connections and answers nothing: quicker to end than a restart."""
        pid = self._pid
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)  # its threads stop one by one, and each could still answer

    def thaw(self) -> None:
        """It answers again, what it was asked meanwhile included."""
        os.kill(self._pid, signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Frozen as long as the block lasts."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def rewards(self, run_id: str = "run-0", **options: Any) -> RewardService:
        return RewardService(self.settings, run_id, "rewards-0", RULE, options=Options(**options))

    @property
    def _pid(self) -> int:
        assert self.broker.pid is not None, "it runs"
        return self.broker.pid
