"""What cannot be complete is told with its reason, and does not keep the other updates from being written."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import OutOfRange
from rollbook.replay.materialize.commits import CommittedUpdate
from rollbook.replay.materialize.evidence import UpdateEvidence
from rollbook.replay.materialize.gather import Gatherer
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.materialize.report import MEANING, NotWritten, Written
from rollbook.schemas.codec import encode
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.records.payload import StepRecording
from rollbook.tests.replay.materialized import STEPS_ALONE, passing, problem, tree, write, write_run
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, PAYLOADS, SETTINGS, Story


@pytest.fixture
def story() -> Story:
    return Story().opened()


def committed(story: Story, update_id: str, ids: list[str], expected_ranks: tuple[int, ...] = (0,)) -> None:
    """A committed update that nobody has sealed."""
    story.reserve(update_id, ids)
    story.start(update_id)
    story.commit(update_id, [ids], expected_ranks)


def test_an_update_without_recordings(story: Story, tmp_path: Path) -> None:
    committed(story, "u0", story.group("a"), expected_ranks=())
    assert "u0 not_recorded: t.lifecycle:0@9" in problem(write(story, tmp_path))


def test_a_rank_that_is_not_sealed_and_then_is(story: Story, tmp_path: Path) -> None:
    ids = story.group("a")
    committed(story, "u0", ids)
    assert "u0 rank_not_sealed: t.lifecycle:0@9 expects ranks" in problem(write(story, tmp_path))
    story.seal("u0", [story.recording("u0", 0, ids)])
    assert write(story, tmp_path).complete


def test_an_update_that_its_learner_undid_later(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    assert write(story, tmp_path / "before").complete
    undone = story.start_learner().source.offset
    found = problem(write(story, tmp_path / "after"))
    assert found.startswith(f"u0 rolled_back: undone by {DECISIONS}:0@")
    assert undone == story.end - 1


def test_a_payload_that_is_no_longer_retained(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    story.log.lose(PAYLOADS, 0, below=1)
    assert problem(write(story, tmp_path)).startswith("u0 payload_gone: payload t.payloads:0@0")


def test_a_payload_that_is_not_what_its_reference_describes(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    (there,) = story.log.read_at(PAYLOADS, 0, [0])
    story.log.tamper(PAYLOADS, 0, 0, bytes(len(there.value or b"")))
    assert problem(write(story, tmp_path)).startswith("u0 payload_corrupt: payload t.payloads:0@0: sha256 is")


def test_a_lifecycle_record_that_is_not_the_one_decided(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    story.log.tamper(LIFECYCLE, 0, 3, b"something else")
    found = problem(write(story, tmp_path))
    assert found.startswith("u0 disagreement: t.lifecycle:0@3 has sha256")
    assert "its decision t.decisions:0@" in found


def test_a_lifecycle_record_that_is_gone(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    story.log.lose(LIFECYCLE, 0, below=4)
    assert problem(write(story, tmp_path)).startswith("u0 record_gone: t.lifecycle:0@3")


def test_decisions_that_are_gone(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    story.log.lose(DECISIONS, 0, below=12)
    assert "u0 record_gone: no decision before the Commit's" in problem(write(story, tmp_path))


def test_a_decision_that_is_none_is_an_error_of_the_log(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    story.log.tamper(DECISIONS, 0, 5, encode(story.recording("u0", 0, ["a.0", "a.1"])))
    with pytest.raises(BadInput, match=r"t\.decisions:0@5 is not a decision"):
        write(story, tmp_path)


def test_the_others_are_written(story: Story, tmp_path: Path) -> None:
    story.update("good", [story.group("a")])
    committed(story, "bad", story.group("b"))
    story.update("better", [story.group("c")])
    report = write(story, tmp_path)
    assert [written.update_id for written in report.steps] == ["good", "better"]
    assert [found.update_id for found in report.problems] == ["bad"]


def test_a_step_that_the_format_refuses_takes_the_others_of_its_update_with_it(story: Story, tmp_path: Path) -> None:
    a, b = story.group("a"), story.group("b", (1.0, 0.0, 0.5))
    story.update("u0", [a, b[:2]], plant=lambda recording: _size_three(recording))
    found = problem(write(story, tmp_path))
    assert found.startswith("u0 step 1 not_representable: index.json: samples: group 0 has 2 samples")
    assert tree(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def _size_three(recording: StepRecording) -> StepRecording:
    if recording.step_id == 0:
        return recording
    return recording.model_copy(update={"config": recording.config.model_copy(update={"n_samples_per_prompt": 3})})


def test_the_same_call_again_leaves_what_is_there(story: Story, tmp_path: Path) -> None:
    a = story.group("a")
    story.update("u0", [a, a])
    assert [written.was_there for written in write(story, tmp_path).written] == [False] * 3
    before = tree(tmp_path)
    again = write(story, tmp_path)
    assert again.complete
    assert [written.was_there for written in again.written] == [True] * 3
    assert tree(tmp_path) == before


@pytest.mark.parametrize("gone", ["run-a-uu0-r3", "run-a-uu0-r3-s0", "run-a-uu0-r3-s1"])
def test_what_a_crash_kept_from_being_written_is_added(story: Story, tmp_path: Path, gone: str) -> None:
    a = story.group("a")
    story.update("u0", [a, a])
    write(story, tmp_path)
    before = tree(tmp_path)
    shutil.rmtree(tmp_path / gone)
    report = write(story, tmp_path)
    assert [written.path.name for written in report.written if not written.was_there] == [gone]
    assert tree(tmp_path) == before


def test_a_provenance_that_was_not_copied_along_is_added(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    before = write(story, tmp_path) and tree(tmp_path)
    (tmp_path / "run-a-uu0-r3-s0.provenance.json").unlink()
    assert write(story, tmp_path).complete
    assert tree(tmp_path) == before


def changed_payload(path: Path) -> None:
    (path / "payloads" / "kl.pt").write_bytes(b"changed")


def changed_provenance(path: Path) -> None:
    path.with_name(f"{path.name}.provenance.json").write_text("{}")


def one_more_file(path: Path) -> None:
    (path / "notes.txt").touch()


def a_link_to_the_same(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("mine")


@pytest.mark.parametrize("change", [changed_payload, changed_provenance, one_more_file, a_link_to_the_same, a_file])
def test_another_bundle_of_the_name_is_not_overwritten(
    story: Story, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    a = story.group("a")
    story.update("u0", [a, a])
    story.update("u1", [story.group("b")])
    path = next(written.path for written in write(story, tmp_path).steps)
    change(path)
    shutil.rmtree(tmp_path / "run-a-uu0-r3-s1")
    before = tree(tmp_path)
    report = write(story, tmp_path)
    assert problem(report).startswith(f"u0 step 0 exists: {path} exists and is not what would be written")
    assert {written.update_id for written in report.written} == {"u1"}
    assert tree(tmp_path) == before


def test_the_other_format_is_another_bundle(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    write(story, tmp_path, form=STEPS_ALONE)
    assert "u0 step 0 exists" in problem(write(story, tmp_path))


@pytest.mark.parametrize("same", [True, False])
def test_a_bundle_that_someone_else_writes_meanwhile(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """After everything was compared, and before it is renamed."""
    story.update("u0", [story.group("a")])
    story.update("u1", [story.group("b")])
    write(story, tmp_path / "other")
    name = "run-a-uu0-r3-s0"
    if not same:
        one_more_file(tmp_path / "other" / name)
    out, rename = tmp_path / "out", Path.rename

    def late(path: Path, target: Path) -> Path:
        if target == out / name:
            shutil.copytree(tmp_path / "other" / name, target)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    report = write(story, out)
    assert [found.reason for found in report.problems] == ([] if same else [NotWritten.EXISTS])
    assert {written.update_id for written in report.written} == ({"u0", "u1"} if same else {"u1"})
    assert (out / name / "notes.txt").exists() is not same


def test_what_was_written_before_the_log_failed_is_told(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.update("u0", [story.group("a")])
    story.update("u1", [story.group("b")])
    gather = Gatherer.gather

    def failing(gatherer: Gatherer, update: CommittedUpdate) -> UpdateEvidence:
        if update.update_id == "u1":
            raise EnvironmentFault("no Kafka broker answers")
        return gather(gatherer, update)

    monkeypatch.setattr(Gatherer, "gather", failing)
    told: list[Written] = []
    wanted = Wanted.of_run("run-a", story.log, SETTINGS)
    with pytest.raises(EnvironmentFault, match="no Kafka broker answers"):
        materialize(story.log, wanted, tmp_path, told=told.append)
    assert [(written.update_id, written.step_id) for written in told] == [("u0", None), ("u0", 0)]
    assert all(passing(written.path) for written in told)


def test_a_leftover_provenance_is_replaced(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    (tmp_path / "run-a-uu0-r3-s0.provenance.json").write_text("{}")
    (written,) = write(story, tmp_path).steps
    assert len(written.provenance.read_bytes()) > 100


def test_an_output_folder_that_cannot_be_one(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot write"):
        write(story, tmp_path / "file")


def test_an_unknown_run_or_update_has_no_updates(story: Story, tmp_path: Path) -> None:
    story.update("u0", [story.group("a")])
    assert write_run(story, tmp_path, "run-z").updates == 0
    assert write_run(story, tmp_path, "run-a", "u9").updates == 0


def test_ranges_that_are_not_to_be_had(story: Story, tmp_path: Path) -> None:
    end = story.end
    story.log.lose(LIFECYCLE, 0, below=2)
    for text, fault in (
        ("lifecycle:0:0-3", "offset 0 is not retained any more"),
        (f"lifecycle:0:2-{end + 1}", f"offset {end} is beyond the end"),
    ):
        with pytest.raises(OutOfRange, match=f"{fault}; to be had are offsets 2 to {end - 1}"):
            write(story, tmp_path, text)
    with pytest.raises(BadInput, match=r"updates are committed on t\.lifecycle"):
        Wanted.of_range(OffsetRange(DECISIONS, 0), SETTINGS)


def test_every_reason_has_a_meaning() -> None:
    assert MEANING.keys() == set(NotWritten)
