"""The dashboard's API on a real broker: what it answers, that its description says so, and how its streams go on."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.dashboard.answers import Frame, Size
from rollbook.processors.dashboard.shared import Mark
from rollbook.processors.dashboard.web.openapi import description
from rollbook.processors.dashboard.web.routes import ROUTES
from rollbook.processors.dashboard.web.stream import HEARTBEAT_S, MOST_STREAMS
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.infra.rich_run import decide, rich
from rollbook.tests.processors.dashboard.serving import Events, Served, dashboard
from rollbook.tests.processors.history import History
from rollbook.tests.session_broker import own_topics

RUN = "team/run:1"
HOSTILE = "../<img src=x onerror=alert(1)>\"'%2F?#é\u202e\u2028\\"
DOTS = ".."


@dataclass(frozen=True, slots=True)
class Live:
    """A dashboard that has read a run, and where it reads from."""

    served: Served
    settings: Settings
    history: History


@pytest.fixture(scope="module")
def live(broker: str) -> Iterator[Live]:
    with own_topics(broker, PARTITIONS) as settings:
        history = rich(RUN, PARTITIONS)
        for name in (HOSTILE, DOTS):
            history.generated(name, group="strange")
        decide(settings, history)
        with dashboard(settings) as served:
            served.await_status(lambda status: status["reading"] == "live")
            yield Live(served, settings, history)


def run_path(rest: str = "", run: str = RUN) -> str:
    return f"/api/runs/{quote(run, safe='')}{rest}"


# What is answered


def test_a_run_is_there_once_it_is_live(live: Live) -> None:
    status = live.served.status()
    assert (status["fault"], status["behind"], status["topic_prefix"]) == ("", 0, live.settings.topic_prefix)
    assert live.served.ask("/readyz").text() == "ok: live\n"
    [line] = live.served.json("/api/runs")["runs"]
    assert (line["run_id"], line["decisions"]) == (RUN, len(live.history.log.records))
    now = live.served.json(run_path())
    assert now["run"] == line
    assert now["totals"]["decisions"] == len(live.history.log.records)


@pytest.mark.parametrize("size", list(Size))
def test_windows_of_each_length_hold_all_of_the_run(live: Live, size: Size) -> None:
    series = live.served.json(run_path(f"/series?size={size.value}"))
    assert sum(window["decisions"] for window in series["windows"]) == len(live.history.log.records)
    later = live.served.json(run_path(f"/series?size={size.value}&since={series['revision']}"))
    assert later["windows"] == []


def test_as_many_decisions_as_are_asked_for(live: Live) -> None:
    all_of_them = live.served.json(run_path("/decisions?limit=500"))["decisions"]
    assert [one["sequence"] for one in all_of_them] == list(range(len(live.history.log.records), 0, -1))
    assert live.served.json(run_path("/decisions?limit=3"))["decisions"] == all_of_them[:3]


def test_the_history_of_a_trajectory_is_read_from_the_log(live: Live) -> None:
    found = live.served.json(run_path("/trajectories/t0"))
    steps = [(step["record_type"], step["reason"], step["state_after"]) for step in found["steps"]]
    assert steps[:2] == [("Generated", "generated", "generated"), ("RewardReady", "rewarded", "rewarded")]
    assert [one for one in steps if one[0] == "Commit"] == [("Commit", "trained", "consumed")]
    assert found["complete"]
    assert found["more"] == f"rollbook explain t0 --run {RUN}"
    sequences = [step["sequence"] for step in found["steps"]]
    assert sequences == sorted(sequences)
    assert live.served.json(run_path("/trajectories?id=t0")) == found


@pytest.mark.parametrize("name", [HOSTILE, DOTS])
def test_any_id_can_be_asked_for(live: Live, name: str) -> None:
    found = live.served.json(run_path(f"/trajectories?id={quote(name, safe='')}"))
    assert (found["trajectory_id"], len(found["steps"])) == (name, 1)
    if name != DOTS:
        assert live.served.json(run_path(f"/trajectories/{quote(name, safe='')}")) == found


def test_what_is_not_known_is_a_problem_with_a_remedy(live: Live) -> None:
    for path, remedy in (
        (run_path(run="none"), "/api/runs"),
        (run_path("/series", run="none"), "/api/runs"),
        (run_path("/decisions", run="none"), "/api/runs"),
        (run_path("/trajectories/t0", run="none"), "/api/runs"),
        (run_path("/trajectories/none"), f"rollbook explain none --run {RUN}"),
        (f"/api/runs/{RUN}", "/api/openapi.json"),
    ):
        reply = live.served.ask(path)
        assert (reply.status, remedy in reply.json()["problem"]) == (404, True), reply.text()


@pytest.mark.parametrize(
    "path",
    [
        "/series?size=2m",
        "/series?since=-1",
        "/series?since=1e3",
        "/series?since=٣",
        "/decisions?limit=0",
        "/decisions?limit=501",
        "/decisions?limit=99999999999999999999",
        "/decisions?limit=",
        "/trajectories",
        "/trajectories?id=",
        "/series?sizes=1s",
    ],
)
def test_a_wrong_parameter_is_told(live: Live, path: str) -> None:
    reply = live.served.ask(run_path(quote(path, safe="/?=&")))
    assert reply.status == 400
    assert reply.json()["problem"]


def test_long_answers_come_in_gzip_where_that_is_taken(live: Live) -> None:
    plain, zipped = (live.served.ask(run_path(), headers={"Accept-Encoding": how}) for how in ("", "br, gzip"))
    assert (zipped.headers["content-encoding"], zipped.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert "content-encoding" not in plain.headers
    assert zipped.json() == plain.json()
    assert len(zipped.body) < len(plain.body) / 3
    assert "content-encoding" not in live.served.ask("/api/status", headers={"Accept-Encoding": "gzip"}).headers
    assert "content-encoding" not in live.served.ask(run_path(), headers={"Accept-Encoding": "gzip;q=0"}).headers


def test_a_file_that_the_browser_has_is_not_sent_again(live: Live) -> None:
    first = live.served.ask("/index.html")
    assert first.body == live.served.ask("/").body
    again = live.served.ask("/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body, again.headers["cache-control"]) == (304, b"", "no-cache")


def test_metrics_are_served(live: Live) -> None:
    reply = live.served.ask("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    records = len(live.history.log.records)
    assert f'rollbook_run_decisions_total{{run="{RUN}"}} {records:.1f}' in reply.text()


# Its description


def test_the_description_is_valid_and_served_as_it_is(live: Live) -> None:
    document = live.served.json("/api/openapi.json")
    assert document == json.loads(json.dumps(description()))
    OpenAPIV31SpecValidator(document).validate()
    assert set(document["paths"]) == {route.path for route in ROUTES} | {"/api/openapi.json"}
    for path, item in document["paths"].items():
        for operation in item.values():
            assert operation["summary"], path
            assert operation["description"], path
            in_path = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
            assert {f"{{{name}}}" for name in in_path} == {part for part in path.split("/") if part.startswith("{")}
            assert all(parameter["description"] for parameter in operation.get("parameters", ()))
    for name, schema in document["components"]["schemas"].items():
        for field, of in schema.get("properties", {}).items():
            assert of.get("description") or "$ref" in of, f"{name}.{field} is not described"


ASKED = [
    ("/api/status", "/api/status"),
    ("/api/runs", "/api/runs"),
    ("/api/runs/{run}", run_path()),
    ("/api/runs/{run}", run_path(run="none")),
    ("/api/runs/{run}/series", run_path("/series?size=1s")),
    ("/api/runs/{run}/series", run_path("/series?size=9s")),
    ("/api/runs/{run}/decisions", run_path("/decisions")),
    ("/api/runs/{run}/trajectories/{trajectory}", run_path("/trajectories/t0")),
    ("/api/runs/{run}/trajectories/{trajectory}", run_path("/trajectories/none")),
    ("/api/runs/{run}/trajectories", run_path("/trajectories?id=t4")),
    ("/api/runs/{run}/trajectories", run_path("/trajectories")),
    ("/api/stream", "/api/stream?size=9s"),
    ("/metrics", "/metrics"),
    ("/healthz", "/healthz"),
    ("/readyz", "/readyz"),
]


@pytest.mark.parametrize(("path", "asked"), ASKED)
def test_each_answer_is_as_it_is_described(live: Live, path: str, asked: str) -> None:
    document = description()
    reply = live.served.ask(asked)
    responses = document["paths"][path]["get"]["responses"]
    assert str(reply.status) in responses, f"{reply.status} is not described"
    [(media_type, content)] = responses[str(reply.status)]["content"].items()
    assert reply.headers["content-type"].startswith(media_type)
    if media_type == "application/json":
        _check(document, content["schema"], reply.json())
    with live.served.events(f"?run={quote(RUN, safe='')}&size=1m") as stream:
        _check(document, document["paths"]["/api/stream"]["get"]["responses"]["200"], stream.next().frame, EVENTS)


EVENTS = "text/event-stream"


def _check(document: dict[str, Any], schema: dict[str, Any], answer: object, media_type: str | None = None) -> None:
    wanted = schema if media_type is None else schema["content"][media_type]["schema"]
    OAS31Validator({**wanted, "components": document["components"]}).validate(answer)


def test_all_that_is_described_was_asked_for() -> None:
    assert {path for path, _ in ASKED} == {route.path for route in ROUTES}


# Streams


def test_a_stream_begins_with_everything_and_goes_on_with_what_changed(live: Live) -> None:
    settings, served = live.settings, live.served
    with served.events("?run=run-a&size=1s") as stream:
        first = stream.next()
        assert (stream.headers["content-type"], stream.retry) == (f"{EVENTS}; charset=utf-8", "2000")
        assert (first.frame["now"], first.frame["series"]) == (None, None)
        decide(settings, rich("run-a", PARTITIONS))
        told = stream.until(lambda frame: frame["now"] is not None and frame["now"]["run"]["decisions"] == 41)
        assert sum(window["decisions"] for window in told.frame["series"]["windows"]) == 41
        quiet = stream.next()
        assert quiet.frame["series"]["windows"] == []
        assert quiet.frame["now"] == told.frame["now"]
        Frame.model_validate(quiet.frame, strict=False)


def test_nothing_changes_and_the_last_update_is_still_new(live: Live) -> None:
    with live.served.events() as stream:
        first, second = stream.next(), stream.next()
        for _ in range(5):  # what an earlier test wrote may come yet
            if second.at - first.at > 1:
                break
            first, second = second, stream.next()
        assert second.at - first.at == pytest.approx(HEARTBEAT_S, abs=1.5)
        assert second.frame["status"]["now_ms"] > first.frame["status"]["now_ms"]
        assert second.frame["status"]["records"] == first.frame["status"]["records"]


def test_who_comes_back_is_told_what_changed_since(live: Live) -> None:
    query = f"?run={quote(RUN, safe='')}&size=10s"
    with live.served.events(query) as stream:
        first = stream.next()
    assert first.frame["series"]["windows"]
    with live.served.events(query, {"Last-Event-ID": first.id}) as stream:
        assert stream.next().frame["series"]["windows"] == []
    instance, _, revision = first.id.rpartition("-")
    for unknown in (f"{'0' * 12}-{revision}", "nonsense", "", f"{instance}-", f"{instance}-{'9' * 30}", "-1"):
        with live.served.events(query, {"Last-Event-ID": unknown}) as stream:
            assert stream.next().frame["series"] == first.frame["series"], unknown


def test_a_mark_is_read_as_it_is_written() -> None:
    mark = Mark("abc-def", 7)
    assert Mark.parse(str(mark)) == mark
    assert Mark.parse(None) is None


def test_all_are_told_the_same_in_the_same_moment(live: Live) -> None:
    streams = [live.served.events("?run=run-b&size=1s") for _ in range(5)]
    try:
        for stream in streams:
            stream.next()
        decide(live.settings, rich("run-b", PARTITIONS))
        told = [stream.until(lambda frame: frame["now"] is not None) for stream in streams]
        assert len({event.id for event in told}) == 1
        assert len({json.dumps(event.frame) for event in told}) == 1, "made once"
    finally:
        for stream in streams:
            stream.close()


def test_one_stream_too_many_is_told_so(live: Live) -> None:
    streams: list[Events] = []
    try:
        while len(streams) < MOST_STREAMS:
            streams.append(live.served.events())
        refused = live.served.ask("/api/stream")
        assert (refused.status, refused.headers["retry-after"]) == (503, "30")
        assert "close one" in refused.json()["problem"]
        assert live.served.ask("/api/status").status == 200
        streams.pop().close()
        with live.served.events() as stream:
            assert stream.status in (200, 503)
    finally:
        for stream in streams:
            stream.close()


# It only reads


def _seen(settings: Settings) -> object:
    admin = AdminClient(settings.client({}))
    metadata = admin.list_topics(timeout=10)
    every = (group.group_id for group in admin.list_consumer_groups().result().valid)
    # Those of other tests, which have the broker at the same time, come and go.
    groups = sorted(one for one in every if one.startswith(settings.topic_prefix) or not one.startswith("test-"))
    asker = Consumer(settings.client({"group.id": "asker"}))
    try:
        ends = {
            (topic, partition): asker.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            for topic, found in metadata.topics.items()
            if topic.startswith(settings.topic_prefix)
            for partition in found.partitions
        }
    finally:
        asker.close()
    mine = sorted(name for name in metadata.topics if name.startswith((settings.topic_prefix, "__", "rollbook-dash")))
    return mine, groups, ends


def test_nothing_is_written_and_no_group_or_topic_made(settings: Settings) -> None:
    decide(settings, rich("run-1", PARTITIONS))
    before = _seen(settings)
    with dashboard(settings) as one, dashboard(settings) as another:
        for served in (one, another):
            served.await_status(lambda status: status["reading"] == "live")
            served.ask("/api/runs/run-1/trajectories/t0")
            served.ask("/metrics")
            with served.events("?run=run-1") as stream:
                assert stream.next().frame["now"]["run"]["decisions"] == 41
        assert one.status()["instance"] != another.status()["instance"]
    assert _seen(settings) == before
    assert settings.topic(Topic.LIFECYCLE) in str(before)
