"""Digests that were noted elsewhere, where nobody who rewrites the log can change them: as people give them again."""

import re

from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

_DIGEST = re.compile(r"[0-9a-f]{64}")


def noted_digest(text: str, what: str, printed: str) -> str:
    """`what` it is of, and who `printed` it. Raises BadInput for what is none."""
    found = text.strip().lower()
    if not _DIGEST.fullmatch(found):
        raise BadInput(f"'{visible(text)}' is no {what}: give its 64 hexadecimal digits, as {printed}")
    return found
