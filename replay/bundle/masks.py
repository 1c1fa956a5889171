"""Loss masks out of an index's text before it is parsed: nearly all of a large index is one digit a token, of which a
JSON parser makes an object and a list entry each.

Nothing is accepted here that a JSON parser would refuse: whatever is not plainly a list of the digits 0 and 1 makes the
whole text be left as it is. Pure.
"""

from dataclasses import dataclass
from typing import Any

_NAME = "loss_mask"
_KEY = f'"{_NAME}"'.encode()
_SPACE = b" \t\r\n"
_MAX_BEFORE_LIST = 16
_MIN_BYTES_PER_MASK = 64
_VALUES = bytes.maketrans(b"01", b"\x00\x01")


@dataclass(slots=True)
class LiftedMasks:
    """The text with an empty list in place of each mask, and the masks in its order, one byte a token."""

    text: bytes
    masks: list[bytes]
    _next: int = 0

    def put_back(self, parsed: dict[str, Any]) -> dict[str, Any]:
        """An object as it is parsed, with its mask; objects come in the order of the text."""
        if parsed.get(_NAME) == []:
            parsed[_NAME] = self.masks[self._next]
            self._next += 1
        return parsed


def lift_masks(data: bytes) -> LiftedMasks | None:
    """The masks of a JSON text; None where something is not as plain as it must be, for the parser to judge."""
    # With an escape somewhere, text that looks like a key may be a part of a string, or a key may look otherwise.
    if b"\\" in data:
        return None
    most = len(data) // _MIN_BYTES_PER_MASK + 1
    kept: list[bytes] = []
    masks: list[bytes] = []
    at = 0
    while (key := data.find(_KEY, at)) >= 0:
        after = key + len(_KEY)
        start = data.find(b"[", after, after + _MAX_BEFORE_LIST)
        end = data.find(b"]", start) if start >= 0 else -1
        if end < 0 or data[after:start].strip(_SPACE) != b":":
            return None
        mask = _mask(data[start + 1 : end])
        if mask is None or len(masks) == most:
            return None
        kept.append(data[at : start + 1])
        masks.append(mask)
        at = end
    kept.append(data[at:])
    return LiftedMasks(b"".join(kept), masks)


def _mask(text: bytes) -> bytes | None:
    """The digits of `0, 1, 1`, one byte each."""
    plain = text.translate(None, _SPACE)
    digits, commas = plain[::2], plain[1::2]
    well_formed = len(plain) % 2 == 1 or not plain
    if not well_formed or commas.count(b",") != len(commas) or digits.translate(None, b"01"):
        return None
    return digits.translate(_VALUES)
