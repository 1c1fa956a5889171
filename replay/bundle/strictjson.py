"""JSON as the format means it: UTF-8, finite numbers, no key twice; the same text for the same content, always."""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from rollbook.replay.bundle.convention import FROM_FILE
from rollbook.replay.bundle.masks import lift_masks
from rollbook.replay.bundle.problems import CAPTURE_AGAIN, Problem, Refused, problems_of
from rollbook.schemas.text import visible

M = TypeVar("M", bound=BaseModel)


Pairs = list[tuple[str, Any]]
_MAX_KEYS = 4096
_MIN_BYTES_PER_CONTAINER = 32
_MIN_BYTES_PER_QUOTE = 4
_ANY = 4096


class _NotStrict(ValueError):
    """A token or a key that JSON readers disagree about."""


def _unique(pairs: Pairs) -> dict[str, Any]:
    if len(pairs) > _MAX_KEYS:
        raise _NotStrict(f"{len(pairs):,} keys in one object")
    found = dict(pairs)
    if len(found) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise _NotStrict(f"key '{visible(twice)}' twice in one object")
    return found


def _no_constant(token: str) -> NoReturn:
    raise _NotStrict(f"{token} is not a JSON number")


def parse(file: str, data: bytes, model: type[M]) -> M:
    """The record in `data`; raises `Refused` with every problem found."""
    if (lifted := lift_masks(data)) is not None and lifted.masks:
        # Without the masks a hundredth is left to be parsed. What is wrong with that is told of the text as it is.
        with suppress(Refused):
            return _parse(file, lifted.text, model, lambda pairs: lifted.put_back(_unique(pairs)))
    return _parse(file, data, model, _unique)


def _parse(file: str, data: bytes, model: type[M], hook: Callable[[Pairs], dict[str, Any]]) -> M:
    # Counted before anything is made of it: parsed, empty lists take twenty times their bytes. A sample of the shortest
    # names has 75 bytes for each of its containers and 6 for each quote.
    if data.count(b"[") + data.count(b"{") > _ANY + len(data) // _MIN_BYTES_PER_CONTAINER:
        raise Refused(Problem(file, "", "more lists and objects than its content can need", CAPTURE_AGAIN))
    if data.count(b'"') > _ANY + len(data) // _MIN_BYTES_PER_QUOTE:
        raise Refused(Problem(file, "", "more texts than its content can need", CAPTURE_AGAIN))
    try:
        content = json.loads(data.decode("utf-8"), object_pairs_hook=hook, parse_constant=_no_constant)
    except _NotStrict as error:
        raise Refused(Problem(file, "", str(error), "write strict JSON")) from None
    except UnicodeDecodeError:
        raise Refused(Problem(file, "", "not UTF-8", CAPTURE_AGAIN)) from None
    except RecursionError:
        raise Refused(Problem(file, "", "nested too deeply", CAPTURE_AGAIN)) from None
    except json.JSONDecodeError as error:
        what = f"not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        raise Refused(Problem(file, "", what, CAPTURE_AGAIN)) from None
    except ValueError:
        raise Refused(Problem(file, "", "a number with too many digits", CAPTURE_AGAIN)) from None
    try:
        return model.model_validate(content, context=FROM_FILE)
    except ValidationError as error:
        raise Refused(*problems_of(file, error)) from None


def render(record: BaseModel, *, drop_absent: bool = False) -> bytes:
    """The file of a record: indent 2, sorted keys, non-ASCII kept, a trailing newline."""
    content = record.model_dump(mode="json", by_alias=True, exclude_none=drop_absent)
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()
