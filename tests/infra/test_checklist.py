"""`rollbook checklist`: each step is judged by what the log shows, and what an adapter forgot is named."""

from collections import Counter
from collections.abc import Callable

import pytest

from rollbook.infra.looking.checklist import Line, Verdict, checklist, read_checklist
from rollbook.infra.looking.integration import Figures, Integration
from rollbook.infra.looking.place import Place
from rollbook.infra.looking.refold import refold
from rollbook.infra.settings import Topic
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.errors import BadInput
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.run import DriftGate
from rollbook.tests.infra.rich_run import rich
from rollbook.tests.processors.history import History
from rollbook.tests.producers.trl.recorded import Story, read_log, settings_of

SEEN, LOOK, MISSING = Verdict.SEEN, Verdict.LOOK, Verdict.MISSING


def stored(history: History) -> list[StoredRecord]:
    return [StoredRecord("lifecycle", one.partition, one.offset, 0, one.key, one.value) for one in history.log.records]


def judged(history: History) -> dict[str, Line]:
    log, seen = history.log, Integration()
    run = refold(stored(history), history.run_id, log.partition, log.topic_partitions, (seen,))
    return {line.step: line for line in checklist(run, seen)}


def opened(gate: DriftGate = DriftGate.REQUIRED) -> History:
    return History("checklist").opened(workers=("w0",), gate=gate)


def learning(gate: DriftGate = DriftGate.REQUIRED) -> History:
    """With two rewarded rows of one group, and a learner."""
    history = opened(gate)
    history.ready("t0", "t1", group="g")
    history.learner()
    return history


def test_of_a_run_with_nothing_in_it_everything_is_missing_or_not_known() -> None:
    lines = judged(opened())
    assert [line.number for line in lines.values()] == list(range(1, 15))
    assert [step for step, line in lines.items() if line.verdict is MISSING] == [
        "Identity",
        "Revision",
        "Drift",
        "Commit",
        "Weight sync",
        "Recordings",
        "Checkpoints",
    ]


def test_of_a_run_that_was_never_configured_nothing_counts() -> None:
    history = History("checklist")
    history.generated("t0")
    assert {line.verdict for line in judged(history).values()} == {MISSING}


def test_a_run_that_has_lived_through_nearly_everything() -> None:
    lines = judged(rich("rich", 1))
    assert [step for step, line in lines.items() if line.verdict is MISSING] == []
    assert lines["Identity"].told == "8 trajectories in 4 groups"
    assert lines["Versions and hashes"].told == "3 policies; rows shown 4 at lag 0, 2 at lag 1"
    assert lines["Drift"].told.startswith("5 rows admitted, at most 0.01 nats of 0.2; 1 refused")
    assert lines["Recordings"].told == "of 2 commits 0 with a recording of each step by each rank"
    assert lines["What fails"].told == "1 GenerationFailed, 1 RewardFailed, 1 Discarded"
    assert "1 learner_fenced" in lines["The end"].told


def half_a_group(history: History) -> None:
    history.generated("t2", group="h", sample=0, of=2)


def another_contract(history: History) -> None:
    history.generated("t2", contract="f" * 64)


def policy_of_nobody(history: History) -> None:
    history.ready("t2", version=7)
    history.reserve("u1", "t2")


def revision_of_before(history: History) -> None:
    history.reserve("u0", "t0", revisions={"t0": 1})
    history.reserve("u1", "t0")


def evidence_of_another(history: History) -> None:
    history.reserve("u0", "t0")
    history.admit("u0", {"t0": 0.0}, evidence="f" * 64)


def far_at_once(history: History) -> None:
    history.reserve("u0", "t0", "t1")
    history.admit("u0", {"t0": 0.15, "t1": 0.15})


def left_within_a_step(history: History) -> None:
    history.trained("u0", "t0")
    history.reserve("u1", "t1")
    history.admit("u1", {"t1": 0.0}, own_updates=1)
    history.started("u1")


def worker_of_old(history: History) -> None:
    history.trained("u0", "t0")
    history.ack("w0", 1)
    history.prepared(1, "u0")
    history.activate(1)
    history.ack("w0", 0)


def rank_that_sealed_nothing(history: History) -> None:
    history.reserve("u0", "t0")
    history.admit("u0", {"t0": 0.0})
    history.started("u0")
    history.commit("u0", "t0", ranks=(0, 1))
    history.sealed("u0", 0)


