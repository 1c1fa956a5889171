"""What is to be captured: the steps and rollouts that somebody chose, and where their bundles go."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rollbook.infra.settings import (
    CAPTURE_DIR_VARIABLE,
    CAPTURE_ROLLOUTS_VARIABLE,
    CAPTURE_UPDATES_VARIABLE,
    CAPTURE_VARIABLE,
    Variable,
    capture_variables,
)
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})
_NONE = "none"
_STEP = re.compile(r"([0-9]{1,14}):([0-9]{1,14})")
_RANGE = re.compile(r"([0-9]{1,14})(?:-([0-9]{1,14}))?")
_MAX_ITEMS = 10_000


@dataclass(frozen=True, slots=True)
class Choice:
    """A list of an environment variable: ranges of rollout ids, and single steps as (rollout_id, step_id)."""

    rollouts: tuple[range, ...] = ()
    steps: frozenset[tuple[int, int]] = frozenset()

    def has(self, rollout_id: int, step_id: int | None = None) -> bool:
        return (rollout_id, step_id) in self.steps or any(rollout_id in chosen for chosen in self.rollouts)


@dataclass(frozen=True, slots=True)
class CapturePlan:
    """`updates` are the updates whose optimizer steps are recorded, `rollouts` those recorded before any step; None is
    all of them."""

    folder: Path
    updates: Choice | None = None
    rollouts: Choice | None = None

    def wants_step(self, rollout_id: int, step_id: int) -> bool:
        return self.updates is None or self.updates.has(rollout_id, step_id)

    def wants_rollout(self, rollout_id: int) -> bool:
        return self.rollouts is None or self.rollouts.has(rollout_id)

    @staticmethod
    def from_env(environ: Mapping[str, str] | None = None) -> "CapturePlan | None":
        """What ROLLBOOK_CAPTURE and its companions say; None where capture is off. Raises BadInput for values that
        mean nothing, before the training begins."""
        given = capture_variables(environ)
        if CAPTURE_VARIABLE not in given or not _is_on(given[CAPTURE_VARIABLE]):
            return None
        folder = given.get(CAPTURE_DIR_VARIABLE)
        if folder is None or not folder.value:
            name = given[CAPTURE_VARIABLE].name
            raise BadInput(f"{name} is on, and no folder is set: set {CAPTURE_DIR_VARIABLE} to one that all ranks see")
        return CapturePlan(
            folder=Path(folder.value).absolute(),
            updates=_choice(given.get(CAPTURE_UPDATES_VARIABLE), steps=True),
            rollouts=_choice(given.get(CAPTURE_ROLLOUTS_VARIABLE), steps=False),
        )


def _is_on(variable: Variable) -> bool:
    value = variable.value.lower()
    if value not in _ON | _OFF:
        raise BadInput(f"{variable.name} is '{visible(variable.value, 60)}': set it to 1 or 0")
    return value in _ON


def _choice(variable: Variable | None, *, steps: bool) -> Choice | None:
    if variable is None:
        return None
    items = [] if variable.value == _NONE else [item.strip() for item in variable.value.split(",")]
    if len(items) > _MAX_ITEMS:
        raise BadInput(f"{variable.name} has {len(items)} items: give at most {_MAX_ITEMS:,}, or ranges such as 10-19")
    ranges: list[range] = []
    chosen: set[tuple[int, int]] = set()
    for item in items:
        if steps and (found := _STEP.fullmatch(item)):
            chosen.add((int(found[1]), int(found[2])))
        elif (found := _RANGE.fullmatch(item)) and int(found[1]) <= int(found[2] or found[1]):
            ranges.append(range(int(found[1]), int(found[2] or found[1]) + 1))
        else:
            what = "7, 7:0 (rollout:step) or 10-19" if steps else "7 or 10-19"
            raise BadInput(f"{variable.name} has the item '{visible(item, 60)}': give {what}, with commas, or {_NONE}")
    return Choice(tuple(ranges), frozenset(chosen))
