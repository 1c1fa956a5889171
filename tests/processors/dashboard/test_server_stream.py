"""How frames are shared among clients: each is made once, a slow client gets the newest state, and nothing piles up."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from rollbook.infra.settings import Settings
from rollbook.processors.dashboard.answers import Frame, Reading, Size
from rollbook.processors.dashboard.shared import Mark, Shared, Standing
from rollbook.processors.dashboard.web import stream
from rollbook.processors.dashboard.web.stream import Asked, Frames, Streams

ASKED = Asked("r", Size.SECOND)
SECOND = Asked("r", Size.MINUTE)


class Changing(Shared):
    """Nothing but a revision that a test raises, and what was asked for."""

    def __init__(self) -> None:
        super().__init__(Settings())
        self.revision = 0
        self.made: list[tuple[Asked, Mark | None]] = []

    def news(self) -> object:
        return (self.revision, self.standing)

    def frame(self, run_id: str | None, size: Size, since: Mark | None) -> tuple[Frame, Mark]:
        self.made.append((Asked(run_id, size), since))
        found, _ = super().frame(run_id, size, None)
        return found, Mark("i", self.revision)


class Client:
    """Takes events as fast as it is let."""

    def __init__(self) -> None:
        self.took: list[str] = []
        self.times: list[float] = []
        self.may_take = asyncio.Event()
        self.may_take.set()

    async def write(self, data: bytes) -> None:
        await self.may_take.wait()
        if data.startswith(b"id: "):
            self.took.append(data.decode().partition("\n")[0].removeprefix("id: "))
            self.times.append(asyncio.get_running_loop().time())

    async def has(self, last: str) -> None:
        async with asyncio.timeout(5):
            while last not in self.took:
                await asyncio.sleep(0.005)


Story = Callable[[Changing, Callable[..., Client]], Awaitable[None]]


def play(story: Story, monkeypatch: pytest.MonkeyPatch, tick_s: float = 0.05, heartbeat_s: float = 60.0) -> Changing:
    """A story about clients of one dashboard, in its event loop."""
    monkeypatch.setattr(stream, "TICK_S", tick_s)
    monkeypatch.setattr(stream, "HEARTBEAT_S", heartbeat_s)
    shared = Changing()

    async def told() -> None:
        with ThreadPoolExecutor(2) as workers:
            frames = Frames(shared, workers)
            streams = Streams(frames)
            tasks = [asyncio.create_task(frames.keep_turning())]

            def comes(asked: Asked = ASKED, since: Mark | None = None) -> Client:
                client = Client()
                tasks.append(asyncio.create_task(streams._tell(cast(Any, client), asked, since)))
                return client

            try:
                await story(shared, comes)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(told())
    return shared


def test_what_several_are_told_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shared: Changing, comes: Callable[..., Client]) -> None:
        clients = [comes() for _ in range(20)] + [comes(SECOND)]
        for client in clients:
            await client.has("i-0")
        for revision in (1, 2):
            shared.revision = revision
            for client in clients:
                await client.has(f"i-{revision}")

    made = play(story, monkeypatch, tick_s=0.3).made
    later = [(asked, since) for asked, since in made if since is not None]
    assert sorted(later, key=str) == sorted(
        [(asked, Mark("i", before)) for asked in (ASKED, SECOND) for before in (0, 1)], key=str
    )


def test_a_slow_client_is_told_the_newest_state_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shared: Changing, comes: Callable[..., Client]) -> None:
        slow, quick = comes(), comes()
        await slow.has("i-0")
        slow.may_take.clear()
        for revision in range(1, 6):
            shared.revision = revision
            await quick.has(f"i-{revision}")
        slow.may_take.set()
        await slow.has("i-5")
        assert slow.took in (["i-0", "i-1", "i-5"], ["i-0", "i-5"]), "one that was made before, then the newest"

    made = play(story, monkeypatch).made
    assert (ASKED, Mark("i", 1)) in made, "it is told what changed since it was last told"


def test_who_was_told_before_is_told_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shared: Changing, comes: Callable[..., Client]) -> None:
        shared.revision = 7
        await comes(ASKED, Mark("i", 4)).has("i-7")

    assert play(story, monkeypatch).made == [(ASKED, Mark("i", 4))]


def test_what_changes_all_the_time_is_told_once_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shared: Changing, comes: Callable[..., Client]) -> None:
        client = comes()
        async with asyncio.timeout(30):
            while len(client.took) < 6:
                shared.revision += 1
                await asyncio.sleep(0.002)
        assert len(client.took) <= (client.times[-1] - client.times[0]) / 0.1 + 2, client.times

    play(story, monkeypatch, tick_s=0.1)


def test_a_change_of_where_it_stands_is_news_and_silence_has_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shared: Changing, comes: Callable[..., Client]) -> None:
        client = comes()
        await client.has("i-0")
        before = len(client.took)
        shared.stand(Standing(Reading.CUT_OFF, "no broker"))
        async with asyncio.timeout(5):
            while len(client.took) < before + 3:
                await asyncio.sleep(0.005)

    play(story, monkeypatch, heartbeat_s=0.2)
