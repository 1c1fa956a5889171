"""What is decided by, and that no history of a few records shows: which values a lifecycle record may have (what it may
not is refused, and that decision stands), the limits of the fold, and its tables.

More of a table is an entry more; the code of a later fold version stands beside this.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel

from rollbook.infra import settings
from rollbook.processors import capacity, freshness
from rollbook.processors.ledger import figures, fold, room, update, verdict
from rollbook.processors.ledger.matrix import MATRIX
from rollbook.processors.lifecycle import LIVE, PENDING, TRANSITIONS
from rollbook.processors.reasons import Reason
from rollbook.schemas import types
from rollbook.schemas.registry import LIFECYCLE
from rollbook.tests.frozen.table import Entry, Table
from rollbook.tests.frozen.values import objects_of, values_of

LIMITS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (types, ("MAX_ITEMS", "INT63_MAX")),
    (settings, ("DECISION_MAX_BYTES",)),
    (fold, ("MOST_DECISION_BYTES", "STRAYS")),
    (room, ("ROOM_BYTES", "_ITEM_BYTES", "_NAME_BYTES")),
    (update, ("_MOST_MARKS",)),
    (verdict, ("FIRST_IDS",)),
    (figures, ("BOUNDS", "FARTHEST", "MOST_VERSIONS", "_NANO", "_MOST_NATS")),
    (freshness, ("MOST_UPDATES", "MOST_WORKERS", "MOST_ROWS")),
    (capacity, ("COMMITS",)),
)


def rules() -> Mapping[str, Callable[[], Entry]]:
    """All of them."""
    found: dict[str, Callable[[], Entry]] = {}
    for model in sorted(set(_models()), key=lambda one: one.__name__):
        found |= {f"field {model.__name__}.{name}": partial(values_of, of) for name, of in model.model_fields.items()}
    for module, names in LIMITS:
        found |= {f"limit {module.__name__} {name}": partial(_is, getattr(module, name)) for name in names}
    for of, rows in MATRIX.items():
        for (record, state), row in rows.items():
            found[f"row {of.value}: {record}, {state}"] = partial(
                dict, outcome=row.outcome.value, reason=row.reason.value, events=[one.value for one in row.events]
            )
    for (state, event), target in TRANSITIONS.items():
        found[f"transition {state} {event}"] = partial(_is, target.value)
    found |= {f"reason {reason.name}": partial(_is, reason.value) for reason in Reason}
    found |= {
        f"states that are {of}": partial(_is, sorted(one)) for of, one in {"live": LIVE, "pending": PENDING}.items()
    }
    return found


def _models() -> Iterator[type[BaseModel]]:
    waiting: list[type[BaseModel]] = list(LIFECYCLE)
    while waiting:
        yield (model := waiting.pop())
        waiting += [inner for info in model.model_fields.values() for _, inner in objects_of(info.annotation)]


def _is(value: object) -> Entry:
    return {"is": value}


RULES = Table("rules", rules)
