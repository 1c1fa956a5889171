"""What the pages name exists: files and headings that they link to, our commands with their options, our reasons."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.infra.lazy import MountKind
from rollbook.infra.mounts import MOUNTS
from rollbook.infra.reference.markdown import anchor
from rollbook.processors.reasons import Reason
from rollbook.tests.docs.blocks import PAGES, ROOT

CHECKLIST = ROOT / "docs" / "connect-your-trainer.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", _prose(page))
    for path, _, heading in (link.partition("#") for link in links if "://" not in link):
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {path}"
        if heading:
            assert f"#{heading}" in _anchors(target), f"{page.name} links to {path}#{heading}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_ours_is_one_with_these_options(page: Path) -> None:
    known = dict(_commands())
    for line in _command_lines(page.read_text(encoding="utf-8")):
        name = next((one for one in known if f"{line} ".startswith(f"{one} ")), None)
        assert name is not None, f"{page.name}: `{line}` is no command"
        for option in re.findall(r"(?<=\s)(--[a-z][\w.-]*)", line):
            assert option in known[name], f"{page.name}: `{line}`: {name} has no {option}"


def test_the_checklist_tells_reasons_that_there_are() -> None:
    told = set(
        re.findall(r"`([a-z]+(?:_[a-z]+)+)`", CHECKLIST.read_text(encoding="utf-8").partition("## The checklist")[2])
    )
    words = {
        "action_mask",
        "old_source",
        "rolled_back",
        "mean_abs_log_ratio",
        "processed_logprobs",
        "generation_failed",
    }
    assert told - words <= set(Reason)
    assert {Reason.POLICY_DRIFT, Reason.MISSING_WORKER_ACK, Reason.EVIDENCE_MISMATCH} <= told


def _prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def _anchors(page: Path) -> set[str]:
    return {anchor(heading.strip()) for heading in re.findall(r"^#+ (.*)$", _prose(page), flags=re.MULTILINE)}


def _commands() -> Iterator[tuple[str, set[str]]]:
    """Our commands with their options; those of a group before what begins like them."""
    for mount in MOUNTS:
        loaded = mount.load() if mount.exists() else None
        if loaded is None:
            continue
        members = loaded.commands.items() if mount.kind is MountKind.GROUP else [("", loaded)]
        for member, command in members:
            options = {text for one in command.params for text in (*one.opts, *one.secondary_opts)}
            yield f"rollbook {mount.name} {member}".strip(), {*options, "--help"}


def _command_lines(text: str) -> Iterator[str]:
    """Each `rollbook ...` in code: in a span, or on a line of a block; without what comes after it in the shell."""
    spans = re.findall(r"`(rollbook [a-z][^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", text, flags=re.DOTALL)
    lines = [line.removeprefix("$ ").split("#")[0] for block in blocks for line in block.splitlines()]
    for line in (*spans, *lines):
        for one in re.split(r"&&|\|", line):
            if one.strip().startswith("rollbook "):
                yield " ".join(one.split())
