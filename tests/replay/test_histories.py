"""What a notebook hands over in a form that was not meant is taken as it was meant, or refused by the argument's name:
never as the letters of a text, and never as a question about nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollbook.replay.audit.rules import Instead
from rollbook.replay.histories import History, diff, open_history
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.prove.asked import Asked, read_asked
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story

RANGES = OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0)
HASH = "0123456789abcdef" * 4


@pytest.fixture
def story() -> Story:
    made = Story().opened()
    made.update("u0", [made.group("a")])
    return made


@pytest.fixture
def file(story: Story, tmp_path: Path) -> str:
    return str(export(story.log, SETTINGS, RANGES, tmp_path / "run.avro", payloads=True).path)


def test_texts_do_wherever_paths_do(story: Story, file: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "bundles")
    with open_history(file, run=story.run_id) as history:
        (made,) = history.materialize(folder, update="u0")
        assert made.complete
        (checked,) = history.audit(bundles=[folder])
        assert checked.bundles == len(made.written)
        assert history.export(str(tmp_path / "again.avro")).path == tmp_path / "again.avro"
        (tmp_path / "names.txt").write_text("held-out/17")
        absence = history.prove(policy=0, asked=read_asked(str(tmp_path / "names.txt"))).absence
        assert absence is not None
    sealed = str(tmp_path / "sealed.avro")
    with open_history(file, f"lifecycle:0:-{story.end - 2}") as history:
        (first,) = history.seal(sealed)
        assert first.anchor is not None
    with open_history(file, f"lifecycle:0:{first.anchor.next_offset}-") as history:
        assert all(one.passed for one in history.audit(anchor=sealed))
        assert history.what_if(Instead(max_lag=9), anchor=sealed)
        (second,) = history.seal(str(tmp_path / "second.avro"), anchors=[sealed])
        assert second.exported is not None


WRONG: list[tuple[str, Callable[[History], Any]]] = [
    ("heads", lambda history: history.audit(heads=HASH)),
    ("heads", lambda history: history.audit(heads=None)),  # type: ignore[arg-type]
    ("heads", lambda history: history.audit(heads=[None])),  # type: ignore[list-item]
    ("heads", lambda history: history.prove(policy=0, heads=HASH)),
    ("policy", lambda history: history.prove(policy="0")),  # type: ignore[arg-type]
    ("policy", lambda history: history.prove(policy=True)),
    ("asked", lambda history: history.prove(policy=0, asked=["held-out/17"])),  # type: ignore[arg-type]
    ("anchor_digests", lambda history: list(history.seal("out.avro", anchors=["x"], anchor_digests=HASH))),
    ("bundles", lambda history: history.audit(bundles=Path("bundles"))),  # type: ignore[arg-type]
    ("bundles", lambda history: history.audit(bundles="bundles")),
    ("bundles", lambda history: history.audit(bundles=None)),  # type: ignore[arg-type]
    ("anchor", lambda history: history.audit(anchor=["sealed.avro"])),  # type: ignore[arg-type]
    ("anchor", lambda history: history.what_if(Instead(max_lag=1), anchor=7)),  # type: ignore[arg-type]
    ("instead", lambda history: history.what_if({"max_lag": 1})),  # type: ignore[arg-type]
    ("anchors", lambda history: list(history.seal("out.avro", anchors="sealed.avro"))),
    ("anchors", lambda history: list(history.seal("out.avro", anchors=Path("sealed.avro")))),  # type: ignore[arg-type]
    ("out", lambda history: history.export("")),
    ("out", lambda history: history.materialize(7)),  # type: ignore[arg-type]
    ("task_ids", lambda _: Asked.of(task_ids="held-out/17")),
    ("task_ids", lambda _: Asked.of(task_ids=b"held-out/17")),  # type: ignore[arg-type]
    ("task_ids", lambda _: Asked.of(task_ids=[17])),  # type: ignore[list-item]
    ("prompt_hashes", lambda _: Asked.of(HASH)),
    ("key", lambda _: Asked.of([HASH], key="a key")),  # type: ignore[arg-type]
    ("path", lambda _: read_asked(None)),  # type: ignore[arg-type]
    ("nothing asks", lambda _: Asked.of()),
    ("nothing asks", lambda _: Asked.of([], ())),
    ("run", lambda _: diff(1, "run-b", "run.avro")),  # type: ignore[arg-type]
    ("a file or range", lambda _: diff("run-a", "run-b", ["run.avro"])),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("name", "ask"), WRONG)
def test_what_was_not_meant_so_is_refused_by_name(
    name: str, ask: Callable[[History], Any], story: Story, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_history(file, run=story.run_id) as history, pytest.raises(BadInput, match=rf"^{name}\b"):
        ask(history)
    assert [path.name for path in tmp_path.iterdir()] == ["run.avro"]


def test_a_run_that_is_no_text_is_refused(file: str) -> None:
    with pytest.raises(BadInput, match=r"^run=7 is no text"), open_history(file, run=7):  # type: ignore[arg-type]
        pass


def test_an_update_that_is_not_there_is_not_complete(story: Story, file: str, tmp_path: Path) -> None:
    with open_history(file, run=story.run_id) as history:
        (made,) = history.materialize(tmp_path / "bundles", update="nosuch")
    assert (made.updates, made.written, made.complete) == (0, (), False)


def test_an_update_goes_with_its_run(file: str, tmp_path: Path) -> None:
    """Without one, all updates would have been written."""
    with open_history(file) as history, pytest.raises(BadInput, match="an update is of a run"):
        history.materialize(tmp_path / "bundles", update="u0")
    assert not (tmp_path / "bundles").exists()
