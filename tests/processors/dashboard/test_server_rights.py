"""On a broker with authorisation on: the rights of a reader suffice, and what is missing is said on the page."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.acl_table import Role, acls_for
from rollbook.infra.topics.acls import apply_acls
from rollbook.infra.topics.topics import create_topics
from rollbook.tests.infra.rich_run import rich
from rollbook.tests.infra.secured import SECRET, Secured, secured_broker
from rollbook.tests.processors.dashboard.serving import dashboard

STRANGER = "stranger"
ONLY_LOOKS = "only-looks"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured"), [Role.READER, STRANGER, ONLY_LOOKS]) as broker:
        create_topics(broker.admin, 2)
        apply_acls(acls_for(Role.READER, f"User:{Role.READER}", broker.admin), broker.admin)
        # A worker may see that the decisions topic is there, and may not read it.
        apply_acls(acls_for(Role.WORKER, f"User:{ONLY_LOOKS}", broker.admin), broker.admin)
        producer = Producer(broker.admin.client({}))
        for value in rich("run-1", 2).log.decisions:
            producer.produce(broker.admin.topic(Topic.DECISIONS), value, b"run-1", 0)
        assert producer.flush(30) == 0
        yield broker


def test_a_reader_s_rights_are_enough(secured: Secured) -> None:
    for settings in (secured.user(Role.READER), secured.tls_user(Role.READER)):
        with dashboard(settings) as served:
            served.await_status(lambda status: status["reading"] == "live")
            assert served.json("/api/runs/run-1")["totals"]["decisions"] == 41
            assert served.json("/api/runs/run-1/trajectories/t0")["steps"]


def test_what_is_missing_is_said(secured: Secured) -> None:
    for settings in (secured.user(STRANGER), secured.user(ONLY_LOOKS)):
        with dashboard(settings) as served:
            told = served.await_status(lambda status: status["fault"].startswith("no right"))
            assert "rollbook topics acl" in told["fault"]
            assert told["reading"] != "live"


def test_who_is_not_let_in_is_told_where_to_look(secured: Secured) -> None:
    known = secured.user(Role.READER)
    wrong = tuple((name, "wrong-" + SECRET if name == "sasl.password" else value) for name, value in known.kafka)
    settings: Settings = replace(known, kafka=wrong)
    with dashboard(settings) as served:
        told = served.await_status(lambda status: "does not let us in" in status["fault"])
        assert "sasl.password" in told["fault"]
        assert SECRET not in str(told)
