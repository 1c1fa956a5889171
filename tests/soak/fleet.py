"""The processor instances of a soak: started, told to die or to stop, awaited and started again."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollbook.infra.settings import Settings
from rollbook.tests.soak.follower import Follower, Recovery

STOPPED_ITSELF, FENCED = 3, 5
GHOST_S = 90.0


@dataclass(eq=False, slots=True)
class Instance:
    """A process, and what it last said it has."""

    name: str
    process: "subprocess.Popen[str]"
    log: Path
    order: tuple[str, str] = ("", "")
    """What it was told and has not reached."""
    owned: set[int] = field(default_factory=set)
    frozen: bool = False
    leaving: bool = False
    since: float = field(default_factory=time.monotonic)
    stopped: list[str] = field(default_factory=list)
    """Partitions that it did not open or fold. Of a fenced one that is none: another had them, and it did not know."""

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


class Fleet:
    """All instances, those included that a newcomer of their name has replaced. Used by one thread; reports of the
    processes come in by others."""

    def __init__(self, settings: Settings, session_ms: int, folder: Path, follower: Follower) -> None:
        self._settings, self._session_ms, self._folder = settings, session_ms, folder
        self._follower = follower
        self.current: dict[str, Instance] = {}
        self.replaced: list[Instance] = []
        self.counts: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()
        self.last_words: Counter[str] = Counter()
        self.violations: list[str] = []
        self.hits: list[float] = []
        """When a process was killed or stopped."""
        self._readers: list[threading.Thread] = []
        self._spawned = 0
        self._reports = (folder / "reports.jsonl").open("a", buffering=1, encoding="utf-8")
        self._counting = threading.Lock()

    def spawn(self, name: str, act: str = "", point: str = "") -> Instance:
        """A new process of this name; an older one that lives is fenced by it."""
        older = self.current.get(name)
        if older is not None and older.alive:
            self.replaced.append(older)
        self._spawned += 1
        log = self._folder / f"{name}-{self._spawned:04}.log"
        place = (self._settings.bootstrap_servers, self._settings.topic_prefix, name, str(self._session_ms))
        command = [sys.executable, "-m", "rollbook.tests.soak.instance", *place, *((act, point) if act else ())]
        pipe = subprocess.PIPE
        with log.open("w") as sink:
            process = subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=sink, bufsize=1)
        instance = Instance(name, process, log, (act, point))
        self.current[name] = instance
        reader = threading.Thread(target=self._listen, args=(instance,), daemon=True)
        reader.start()
        self._readers.append(reader)
        self.note("spawn", f"{name} {process.pid}")
        with self._counting:
            self.counts["processes"] += 1
        return instance

    def order(self, instance: Instance, act: str, point: str) -> None:
        """Die or stop at the next passing of this point."""
        instance.order = (act, point)
        with contextlib.suppress(OSError):
            assert instance.process.stdin is not None
            instance.process.stdin.write(f"{act} {point}\n")

    def kill(self, instance: Instance, point: str) -> None:
        """Now, wherever it is."""
        if instance.alive:
            instance.order = ("", "")
            with self._counting:
                self._hit(instance, "kill", point, time.monotonic(), None)
            instance.process.kill()

    def freeze(self, instance: Instance, point: str) -> None:
        """Stop it now, wherever it is; it will not know."""
        if instance.alive:
            instance.order = ("", "")
            with self._counting:
                self._hit(instance, "stop", point, time.monotonic(), None)
            instance.process.send_signal(signal.SIGSTOP)

    def thaw(self, instance: Instance) -> None:
        """Let a stopped one go on."""
        if instance.alive and instance.frozen:
            instance.frozen = False
            instance.since = time.monotonic()
            instance.process.send_signal(signal.SIGCONT)

    def _hit(self, instance: Instance, act: str, point: str, at: float, partition: int | None) -> None:
        self.hits.append(at)
        if act == "kill":
            self.kills[point] += 1
        else:
            self.stops[point] += 1
            instance.frozen = True
        for owned in sorted(instance.owned | ({partition} if partition is not None else set())):
            cause = "kill" if act == "kill" else "zombie"
            self._follower.expect(Recovery(cause, owned, at))

    def _listen(self, instance: Instance) -> None:
        assert instance.process.stdout is not None
        for line in instance.process.stdout:
            with contextlib.suppress(json.JSONDecodeError):
                report = json.loads(line)
                with self._counting:
                    self._reports.write(
                        json.dumps({"name": instance.name, "pid": instance.process.pid, **report}) + "\n"
                    )
                    self._heard(instance, report)

    def _heard(self, instance: Instance, report: dict[str, Any]) -> None:
        event = report["event"]
        self.counts[event] += report.get("count", 1)
        match event:
            case "point":
                instance.order = ("", "")
                self._hit(instance, report["act"], report["point"], report["at"], report["partition"])
            case "restored":
                instance.owned.add(report["partition"])
                self._follower.restored(report["partition"], report["next"], report["at"])
            case "released":
                instance.owned -= set(report["partitions"])
            case "partition_stopped":
                where = "cannot be opened" if report["offset"] is None else f"stopped before {report['offset']}"
                instance.stopped.append(f"partition {report['partition']} of {instance.name}: {where}")
            case _:
                pass

    def reap(self) -> list[Instance]:
        """The current instances that have ended since last time, each with what it said about it counted."""
        gone = [one for one in (*self.current.values(), *self.replaced) if not one.alive]
        for one in gone:
            self._ended(one)
        ended = [one for one in gone if self.current.get(one.name) is one]
        for one in ended:
            del self.current[one.name]
        now = time.monotonic()
        for one in self.replaced:
            if one.alive and not one.frozen and now - one.since > GHOST_S:
                self.violations.append(f"{one.name}: a process lives on that a newer one of its name replaced")
                one.process.kill()
        self.replaced = [one for one in self.replaced if one.alive]
        return ended

    def _ended(self, one: Instance) -> None:
        code = one.process.wait()
        if code != FENCED:
            self.violations += one.stopped
        if code == -signal.SIGKILL or (one.leaving and code in (0, -signal.SIGTERM)):  # it may not listen yet
            return
        words = ([line for line in one.log.read_text(errors="replace").splitlines() if line.strip()] or ["no word"])[-1]
        if code == FENCED:
            self.counts["fenced processes"] += 1
        elif code == STOPPED_ITSELF:
            self.counts["stopped themselves"] += 1
            self.last_words[re.sub(r"\d+", "N", words[:300])] += 1
        else:
            self.violations.append(f"{one.name} ended with code {code}: {words[:300]}")

    def close(self, timeout_s: float = 60.0) -> None:
        """All end in an orderly way; who does not is killed, and it is told."""
        everyone = [*self.current.values(), *self.replaced]
        for one in everyone:
            one.leaving = True
            self.thaw(one)
            if one.alive:
                one.process.terminate()
        deadline = time.monotonic() + timeout_s
        for one in everyone:
            try:
                one.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.violations.append(f"{one.name} did not end within {timeout_s:.0f} s")
                one.process.kill()
        self.reap()
        for reader in self._readers:
            reader.join(5)

    def note(self, what: str, name: str) -> None:
        """A line of ours among the reports, for whoever reads how it came."""
        line = {"name": name, "event": what, "at": time.monotonic()}
        with self._counting:
            self._reports.write(json.dumps(line) + "\n")

    def kill_all(self) -> None:
        """Whatever happens, nothing is left behind."""
        for one in (*self.current.values(), *self.replaced):
            with contextlib.suppress(ProcessLookupError):
                one.process.kill()
            one.process.wait()
        for reader in self._readers:
            reader.join(5)
        with self._counting:
            self._reports.close()
