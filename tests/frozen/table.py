"""A table of what is frozen: committed, one entry a thing, and held against what the code and the data make today.

Entries are added, and stay as they are: `python -m rollbook.tests.frozen.freeze` writes what is new, and refuses what
has changed or is gone.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
_MOST_OF_A_LINE = 240
Entry = Mapping[str, Any]
"""As JSON has it."""


class Thawed(Exception):
    """Entries that would be written otherwise than they are frozen."""


@dataclass(frozen=True, slots=True)
class Table:
    """`today`: the names of all that there is, each with what makes its entry."""

    name: str
    today: Callable[[], Mapping[str, Callable[[], Entry]]]

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.json"

    def kept(self) -> dict[str, Any]:
        """The entries as they were committed."""
        return dict(json.loads(self.path.read_text(encoding="utf-8"))) if self.path.exists() else {}

    def names(self) -> tuple[str, ...]:
        """All that is frozen, and all that there is today."""
        return tuple(sorted({*self.kept(), *self.today()}))

    def all_today(self) -> dict[str, Any]:
        """Every entry as it is today."""
        return {name: as_json(make()) for name, make in self.today().items()}

    def of_today(self, name: str) -> Any:
        """An entry as it is today, None where there is none."""
        make = self.today().get(name)
        return None if make is None else as_json(make())

    def freeze(self, thaw: Collection[str] = ()) -> tuple[str, ...]:
        """Write the entries that are new, and of those that are named in `thaw` what they are today, or nothing where
        they are gone; their names. Raises Thawed, and writes nothing, where any other has changed or is gone."""
        kept, today = self.kept(), self.all_today()
        differing = {name for name in kept.keys() | today.keys() if kept.get(name) != today.get(name)}
        if refused := sorted((differing & kept.keys()) - set(thaw)):
            raise Thawed(f"{self.path.name}: {', '.join(refused)}: frozen otherwise than it is today")
        lines = (f"{json.dumps(name)}: {_text(today[name])}" for name in sorted(today))
        self.path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        return tuple(sorted(differing))


def _text(entry: Any) -> str:
    """On one line where that can be read."""
    line = json.dumps(entry)
    return line if len(line) < _MOST_OF_A_LINE else json.dumps(entry, indent=1)


def as_json(entry: Entry) -> Any:
    """An entry as it is read back."""
    return json.loads(json.dumps(entry))


def digest(parts: Iterable[bytes]) -> str:
    """sha256 over parts and their lengths."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()
