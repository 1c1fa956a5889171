"""The whole way, on a real broker and in a real browser: records, processor, dashboard, page. What the page shows is
what an independent recount of the topics finds, and trouble is there for whoever looks."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page

from rollbook.infra.settings import Settings, Topic
from rollbook.schemas.partition import partition_of
from rollbook.tests import recount
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.dashboard.serving import dashboard
from rollbook.tests.processors.history import History
from rollbook.tests.processors.hosting import host_in_thread, send

RUN = "page/live"
WORKERS = ("worker-0", "worker-1")
PATIENCE_MS = 30_000
_PASSED = ("ok", "reserved", "idempotent_retry")
_NO = ("rejected", "invalid", "undecodable")


@dataclass
class Live:
    """A run whose records go to the broker, and the page that shows it."""

    settings: Settings
    history: History
    page: Page
    sent: int = 0

    def publish(self) -> None:
        """What the history has come to since."""
        records = self.history.log.records[self.sent :]
        send(self.settings, [(one.partition, one.key or b"", one.value or b"") for one in records])
        self.sent += len(records)

    def shows(self, **figures: object) -> None:
        """Wait until the page shows these figures."""
        for name, wanted in figures.items():
            self.page.wait_for_function(
                "([name, wanted]) => document.querySelector(`[data-figure=${name}]`)?.dataset.value === wanted",
                arg=[name, str(wanted)],
                timeout=PATIENCE_MS,
            )

    def figure(self, name: str) -> float:
        value = self.page.get_attribute(f"[data-figure={name}]", "data-value")
        assert value is not None
        return float(value)


@pytest.fixture
def live(settings: Settings, chromium: Browser) -> Iterator[Live]:
    history = History(RUN, topic_partitions=PARTITIONS)
    history.opened(workers=WORKERS, max_lag=1, lease_ms=60_000)
    history.learner()
    with host_in_thread(settings), dashboard(settings) as served, opened(chromium) as page:
        page.goto(f"http://127.0.0.1:{served.port}/#run={RUN}")
        found = Live(settings, history, page)
        yield found


@contextmanager
def opened(chromium: Browser) -> Iterator[Page]:
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    page.close()
    assert complaints == []


def trained(history: History) -> None:
    """Three groups, one of them trained on, one dropped; a failure, a refusal, two policies."""
    history.ready("t0", "t1", "t2", "t3")
    history.failed("t4")
    history.generated("t5")
    history.reward_failed("t5")
    history.trained("u0", "t0", "t1")
    for worker in WORKERS:
        history.ack(worker, 0)
    history.reserve("u1", "t0")  # consumed already
    follows(history, 1, "u0")
    history.ready("t6", version=1)
    history.reserve("u2", "t2")


def follows(history: History, version: int, *updates: str) -> None:
    """Another policy is prepared, acknowledged and activated."""
    history.prepared(version, *updates)
    for worker in WORKERS:
        history.ack(worker, version)
    history.activate(version)


def counted(settings: Settings) -> dict[str, float]:
    """The page's figures, from the topics by other code."""
    codec = recount.Codec()
    rows: dict[bytes, Any] = {}
    for record in recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.LEDGER)):
        rows[record.key] = None if record.value is None else codec.decode(record.value)
    kept = [row for row in rows.values() if row is not None]
    of = {
        kind: [fields for name, fields in kept if name == kind]
        for kind in ("TrajectoryState", "PolicyState", "RunHead")
    }
    depth = {one["version"]: one["depth"] for one in of["PolicyState"]}
    active = of["RunHead"][0]["active"]["version"]
    lags = Counter(
        depth[active] - min(depth[one["version"]] for one in row["policies"])
        for row in of["TrajectoryState"]
        if row["status"] == "rewarded"
    )
    decisions = [
        codec.decode(record.value or b"")[1]
        for record in recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.DECISIONS))
    ]
    gates = [one for one in decisions if one["record_type"] in ("Reserve", "Admit") and one["items"]]
    others = [one for one in decisions if one not in gates]
    moved = Counter(
        (item["state_before"], item["state_after"]) for one in decisions for item in one["items"] if item["state_after"]
    )
    return {
        "decisions": len(decisions),
        "active_version": active,
        "ready": lags.total(),
        "ready_fresh": lags[0],
        "ready_tolerated": lags[1],
        "ready_expiring": lags[1],
        "ready_stale": lags[2] + lags[3],
        "consumed": moved["reserved", "consumed"],
        "generated": sum(
            count for (before, after), count in moved.items() if after == "generated" and before == "none"
        ),
        "refused_rows": sum(item["reason"] not in _PASSED for one in gates for item in one["items"]),
        "refused_records": sum(one["outcome"] in _NO for one in others),
        "failures_generation": sum(count for (_, after), count in moved.items() if after == "generation_failed"),
        "failures_reward": moved["generated", "reward_failed"],
        "window_admitted": sum(
            item["reason"] == "ok" for one in gates if one["record_type"] == "Admit" for item in one["items"]
        ),
    }


def test_the_page_shows_what_a_recount_of_the_topics_finds(live: Live) -> None:
    trained(live.history)
    live.publish()
    live.shows(decisions=live.sent, ready=2, open_update_count=1)
    wanted = counted(live.settings)
    assert {name: live.figure(name) for name in wanted} == wanted
    assert wanted["consumed"] == 2
    assert wanted["refused_rows"] == 1
    # A stale burst: what is ready is two policies behind at once.
    for version in (2, 3):
        follows(live.history, version)
    live.publish()
    live.shows(decisions=live.sent, active_version=3, ready_stale=2)
    wanted = counted(live.settings)
    assert {name: live.figure(name) for name in wanted} == wanted
    assert live.page.get_attribute("[data-tile=ready_stale]", "data-mark") == "beyond"
    # A worker is gone: it generates and acknowledges nothing, and the activation is refused.
    live.history.failed("t7", version=3)
    live.history.prepared(4)
    live.history.ack(WORKERS[0], 4)
    live.history.activate(4)
    live.publish()
    live.shows(decisions=live.sent, failures_generation=2, acks_v4=1)
    board = live.page.inner_text("[data-policy='4']")
    assert "missing worker ack" in board or "worker mismatch" in board
    assert WORKERS[1] in board
    # What an aborted transaction wrote never shows.
    aborted(live.settings, live.history)
    live.history.ready("t8", version=3)
    live.publish()
    live.shows(decisions=live.sent)
    wanted = counted(live.settings)
    assert {name: live.figure(name) for name in wanted} == wanted


def aborted(settings: Settings, history: History) -> None:
    """Decisions that were never committed."""
    producer = Producer(settings.client({"transactional.id": "never commits"}))
    producer.init_transactions(30)
    producer.begin_transaction()
    for folded in history.log.folded:
        place = partition_of(RUN, PARTITIONS)
        producer.produce(settings.topic(Topic.DECISIONS), folded.encoded, RUN.encode(), place)
    producer.flush(30)
    producer.abort_transaction(30)
