"""Pages of what can be imported: each public name with the first line of its description, and the whole of it below.

The site puts signatures and docstrings in the places of `::: NAME`, from the code itself.
"""

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from rollbook.infra.reference.markdown import code, page, table


@dataclass(frozen=True, slots=True)
class Api:
    """A page: `modules` are imported from; of one without `__all__` all that is made there is public."""

    file: str
    title: str
    about: str
    modules: tuple[str, ...]


APIS = (
    Api(
        "api-producers.md",
        "Clients",
        "Of a run's worker, reward service, trainer and coordinator: `from rollbook.producers import ...`.",
        ("rollbook.producers",),
    ),
    Api(
        "api-trl.md",
        "Clients for TRL",
        "What makes a trainer of TRL one with a ledger.",
        ("rollbook.producers.trl", "rollbook.producers.trl.asynchronous"),
    ),
    Api(
        "api-history.md",
        "Histories",
        "All that can be asked of a log or an exported file; the commands are these methods.",
        ("rollbook.replay.histories",),
    ),
    Api(
        "api-capture.md",
        "Bundles without Kafka",
        "What a trainer writes bundles with: `from rollbook.replay.capture import ...`.",
        ("rollbook.replay.capture",),
    ),
    Api(
        "api-rules.md",
        "The four rules",
        "The pure functions that the ledger judges by: `from rollbook.processors import ...`.",
        ("rollbook.processors",),
    ),
    Api(
        "api-errors.md",
        "Errors",
        "What is raised on purpose: the message says what was wrong, where, and what to do.",
        ("rollbook.schemas.errors",),
    ),
)


def api(of: Api) -> str:
    """The page."""
    names = [(module, name) for module in of.modules for name in _public(module)]
    return page(
        of.title,
        of.about,
        table(
            ("name", "what it is"),
            ((f"[`{name}`](#{module}.{name})", _first_line(module, name)) for module, name in names),
        ),
        *(f"::: {module}.{name}" for module, name in names),
    )


def _public(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", None)
    for one in listed or vars(module):
        there = getattr(module, one)
        if listed or (not one.startswith("_") and getattr(there, "__module__", "") == name):
            yield one


def _first_line(module: str, name: str) -> str:
    there = getattr(importlib.import_module(module), name)
    if not (inspect.isclass(there) or inspect.isfunction(there)):
        return code(type(there).__name__)
    text = inspect.getdoc(there) or ""
    if isinstance(there, type) and issubclass(there, Enum) and not text:
        return ""
    return text.split("\n\n")[0].split(". ")[0].rstrip(".")
