"""Where the files of a bundle are, and how a bundle is told from a folder of bundles and from a crash's leftovers."""

import re

from rollbook.replay.bundle.folder import Folder
from rollbook.replay.bundle.model import COMPLETE, EXPECTED, INDEX, MANIFEST

PAYLOADS = "payloads"
_MIB = 2**20
# 4.2 million response tokens make an index of 50 MB; a larger step is written as several ranks.
MAX_JSON_BYTES = 256 * _MIB
_MAX_BYTES = {MANIFEST: _MIB, INDEX: MAX_JSON_BYTES, EXPECTED: 64 * _MIB, COMPLETE: 4 * _MIB}
_MAX_OTHER_BYTES = 64 * _MIB
MAX_PAYLOAD_OVERHEAD_BYTES = 64 * 2**10

_LEFTOVER = re.compile(r"^\..+\.writing-[0-9a-f]+$")
_RANK = re.compile(r"^rank-(0|[1-9][0-9]*)$")
_RANK_COMPLETE = re.compile(r"^COMPLETE\.(0|[1-9][0-9]*)$")


def max_json_bytes(file: str) -> int:
    """How long a JSON file may be: a multiple of what a large step needs, and no more."""
    return _MAX_BYTES.get(COMPLETE if file.startswith(COMPLETE) else file, _MAX_OTHER_BYTES)


def payload_file(name: str) -> str:
    return f"{name}.pt"


def rank_complete(rank: int) -> str:
    return f"{COMPLETE}.{rank}"


def rank_folder(rank: int) -> str:
    return f"rank-{rank}"


def leftover_name(name: str, token: str) -> str:
    """The folder in which a bundle of this name is written before it is published."""
    return f".{name}.writing-{token}"


def is_leftover(name: str) -> bool:
    """Whether a folder is what a writer that died left behind: it never becomes a bundle, whatever it holds."""
    return _LEFTOVER.match(name) is not None


def rank_folders(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if _RANK.match(name))


def looks_like_cohort(names: tuple[str, ...]) -> bool:
    """Whether a folder's entries are those of several ranks beside one another."""
    of_one_rank = {MANIFEST, INDEX, EXPECTED, PAYLOADS}.intersection(names)
    return not of_one_rank and any(_RANK.match(name) or _RANK_COMPLETE.match(name) for name in names)


def bundles_within(folder: Folder, limit: int = 5) -> tuple[str, ...]:
    """Names of subfolders that hold bundles; at most `limit`, for an error's remedy."""
    found: list[str] = []
    for name in folder.names()[:1000]:
        if len(found) < limit and not is_leftover(name) and folder.holds(name, MANIFEST):
            found.append(name)
    return tuple(found)


def strange_completes(names: tuple[str, ...], rank: int) -> tuple[str, ...]:
    """Completion records of other ranks in a folder that is one rank's."""
    return tuple(name for name in names if _RANK_COMPLETE.match(name) and name != rank_complete(rank))
