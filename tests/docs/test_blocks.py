"""Every command and block of code of the pages is run, as by a reader who goes down the page, on a real broker."""

import difflib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest
import yaml

from rollbook.tests.docs.blocks import PAGES, Block, Language, Shown, blocks_of, shown_in, written_by
from rollbook.tests.docs.commands import ANSWER, STAYING_FOLDER, end_staying
from rollbook.tests.docs.output import is_as_shown
from rollbook.tests.docs.settings import Ended, Finds, Setting, setting_of
from rollbook.tests.docs.shell import Shell
from rollbook.tests.docs.world import World, empty_world, furnish

NOT_RUN = {"BUNDLES.md": 1, "replay.md": 1, "trl.md": 1, "trl-async.md": 1}
"""How many blocks of which page are marked so. A page that needs one more has to say so here."""
RUN = {Language.SH, Language.CONSOLE, Language.PYTHON}
NEEDS = {"dashboard.md": ("curl", "jq", "openssl")}
"""What the commands of a page need of the system. Without it the page is skipped, and fails where CI is set."""
ANSWERS = (0, 1, 4)
"""What a command may exit with whose output is shown."""

ALL = {page.name: blocks_of(page) for page in PAGES}
WITH_CODE = [
    page.name for page in PAGES if any(block.language in RUN and not block.not_run for block in ALL[page.name])
]
BLOCKS = [block for blocks in ALL.values() for block in blocks]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_a_block_says_what_it_is_written_in(block: Block) -> None:
    assert block.language in set(Language), f"{block.place}: give the block a language"
    if block.language == Language.JSON:
        json.loads(block.text)
    if block.language == Language.YAML:
        yaml.safe_load(block.text)
    if block.language == Language.CONSOLE:
        assert shown_in(block)


def test_what_is_not_run_is_counted() -> None:
    found = {name: sum(bool(block.not_run) for block in blocks) for name, blocks in ALL.items()}
    assert {name: count for name, count in found.items() if count} == NOT_RUN
    assert all(len(block.not_run) > 10 for block in BLOCKS if block.not_run)


@pytest.mark.parametrize("name", WITH_CODE)
def test_what_a_page_tells_the_reader_to_run_does_what_it_says(
    name: str,
    broker: str,
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    missing = [tool for tool in NEEDS.get(name, ()) if shutil.which(tool) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"{name} is run with {', '.join(missing)}: install it")
    setting = setting_of(name)
    folder, own = tmp_path / "page", tmp_path / "own"
    with _found(setting, broker, tmp_path, request) as found, _alone(ALL[name]):
        furnish(folder, found.files, written_by(ALL[name]))
        environment = found.environment(tmp_path / "data")
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.chdir(folder)
        reader = Reader(Shell(folder, own, programs, environment), found, setting, monkeypatch)
        try:
            for block in ALL[name]:
                reader.follow(block)
            setting.after(found.settings)
        finally:
            faults = end_staying(own)
        assert not faults, faults


class Reader:
    """Who goes down a page and does what it says."""

    def __init__(self, shell: Shell, found: World, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
        self._shell = shell
        self._monkeypatch = monkeypatch
        self._found = found
        self._names: dict[str, Any] = {"__name__": "__page__", **setting.names()}

    def follow(self, block: Block) -> None:
        if block.not_run or block.language not in RUN:
            return
        if block.language == Language.SH:
            answer = self._shell.run(self._found.meant(block.text), alone=block.alone, exits=block.exits)
            assert answer.code == 0, f"{block.place}: exit code {answer.code}\n{answer.output}"
        elif block.language == Language.CONSOLE:
            for shown in shown_in(block):
                self._compare(block, shown)
        else:
            for variable, value in self._shell.exported().items():
                if variable.startswith("ROLLBOOK_") and variable not in (STAYING_FOLDER, ANSWER):
                    self._monkeypatch.setenv(variable, value)
            text = "\n" * (block.line - 1) + block.text  # so that a traceback names the page's line
            with suppress(Ended):
                exec(compile(text, block.page, "exec"), self._names)

    def _compare(self, block: Block, shown: Shown) -> None:
        answer = self._shell.run(self._found.meant(shown.command))
        printed = self._found.as_on_pages(answer.output).splitlines()
        difference = "\n".join(difflib.unified_diff(shown.output, printed, "shown", "printed", lineterm=""))
        assert is_as_shown(shown.output, printed), f"{block.place}: $ {shown.command}\n{difference}"
        if any(line.startswith("Error: ") for line in shown.output):
            assert answer.code not in (0, 70), f"{block.place}: $ {shown.command} exits with {answer.code}"
        else:
            assert answer.code in ANSWERS, f"{block.place}: $ {shown.command} exits with {answer.code}"


@contextmanager
def _found(setting: Setting, broker: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    if setting.finds is Finds.RUNS:
        yield request.getfixturevalue("runs")
        return
    with empty_world(broker, folder / "files") as empty:
        yield empty


@contextmanager
def _alone(blocks: tuple[Block, ...]) -> Iterator[None]:
    """Pages that name ports of this machine wait for one another, whichever session of tests they are of."""
    if not any("940" in block.text or "rollbook dashboard" in block.text for block in blocks):
        yield
        return
    with (Path(gettempdir()) / f"rollbook-docs-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
