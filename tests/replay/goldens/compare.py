"""Recorded outputs against recomputed ones, within what float32 allows.

Each case is recomputed in double and in single precision, as the libraries compute. A number is equal where one of
the two is, within the rounding of a few operations; and where double and single themselves lie further apart, because
float32 cancels, within a few times that distance, at most what the recordings' own description gives for cancellation.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from rollbook.tests.replay.goldens.case import Adapter, Case, Refusal, numbers, plain

SCALE = 1e-6
"""Of the largest value of an output: float32 rounding of a few operations."""
CANCELLED = 2e-4
"""The most that cancellation is allowed."""
MOST = 1e-3
"""The most that rewards close together and far from zero are allowed, however little their spread leaves of them."""
_TIMES = 8


def differences(double: Case, single: Case, adapter: Adapter, ignored: Collection[str]) -> list[str]:
    """What recomputing a case gave that was not recorded, one line an output; empty when all is equal."""
    try:
        found = adapter(double), adapter(single)
    except Refusal as refusal:
        return [] if double.raises else [f"refused: {refusal}"]
    if double.raises:
        return ["the library refuses this input"]
    lines = []
    for name, recorded in double.outputs.items():
        if name in ignored:
            continue
        prefixes = tuple(key.removeprefix(f"{name}.") for key in ignored if key.startswith(f"{name}."))
        if prefixes:
            recorded = {key: value for key, value in recorded.items() if not key.startswith(prefixes)}
        if name.startswith("grad_"):
            wanted = name.removeprefix("grad_")
            if isinstance(double.inputs[wanted], torch.Tensor):
                pair = [_gradient(at, case.inputs[wanted]) for at, case in zip(found, (double, single), strict=True)]
                lines += _named(name, _difference(numbers(recorded), pair[0], pair[1]))
        elif name not in found[0]:
            lines.append(f"{name}: not recomputed")
        elif recorded is None or found[0][name] is None:
            lines += [] if recorded is found[0][name] else [f"{name}: {found[0][name]} instead of {recorded}"]
        else:
            allowed = found[0].get("allowed", 0.0)
            lines += _named(name, _difference(numbers(recorded), found[0][name], found[1][name], allowed))
    return lines


def _named(name: str, line: str | None) -> list[str]:
    return [] if line is None else [f"{name}: {line}"]


def _gradient(found: Mapping[str, Any], wanted: torch.Tensor) -> torch.Tensor:
    of = found["loss"] if "loss" in found else found["kl"]
    if not of.requires_grad:
        return torch.zeros_like(wanted)
    (gradient,) = torch.autograd.grad(of.sum(), wanted, retain_graph=True, allow_unused=True)
    return torch.zeros_like(wanted) if gradient is None else gradient


def _difference(recorded: Any, double: Any, single: Any, allowed: float = 0.0) -> str | None:
    if isinstance(recorded, dict):
        lines = []
        for key, value in recorded.items():
            lines += _named(key, _difference(numbers(value), double[key], single[key]) if key in double else "missing")
        return "; ".join(lines) or None
    expected, exact, rounded = (np.asarray(plain(value), dtype=np.float64) for value in (recorded, double, single))
    if exact.ndim == 1 and expected.ndim == 2:
        expected = expected.ravel()
    if expected.shape != exact.shape:
        return f"shape {exact.shape} instead of {expected.shape}"
    # What is summed cancels: a scalar's scale is that of the terms, of which a loss near zero says nothing.
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=1e-3 if expected.shape else 1.0)
    with np.errstate(invalid="ignore"):
        error, other, between = (np.abs(one - two) for one, two in (
            (expected, exact), (expected, rounded), (exact, rounded)
        ))  # fmt: skip
        near = (error <= SCALE * largest) | (other <= SCALE * largest)
        near |= error <= np.minimum(_TIMES * between, CANCELLED * largest)
    near |= error <= np.minimum(allowed, MOST * largest)
    near |= (expected == exact) | (expected == rounded) | (np.isnan(expected) & (np.isnan(exact) | np.isnan(rounded)))
    if near.all():
        return None
    at = tuple(np.argwhere(~near)[0])
    return f"{(~near).sum()} of {near.size}, first {list(map(int, at))}: {exact[at]} instead of {expected[at]}"


def cancellation(rewards: Any, groups: Any, divided: bool) -> float:
    """How far float32 may put rewards normalised by group: four of its steps of the largest, over the least spread."""
    values, index = np.asarray(plain(rewards), dtype=np.float64), np.asarray(plain(groups))
    of_group = [values[index == group] for group in np.unique(index)]
    spreads = [found for found in (members.std() for members in of_group) if found > 0] if divided else []
    return float(4 * 2.0**-24 * np.abs(values).max() / min(spreads, default=1.0))
