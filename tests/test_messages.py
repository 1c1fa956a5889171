"""Every message that a user may meet, read from the code: what was wrong, and what to do, on one line.

Read are those whose text stands in the `raise` itself. What is composed elsewhere is tested where it is composed.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollbook.infra.mounts import MOUNTS
from rollbook.infra.outcome import MEANINGS, ExitCode
from rollbook.replay.commands.diff import EXIT_CODES as OF_DIFF
from rollbook.replay.commands.replay import EXIT_CODES as OF_REPLAY
from rollbook.schemas.errors import RollbookError

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("schemas", "producers", "processors", "replay", "infra")
# The errors whose whole text is given where they are raised; an AnswerNo is an answer, and need not say more.
WHOLE = ("BadInput", "EnvironmentFault", "HostStopped", "PartitionUnusable", "OutOfOrder", "NotTrainable", "NotOurs")
ANSWERS = ("AnswerNo", "NothingReleased", "RunIsUsed")
_BEHIND = (": ", "; ", " (")
"""What the remedy, or what the reader is to know besides, stands behind."""


@dataclass(frozen=True, slots=True)
class Message:
    """`text` with braces for what is put in."""

    place: str
    kind: str
    text: str


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(one) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    return ""


def _messages() -> Iterator[Message]:
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                    kind, text = ast.unparse(node.exc.func), _text(node.exc.args[0])
                    if kind in (*WHOLE, *ANSWERS) and text:
                        yield Message(f"{path.relative_to(ROOT)}:{node.lineno}", kind, text)


MESSAGES = list(_messages())


def test_there_are_many() -> None:
    assert len(MESSAGES) > 250


@pytest.mark.parametrize("kind", WHOLE)
def test_each_says_what_to_do(kind: str) -> None:
    without = [one for one in MESSAGES if one.kind == kind and not _composed(one) and not _has_remedy(one.text)]
    assert without == []


def test_each_is_one_line_that_goes_on_behind_the_word_error() -> None:
    wrong = [
        one
        for one in MESSAGES
        if "\n" in one.text or "  " in one.text or one.text.endswith((".", " ")) or one.text[0].isspace()
    ]
    assert wrong == []


def test_none_begins_like_a_sentence() -> None:
    """But with a name of ours: an option, a variable, a class."""
    wrong = [
        one for one in MESSAGES if one.text[:1].isupper() and not one.text.startswith(("Options: ", "Redaction: "))
    ]
    assert [one for one in wrong if not one.text.startswith("LedgerRun: ")] == []


def _has_remedy(text: str) -> bool:
    return any(mark in text for mark in _BEHIND)


def _composed(message: Message) -> bool:
    """Only a name or two and what another function says of them."""
    return not any(word.isalpha() for word in message.text.replace("'", " ").split())


def _kinds(of: type[RollbookError]) -> Iterator[type[RollbookError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from _kinds(kind)


def test_each_exit_code_is_in_the_table_of_the_help() -> None:
    for mount in MOUNTS:
        mount.load()
    codes = {kind.exit_code for kind in _kinds(RollbookError)} | set(OF_REPLAY.values()) | set(OF_DIFF.values())
    assert codes <= set(ExitCode)
    assert MEANINGS.keys() == set(ExitCode)
