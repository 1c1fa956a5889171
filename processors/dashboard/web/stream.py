"""Server-sent events: each frame is made once for all who are told the same, and a slow client gets the newest state.

All clients are told in the same moments, once a second, where something changed. Nothing is queued for anybody: who
was not ready in one of these moments is told in the next one what has changed since he was last told.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aiohttp import web

from rollbook.processors.dashboard.answers import Size
from rollbook.processors.dashboard.shared import Mark, Shared
from rollbook.processors.dashboard.web.answering import Refused, encoded, put_headers
from rollbook.processors.dashboard.web.routes import EVENTS

logger = logging.getLogger("rollbook.dashboard")

MOST_STREAMS = 64
TICK_S = 1.0
HEARTBEAT_S = 5.0
WRITE_S = 20.0
"""Who does not take an event for so long is hung up on; his browser connects again."""
AGAIN_MS = 2_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client is told of."""

    run_id: str | None
    size: Size


@dataclass(frozen=True, slots=True)
class Event:
    """A frame as it is sent, and up to where it tells."""

    data: bytes
    mark: Mark


class Frames:
    """Makes frames; what was made is kept until something changed, and never longer than a moment."""

    def __init__(self, shared: Shared, workers: Executor) -> None:
        self._shared = shared
        self._workers = workers
        self._made: dict[tuple[Asked, Mark | None], asyncio.Task[Event]] = {}
        self._turn = asyncio.Event()
        self._news: object = None
        self.turn = 0
        """Counts the moments in which there was something to tell."""

    async def keep_turning(self) -> None:
        """Once a second: what is new is told."""
        while True:
            await asyncio.sleep(TICK_S)
            self._made.clear()
            news = self._shared.news()
            if news != self._news:
                self._news = news
                self.turn += 1
                turned, self._turn = self._turn, asyncio.Event()
                turned.set()

    async def next_turn(self, seen: int, patience_s: float) -> None:
        """Wait until there is something that is newer than what was seen, or for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self.turn == seen:
                    await self._turn.wait()

    async def event(self, asked: Asked, since: Mark | None) -> Event:
        """What changed since."""
        key = (asked, since)
        task = self._made.get(key)
        if task is None:
            loop = asyncio.get_running_loop()
            task = self._made[key] = loop.create_task(self._make(asked, since))
        return await asyncio.shield(task)  # another one may be waiting for it, too

    async def _make(self, asked: Asked, since: Mark | None) -> Event:
        return await asyncio.get_running_loop().run_in_executor(self._workers, self._built, asked, since)

    def _built(self, asked: Asked, since: Mark | None) -> Event:
        frame, mark = self._shared.frame(asked.run_id, asked.size, since)
        return Event(b"id: %b\ndata: %b\n\n" % (str(mark).encode(), encoded(frame)), mark)


class Streams:
    """The clients that are being told, a bounded number of them."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._open: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Hang up on all: the dashboard ends, and has not to wait for whoever reads slowly."""
        for task in self._open:
            task.cancel()

    async def serve(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        """Tell until the client goes, or the dashboard ends."""
        if len(self._open) >= MOST_STREAMS:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{MOST_STREAMS} pages are open already: close one, or start another dashboard",
                {"Retry-After": "30"},
            )
        response = web.StreamResponse(headers={"Content-Type": f"{EVENTS}; charset=utf-8", "X-Accel-Buffering": "no"})
        put_headers(response)
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await response.prepare(request)
            if request.method != "HEAD":
                await self._tell(response, asked, Mark.parse(request.headers.get("Last-Event-ID")))
        except (ConnectionError, TimeoutError):
            _hang_up(request)
        except Exception:  # what was begun cannot become an answer that is an error: its browser connects again
            logger.exception("a stream failed")
            _hang_up(request)
        finally:
            self._open.discard(task)
        return response

    async def _tell(self, response: web.StreamResponse, asked: Asked, since: Mark | None) -> None:
        await _within(WRITE_S, response.write, b"retry: %d\n\n" % AGAIN_MS)
        while True:
            seen = self._frames.turn
            event = await self._frames.event(asked, since)
            await _within(WRITE_S, response.write, event.data)
            since = event.mark
            await self._frames.next_turn(seen, HEARTBEAT_S)


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _within(seconds: float, write: Callable[[bytes], Awaitable[None]], data: bytes) -> None:
    async with asyncio.timeout(seconds):
        await write(data)
