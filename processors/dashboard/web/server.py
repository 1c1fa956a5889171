"""The web server, as a service of the Faust app: bounded connections, bounded requests, an end within a second.

Faust starts it in place of its own server, which bounds neither and waits a minute for open streams.
"""

import asyncio
import socket
from http import HTTPStatus

from aiohttp import web
from mode import Service

from rollbook.processors.dashboard.web.access import Access
from rollbook.processors.dashboard.web.answering import problem, put_headers
from rollbook.processors.dashboard.web.guard import Guard, Handler, put_all_headers
from rollbook.processors.dashboard.web.pages import Pages
from rollbook.processors.dashboard.web.stream import MOST_STREAMS, Frames

MOST_CONNECTIONS = 4 * MOST_STREAMS
REQUEST_S = 10.0
"""For the first request to be there whole; afterwards a connection may be silent for longer."""
KEEP_ALIVE_S = 60.0
LINGER_S = 1.0
LONGEST_LINE = 8_190
LONGEST_BODY = 4_096
_LEAVE_S = 0.5


class _Connection(web.RequestHandler):
    """A client's connection. One that says nothing is closed soon; of too many one that waits for its next request, or
    else the newest, at once."""

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=LINGER_S,
            max_line_size=LONGEST_LINE,
        )
        self._all = server
        self._silent: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._all.connections) > MOST_CONNECTIONS:
            waiting = (one for one in self._all.connections if one is not self and one._current_request is None)
            spare = next(waiting, self)
            spare.force_close()
            if spare is self:
                return
        self._silent = asyncio.get_running_loop().call_later(REQUEST_S, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.arrived()
        super().connection_lost(exc)

    def arrived(self) -> None:
        """A request is there."""
        if self._silent is not None:
            self._silent.cancel()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is no HTTP, or too long: the library would answer in its own words and without our headers."""
        response = problem(status, "a request that is no HTTP, or too long: see /api/openapi.json")
        put_headers(response)
        response.force_close()
        return response


class Web(Service):  # type: ignore[misc, unused-ignore]
    """Serves on a socket that listens already."""

    def __init__(self, listening: socket.socket, access: Access, pages: Pages, frames: Frames) -> None:
        super().__init__()
        self._listening = listening
        self._guard = Guard(access)
        self._pages = pages
        self._frames = frames
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def on_start(self) -> None:
        app = web.Application(middlewares=[_first, self._guard.middleware()], client_max_size=LONGEST_BODY)
        app.on_response_prepare.append(put_all_headers)
        self._pages.put(app, self._guard)
        self._runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=_LEAVE_S, handler_cancellation=True)
        await self._runner.setup()
        manager = self._runner.server
        assert manager is not None
        loop = asyncio.get_running_loop()
        self.add_future(self._frames.keep_turning())
        self._server = await loop.create_server(lambda: _Connection(manager, loop), sock=self._listening)

    async def on_stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self._pages.close()
        if self._runner is not None:
            await self._runner.cleanup()


@web.middleware
async def _first(request: web.Request, handler: Handler) -> web.StreamResponse:
    if isinstance(request.protocol, _Connection):
        request.protocol.arrived()
    return await handler(request)
