"""One at a time: processes are threads that hand over a baton at each call, and a seeded source says who goes on.

Time is a number that grows by a little at each step, and jumps to the next thing that is due when all wait.
"""

import heapq
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

FOR_EVER = 1e12


class Crash(BaseException):
    """The process died here. Nothing of the host catches it, as nothing catches SIGKILL."""


class Endless(Exception):
    """The simulation makes steps and comes to no end."""


@dataclass(eq=False)
class Process:
    """One process of the simulated machine. It waits until `wake_at`, or until `ready` says so."""

    name: str
    wake_at: float = 0.0
    ready: Callable[[], bool] | None = None
    paused_until: float = 0.0
    dying: bool = False
    ended: bool = False
    failure: BaseException | None = None
    baton: threading.Lock = field(default_factory=threading.Lock)

    def kill(self) -> None:
        """It ends at the call it is in."""
        self.dying = True
        self.paused_until = 0.0


class Scheduler:
    """Who steps next, when, and what the world does in between (`tick`)."""

    def __init__(self, seed: int, most_steps: int, trace: list[str] | None = None) -> None:
        self.random = random.Random(seed)
        self.now = 1_000.0
        self.steps = 0
        self.processes: list[Process] = []
        self.tick: Callable[[], None] = lambda: None
        self.before_call: Callable[[Process], None] = lambda _: None
        self.trace = trace
        self._most_steps = most_steps
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbered = 0
        self._main = threading.Lock()
        self._main.acquire()
        self._running: Process | None = None
        self._finished: Callable[[], bool] = lambda: True
        self._failure: BaseException | None = None

    # ---- what the world uses

    def say(self, who: str, what: str) -> None:
        """A line of the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.steps:6d} {self.now - 1_000:9.3f} {who:8s} {what}")

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        """Let something happen after a while."""
        self._numbered += 1
        heapq.heappush(self._events, (self.now + seconds, self._numbered, event))

    def spawn(self, name: str, work: Callable[[Process], None]) -> Process:
        """A new process, which runs `work` from its first turn on."""
        process = Process(name)
        process.baton.acquire()
        self.processes.append(process)
        threading.Thread(target=self._live, args=(process, work), name=name, daemon=True).start()
        return process

    def run(self, finished: Callable[[], bool]) -> None:
        """Let the processes work until the condition holds; raises what the world's `tick` raised."""
        self._finished = finished
        chosen = self._choose()
        if chosen is not None:
            self._running = chosen
            chosen.baton.release()
            self._main.acquire()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def bury(self) -> None:
        """End what still lives, so that no thread is left."""
        for process in self.processes:
            process.kill()
        self.tick = lambda: None
        self._most_steps = self.steps + 10_000
        self.run(lambda: not self.processes)

    # ---- what processes use

    @property
    def me(self) -> Process:
        """The process whose turn it is."""
        assert self._running is not None, "only a process calls a client"
        return self._running

    def step(self) -> None:
        """A point at which another may go on, and at which a process can die."""
        self.wait(0.0)

    def wait(self, seconds: float, ready: Callable[[], bool] | None = None) -> None:
        """Wait, until the condition holds if there is one."""
        me = self.me
        if me.dying:
            raise Crash
        self.before_call(me)
        me.wake_at = self.now + seconds
        me.ready = ready
        self._hand_over(me)
        if me.dying:
            raise Crash

    def _hand_over(self, me: Process) -> None:
        chosen = self._choose()
        if chosen is me:
            return
        self._running = chosen
        (self._main if chosen is None else chosen.baton).release()
        me.baton.acquire()

    # ---- turns

    def _live(self, process: Process, work: Callable[[Process], None]) -> None:
        process.baton.acquire()
        try:
            if not process.dying:
                work(process)
        except BaseException as failure:
            process.failure = failure
        process.ended = True
        self.processes.remove(process)
        chosen = self._choose()
        self._running = chosen
        (self._main if chosen is None else chosen.baton).release()

    def _choose(self) -> Process | None:
        """The next to go on; None when the main thread is to."""
        try:
            return self._next()
        except BaseException as failure:  # of the world: the main thread raises it
            self._failure = failure
            return None

    def _next(self) -> Process | None:
        while True:
            self.steps += 1
            if self.steps > self._most_steps:
                raise Endless(f"{self.steps} steps, and no end")
            self.now += self.random.random() * 0.002
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            self.tick()
            if self._finished():
                return None
            able = [process for process in self.processes if self._can_go_on(process)]
            if able:
                return able[0] if len(able) == 1 else able[int(self.random.random() * len(able))]
            self._skip()

    def _can_go_on(self, process: Process) -> bool:
        if process.dying:
            return True
        if process.paused_until > self.now:
            return False
        return process.wake_at <= self.now or (process.ready is not None and process.ready())

    def _skip(self) -> None:
        """All wait: on to the next thing that is due, which the world may bring nearer in small steps."""
        due = [max(process.wake_at, process.paused_until) for process in self.processes]
        if self._events:
            due.append(self._events[0][0])
        self.now = max(self.now, min(*due, self.now + 0.25) if due else self.now + 0.25)
