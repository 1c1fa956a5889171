"""A worker's journal: what it has begun and published, so that whoever comes after a crash knows what was lost.

A line is written before a generation begins and survives the process, since the kernel has it; nothing here survives
the machine.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rollbook.schemas.records.common import PolicyRef, TrajectoryIdentity


class Stage(StrEnum):
    """How far an attempt at a group has come."""

    BEGUN = "begun"
    PUBLISHING = "publishing"  # some of it may be on the log
    PUBLISHED = "published"  # all of it is
    FAILED = "failed"  # and reported: it is to be generated again
    UNDONE = "undone"  # by a roll-back: so is it then


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one assignment: new trajectories of a new group, under the policy that generates them."""

    key: str
    number: int
    policy: PolicyRef
    identities: tuple[TrajectoryIdentity, ...]
    stage: Stage = Stage.BEGUN


_LINE = TypeAdapter(Attempt)


class Journal:
    """Opens the journal that an earlier incarnation may have left."""

    def __init__(self, path: Path) -> None:
        self._latest: dict[str, Attempt] = {}
        self._file = path.open("a+b", buffering=0)
        self._file.seek(0)
        left = self._file.read()
        for line in left.splitlines():
            try:
                attempt = _LINE.validate_json(line)
            except ValidationError:  # cut off by the crash
                continue
            self._latest[attempt.key] = attempt
        if left and not left.endswith(b"\n"):
            self._file.write(b"\n")

    def note(self, attempt: Attempt, stage: Stage) -> None:
        self._latest[attempt.key] = replace(attempt, stage=stage)
        self._file.write(_LINE.dump_json(self._latest[attempt.key]) + b"\n")

    def needs(self, key: str) -> bool:
        """Whether the assignment was never begun, or its last attempt failed or was undone."""
        latest = self._latest.get(key)
        return latest is None or latest.stage in (Stage.FAILED, Stage.UNDONE)

    def attempts(self, key: str) -> int:
        """How often the assignment was begun."""
        latest = self._latest.get(key)
        return 0 if latest is None else latest.number + 1

    def at(self, *stages: Stage) -> tuple[Attempt, ...]:
        """The attempts that stand at one of these stages."""
        return tuple(attempt for attempt in self._latest.values() if attempt.stage in stages)

    def close(self) -> None:
        self._file.close()
