"""Which tasks should not have been trained on: a file of prompt hashes and task ids, a line each."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.rollout import TaskSource

_HASH = re.compile(r"[0-9a-fA-F]{64}")
_LONGEST_ID = 256
_NO_DIGEST, _NO_NAME = "0" * 64, "dropped"
"""What clients publish in place of a prompt's hash, and of a name, that they were told to drop."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Tasks by the sha256 of their prompt, or by their id: each form in which the log may have it, with the line that
    names it. Clients hash ids that are no short names, and with a key of their redaction prompt hashes, too."""

    prompt_hashes: Mapping[str, str]
    task_ids: Mapping[str, str]

    @classmethod
    def of(cls, prompt_hashes: Iterable[str] = (), task_ids: Iterable[str] = (), *, key: bytes = b"") -> "Asked":
        """`key`: that of the clients' redaction, where it has one."""
        hashes = {_hashed(one, key) if key else one.lower(): one for one in prompt_hashes}
        ids = {form: one for one in task_ids for form in (one, f"sha256:{_hashed(one, key)}")}
        return cls(hashes, ids)

    @property
    def counts(self) -> tuple[int, int]:
        """How many prompt hashes, and how many task ids."""
        return len(set(self.prompt_hashes.values())), len(set(self.task_ids.values()))

    def match(self, task: TaskSource) -> str | None:
        """The line that names a task; one of 64 hexadecimal digits may also be an id."""
        found = self.prompt_hashes.get(task.prompt_hash) or self.task_ids.get(task.task_id)
        return found or self.prompt_hashes.get(task.task_id.lower())

    def may_hide(self, task: TaskSource) -> bool:
        """Whether the log does not have what the lines are to be compared with."""
        no_hash = bool(self.prompt_hashes) and task.prompt_hash == _NO_DIGEST
        return no_hash or (bool(self.task_ids) and task.task_id == _NO_NAME)


def _hashed(text: str, key: bytes) -> str:
    """As `rollbook.producers.redaction` does."""
    data = text.encode()
    return hmac.new(key, data, "sha256").hexdigest() if key else hashlib.sha256(data).hexdigest()


def read_asked(path: Path, *, key: bytes = b"") -> Asked:
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
        if line == _NO_DIGEST:
            raise BadInput(f"{visible(path)} line {number} is what stands in the log for a hash that was not published")
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
    return Asked.of(hashes, ids, key=key)
