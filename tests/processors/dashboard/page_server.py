"""Serves the page with frames that a test gives it: the headers, paths and events of the dashboard, without Kafka."""

import json
import mimetypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit

from rollbook.processors.dashboard.answers import Decisions, Frame, Problem, Size, Trajectory
from rollbook.processors.dashboard.web.routes import LONGEST_ID

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
STATIC = Path(str(files("rollbook.processors.dashboard"))) / "static"
PATIENCE_S = 10.0
_POLL_S = 0.05
_COMMENT_S = 0.5
_HEARTBEAT_S = 3.0


class PageServer:
    """A context; `show` is what streams tell from now on. It can be stopped and started again on its port."""

    def __init__(self) -> None:
        self.heartbeats = True
        self.refusal = ""
        self.histories: dict[str, Trajectory] = {}
        self.decisions: Decisions | None = None
        self.asked: list[str] = []
        self._frames: dict[tuple[str, str], str] = {}
        self.streaming = 0
        """Streams that are open; that one was closed is seen with the next thing that it is told."""
        self._default: str | None = None
        self._revision = 0
        self._changed = threading.Condition()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self._ended = threading.Event()

    def __enter__(self) -> "PageServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def show(self, frame: Frame, size: Size | None = None, run: str | None = None) -> None:
        """Tell it all streams, or those of a length and run alone."""
        body = frame.model_dump_json()
        with self._changed:
            if size is None:
                self._default = body
            else:
                self._frames[size.value, run or ""] = body
            self._revision += 1
            self._changed.notify_all()

    def tell(self, body: str) -> None:
        """Tell all streams what is no frame."""
        with self._changed:
            self._frames.clear()
            self._default = body
            self._revision += 1
            self._changed.notify_all()

    def start(self) -> None:
        outer = self

        class Handler(_Handler):
            page_server = outer

        self._ended.clear()
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), daemon=True).start()

    def stop(self) -> None:
        assert self._server is not None
        self._ended.set()
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def frame(self, size: str, run: str) -> str | None:
        return self._frames.get((size, run), self._default)

    def stream(self, handler: BaseHTTPRequestHandler, size: str, run: str) -> None:
        """Each new state; while nothing is new, the same again after a while if there are heartbeats. Between them a
        comment, by which is seen who has gone."""
        with self._counting():
            self._tell(handler, size, run)

    def await_streams(self, wanted: int) -> None:
        """Until so many are open."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.streaming == wanted, PATIENCE_S), self.streaming

    @contextmanager
    def _counting(self) -> Iterator[None]:
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._changed:
            self.streaming += more
            self._changed.notify_all()

    def _tell(self, handler: BaseHTTPRequestHandler, size: str, run: str) -> None:
        sent, told_at = -1, 0.0
        while not self._ended.is_set():
            with self._changed:
                if self._revision == sent:
                    self._changed.wait(_COMMENT_S)
                revision, frame = self._revision, self.frame(size, run)
            if frame is None or self._ended.is_set():
                continue
            due = revision != sent or (self.heartbeats and time.monotonic() - told_at > _HEARTBEAT_S)
            body = f"retry: 300\nid: instance-1-{revision}\ndata: {frame}\n\n" if due else ":\n\n"
            sent, told_at = revision, time.monotonic() if due else told_at
            handler.wfile.write(body.encode())
            handler.wfile.flush()


class _Handler(BaseHTTPRequestHandler):
    page_server: PageServer

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        said = {name: values[0] for name, values in parse_qs(asked.query).items()}
        self.page_server.asked.append(self.path)
        try:
            if asked.path == "/api/stream":
                self._stream(said)
            elif asked.path.startswith("/api/runs/") and asked.path.endswith("/trajectories"):
                self._trajectory(said.get("id", ""))
            elif asked.path.startswith("/api/runs/") and asked.path.endswith("/decisions"):
                self._answer(self.page_server.decisions, "no such run is known")
            else:
                self._file(unquote(asked.path))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def _stream(self, said: dict[str, str]) -> None:
        if self.page_server.refusal:
            self._json(HTTPStatus.SERVICE_UNAVAILABLE, Problem(problem=self.page_server.refusal))
            return
        if len(said.get("run", "")) > LONGEST_ID:
            self._json(HTTPStatus.NOT_FOUND, Problem(problem=f"it is no id: the longest has {LONGEST_ID} characters"))
            return
        self._head(HTTPStatus.OK, "text/event-stream")
        self.page_server.stream(self, said.get("size", ""), said.get("run", ""))

    def _trajectory(self, trajectory_id: str) -> None:
        found = self.page_server.histories.get(trajectory_id)
        self._answer(found, f"no decision about {trajectory_id} is remembered")

    def _answer(self, found: Trajectory | Decisions | None, problem: str) -> None:
        if found is None:
            self._json(HTTPStatus.NOT_FOUND, Problem(problem=problem))
        else:
            self._json(HTTPStatus.OK, found)

    def _json(self, status: HTTPStatus, answer: Problem | Trajectory | Decisions) -> None:
        self._head(status, "application/json")
        self.wfile.write(json.dumps(answer.model_dump(mode="json")).encode())

    def _file(self, path: str) -> None:
        file = STATIC / (path.lstrip("/") or "index.html")
        if not file.resolve().is_relative_to(STATIC.resolve()) or not file.is_file():
            self._head(HTTPStatus.NOT_FOUND, "text/plain")
            return
        self._head(HTTPStatus.OK, mimetypes.guess_type(file.name)[0] or "text/plain")
        self.wfile.write(file.read_bytes())

    def _head(self, status: HTTPStatus, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
