"""One set of topics and one processor for all tests of the clients that do not stop it; each test has its own run."""

from collections.abc import Iterator

import pytest

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings
from rollbook.producers import Trainer
from rollbook.schemas.records.run import DriftGate
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.cluster import Cluster
from rollbook.tests.producers.world import PATIENT, World, processor, world
from rollbook.tests.session_broker import own_topics


@pytest.fixture(scope="session")
def processed(broker: str) -> Iterator[Settings]:
    """Settings whose topics a processor works on until the session ends: never stop it, never count other runs."""
    with own_topics(broker, PARTITIONS) as settings, processor(settings):
        yield settings


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A broker that tests stop, freeze and kill; each leaves it running."""
    with EmbeddedBroker() as broker:
        yield Cluster(broker)


@pytest.fixture
def run(processed: Settings) -> Iterator[World]:
    """A configured run of the test's own."""
    with world(processed) as made:
        yield made


@pytest.fixture
def ungated(processed: Settings) -> Iterator[World]:
    """A run without the drift gate, where a row can be trained on without an Admit."""
    with world(processed, drift_gate=DriftGate.OFF) as made:
        yield made


@pytest.fixture
def trainer(run: World) -> Iterator[Trainer]:
    """A started learner of the run."""
    with Trainer(run.settings, run.run_id, "learner-0", options=PATIENT) as made:
        made.start()
        yield made
