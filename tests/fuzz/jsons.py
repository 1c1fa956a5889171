"""JSON with another value somewhere."""

import json
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**30, 0.5, 1e308, float("inf"), float("nan"), "", "x", "\ud800", "a\nb",
    "../x", "/etc/passwd", "0" * 64, "n" * 300, [], {}, [1, 0], [[]], {"": []}, [None] * 3,
)  # fmt: skip


def changed(rng: Random, data: bytes) -> bytes:
    """What is no JSON stays as it is."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return data
    places = list(_places(content))
    for _ in range(rng.choice((1, 1, 2))):
        if not places:
            break
        part, key = rng.choice(places)
        there, other = rng.choice(places)
        try:
            if rng.random() < 0.12:
                del part[key]
            elif isinstance(part, list) and rng.random() < 0.3:
                part.insert(key, deepcopy(part[key]))
            else:
                part[key] = deepcopy(rng.choice((*_VALUES, there[other])))
        except (KeyError, IndexError):
            continue
    text = json.dumps(content, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 2)))
    return text.encode("utf-8", "surrogatepass")


def _places(part: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ():
        yield part, key
        yield from _places(part[key])
