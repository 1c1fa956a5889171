"""The dashboard as a process of its own, and what asks it: the standard library's HTTP client, nothing of ours."""

import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from rollbook.infra.settings import Settings, variable_for

STARTS_WITHIN_S = 30.0
ENDS_WITHIN_S = 5.0
"""It is two seconds by itself; the machine does other things too."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.text())

    def text(self) -> str:
        zipped = self.headers.get("content-encoding") == "gzip"
        return (gzip.decompress(self.body) if zipped else self.body).decode()


@dataclass
class Event:
    """A server-sent event."""

    id: str
    frame: Any
    at: float = field(default_factory=time.monotonic)


class Served:
    """A dashboard that runs."""

    def __init__(self, port: int, process: "subprocess.Popen[str] | None" = None) -> None:
        self.port = port
        self.process = process

    def ask(
        self,
        path: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: str | None = None,
        host: str | None = None,
    ) -> Reply:
        """One request on a connection of its own; the path goes out as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if host != "":
                connection.putheader("Host", host or f"127.0.0.1:{self.port}")
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Type", "application/x-www-form-urlencoded")
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(None if body is None else body.encode())
            answer = connection.getresponse()
            lowered = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, lowered, answer.read())
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        """The answer, which is none of an error."""
        reply = self.ask(path)
        assert reply.status == 200, (path, reply.status, reply.text())
        return reply.json()

    def status(self) -> Any:
        return self.json("/api/status")

    def events(self, query: str = "", headers: Mapping[str, str] | None = None) -> "Events":
        return Events(self.port, query, headers or {})

    def await_status(self, is_so: Callable[[Any], bool], seconds: float = 30) -> Any:
        """The first status that is so."""
        return await_that(self.status, is_so, seconds)


class Events:
    """A stream that is open until it is closed."""

    def __init__(self, port: int, query: str, headers: Mapping[str, str]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self._connection.request("GET", f"/api/stream{query}", headers=dict(headers))
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.headers = {name.lower(): value for name, value in self._answer.getheaders()}
        self.retry = ""

    def next(self) -> Event:
        """The next event; StopIteration where the stream ends."""
        name, data = "", ""
        while line := self._answer.readline().decode():
            key, _, value = line.rstrip("\n").partition(": ")
            if key == "retry":
                self.retry = value
            elif key == "id":
                name = value
            elif key == "data":
                data = value
            elif data:
                return Event(name, json.loads(data))
        raise StopIteration

    def until(self, is_so: Callable[[Any], bool], seconds: float = 20) -> Event:
        """The first event whose frame is so."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            event = self.next()
            if is_so(event.frame):
                return event
        raise AssertionError(f"no such event within {seconds} s")

    def close(self) -> None:
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._answer.close()
        self._connection.close()

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def await_that(ask: Callable[[], Any], is_so: Callable[[Any], bool], seconds: float = 30) -> Any:
    """What is asked for, as soon as it is so."""
    end = time.monotonic() + seconds
    while True:
        found = ask()
        if is_so(found):
            return found
        assert time.monotonic() < end, f"not within {seconds} s: {found}"
        time.sleep(0.05)


def command(*options: str) -> list[str]:
    """`rollbook dashboard`."""
    return [sys.executable, "-m", "rollbook.infra.cli", "dashboard", *options]


def environment(settings: Settings, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROLLBOOK_")}
    return {
        **kept,
        "ROLLBOOK_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "ROLLBOOK_TOPIC_PREFIX": settings.topic_prefix,
        **{variable_for(name): value for name, value in settings.kafka},
        **more,
    }


@contextmanager
def dashboard(settings: Settings, *options: str, listen: str = "127.0.0.1:0", **more: str) -> Iterator[Served]:
    """A dashboard as long as the block lasts, which ends in time, with its streams open."""
    process = subprocess.Popen(
        command("--listen", listen, *options), env=environment(settings, **more), text=True, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("http://"), line + process.stderr.read()
        served = Served(int(line.split("/")[2].rpartition(":")[2]), process)
        await_that(lambda: _answers(served), bool, STARTS_WITHIN_S)
        yield served
        if process.poll() is None:
            end(process)
    finally:
        process.kill()
        process.communicate()


def end(process: "subprocess.Popen[str]", number: signal.Signals = signal.SIGTERM) -> str:
    """End it as a supervisor does; what it has said."""
    began = time.monotonic()
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    took = time.monotonic() - began
    assert process.returncode == 0, said
    assert took < ENDS_WITHIN_S, f"it took {took:.1f} s to end"
    return said


def _answers(served: Served) -> bool:
    try:
        return served.ask("/healthz").status == 200
    except OSError:
        return False
