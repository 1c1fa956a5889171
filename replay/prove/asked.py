"""Which tasks should not have been trained on: a file of prompt hashes and task ids, a line each."""

import re
from dataclasses import dataclass
from pathlib import Path

from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.rollout import TaskSource

_HASH = re.compile(r"[0-9a-fA-F]{64}")
_LONGEST_ID = 256


@dataclass(frozen=True, slots=True)
class Asked:
    """Tasks by the sha256 of their prompt, or by their id."""

    prompt_hashes: frozenset[str]
    task_ids: frozenset[str]

    def match(self, task: TaskSource) -> str | None:
        """The line that names a task."""
        if task.prompt_hash in self.prompt_hashes:
            return task.prompt_hash
        return task.task_id if task.task_id in self.task_ids else None


def read_asked(path: Path) -> Asked:
    """A file's lines; blank ones and those that begin with # say nothing. Raises BadInput."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as fault:
        raise BadInput(f"{visible(path)} cannot be read ({fault.strerror}): give prompt hashes or task ids") from None
    except UnicodeDecodeError:
        raise BadInput(f"{visible(path)} is no UTF-8 text: give prompt hashes or task ids, a line each") from None
    hashes, ids = set[str](), set[str]()
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if _HASH.fullmatch(line):
            hashes.add(line.lower())
        elif len(line) > _LONGEST_ID or not line.isprintable():
            raise BadInput(
                f"{visible(path)} line {number} is neither a prompt hash (64 hexadecimal digits) nor a task id (at "
                f"most {_LONGEST_ID} characters): '{visible(line)}'"
            )
        else:
            ids.add(line)
    if not hashes and not ids:
        raise BadInput(f"{visible(path)} names no task: give prompt hashes or task ids, a line each")
    return Asked(frozenset(hashes), frozenset(ids))
