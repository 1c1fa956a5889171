"""Text that others wrote, made safe to show: an id is data, it must never draw a line of a report of its own."""

_MAX_SHOWN_CHARS = 200


def visible(text: object, limit: int = _MAX_SHOWN_CHARS) -> str:
    """`text` on one line: whatever does not print (controls, ANSI, newlines, bidi marks, surrogates) is escaped."""
    raw = text if isinstance(text, str) else str(text)
    cut = raw[:limit]
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in cut)
    return shown if len(raw) <= limit else f"{shown}... ({len(raw)} characters)"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
