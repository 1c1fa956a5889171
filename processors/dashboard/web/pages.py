"""The pages of the dashboard, each a thin line between a request and what is shared; `routes.py` is their table."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from aiohttp import web
from multidict import MultiMapping

from rollbook.processors.dashboard.answers import Answer, Reading, Size
from rollbook.processors.dashboard.shared import Shared
from rollbook.processors.dashboard.supervisor import HEALTHY_WITHIN_S
from rollbook.processors.dashboard.web import guard
from rollbook.processors.dashboard.web.answering import JSON, Refused, accepts_gzip, answer, encoded, shown, zipped
from rollbook.processors.dashboard.web.assets import Asset, load
from rollbook.processors.dashboard.web.guard import Guard
from rollbook.processors.dashboard.web.lookup import Lookup, unknown_run
from rollbook.processors.dashboard.web.openapi import description
from rollbook.processors.dashboard.web.routes import (
    DESCRIPTION,
    LIMIT,
    LONGEST_ID,
    ROUTES,
    SINCE,
    SIZE,
    Parameter,
    Route,
)
from rollbook.processors.dashboard.web.stream import Asked, Streams

PLAIN = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
_INDEX = "index.html"
_A = TypeVar("_A", bound=Answer)
_T = TypeVar("_T")


class Pages:
    """Handlers of one dashboard. What takes time runs on `workers`, and what waits for Kafka on `readers`."""

    def __init__(
        self,
        shared: Shared,
        streams: Streams,
        lookup: Lookup,
        silent_s: Callable[[], float],
        metrics: Callable[[], bytes],
        workers: Executor,
        readers: Executor,
    ) -> None:
        self._shared = shared
        self._streams = streams
        self._lookup = lookup
        self._silent_s = silent_s
        self._metrics = metrics
        self._workers = workers
        self._readers = readers
        self._files = load("static")
        self._login = load("login")
        self._description = _json(description())

    def put(self, app: web.Application, guard_of: Guard) -> None:
        """Give the application its routes."""
        handlers = self._handlers()
        for route in ROUTES:
            app.router.add_get(route.path, partial(_checked, route, handlers[route.name]))
        app.router.add_get(DESCRIPTION, self._openapi)
        app.router.add_get(guard.LOGIN, self._login_form)
        app.router.add_post(guard.LOGIN, guard_of.sign_in)
        for path in (guard.LOGIN_STYLE, guard.LOGIN_SCRIPT):
            app.router.add_get(path, partial(self._asset, self._login, path.removeprefix("/")))
        app.router.add_get("/", partial(self._asset, self._files, _INDEX))
        app.router.add_get("/{file:.+}", self._static)

    def close(self) -> None:
        """Let go what still waits; the process is about to end."""
        self._streams.close()
        self._lookup.close()
        for executor in (self._workers, self._readers):
            executor.shutdown(wait=False, cancel_futures=True)

    def _handlers(self) -> Mapping[str, guard.Handler]:
        return {
            "status": self._status,
            "runs": self._runs,
            "run": self._run,
            "series": self._series,
            "decisions": self._decisions,
            "trajectory": self._trajectory,
            "trajectory_by_id": self._trajectory_by_id,
            "stream": self._stream,
            "metrics": self._metrics_page,
            "healthz": self._healthz,
            "readyz": self._readyz,
        }

    async def _status(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, self._shared.status)

    async def _runs(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, self._shared.runs)

    async def _run(self, request: web.Request) -> web.StreamResponse:
        run = request.match_info["run"]
        return await self._answered(request, lambda: _known(run, self._shared.now(run)))

    async def _series(self, request: web.Request) -> web.StreamResponse:
        run, size, since = request.match_info["run"], _size(request.query), _number(request.query, SINCE)
        return await self._answered(request, lambda: _known(run, self._shared.series(run, size, since)))

    async def _decisions(self, request: web.Request) -> web.StreamResponse:
        run, limit = request.match_info["run"], _number(request.query, LIMIT)
        most = LIMIT.schema["default"] if limit is None else limit
        return await self._answered(request, lambda: _known(run, self._shared.decisions(run, most)))

    async def _trajectory(self, request: web.Request) -> web.StreamResponse:
        run, trajectory = request.match_info["run"], request.match_info["trajectory"]
        return await self._answered(request, lambda: self._lookup.trajectory(run, trajectory), self._readers)

    async def _trajectory_by_id(self, request: web.Request) -> web.StreamResponse:
        run, trajectory = request.match_info["run"], request.query["id"]
        return await self._answered(request, lambda: self._lookup.trajectory(run, trajectory), self._readers)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return await self._streams.serve(request, Asked(request.query.get("run"), _size(request.query)))

    async def _metrics_page(self, request: web.Request) -> web.StreamResponse:
        return await self._made(request, self._metrics, METRICS, self._workers)

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        silent_s = self._silent_s()
        why = f"the reader went round {silent_s:.1f} s ago, {HEALTHY_WITHIN_S:.0f} s are allowed"
        return _yes_or_no(silent_s <= HEALTHY_WITHIN_S, why)

    async def _readyz(self, _: web.Request) -> web.StreamResponse:
        standing = self._shared.standing
        return _yes_or_no(standing.reading is Reading.LIVE, standing.fault or standing.reading.value)

    async def _openapi(self, request: web.Request) -> web.StreamResponse:
        return await self._made(request, lambda: self._description, JSON, self._workers)

    async def _login_form(self, request: web.Request) -> web.StreamResponse:
        """It says where it is sent from, which the rule of all other pages would make browsers keep to themselves."""
        response = self._login["wrong.html" if "wrong" in request.query else "login.html"].answer(request)
        response.headers["Referrer-Policy"] = "same-origin"
        return response

    async def _static(self, request: web.Request) -> web.StreamResponse:
        return await self._asset(self._files, request.match_info["file"].removeprefix("static/"), request)

    @staticmethod
    async def _asset(files: Mapping[str, Asset], name: str, request: web.Request) -> web.StreamResponse:
        found = files.get(name)
        if found is None:
            raise web.HTTPNotFound
        return found.answer(request)

    async def _answered(
        self, request: web.Request, make: Callable[[], _A], workers: Executor | None = None
    ) -> web.StreamResponse:
        return await self._made(request, lambda: encoded(make()), JSON, workers or self._workers)

    @staticmethod
    async def _made(
        request: web.Request, make: Callable[[], bytes], content_type: str, workers: Executor
    ) -> web.StreamResponse:
        wants_gzip = accepts_gzip(request)

        def work() -> tuple[bytes, bytes | None]:
            body = make()
            return body, zipped(body) if wants_gzip else None

        body, in_gzip = await asyncio.get_running_loop().run_in_executor(workers, work)
        return answer(body, content_type, in_gzip)


async def _checked(
    route: Route, handler: Callable[[web.Request], Awaitable[web.StreamResponse]], request: web.Request
) -> web.StreamResponse:
    """What is the same for all: parameters that the table has, each once, and names that can be names."""
    known = {parameter.name: parameter for parameter in route.parameters if parameter.where.value == "query"}
    for name in request.query if request.path.startswith("/api/") else ():
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise Refused(HTTPStatus.BAD_REQUEST, f"{shown(name)} is no parameter of {route.path}: {takes}")
        if len(request.query.getall(name)) > 1:
            raise Refused(HTTPStatus.BAD_REQUEST, f"parameter {name} is given more than once: give it once")
    for parameter in known.values():
        if parameter.required and not request.query.get(parameter.name):
            raise Refused(HTTPStatus.BAD_REQUEST, f"parameter {parameter.name} is missing: give it")
    for name in (*request.match_info.values(), *(request.query.get(one, "") for one in ("run", "id"))):
        if len(name) > LONGEST_ID:
            raise Refused(HTTPStatus.NOT_FOUND, f"{shown(name)} is no id: the longest has {LONGEST_ID} characters")
    return await handler(request)


def _known(run: str, found: _A | None) -> _A:
    if found is None:
        raise unknown_run(run)
    return found


def _size(query: MultiMapping[str]) -> Size:
    given = query.get(SIZE.name, SIZE.schema["default"])
    try:
        return Size(given)
    except ValueError:
        choices = ", ".join(size.value for size in Size)
        raise Refused(HTTPStatus.BAD_REQUEST, f"size {shown(given)} is none: it is one of {choices}") from None


def _number(query: MultiMapping[str], parameter: Parameter) -> int | None:
    given = query.get(parameter.name)
    if given is None:
        return None
    low, high = parameter.schema["minimum"], parameter.schema["maximum"]
    if not (given.isascii() and given.isdigit() and len(given) <= 16 and low <= int(given) <= high):
        raise Refused(
            HTTPStatus.BAD_REQUEST, f"{parameter.name} {shown(given)} is no whole number from {low} to {high}"
        )
    return int(given)


def _yes_or_no(yes: bool, why: str) -> web.Response:
    status = HTTPStatus.OK if yes else HTTPStatus.SERVICE_UNAVAILABLE
    return answer(f"{'ok' if yes else 'no'}: {why}\n".encode(), PLAIN, None, status)


def _json(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
