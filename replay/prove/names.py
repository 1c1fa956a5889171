"""What the owner of an evaluation set has: prompt hashes and task ids, a line each, as JSON, or as a table. Pure.

A name that can never match must not pass for one that was not trained on. So what has a form that nothing in a log has
is refused, what is meant is taken where that is plain, and a name of any form can be given as JSON.
"""

import csv
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rollbook.schemas.text import visible

NO_DIGEST, NO_NAME = "0" * 64, "dropped"
"""What clients publish in place of a prompt's hash, and of a name, that they were told to drop."""
_FIELDS = ("prompt_hash", "task_id")
"""Of an object, or the columns of a table."""
_LONGEST_ID = 256
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HASH = re.compile(r"(?:sha256:|0x)?([0-9a-f]{64})", re.IGNORECASE)
_SUMS = (
    re.compile(r"\\?(?P<hash>[0-9a-f]{64}) [ *](?P<of>.+)", re.IGNORECASE),
    re.compile(r"SHA(?:2-)?256 ?\((?P<of>.+)\) ?= (?P<hash>[0-9a-f]{64})", re.IGNORECASE),
)
"""As sha256sum and its like print them, with the name of a file."""
_COMMENT = re.compile(r"#+(\s|$)")
_MANY_DIGITS = re.compile(r"[0-9a-f]{32}", re.IGNORECASE)
_BETWEEN_DIGITS = re.compile(r"[\s:.-]+")
"""What fingerprints are grouped by."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{43}=")
"""Of the 32 bytes of a hash."""
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_LIST_MARK = re.compile(r"([-*+\u2022]|[0-9]+[.)])\s")
_FIELD = re.compile(rf"({'|'.join(_FIELDS)})\s*[:=]", re.IGNORECASE)
_HEX = frozenset("0123456789abcdefABCDEF")
_AS_JSON = 'give the name of a task that is spelled like this as {"task_id": "..."}'
_A_HASH = "a prompt hash is 64 hexadecimal digits, with sha256: before them or not, alone on its line"


class Name(NamedTuple):
    """A prompt hash in lower case, or a task id."""

    text: str
    is_hash: bool


class Unfit(Exception):
    """What names no task: where it stands, what is wrong with it, and what to do about it."""


def hash_in(text: str) -> str | None:
    """The digits of a hash, in lower case; None where it is none."""
    found = _HASH.fullmatch(text)
    return found[1].lower() if found else None


def checked(name: Name) -> Name:
    """Raises ValueError for what stands in the log for nothing, or can be in none."""
    if name.text == NO_DIGEST:
        raise ValueError("is what stands in the log for a hash that was not published: leave it out")
    if name.text == NO_NAME:
        raise ValueError("is what stands in the log for a name that was not published: leave it out")
    if not name.is_hash and (not 0 < len(name.text) <= _LONGEST_ID or _CONTROL.search(name.text)):
        raise ValueError(
            f"is neither a prompt hash (64 hexadecimal digits) nor a task id (1 to {_LONGEST_ID} characters)"
        )
    return name


def names_in(text: str) -> Iterator[Name]:
    """All that a file asks for. Raises Unfit."""
    for place, given in _given(text.replace("\r\n", "\n").replace("\r", "\n")):
        try:
            yield from map(checked, _of_line(given) if isinstance(given, str) else _of_json(given[0]))
        except ValueError as why:
            raise Unfit(f"{place} {why}") from None


Given = str | tuple[object]
"""A line as it stands there, or what is said in so many words: a name, or an object with the fields of a task."""


def _given(text: str) -> Iterator[tuple[str, Given]]:
    if text.lstrip().startswith("["):
        for number, one in enumerate(_list(text), start=1):
            yield f"entry {number}", (one,)
        return
    lines = text.split("\n")
    said = [number for number, line in enumerate(lines) if line.strip() and not _COMMENT.match(line.strip())]
    header = lines[said[0]].strip() if said else ""
    delimiter = next((one for one in ",\t;" if one in header), ",")
    columns = [cell.strip().strip("'\"").lower() for cell in header.split(delimiter)]
    if not header.startswith("{") and any(field in columns for field in _FIELDS):
        yield from _table(lines[said[0] + 1 :], said[0] + 2, columns, delimiter)
        return
    for number in said:
        yield f"line {number + 1}", lines[number].strip()


def _list(text: str) -> list[object]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as fault:
        raise Unfit(f"line {fault.lineno} is no JSON, as the file begins: {fault.msg}; or {_AS_JSON}") from None
    except (ValueError, RecursionError):
        raise Unfit("line 1 is no list of names") from None
    assert isinstance(found, list), "it begins with a bracket"
    return found


def _table(lines: Sequence[str], first: int, columns: Sequence[str], delimiter: str) -> Iterator[tuple[str, Given]]:
    rows, place = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True), f"line {first}"
    try:
        for row in rows:
            if row and not (len(row) == 1 and _COMMENT.match(row[0].strip())):
                if len(row) != len(columns):
                    said = f"{place} has {len(row)} cells, and the header {len(columns)}"
                    raise Unfit(f"{said}: put a cell in quotes that has a '{visible(delimiter)}' in it")
                yield place, ({column: cell.strip() or None for column, cell in zip(columns, row, strict=True)},)
            place = f"line {first + rows.line_num}"
    except csv.Error as fault:
        raise Unfit(f"{place} is no row of a table: {fault}") from None


def _of_json(value: object) -> Iterator[Name]:
    """Raises ValueError."""
    if isinstance(value, dict):
        prompt_hash, task_id = (value.get(field) for field in _FIELDS)
        if prompt_hash is None and task_id is None:
            raise ValueError("names no task: give its prompt_hash or its task_id")
        if prompt_hash is not None:
            digits = hash_in(prompt_hash) if isinstance(prompt_hash, str) else None
            if digits is None:
                raise ValueError("has a prompt_hash that is none: give its 64 hexadecimal digits")
            yield Name(digits, is_hash=True)
        if task_id is not None:
            yield _word(task_id)
    else:
        name = _word(value)
        if not name.is_hash:
            _refuse_damaged(name.text)
        yield name


def _word(value: object) -> Name:
    """Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("is neither a text nor a number: give a prompt hash or a task id")
    digits = hash_in(str(value))
    return Name(str(value), is_hash=False) if digits is None else Name(digits, is_hash=True)


