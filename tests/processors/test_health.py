"""Health and readiness from the host's events, and the small server that tells them."""

import http.client
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from rollbook.infra.settings import Settings
from rollbook.processors.address import Address
from rollbook.processors.host import endpoint as served
from rollbook.processors.host import watch
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.endpoint import Endpoint
from rollbook.processors.host.health import READY_LAG, Health
from rollbook.processors.host.logs import LogFormat, at, configure, fault
from rollbook.processors.host.loop import Host
from rollbook.processors.host.metrics import Metrics
from rollbook.processors.host.transaction import LONG_MS
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.hosting import SESSION_TIMEOUT_MS
from rollbook.tests.processors.test_host import _await
from rollbook.tests.processors.test_metrics import HandClock
from rollbook.tests.processors.test_poison import running


def told(*events: watch.Event) -> Health:
    health = Health(HandClock())
    for event in events:
        health(event)
    return health


BOTH = (watch.Restored(0, 5, 9, 0.1), watch.Restored(1, 5, 9, 0.1), watch.Assigned((0, 1)))


@pytest.mark.parametrize(
    ("events", "ready", "why"),
    [
        ((), False, "no partitions were assigned yet"),
        ((watch.Assigned(()),), True, "standing by"),
        (BOTH, False, "partition 0 is restored, and not read yet"),
        ((*BOTH, watch.Lags({0: 0})), False, "partition 1 is restored, and not read yet"),
        ((*BOTH, watch.Lags({0: 0, 1: READY_LAG})), True, "2 partitions, restored and caught up"),
        ((*BOTH, watch.Lags({0: 0, 1: READY_LAG + 1})), False, "partition 1 is 1,001 records behind, 1,000 are"),
        ((*BOTH, watch.Lags({0: 0, 1: 0}), watch.PartitionStopped(1, 7)), False, "partition 1 is stopped before"),
        ((*BOTH, watch.Lags({0: 0, 1: 9_000}), watch.Released((1,))), True, "1 partitions"),
        ((*BOTH, watch.PartitionStopped(1, 7), watch.Lags({0: 0}), watch.Released((1,))), True, "1 partitions"),
        ((*BOTH, watch.Lags({0: 0, 1: 0}), watch.Restored(0, 5, 9, 0.1)), False, "partition 0 is restored, and not"),
        ((*BOTH, watch.Lags({0: 0, 1: 0}), watch.Opening(2)), False, "partition 2 is being restored"),
        ((*BOTH, watch.Opening(2), watch.PartitionStopped(2, None)), False, "partition 2 cannot be opened"),
        (
            (
                *BOTH,
                watch.PartitionStopped(1, 7),
                watch.Opening(1),
                watch.Restored(1, 5, 9, 0.1),
                watch.Lags({0: 0, 1: 0}),
            ),
            True,
            "2 partitions",
        ),
    ],
)
def test_ready_is_who_has_restored_and_caught_up(events: tuple[watch.Event, ...], ready: bool, why: str) -> None:
    answer = told(*events).ready()
    assert (answer.yes, answer.why[: len(why)]) == (ready, why)


def test_healthy_is_whose_loop_goes_round() -> None:
    clock = HandClock()
    health = Health(clock, healthy_within_s=30)
    assert health.healthy().yes
    clock.at += 31
    assert not health.healthy().yes
    assert "31.0 s ago, 30 s are allowed" in health.healthy().why
    health(watch.Alive())
    assert health.healthy().yes


def test_a_transaction_that_changes_very_much_is_given_its_time() -> None:
    clock = HandClock()
    health = Health(clock, healthy_within_s=30)
    health(watch.Began(long=True))
    clock.at += LONG_MS / 1000
    assert health.healthy().yes
    clock.at += 1
    assert not health.healthy().yes
    health(watch.Began(long=False))
    clock.at -= 200
    assert not health.healthy().yes


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    clock = HandClock()
    with Endpoint(Address("127.0.0.1", 0), Metrics(clock, "p"), Health(clock)) as found:
        yield found


def ask(address: Address, method: str, path: str) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    found = answer.status, str(answer.getheader("Content-Type")), answer.read()
    connection.close()
    return found


def test_the_pages(endpoint: Endpoint) -> None:
    status, kind, body = ask(endpoint.address, "GET", "/metrics?name[]=x")
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert b"rollbook_processor_info" in body
    assert ask(endpoint.address, "GET", "/healthz")[0] == 200
    assert ask(endpoint.address, "GET", "/readyz")[::2] == (503, b"no: no partitions were assigned yet\n")
    assert ask(endpoint.address, "HEAD", "/healthz")[::2] == (200, b"")
    assert ask(endpoint.address, "GET", "/../etc/passwd")[0] == 404
    assert ask(endpoint.address, "POST", "/metrics")[0] == 501


