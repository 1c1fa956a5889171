"""What a dashboard is sent by anybody who can reach its port: bytes on a connection, to the real server in this
process. Whatever they are, it answers in its own words or hangs up, and nothing of it is a defect. And what it says of
names that it has read: metrics must be readable whatever they are.
"""

import asyncio
import logging
import re
import select
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from http import HTTPStatus
from urllib.parse import quote

from prometheus_client.parser import text_string_to_metric_families

from rollbook.infra.settings import Settings
from rollbook.processors.address import Address
from rollbook.processors.dashboard.answers import Reading
from rollbook.processors.dashboard.exposition import Exposition
from rollbook.processors.dashboard.shared import Shared, Standing
from rollbook.processors.dashboard.web.access import Access
from rollbook.processors.dashboard.web.lookup import Lookup
from rollbook.processors.dashboard.web.pages import Pages
from rollbook.processors.dashboard.web.server import Web
from rollbook.processors.dashboard.web.stream import Frames, Streams
from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.decision import Decision, FreshnessSnapshot
from rollbook.tests.fuzz import recorded
from rollbook.tests.fuzz.avro import changed
from rollbook.tests.fuzz.records import snapshots
from rollbook.tests.fuzz.target import Target, noted, told
from rollbook.tests.processors.dashboard.stored import BEGAN_MS, Message

_FIRST_S = 0.2
_SILENT_S = 0.02
"""After which a server is not waited for any longer: it waits for the rest of what is none."""
_STARTS_WITHIN_S = 30.0
_MOST = 1 << 20
_TOKEN = "a-token-of-the-programme"
_STATUS = re.compile(rb"^HTTP/1\.[01] ([0-9]{3}) ", re.MULTILINE)
_HISTORY = "walk-gate"