def _of_line(line: str) -> Iterator[Name]:
    """Raises ValueError."""
    if line.startswith(("{", '"')):
        yield from _of_json(_json(line))
        return
    digits = hash_in(line)
    for form in _SUMS if digits is None else ():
        found = form.fullmatch(line)
        if found is not None and not _MANY_DIGITS.search(found["of"]):
            digits = found["hash"].lower()
    if digits is None:
        checked(Name(line, is_hash=False))
        _refuse_damaged(line)
        _refuse_punctuated(line)
    yield Name(line, is_hash=False) if digits is None else Name(digits, is_hash=True)


def _json(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON: give an object, or a text in quotes, a line") from None


def _refuse_damaged(text: str) -> None:
    """What looks like a hash, and is none. Raises ValueError."""
    plain = unicodedata.normalize("NFKC", text)
    alike = any(
        not word.isascii() and sum(char in _HEX for char in word) >= max(32, len(word) - 16) for word in plain.split()
    )
    cut = plain.lower().startswith(("sha256:", "sha-256:")) or plain.endswith("...")
    grouped = _BETWEEN_DIGITS.sub("", UUID.sub("/", plain))
    other = _BASE64.fullmatch(plain) or _MANY_DIGITS.search(plain) or _MANY_DIGITS.search(grouped)
    if alike or cut or other or not text.isprintable():
        raise ValueError(f"looks like a hash and is none: {_A_HASH}; {_AS_JSON}")


def _refuse_punctuated(line: str) -> None:
    """A row of a table without its header, a part of a list, or a name in quotes. Raises ValueError."""
    if _LIST_MARK.match(line) or _FIELD.match(line):
        raise ValueError(f"looks like an entry of a list: give the name alone on its line; {_AS_JSON}")
    if line.startswith("#"):
        raise ValueError(f"begins with # and is no comment, which has a blank behind it; {_AS_JSON}")
    quoted = line[0] in "'`" or line[-1] in "'`\""
    if quoted or line[0] in "[]}" or any(char in line for char in ',;\t"'):
        raise ValueError(
            "looks like a part of a list or of a table: a table needs a header with prompt_hash or task_id, and a list "
            f"is given whole; {_AS_JSON}"
        )
