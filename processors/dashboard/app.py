"""The Faust app of the dashboard: its web server, the service that reads, and how it begins and ends.

Faust's own clients stay switched off: no consumer, so no group, no tables and no internal topics, and no producer, so
that nothing can be written. The service reads by confluent-kafka, with the settings of all other clients of rollbook.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import faust
from faust.app.base import BootStrategy

from rollbook.infra.settings import Settings
from rollbook.processors.dashboard.exposition import Exposition
from rollbook.processors.dashboard.reading.reader import Reader
from rollbook.processors.dashboard.shared import Shared
from rollbook.processors.dashboard.supervisor import Supervisor
from rollbook.processors.dashboard.web.access import Access
from rollbook.processors.dashboard.web.lookup import Lookup
from rollbook.processors.dashboard.web.pages import Pages
from rollbook.processors.dashboard.web.server import Web
from rollbook.processors.dashboard.web.stream import Frames, Streams
from rollbook.processors.stopping import stopping

logger = logging.getLogger("rollbook.dashboard")

_LEAVE_S = 1.8
_SWITCH_S = 0.001
"""A thread that reads a long log lets the others in so often; at Python's 5 ms a page waits for several such turns."""


class _NoKafka(BootStrategy):
    """Of what Faust would start the web server alone."""

    enable_kafka = False
    enable_sensors = False

    def agents(self) -> Iterable[Any]:
        return ()


class Dashboard(faust.App):
    """Without the folder that Faust makes for tables, and without the consumer that it makes to be ready."""

    BootStrategy = _NoKafka

    async def on_first_start(self) -> None:
        """No folder."""

    async def on_start(self) -> None:
        self.finalize()


def build(settings: Settings, listening: socket.socket, access: Access) -> Dashboard:
    """The app, with all its parts; called in the event loop that it will run in."""
    app = Dashboard("rollbook-dashboard", autodiscover=False, topic_disable_leader=True, topic_allow_declare=False)
    shared = Shared(settings)
    reader = Reader(settings, shared)
    supervisor = Supervisor(shared, reader.run, lambda: reader.turned_at)
    workers = ThreadPoolExecutor(2, "pages")
    readers = ThreadPoolExecutor(2, "histories")
    frames = Frames(shared, workers)
    pages = Pages(
        shared, Streams(frames), Lookup(settings, shared), supervisor.silent_s, Exposition(shared), workers, readers
    )
    app.web_server(Web(listening, access, pages, frames))
    app.service(supervisor)  # type: ignore[arg-type]  # it takes services that are made as well
    return app


async def serve(settings: Settings, listening: socket.socket, access: Access) -> None:
    """Serve until a signal asks for the end, or until a service fails, which is raised."""
    sys.setswitchinterval(_SWITCH_S)
    app = build(settings, listening, access)
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in stopping():
        loop.add_signal_handler(number, asked.set)
    try:
        await app.start()
        logger.info("serving http://%s", access.address)
        ends = loop.create_task(app.wait_until_stopped())
        stops = loop.create_task(asked.wait())
        await asyncio.wait((ends, stops), return_when=asyncio.FIRST_COMPLETED)
        for task in (ends, stops):
            task.cancel()
        if app.crash_reason is not None:
            raise app.crash_reason
    finally:
        try:
            await asyncio.wait_for(app.stop(), _LEAVE_S)
        except TimeoutError:
            logger.warning("not all parts ended within %s s: they are left behind", _LEAVE_S)
