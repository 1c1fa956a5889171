"""The fenced blocks of the pages, and what each page says of them in comments that its readers do not see.

<!-- not run: REASON -->   the next block is not run
<!-- exits 1 -->           a command of the next block answers with this exit code
<!-- alone -->             what the next block exports is forgotten behind it
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
_FENCE = re.compile(
    r"(?:^ *<!-- (?P<marker>[^\n]*) -->\n)?^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    flags=re.DOTALL | re.MULTILINE,
)


class Language(StrEnum):
    """What a block is written in; the ways in which it is held to what it says."""

    SH = "sh"
    CONSOLE = "console"
    PYTHON = "python"
    YAML = "yaml"
    JSON = "json"
    TEXT = "text"
    NGINX = "nginx"
    INI = "ini"
    PROMQL = "promql"
    MERMAID = "mermaid"


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page, with the line on which its text begins."""

    page: str
    line: int
    language: str
    text: str
    not_run: str = ""
    exits: int = 0
    alone: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> tuple[Block, ...]:
    return tuple(_blocks(page.name, page.read_text(encoding="utf-8")))


def _blocks(name: str, text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        marker, indent = found["marker"] or "", found["indent"]
        lines = (line.removeprefix(indent) for line in found["text"].splitlines(keepends=True))
        yield Block(
            name,
            text.count("\n", 0, found.start("text")) + 1,
            found["language"],
            "".join(lines),
            not_run=marker.removeprefix("not run: ") if marker.startswith("not run: ") else "",
            exits=int(marker.removeprefix("exits ")) if re.fullmatch(r"exits \d+", marker) else 0,
            alone=marker == "alone",
        )


def written_by(blocks: tuple[Block, ...]) -> set[str]:
    """The files that a page writes itself before it reads them: it must not find them there."""
    text = "".join(block.text for block in blocks if not block.not_run)
    return {name for name in re.findall(r"--out (\S+)", text) if text.index(name) > text.index(f"--out {name}")}


@dataclass(frozen=True, slots=True)
class Shown:
    """A command of a console block, and the lines that the page shows below it."""

    command: str
    output: tuple[str, ...]


def shown_in(block: Block) -> list[Shown]:
    """The commands of a console block: from `$ ` on, with the lines that a backslash continues."""
    found: list[Shown] = []
    lines = iter(block.text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = [line[2:]]
            while command[-1].endswith("\\"):
                command.append(next(lines))
            found.append(Shown("\n".join(command), ()))
        else:
            assert found, f"{block.place}: a console block begins with a command: `$ ...`"
            found[-1] = Shown(found[-1].command, (*found[-1].output, line))
    return found