class _Complaints(logging.Handler):
    """What the server says of itself that no request may bring about."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(self.format(record))


class _Server:
    """A dashboard's server on a free port, in a thread, with a run that was read and no Kafka behind it."""

    def __init__(self) -> None:
        self.complaints = _Complaints()
        for name in ("rollbook.dashboard", "asyncio", "aiohttp"):
            logging.getLogger(name).addHandler(self.complaints)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listening.getsockname()[1]
        self._ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), name="fuzzed", daemon=True).start()
        assert self._ready.wait(_STARTS_WITHIN_S)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.complaints.heard.append(str(context)))
        settings = Settings(bootstrap_servers="127.0.0.1:1")
        shared = _shared(settings)
        workers, readers = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        frames = Frames(shared, workers)
        lookup = Lookup(settings, shared)
        pages = Pages(shared, Streams(frames), lookup, lambda: 0.0, Exposition(shared), workers, readers)
        web = Web(self._listening, Access(Address("127.0.0.1", self.port), _TOKEN), pages, frames)
        await web.start()
        self._ready.set()
        await asyncio.Event().wait()

    def answer(self, data: bytes) -> bytes:
        """All that comes back."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.setblocking(False)
            got, left = b"", data
            while len(got) < _MOST:
                readable, writable, _ = select.select(
                    [connection], [connection] if left else [], [], _SILENT_S if got else _FIRST_S
                )
                if writable:
                    try:
                        left = left[connection.send(left) :]
                    except ConnectionError:
                        break
                if readable:
                    try:
                        new = connection.recv(1 << 16)
                    except ConnectionError:
                        break
                    if not new:
                        break
                    got += new
                if not (readable or writable):
                    break
        return got


def _shared(settings: Settings) -> Shared:
    shared = Shared(settings)
    rows = recorded.rows(f"histories/{_HISTORY}.avro")
    taken = [Message(at, BEGAN_MS + 100 * at, "", row["decision"]) for at, row in enumerate(rows)]
    shared.take(taken, [Message(at, BEGAN_MS, "", value) for at, value in enumerate(snapshots())])
    shared.stand(Standing(Reading.LIVE))
    return shared


@cache
def _server() -> _Server:
    return _Server()


def http(data: bytes) -> bool:
    """Some bytes on a connection of their own; `TOKEN` in them stands for the right token."""
    server = _server()
    server.complaints.heard.clear()
    got = server.answer(data.replace(b"TOKEN", _TOKEN.encode()))
    statuses = [int(one) for one in _STATUS.findall(got)]
    noted(" ".join(HTTPStatus(one).phrase for one in statuses[:3] if one in set(HTTPStatus)))
    assert 500 not in statuses, got[:500]
    assert not server.complaints.heard, server.complaints.heard[0]
    for head in (one for one in got.split(b"\r\n\r\n") if _STATUS.match(one) and not one.startswith(b"HTTP/1.1 100")):
        assert b"nosniff" in head, head
        assert b"Server: rollbook" in head, head
    return 200 in statuses


def _run_id() -> str:
    return decode_as(Decision, recorded.rows(f"histories/{_HISTORY}.avro")[0]["decision"]).run_id


def _requests() -> Sequence[bytes]:
    def request(path: str, *headers: str, method: str = "GET", body: str = "") -> bytes:
        lines = (f"{method} {path} HTTP/1.1", "Host: 127.0.0.1:9401", *headers, "", body)
        return "\r\n".join(lines).encode()

    known, name = (
        "Authorization: Bearer TOKEN",
        decode_as(Decision, recorded.rows(f"histories/{_HISTORY}.avro")[0]["decision"]).run_id,
    )
    run, form = f"/api/runs/{quote(name, safe='')}", f"token={_TOKEN}"
    part = '--b\r\nContent-Disposition: form-data; name="token"\r\n\r\nx\r\n--b--\r\n'
    origin = "Origin: http://127.0.0.1:9401"
    return [
        request("/healthz"),
        request("/"),
        request("/?token=TOKEN"),
        request(run, known, "Accept-Encoding: gzip;q=1.0, br"),
        request(f"{run}/series?size=1m&since=3", known),
        request(f"{run}/decisions?limit=5", known),
        request(f"{run}/trajectories?id=nobody", known),
        request(f"/api/stream?run={name}&size=1s", known, "Last-Event-ID: abcdef-7"),
        request("/api/runs", "Cookie: rollbook-dashboard-9401=x; other=y", "Sec-Fetch-Site: cross-site"),
        request("/metrics", known, "Connection: close"),
        request("/login", origin, "Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(form)}",
                method="POST", body=form),
        request("/login", origin, 'Content-Type: multipart/form-data; boundary="b"', "Transfer-Encoding: chunked",
                method="POST", body=f"{len(part):x}\r\n{part}\r\n0\r\n\r\n"),
        request("/static/index.html", known, 'If-None-Match: "x"', method="HEAD"),
        request("/api/status", known) + request("/api/openapi.json", known),
    ]  # fmt: skip


_WORDS = (
    b"Host: 127.0.0.1:9401\r\n", b"Authorization: Bearer TOKEN\r\n", b"Cookie: a=b; c=\"d\\\"\"\r\n", b"\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"Expect: 100-continue\r\n", b"Upgrade: websocket\r\n",
    b"Content-Encoding: gzip\r\n", b"Content-Encoding: deflate\r\n", b"HTTP/1.0", b"HTTP/0.9", b"OPTIONS ", b"PUT ",
    b"CONNECT ", b"http://127.0.0.1:9401/api/runs", b"%2e%2e%2f", b"%00", b"?size=", b"&since=", b"?token=TOKEN", b"#",
    b"multipart/form-data", b"; boundary=", b"charset=utf-16", b"Accept-Encoding: gzip;q=,*;q=x\r\n",
    b"If-None-Match: ", b"Range: bytes=0-\r\n", b"X-Forwarded-Proto: https,,\r\n", b"Last-Event-ID: ",
)  # fmt: skip


def exposition(data: bytes) -> bool:
    """A snapshot with any names: what the dashboard's metrics say of it is read by Prometheus' own client."""
    found = told(lambda: decode_as(FreshnessSnapshot, data))
    if found is None:
        return False
    shared = Shared(Settings())
    shared.take([], [Message(0, BEGAN_MS, found.run_id, data)])
    shared.stand(Standing(Reading.LIVE))
    text = Exposition(shared)().decode()
    labels = {
        sample.labels["run"] for family in text_string_to_metric_families(text) for sample in family.samples
        if "run" in sample.labels
    }  # fmt: skip
    assert labels <= {found.run_id}
    return True


TARGETS = (
    Target("http", "the dashboard's port", _requests, http, words=_WORDS),
    Target("exposition", "the names in its metrics", snapshots, exposition, changed),
)