@pytest.mark.parametrize(
    ("step", "plant", "told"),
    [
        ("Identity", half_a_group, "of 1 not all members are known"),
        ("Contract", another_contract, "1 unregistered_contract"),
        ("Behavior log-probs", far_at_once, "without payload"),
        ("Versions and hashes", policy_of_nobody, "1 unknown_policy"),
        ("Revision", revision_of_before, "1 reservation; refused: 1 revision_conflict"),
        ("Mask", evidence_of_another, "1 evidence_mismatch"),
        ("Commit", left_within_a_step, "started and not ended: u1"),
        ("Weight sync", worker_of_old, "not known to serve the active one: w0"),
        ("Recordings", rank_that_sealed_nothing, "of 1 commit 0"),
        ("The end", half_a_group, "1 generated, 2 rewarded"),
    ],
)
def test_what_is_planted_is_told(step: str, plant: Callable[[History], None], told: str) -> None:
    history = learning()
    plant(history)
    line = judged(history)[step]
    assert (line.verdict, told in line.told) == (LOOK, True), line


@pytest.mark.parametrize(
    ("figures", "verdict", "told"),
    [
        (None, LOOK, "is not known"),
        (Figures(2, 0.0, 0.0), LOOK, "sampler and trainer are one"),
        (Figures(3, 0.4, 0.2, far=2), LOOK, "2 above half the limit before any update"),
        (Figures(2, 0.004, 0.003), SEEN, "mean 0.002, at most 0.003 nats (2 rows)"),
        (Figures(3, 0.304, 0.3, far=1), SEEN, "mean 0.101, at most 0.3 nats (3 rows)"),
    ],
)
def test_how_far_sampler_and_trainer_are_apart_before_any_update(
    figures: Figures | None, verdict: Verdict, told: str
) -> None:
    seen = Integration(drift={} if figures is None else {0: figures})
    line = checklist(learning().run, seen)[2]
    assert (line.step, line.verdict, told in line.told) == ("Behavior log-probs", verdict, True), line


def test_a_row_is_far_where_it_is_above_half_the_limit() -> None:
    history, seen = learning(), Integration()
    history.reserve("u0", "t0", "t1")
    history.admit("u0", {"t0": 0.05, "t1": 0.15})
    log = history.log
    refold(stored(history), history.run_id, log.partition, log.topic_partitions, (seen,))
    assert (seen.drift[0].count, seen.drift[0].far, seen.drift[0].largest) == (2, 1, 0.15)


def test_admitted_rows_whose_log_probs_nobody_can_look_at_are_counted() -> None:
    seen = Integration(accepted=Counter({"Admit": 1}), admitted=Figures(3, 0.03, 0.02), unproven=2)
    line = checklist(learning().run, seen)[6]
    assert (line.step, line.verdict) == ("Drift", LOOK)
    assert "of 2 the current log-probs were not kept" in line.told


def test_a_drift_gate_that_is_off_needs_no_admit() -> None:
    line = judged(learning(DriftGate.OFF))["Drift"]
    assert (line.verdict, line.told) == (LOOK, "no Admit; the drift gate is off")


@pytest.mark.parametrize("story", [Story.GATE, Story.OBSERVE])
def test_the_recorded_trainings_lack_a_checkpoint_and_a_failure(story: Story) -> None:
    lines = read_checklist(place(story, story.value))
    assert {line.step: line.verdict for line in lines if line.verdict is not SEEN} == {
        "Behavior log-probs": LOOK,  # TRL samples with the weights that it trains: drift is 0
        "Checkpoints": MISSING,
        "What fails": LOOK,
    }
    told = {line.step: line.told for line in lines}
    assert told["Identity"] == "16 trajectories in 4 groups"
    assert told["Recordings"] == "of 2 commits 2 with a recording of each step by each rank"
    mode = "observe" if story is Story.OBSERVE else "gate"
    assert told["The gate"] == f"enforcement is {mode}; no violation"


def test_a_run_that_nobody_has_heard_of_has_no_answer() -> None:
    with pytest.raises(BadInput, match="has no decision"):
        read_checklist(place(Story.GATE, "another"))


def place(story: Story, run_id: str) -> Place:
    settings, log = settings_of(story), read_log(story)
    partitions = log.partitions(settings.topic(Topic.LIFECYCLE))
    return Place(settings, log, run_id, partitions, partition_of(story.value, partitions))
