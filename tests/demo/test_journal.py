"""The worker's journal over a crash, and what the next incarnation makes of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.schedule import episodes_due_at
from rollbook.infra.demo.learning.task import train_prompt
from rollbook.infra.demo.processes.folder import Release
from rollbook.infra.demo.processes.journal import Attempt, Journal, Stage
from rollbook.infra.demo.processes.worker import DemoWorker
from rollbook.producers import new_id, new_identity
from rollbook.schemas.records.common import PolicyRef

POLICY = PolicyRef(version=3, artifact_hash="weights-3")


def attempt(key: str = "task@4", number: int = 0) -> Attempt:
    group = new_id()
    return Attempt(key, number, POLICY, tuple(new_identity(group, index, 4) for index in range(4)))


def reopened(journal: Journal, path: Path) -> Journal:
    journal.close()
    return Journal(path)


@pytest.mark.parametrize(
    ("stages", "needs", "lost"),
    [
        ((Stage.BEGUN,), False, True),
        ((Stage.BEGUN, Stage.PUBLISHING), False, True),
        ((Stage.BEGUN, Stage.PUBLISHING, Stage.PUBLISHED), False, False),
        ((Stage.BEGUN, Stage.FAILED), True, False),
        ((Stage.BEGUN, Stage.PUBLISHING, Stage.PUBLISHED, Stage.UNDONE), True, False),
    ],
)
def test_what_the_next_incarnation_finds(stages: tuple[Stage, ...], needs: bool, lost: bool, tmp_path: Path) -> None:
    journal, begun = Journal(tmp_path / "journal"), attempt()
    for stage in stages:
        journal.note(begun, stage)
    journal = reopened(journal, tmp_path / "journal")
    assert journal.needs(begun.key) is needs
    assert journal.attempts(begun.key) == 1
    unfinished = journal.at(Stage.BEGUN, Stage.PUBLISHING)
    assert [one.identities for one in unfinished] == ([begun.identities] if lost else [])


def test_an_assignment_that_was_never_begun_is_needed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert journal.needs("task@4")
    assert journal.attempts("task@4") == 0


def test_a_line_that_the_crash_cut_off_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal, first, second = Journal(path), attempt("a@1"), attempt("b@1")
    journal.note(first, Stage.BEGUN)
    journal.note(second, Stage.BEGUN)
    journal.close()
    path.write_bytes(path.read_bytes()[:-20])
    journal = Journal(path)
    assert not journal.needs("a@1")
    assert journal.needs("b@1")
    journal.note(second, Stage.BEGUN)
    assert not reopened(journal, path).needs("b@1")


class Client:
    """Stands for a rollout worker's or a reward service's client: notes what is called, in order."""

    worker_id = "worker-1"

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []

    def register_contract(self, **_: object) -> str:
        return "c" * 64

    def generation_failed(self, identity: object, policy: PolicyRef, reason: object) -> None:
        self.calls.append((f"failed {reason} version {policy.version}", identity))

    def discarded(self, ids: object, reason: object, *, text: str) -> None:
        self.calls.append(("discarded", ids))

    def flush(self, deadline_s: float) -> int:
        self.calls.append(("flush", None))
        return 0


def report_lost(stage: Stage, path: Path) -> tuple[Attempt, list[tuple[str, object]], Journal]:
    journal, lost, client = Journal(path), attempt(), Client()
    journal.note(lost, stage)
    journal = reopened(journal, path)
    worker = DemoWorker(1, 2, DemoConfig(), journal, client, client)  # type: ignore[arg-type]
    worker.report_lost()
    return lost, client.calls, journal


def test_what_was_in_flight_is_reported_as_lost_with_its_worker(tmp_path: Path) -> None:
    lost, calls, journal = report_lost(Stage.BEGUN, tmp_path / "journal")
    assert calls == [("failed worker_lost version 3", identity) for identity in lost.identities]
    assert journal.needs(lost.key)


def test_what_was_being_published_is_taken_out_whole_as_well(tmp_path: Path) -> None:
    lost, calls, journal = report_lost(Stage.PUBLISHING, tmp_path / "journal")
    ids = [identity.trajectory_id for identity in lost.identities]
    assert calls[-2:] == [("flush", None), ("discarded", ids)]
    assert [call for call, _ in calls].count("failed worker_lost version 3") == 4
    assert journal.needs(lost.key)


def begin_again(release: Release, path: Path, *attempts: tuple[Attempt, Stage]) -> list[bool]:
    """Which of the attempts a worker begins again when it is to serve the release."""
    journal, client = Journal(path), Client()
    for begun, stage in attempts:
        journal.note(begun, stage)
    worker = DemoWorker(0, 1, DemoConfig(), journal, client, client)  # type: ignore[arg-type]
    worker.begin_again(release)
    return [journal.needs(begun.key) for begun, _ in attempts]


def test_after_a_roll_back_what_an_undone_policy_wrote_is_begun_again(tmp_path: Path) -> None:
    due_now, due_later = train_key(iteration=2), train_key(iteration=3)
    of_undone = (attempt(due_later), Stage.BEGUN)
    of_standing = PolicyRef(version=1, artifact_hash="weights-1")
    stands = (replace(attempt(due_now), policy=of_standing), Stage.PUBLISHED)
    in_flight = (replace(attempt(train_key(3, place=1)), policy=of_standing), Stage.BEGUN)
    release = Release(PolicyRef(version=4, artifact_hash="weights-4"), lineage=(0, 1, 4))
    assert begin_again(release, tmp_path / "cut", of_undone, stands, in_flight) == [True, True, False]
    assert begin_again(release, tmp_path / "no-cut", stands, in_flight) == [False, False]


def train_key(iteration: int, place: int = 0) -> str:
    """The name of a training prompt that is due for an iteration."""
    config = DemoConfig()
    episode = episodes_due_at(config, iteration)[place]
    return f"{train_prompt(config, episode.row).task_id}@{iteration}"
