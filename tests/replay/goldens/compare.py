"""Recorded outputs against recomputed ones, within what float32 allows.

Each case is recomputed in double and in single precision, as the libraries compute. A number is equal where one of
the two is, within the rounding of a few operations; and where double and single themselves lie further apart, because
float32 cancels, within a few times that distance, at most what the recordings' own description gives for cancellation.

numpy and torch add in other orders, which single precision shows: where numpy gives torch's number in double
precision, it is held against the recorded one by torch's single precision, too.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rollbook.tests.install.distributions import ROOT
from rollbook.tests.replay.goldens.case import Adapter, Case, Refusal, numbers, plain

Floats = NDArray[np.float64]
SCALE = 1e-6
"""Of the largest value of an output: float32 rounding of a few operations."""
CANCELLED = 2e-4
"""The most that cancellation is allowed."""
_TIMES = 8
_SAME = 1e-9
"""How far two libraries' double precision may lie apart, of the largest value."""


_LOCK = (ROOT / "requirements" / "dev.lock").read_text(encoding="utf-8")
GRADIENTS = all(f"\n{name}=={version(name).partition('+')[0]}" in _LOCK for name in ("torch", "array-api-compat"))
"""Whether those of the libraries are held: at ties and through clipping older ones have others, or none."""


@dataclass(frozen=True, slots=True)
class Widths:
    """One case, or what recomputing it gave, in double and in single precision."""

    double: Any
    single: Any


def differences(
    cases: Widths, adapter: Adapter, ignored: Collection[str] = (), peers: Widths | None = None
) -> list[str]:
    """What recomputing a case gave that was not recorded, one line an output; empty when all is equal. `peers`: the
    case as arrays of another library."""
    case: Case = cases.double
    try:
        found = _found(cases, adapter)
        peer = None if peers is None else _found(peers, adapter)
    except Refusal as refusal:
        return [] if case.raises else [f"refused: {refusal}"]
    if case.raises:
        return ["the library refuses this input"]
    lines = []
    for name, recorded in case.outputs.items():
        if name in ignored:
            continue
        prefixes = tuple(key.removeprefix(f"{name}.") for key in ignored if key.startswith(f"{name}."))
        if prefixes:
            recorded = {key: value for key, value in recorded.items() if not key.startswith(prefixes)}
        if name.startswith("grad_") and not GRADIENTS:
            continue
        if name.startswith("grad_"):
            wanted = name.removeprefix("grad_")
            if isinstance(case.inputs[wanted], torch.Tensor):
                gradients = Widths(
                    _gradient(found.double, case.inputs[wanted]), _gradient(found.single, cases.single.inputs[wanted])
                )
                lines += _named(name, _difference(numbers(recorded), gradients))
        elif name not in found.double:
            lines.append(f"{name}: not recomputed")
        elif recorded is None or found.double[name] is None:
            lines += [] if recorded is found.double[name] else [f"{name}: {found.double[name]} instead of {recorded}"]
        else:
            allowed = found.double.get("allowed", 0.0)
            lines += _named(
                name, _difference(numbers(recorded), _of(found, name), peer and _of(peer, name), allowed=allowed)
            )
    return lines


def _found(cases: Widths, adapter: Adapter) -> Widths:
    return Widths(adapter(cases.double), adapter(cases.single))


def _of(found: Widths, name: str) -> Widths:
    return Widths(found.double[name], found.single[name])


def _named(name: str, line: str | None) -> list[str]:
    return [] if line is None else [f"{name}: {line}"]


def _gradient(found: Mapping[str, Any], wanted: torch.Tensor) -> torch.Tensor:
    of = found["loss"] if "loss" in found else found["kl"]
    if not of.requires_grad:
        return torch.zeros_like(wanted)
    (gradient,) = torch.autograd.grad(of.sum(), wanted, retain_graph=True, allow_unused=True)
    return torch.zeros_like(wanted) if gradient is None else gradient


def _difference(recorded: Any, found: Widths, peer: Widths | None = None, *, allowed: float = 0.0) -> str | None:
    if isinstance(recorded, dict):
        lines = []
        for key, value in recorded.items():
            if key not in found.double:
                lines.append(f"{key}: missing")
                continue
            lines += _named(key, _difference(numbers(value), _of(found, key), peer and _of(peer, key)))
        return "; ".join(lines) or None
    expected, exact, rounded = _floats(recorded), _floats(found.double), _floats(found.single)
    if exact.ndim == 1 and expected.ndim == 2:
        expected = expected.ravel()
    if expected.shape != exact.shape:
        return f"shape {exact.shape} instead of {expected.shape}"
    # What is summed cancels: a scalar's scale is that of the terms, of which a loss near zero says nothing.
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=1e-3 if expected.shape else 0.1)
    near = _near(expected, exact, rounded, largest, allowed)
    if peer is not None:
        theirs = _floats(peer.double)
        with np.errstate(invalid="ignore"):
            same = (np.abs(exact - theirs) <= _SAME * largest) | (exact == theirs)
        same |= np.isnan(exact) & np.isnan(theirs)
        near |= _near(expected, exact, np.where(same, _floats(peer.single), exact), largest, allowed)
    if near.all():
        return None
    at = tuple(np.argwhere(~near)[0])
    return f"{(~near).sum()} of {near.size}, first {list(map(int, at))}: {exact[at]} instead of {expected[at]}"


def _floats(values: Any) -> Floats:
    return np.asarray(plain(values), dtype=np.float64)


def _near(expected: Floats, exact: Floats, rounded: Floats, largest: float, allowed: float) -> NDArray[np.bool_]:
    """Where a recorded number is what double or single precision gives."""
    with np.errstate(invalid="ignore"):
        error, other, between = (np.abs(one - two) for one, two in (
            (expected, exact), (expected, rounded), (exact, rounded)
        ))  # fmt: skip
        near = (error <= SCALE * largest) | (other <= SCALE * largest)
        near |= error <= np.minimum(np.maximum(_TIMES * between, allowed), CANCELLED * largest)
    near |= (expected == exact) | (expected == rounded) | (np.isnan(expected) & (np.isnan(exact) | np.isnan(rounded)))
    return near


def cancellation(rewards: Any, groups: Any, divided: bool) -> float:
    """How far float32 may put rewards normalised by group: four of its steps of the largest, over the least spread."""
    values, index = np.asarray(plain(rewards), dtype=np.float64), np.asarray(plain(groups))
    of_group = [values[index == group] for group in np.unique(index)]
    spreads = [found for found in (members.std() for members in of_group) if found > 0] if divided else []
    return float(4 * 2.0**-24 * np.abs(values).max() / min(spreads, default=1.0))
