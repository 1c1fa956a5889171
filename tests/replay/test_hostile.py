"""Hostile bundles: ids that would forge a report, and bytes at random. Never a traceback, never more than one line."""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rollbook.replay.bundle.reading.cohort import inspect, read_cohort, validate
from rollbook.replay.bundle.tensorfile import parse_tensor
from rollbook.replay.bundle.torchzip import NotATensorFile
from rollbook.replay.commands.replay import app
from rollbook.replay.engine.engine import replay_cohort
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.text import visible
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

FORGERIES = [
    "s-0\nfirst divergence: none",
    "\x1b[2J\x1b[1;32mfull-k1: pass\x1b[0m",
    "s\r\x08\x08pass",
    "[bold green]pass[/bold green]",
    "[/]",
    "\u202essap",
    "s\x00\x85\u2028\u2029t",
    "\x9b31m",
]


@pytest.mark.parametrize("forgery", FORGERIES, ids=range(len(FORGERIES)))
@pytest.mark.parametrize("command", ["inspect", "validate", "replay"])
def test_an_id_never_draws_a_line(tmp_path: Path, command: str, forgery: str) -> None:
    def index(content: Json) -> None:
        content["bundle_id"] = forgery
        content["samples"][0] |= {"sample_id": forgery, "micro_batch_id": forgery}
        content["identity"] |= {"micro_batch_ids": [forgery], "consumer_batch_ids": [forgery]}
        for sample in content["samples"]:
            sample["micro_batch_id"] = forgery
        content["config"]["n_samples_per_prompt"] = 4

    def manifest(content: Json) -> None:
        content["bundle_id"] = forgery
        content["producer"]["commit"] = forgery
        content["redaction"] = {forgery: "hash"}

    bundle = edit_bundle(FIXTURES / "pr65", tmp_path / "bundle", index=index, manifest=manifest)
    result = CliRunner().invoke(app, [command, str(bundle)])
    assert result.exit_code in (0, 1)
    assert isinstance(result.exception, SystemExit | None)
    assert all(char.isprintable() or char == "\n" for char in result.output)
    assert "first divergence: none" not in result.output.splitlines()
    if command == "replay" and "[" in forgery and "\x1b" not in forgery:
        assert forgery in result.output.replace("\n", "")


def test_a_hostile_key_is_shown_escaped(tmp_path: Path) -> None:
    bundle = edit_bundle(FIXTURES / "full-k1", tmp_path / "b", manifest=lambda content: content.update({"a\nvalid": 1}))
    result = CliRunner().invoke(app, ["validate", str(bundle)])
    assert "a\\nvalid: unknown key" in result.output


def test_visible_cuts_what_is_long() -> None:
    assert visible("x" * 10**6).endswith("... (1000000 characters)")
    assert len(visible("\u202e" * 10**6)) < 2000


def replay(bundle: Path) -> None:
    replay_cohort(read_cohort(bundle))


def survives(call: Callable[[Any], object], argument: Any) -> None:
    """Whatever is in it, the call returns or raises an error of ours, of one line."""
    message = ""
    try:
        call(argument)
    except (RollbookError, NotATensorFile) as error:
        message = str(error)
    assert "\n" not in message


def all_survive(bundle: Path) -> None:
    for command in (validate, inspect, replay):
        survives(command, bundle)


TEMPLATE = FIXTURES / "full-k1"
NAMES = ["manifest.json", "index.json", "expected.json", "COMPLETE", "COMPLETE.0"]
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from([-1, 0, 2**63, 10**400, 1e308, "../x", "s-0", "k1", "torch.float32", [], {}, [1, 0], [[]]]),
)


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in below for found in paths_in(item, (*path, key)))]


PATHS = [(name, path) for name in NAMES for path in paths_in(json.loads((TEMPLATE / name).read_text())) if path]


@FUZZ
@given(place=st.sampled_from(PATHS), value=LEAVES)
def test_any_field_may_hold_anything(place: tuple[str, tuple[Any, ...]], value: Any) -> None:
    name, path = place

    def change(content: Json) -> None:
        at: Any = content
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value

    edits = {
        "manifest.json": "manifest", "index.json": "index", "expected.json": "expected",
        "COMPLETE": "complete", "COMPLETE.0": "rank_complete",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        edit: dict[str, Any] = {edits[name]: change}
        try:
            bundle = edit_bundle(TEMPLATE, Path(folder) / "bundle", **edit)
        except (AttributeError, KeyError, TypeError, UnicodeEncodeError):
            return  # the helper cannot seal it
        all_survive(bundle)


@FUZZ
@given(name=st.sampled_from(NAMES), at=st.floats(0, 1), cut=st.integers(0, 40), new=st.binary(max_size=40))
def test_any_bytes_may_be_in_a_json_file(name: str, at: float, cut: int, new: bytes) -> None:
    def splice(data: bytes) -> bytes:
        start = int(at * len(data))
        return data[:start] + new + data[start + cut :]

    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        if name.startswith("COMPLETE"):
            shutil.copytree(TEMPLATE, bundle)
            (bundle / name).write_bytes(splice((bundle / name).read_bytes()))
        else:
            edit_bundle(TEMPLATE, bundle, raw={name: splice})
        all_survive(bundle)


@settings(max_examples=1500, deadline=None)
@given(at=st.floats(0, 1), cut=st.integers(0, 60), new=st.binary(max_size=60))
def test_any_bytes_may_be_in_a_payload(at: float, cut: int, new: bytes) -> None:
    data = (TEMPLATE / "payloads" / "kl.pt").read_bytes()
    start = int(at * len(data))
    survives(parse_tensor, data[:start] + new + data[start + cut :])


@pytest.mark.parametrize("code", [None, 0x00, 0x80, 0xFF])
def test_every_byte_of_a_payload_may_change(code: int | None) -> None:
    data = (TEMPLATE / "payloads" / "kl.pt").read_bytes()
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] = changed[at] ^ 1 if code is None else code
        survives(parse_tensor, bytes(changed))
