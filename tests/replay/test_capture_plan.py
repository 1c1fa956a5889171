"""What the environment says about capture: our names, those that trainers have set already, and what means nothing."""

from pathlib import Path

import pytest

from rollbook.replay.capture import CapturePlan
from rollbook.schemas.errors import BadInput

ON = {"ROLLBOOK_CAPTURE": "1", "ROLLBOOK_CAPTURE_DIR": "/bundles"}
THEIRS = {"RELAX_REPLAY_CAPTURE": "true", "RELAX_REPLAY_CAPTURE_DIR": "/theirs"}
UPDATES, ROLLOUTS = "ROLLBOOK_CAPTURE_UPDATES", "ROLLBOOK_CAPTURE_ROLLOUTS"

OFF = [{}, {"ROLLBOOK_CAPTURE": "0"}, {"ROLLBOOK_CAPTURE": "off"}, {"ROLLBOOK_CAPTURE_DIR": "/bundles"},
       {**THEIRS, "ROLLBOOK_CAPTURE": "0"}, {"RELAX_REPLAY_CAPTURE": ""}, {"RELAX_REPLAY_CAPTURE": "no"}]  # fmt: skip


@pytest.mark.parametrize("environ", OFF, ids=str)
def test_off(environ: dict[str, str]) -> None:
    assert CapturePlan.from_env(environ) is None


WANTS = [
    # environment, steps that are wanted, steps that are not, rollouts that are wanted, rollouts that are not
    (ON, [(0, 0), (9, 3)], [], [0, 9], []),
    ({**ON, UPDATES: "7"}, [(7, 0), (7, 5)], [(6, 0), (77, 0)], [7, 8], []),
    ({**ON, UPDATES: "7:1, 8:0"}, [(7, 1), (8, 0)], [(7, 0), (8, 1)], [7], []),
    ({**ON, UPDATES: "10-12,3:0"}, [(10, 0), (12, 9), (3, 0)], [(9, 0), (13, 0), (3, 1)], [1], []),
    ({**ON, UPDATES: "none", ROLLOUTS: "0,4-5"}, [], [(0, 0)], [0, 4, 5], [1, 6]),
    ({**ON, ROLLOUTS: "none"}, [(0, 0)], [], [], [0]),
    (THEIRS, [(0, 0)], [], [0], []),
    ({**THEIRS, "RELAX_REPLAY_CAPTURE_STEPS": "0:0,0:1"}, [(0, 0), (0, 1)], [(0, 2), (1, 0)], [3], []),
    ({**THEIRS, "RELAX_REPLAY_CAPTURE_ROLLOUTS": "0,3"}, [(1, 1)], [], [0, 3], [1]),
    ({**THEIRS, "RELAX_REPLAY_CAPTURE_STEPS": " "}, [(1, 1)], [], [1], []),
    ({**THEIRS, "RELAX_REPLAY_CAPTURE_STEPS": "0:0", UPDATES: "1"}, [(1, 1)], [(0, 0)], [1], []),
]


@pytest.mark.parametrize(("environ", "steps", "no_steps", "rollouts", "no_rollouts"), WANTS, ids=range(len(WANTS)))
def test_wanted(
    environ: dict[str, str],
    steps: list[tuple[int, int]],
    no_steps: list[tuple[int, int]],
    rollouts: list[int],
    no_rollouts: list[int],
) -> None:
    plan = CapturePlan.from_env(environ)
    assert plan is not None
    assert all(plan.wants_step(*step) for step in steps)
    assert not any(plan.wants_step(*step) for step in no_steps)
    assert all(map(plan.wants_rollout, rollouts))
    assert not any(map(plan.wants_rollout, no_rollouts))


def test_ours_counts_more_and_the_folder_is_absolute() -> None:
    plan = CapturePlan.from_env({**THEIRS, **ON})
    assert plan is not None
    assert plan.folder == Path("/bundles")
    relative = CapturePlan.from_env({**ON, "ROLLBOOK_CAPTURE_DIR": "bundles"})
    assert relative is not None
    assert relative.folder == Path.cwd() / "bundles"


REFUSED = [
    ({"ROLLBOOK_CAPTURE": ""}, "ROLLBOOK_CAPTURE is ''"),
    ({"ROLLBOOK_CAPTURE": "maybe\n"}, "ROLLBOOK_CAPTURE is 'maybe': set it to 1 or 0"),
    ({"RELAX_REPLAY_CAPTURE": "2"}, "RELAX_REPLAY_CAPTURE is '2'"),
    ({"ROLLBOOK_CAPTURE": "1"}, "no folder is set: set ROLLBOOK_CAPTURE_DIR"),
    ({"RELAX_REPLAY_CAPTURE": "1"}, "RELAX_REPLAY_CAPTURE is on, and no folder is set"),
    ({**ON, "ROLLBOOK_CAPTURE_DIR": " "}, "no folder is set"),
    ({**ON, UPDATES: ""}, "ROLLBOOK_CAPTURE_UPDATES has the item ''"),
    ({**ON, UPDATES: "7,"}, "has the item ''"),
    ({**ON, UPDATES: "seven"}, r"'seven': give 7, 7:0 \(rollout:step\) or 10-19"),
    ({**ON, UPDATES: "7:0:1"}, "'7:0:1'"),
    ({**ON, UPDATES: "9-3"}, "'9-3'"),
    ({**ON, UPDATES: "-3"}, "'-3'"),
    ({**ON, UPDATES: "9" * 40}, "'9999"),
    ({**ON, UPDATES: "٧"}, "has the item"),
    ({**ON, ROLLOUTS: "7:0"}, "ROLLBOOK_CAPTURE_ROLLOUTS has the item '7:0': give 7 or 10-19"),
    ({**THEIRS, "RELAX_REPLAY_CAPTURE_STEPS": "x"}, "RELAX_REPLAY_CAPTURE_STEPS has the item 'x'"),
    ({**ON, UPDATES: ",".join(map(str, range(10_001)))}, "has 10001 items"),
]


@pytest.mark.parametrize(("environ", "told"), REFUSED, ids=[case[1] for case in REFUSED])
def test_what_means_nothing_is_refused_at_the_start(environ: dict[str, str], told: str) -> None:
    with pytest.raises(BadInput, match=told) as refused:
        CapturePlan.from_env(environ)
    assert "\n" not in str(refused.value)
