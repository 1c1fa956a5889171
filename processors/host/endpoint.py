"""A small HTTP server for those who watch: /metrics, /healthz, /readyz. Off unless asked for; it only reads.

It has no authentication, and metrics name runs: let it listen where only those who may know can ask.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from prometheus_client import CONTENT_TYPE_LATEST

from rollbook.processors.address import Address
from rollbook.processors.host.health import Answer, Health
from rollbook.processors.host.metrics import Metrics

_MOST_AT_ONCE = 8
_REQUEST_S = 5.0
_TEXT = "text/plain; charset=utf-8"


class Endpoint:
    """Serves while the block lasts. Raises EnvironmentFault when it cannot listen there."""

    def __init__(self, address: Address, metrics: Metrics, health: Health) -> None:
        pages: dict[str, Callable[[], _Reply]] = {
            "/metrics": lambda: _Reply(HTTPStatus.OK, CONTENT_TYPE_LATEST, metrics.exposition()),
            "/healthz": lambda: _reply(health.healthy()),
            "/readyz": lambda: _reply(health.ready()),
        }
        try:
            self._server = _server(address, pages)
        except (OSError, UnicodeError) as error:
            raise address.not_to_be_had("--http", error) from None
        self.address = Address(address.host, int(self._server.server_address[1]))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="http", daemon=True
        )

    def __enter__(self) -> "Endpoint":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class _Reply:
    status: HTTPStatus
    content_type: str
    body: bytes


def _reply(answer: Answer) -> _Reply:
    status = HTTPStatus.OK if answer.yes else HTTPStatus.SERVICE_UNAVAILABLE
    return _Reply(status, _TEXT, f"{'ok' if answer.yes else 'no'}: {answer.why}\n".encode())


class _Server(ThreadingHTTPServer):
    """At most so many requests at once; who comes then is sent away."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16
    allow_reuse_address = True
    pages: dict[str, Callable[[], _Reply]]

    def __init__(self, address: Address, family: socket.AddressFamily) -> None:
        self.address_family = family
        self._places = threading.BoundedSemaphore(_MOST_AT_ONCE)
        super().__init__((address.host, address.port), _Handler)

    def server_bind(self) -> None:
        """Without looking up the host's name, as the library's own does: that may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        connection = request[1] if isinstance(request, tuple) else request
        assert isinstance(connection, socket.socket)
        late = threading.Timer(
            _REQUEST_S, _hang_up, (connection,)
        )  # who trickles keeps within each time-out of its own
        late.daemon = True
        late.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            late.cancel()
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Who asked has gone: nothing to tell anybody."""


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):  # it has just been closed
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD of the three pages."""

    timeout = _REQUEST_S
    server_version = "rollbook"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        make = self.server.pages.get(self.path.partition("?")[0])
        if make is None:
            reply = _Reply(HTTPStatus.NOT_FOUND, _TEXT, f"there are {', '.join(self.server.pages)}\n".encode())
        else:
            reply = make()
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """A probe every few seconds is nothing to log."""


def _server(address: Address, pages: dict[str, Callable[[], _Reply]]) -> _Server:
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    server = _Server(address, found[0][0])
    server.pages = pages
    return server
