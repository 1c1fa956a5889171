"""Every example that `--help` shows does what it says, as it is printed, on the recorded runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.infra.lazy import MountKind
from rollbook.infra.mounts import MOUNTS
from rollbook.tests.docs.commands import end_staying
from rollbook.tests.docs.shell import Shell
from rollbook.tests.docs.world import World, furnish

ANSWERS = {
    "rollbook diff run-a run-b": 1,
    "rollbook prove --run my-run --policy 1 --absent eval.txt": 1,  # one of the tasks was trained on
    "rollbook history restore backup.avro": 2,  # the topics are not empty; docs/backup.md restores into new ones
    "rollbook topics create --partitions 8": 2,  # there are four already
    "ROLLBOOK_TOPIC_PREFIX=team-a. rollbook topics describe": 1,  # has no topics here
    "rollbook topics acl --grant worker=User:rollout --grant trainer=User:trainer --apply": 3,  # no authoriser
}
"""What those exit with, here, that do not exit with 0."""
WRITTEN = ("my-run.avro", "sealed.avro", "report.html", "bundles")


def _examples() -> Iterator[str]:
    for mount in MOUNTS:
        loaded = mount.load()
        commands = loaded.commands.values() if mount.kind is MountKind.GROUP else ()
        for command in (loaded, *commands):
            label, _, example = command.epilog.partition(": ")
            assert label == "Example"
            yield example


EXAMPLES = sorted(set(_examples()))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_help_works(example: str, runs: World, programs: Path, tmp_path: Path) -> None:
    folder, own = tmp_path / "reader", tmp_path / "own"
    furnish(folder, runs.files, [name for name in WRITTEN if f" {name}" in f"{example} ".replace("bundles/", "")])
    (folder / "eval.txt").write_bytes((folder / "held-out.txt").read_bytes())
    (folder / "backup.avro").write_bytes((runs.files / "my-run.avro").read_bytes())
    shell = Shell(folder, own, programs, runs.environment(tmp_path / "data"))
    try:
        answer = shell.run(runs.meant(example))
    finally:
        faults = end_staying(own)
    assert not faults, faults
    assert answer.code == ANSWERS.get(example, 0), answer.output


def test_the_answers_are_of_examples_that_there_are() -> None:
    assert ANSWERS.keys() <= set(EXAMPLES)
