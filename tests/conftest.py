"""Fixtures for all parts: one real broker a test session, and topics of their own for each test."""

import signal
import threading
from collections.abc import Iterator

import pytest

from rollbook.infra.settings import Settings
from rollbook.tests.session_broker import SessionBroker, own_topics, session_bootstrap_servers
from rollbook.tests.together import in_order, put_together

PARTITIONS = 2


def pytest_configure(config: pytest.Config) -> None:
    """The controller (or the only process) offers a broker; workers of pytest-xdist find it in their environment."""
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        offer = SessionBroker()
        offer.open()
        config.add_cleanup(offer.close)


@pytest.hookimpl(tryfirst=True)  # what hands the tests out reads the groups in a hook of its own
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each worker collects all tests, in the same order."""
    if hasattr(config, "workerinput"):
        put_together(items)
        in_order(items)


@pytest.fixture(scope="session")
def broker() -> str:
    """The bootstrap servers of the session's broker, started at the first use. Shared: never stop it, use `settings`.

    `ROLLBOOK_BOOTSTRAP_SERVERS` runs the tests against an existing cluster.
    """
    return session_bootstrap_servers()


@pytest.fixture
def settings(broker: str) -> Iterator[Settings]:
    """Settings with a topic prefix of this test's own, its six topics made (2 partitions) and deleted afterwards."""
    with own_topics(broker, PARTITIONS) as own:
        yield own
