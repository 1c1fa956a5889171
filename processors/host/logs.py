"""The host's log lines: text for people, or JSON a line each, with partition, offset and run where these apply.

What a record holds never gets into a log: messages name places and reasons. An exception that is not of ours may hold
contents in its message, so only its type and the place in the code are told.
"""

import json
import logging
import time
import traceback
from enum import StrEnum
from types import TracebackType

from rollbook.processors.ledger.fold import NewerFoldVersion
from rollbook.schemas.errors import RollbookError

_PLACE = ("partition", "offset", "run")
_LONGEST = 8_192


class LogFormat(StrEnum):
    """How a line looks."""

    TEXT = "text"
    JSON = "json"


def at(partition: int | None = None, offset: int | None = None, run: str | None = None) -> dict[str, object]:
    """Where a line belongs, for `extra=` of a logging call."""
    given = zip(_PLACE, (partition, offset, run), strict=True)
    return {name: value for name, value in given if value is not None and not _is_nowhere(value)}


def _is_nowhere(value: int | str) -> bool:
    """The client library's sign for an error that belongs to no partition or offset."""
    return isinstance(value, int) and value < 0


def fault(error: BaseException) -> str:
    """An exception in a few words, without what may be contents."""
    if isinstance(error, RollbookError | NewerFoldVersion):
        return f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} at {_place(frames[-1])}" if frames else type(error).__name__


def _place(frame: traceback.FrameSummary) -> str:
    return f"{'/'.join(frame.filename.split('/')[-3:])}:{frame.lineno} in {frame.name}"


_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class _Text(logging.Formatter):
    """`2026-11-29 23:31:10.123 WARNING rollbook.processor what happened partition=3 offset=7`, in UTC."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s", "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the name is logging's
        record.message = _printable(record.message)
        return " ".join((super().formatMessage(record), *(f"{n}={_printable(v)}" for n, v in _where(record))))

    def formatException(self, ei: _Raised) -> str:  # noqa: N802
        return "\n".join(f"  {line}" for line in _frames(ei))


class _Json(logging.Formatter):
    """One object a line; ASCII, whatever a name holds."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:_LONGEST],
            **dict(_where(record)),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["trace"] = _frames(record.exc_info)
        return json.dumps(line)


def _where(record: logging.LogRecord) -> list[tuple[str, object]]:
    return [(name, getattr(record, name)) for name in _PLACE if hasattr(record, name)]


def _printable(value: object) -> str:
    """On one line, and without anything that a terminal would obey."""
    text = str(value)[:_LONGEST]
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def _frames(raised: _Raised) -> list[str]:
    """Where in the code an exception came from, without its message."""
    if raised[1] is None:
        return []
    return [*map(_place, traceback.extract_tb(raised[2])), type(raised[1]).__name__]


def configure(log_format: LogFormat, level: int) -> None:
    """Send all logging to stderr in this format."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if log_format is LogFormat.JSON else _Text())
    logging.basicConfig(level=level, handlers=[handler], force=True)