def test_who_asks_and_never_says_what_blocks_nobody(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    place = (endpoint.address.host, endpoint.address.port)
    silent = [socket.create_connection(place) for _ in range(served._MOST_AT_ONCE - 1)]
    assert ask(endpoint.address, "GET", "/healthz")[0] == 200
    for one in silent:
        one.close()


def test_who_trickles_blocks_nobody_for_long(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_REQUEST_S", 0.5)
    place, over = (endpoint.address.host, endpoint.address.port), threading.Event()
    trickling = [socket.create_connection(place) for _ in range(served._MOST_AT_ONCE)]

    def trickle() -> None:
        while not over.wait(0.1):
            for one in trickling:
                with suppress(OSError):  # it was hung up
                    one.send(b"G")

    thread = threading.Thread(target=trickle)
    thread.start()

    def answers() -> bool:
        with suppress(OSError, http.client.HTTPException):  # sent away: all places are taken
            return ask(endpoint.address, "GET", "/healthz")[0] == 200
        return False

    try:
        _await(answers, seconds=5)
    finally:
        over.set()
        thread.join()
        for one in trickling:
            one.close()


def test_a_port_that_is_taken_is_said_in_one_line(endpoint: Endpoint) -> None:
    clock = HandClock()
    with pytest.raises(
        EnvironmentFault, match=r"^--http 127.0.0.1:\d+: cannot listen there \(Address already in use\)"
    ):
        Endpoint(endpoint.address, Metrics(clock, "p"), Health(clock))
    with pytest.raises(EnvironmentFault, match="cannot listen there"):
        Endpoint(Address("no.such.host.invalid", 1), Metrics(clock, "p"), Health(clock))


def test_it_ends_at_once_and_leaves_no_thread(endpoint: Endpoint) -> None:
    clock = HandClock()
    with Endpoint(Address("::1", 0), Metrics(clock, "p"), Health(clock)) as other:
        assert ask(other.address, "GET", "/healthz")[0] == 200
        began = time.monotonic()
    assert time.monotonic() - began < 2
    assert sum(thread.name == "http" for thread in threading.enumerate()) == 1  # that of the fixture


@pytest.mark.parametrize("text", ["", "9400", ":9400", "::1:9400", "h:", "h:x", "h:65536", "h:-1", "h\n:1", "h:٣"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadInput, match="is no HOST:PORT"):
        Address.parse(text, "--http", 9400)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("[::]", "the port is missing, use [::]:9400"),
        ("::1", "the port is missing, use [::1]:9400"),
        ("0.0.0.0", "the port is missing, use 0.0.0.0:9400"),
        ("localhost", "the port is missing, use localhost:9400"),
        ("9400", "use for example 127.0.0.1:9400 or [::1]:9400"),
        ("http://x:1/", "use for example 127.0.0.1:9400 or [::1]:9400"),
    ],
)
def test_a_host_alone_is_told_what_it_lacks(text: str, remedy: str) -> None:
    with pytest.raises(BadInput) as refusal:
        Address.parse(text, "--http", 9400)
    assert str(refusal.value) == f"--http {text!a} is no HOST:PORT: {remedy}"


def test_addresses() -> None:
    assert Address.parse("localhost:0", "--http", 9400) == Address("localhost", 0)
    assert str(Address.parse("[::1]:9400", "--http", 9400)) == "[::1]:9400"


@pytest.fixture
def root_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


SECRET = "sk-secret\x1b[31m"


def raised() -> Exception:
    try:
        raise KeyError(SECRET)
    except KeyError as error:
        return error


@pytest.mark.parametrize("log_format", LogFormat)
@pytest.mark.usefixtures("root_logging")
def test_a_line_says_where_and_no_contents(log_format: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    configure(log_format, logging.INFO)
    error = raised()
    logging.getLogger("rollbook.t").error("%s\n\x1b[2J", fault(error), exc_info=error, extra=at(3, 7, "r\n\u202e"))
    shown = capsys.readouterr().err
    assert "sk-secret" not in shown
    assert "KeyError" in shown
    assert "test_health.py" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    if log_format is LogFormat.TEXT:
        assert "partition=3 offset=7 run=r\\n\\u202e" in shown
    else:
        assert shown.count("\n") == 1
        assert '"partition": 3, "offset": 7' in shown


def test_an_error_of_ours_keeps_its_message() -> None:
    assert fault(BadInput("what and where")) == "BadInput: what and where"
    assert fault(KeyError(SECRET)) == "KeyError"


def test_who_gets_no_partition_stands_by(settings: Settings) -> None:
    healths = [Health(SystemClock()) for _ in range(PARTITIONS + 1)]
    hosts = [Host(settings, f"p{at}", SESSION_TIMEOUT_MS, watches=(one,)) for at, one in enumerate(healths)]
    with ExitStack() as working:
        for host in hosts:
            working.enter_context(running(host))
        one_each = sorted(["standing by", *["1 partitions, restored and caught up"] * PARTITIONS])
        _await(lambda: sorted(health.ready().why for health in healths) == one_each)
    assert all(health.healthy().yes for health in healths)


def test_an_error_of_no_partition_has_no_place() -> None:
    assert at(-1, -1001) == {}
    assert at(0, 0, "r") == {"partition": 0, "offset": 0, "run": "r"}
