"""The folder of one demo: what its processes share besides the log. Every file appears whole or not at all."""

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.settings import Settings
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.update import Checkpoint
from rollbook.schemas.text import visible
from rollbook.schemas.wording import worded

T = TypeVar("T")

PATIENCE_S = 180.0
"""How long a process waits for another one before it gives up; much longer than it takes on a busy machine."""
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Plan:
    """What all processes of a demo agree on before any of them starts."""

    run_id: str
    config: DemoConfig
    workers: tuple[str, ...] = ("worker-0", "worker-1")
    learner: str = "learner-0"


@dataclass(frozen=True, slots=True)
class Release:
    """A policy that is to be served, and the versions that it was made from, itself the last: one an update of the
    trainer's that stands. A version that is not among them, and lower, was undone by a roll-back."""

    policy: PolicyRef
    lineage: tuple[int, ...]

    @property
    def version(self) -> int:
        return self.policy.version

    @property
    def iteration(self) -> int:
        """How many updates are in its weights."""
        return len(self.lineage) - 1

    def then(self, policy: PolicyRef) -> "Release":
        """The release of a policy that one update more makes of this one."""
        return Release(policy, (*self.lineage, policy.version))


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint that the ledger has accepted, and the release whose weights it holds."""

    checkpoint: Checkpoint
    release: Release


class RunFolder:
    """Paths and announcements. A policy is announced after its weights are written, so who sees it can load it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def bundles(self) -> Path:
        return self.path / "bundles"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def broker(self) -> Path:
        return self.path / "broker"

    def weights(self, version: int) -> Path:
        return self.path / f"policy-{version:04d}.npz"

    def checkpoint(self, checkpoint_id: str) -> Path:
        return self.path / f"checkpoint-{checkpoint_id}.npz"

    def journal(self, worker_id: str) -> Path:
        return self.path / f"{worker_id}.journal"

    def log(self, process: str) -> Path:
        return self.path / f"{process}.log"

    def share_plan(self, plan: Plan) -> None:
        self._share("plan", plan)

    def plan(self) -> Plan:
        return self._await("plan", Plan)

    def share_cluster(self, settings: Settings) -> None:
        """Say that the broker answers, its topics exist, and where. How to be let in is not for a file that people hand
        around: the demo's processes have it from their environment."""
        self._share("cluster", replace(settings, kafka=()))

    def cluster(self) -> Settings:
        """Wait for the broker. Raises EnvironmentFault after PATIENCE_S."""
        return replace(self._await("cluster", Settings), kafka=Settings.from_env().kafka)

    def announce(self, release: Release) -> None:
        """Say that the weights of a policy are to be served."""
        self._share(_policy(release.version), release)

    def release(self, version: int) -> Release:
        """What was announced of a version."""
        return self._await(_policy(version), Release)

    def next_release(self, after: int) -> Release:
        """Wait for a policy above this version; the newest one. Raises EnvironmentFault after PATIENCE_S."""
        newest = self._await(_policy(after + 1), Release)
        while (newer := self._read(_policy(newest.version + 1), Release)) is not None:
            newest = newer
        return newest

    def share_checkpoint(self, saved: SavedCheckpoint) -> None:
        """Say that this is the last checkpoint now."""
        self._share("checkpoint", saved)

    def last_checkpoint(self) -> SavedCheckpoint:
        """What a trainer that comes back starts from."""
        return self._await("checkpoint", SavedCheckpoint)

    def _share(self, name: str, value: object) -> None:
        unfinished = self.path / f".{name}.{os.getpid()}"
        unfinished.write_bytes(TypeAdapter(type(value)).dump_json(value, indent=1))
        unfinished.replace(self.path / f"{name}.json")

    def _read(self, name: str, kind: type[T]) -> T | None:
        path = self.path / f"{name}.json"
        try:
            return TypeAdapter(kind).validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as fault:
            first = fault.errors()[0]
            where = visible(": ".join((".".join(map(str, first["loc"])) or "all of it", worded(first))))
            raise BadInput(
                f"{visible(path)} is not what the demo wrote there ({where}): run it again in a new folder"
            ) from None

    def _await(self, name: str, kind: type[T]) -> T:
        deadline = time.monotonic() + PATIENCE_S
        while (value := self._read(name, kind)) is None:
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"{self.path / name}.json did not appear within {PATIENCE_S:.0f} s: see the other processes' logs "
                    "beside it"
                )
            time.sleep(_POLL_S)
        return value


def _policy(version: int) -> str:
    return f"policy-{version:04d}"
