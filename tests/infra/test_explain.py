"""`rollbook explain`: the history of a trajectory, update or policy is whole, exact and ends where the ledger does."""

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest
from confluent_kafka import Producer

from rollbook.infra.command import run as rollbook
from rollbook.infra.looking.explain import Page, look_up
from rollbook.infra.looking.noted import Noted
from rollbook.infra.looking.policy import PolicyPage, PolicyWatch
from rollbook.infra.looking.refold import Watch, refold
from rollbook.infra.looking.trajectory import FORGOTTEN, TrajectoryPage, TrajectoryWatch
from rollbook.infra.looking.update import UpdatePage, UpdateWatch
from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.policy import phase_of
from rollbook.processors.reasons import Reason
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import encode
from rollbook.schemas.records.common import LearnerRef
from rollbook.schemas.records.update import AbortDisposition
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.infra.rich_run import decide, rich
from rollbook.tests.processors.history import History
from rollbook.tests.processors.hosting import send
from rollbook.tests.processors.walk import TRAJECTORIES, UPDATES, VERSIONS, act, deep, warm
from rollbook.tests.session_broker import own_topics

MANY = 150
HOSTILE = "[bold]evil[/bold]\u202e"
FORGED = "gone\n  99  Commit  trained"


def stored(history: History) -> list[StoredRecord]:
    return [StoredRecord("lifecycle", one.partition, one.offset, 0, one.key, one.value) for one in history.log.records]


def pages(history: History, name: str) -> list[Page]:
    log = history.log
    run, found = look_up(name, stored(history), history.run_id, log.partition, log.topic_partitions)
    assert run.head == history.run.head
    return found


def trajectory(history: History, name: str) -> TrajectoryPage:
    (page,) = pages(history, name)
    assert isinstance(page, TrajectoryPage)
    return page


def update(history: History, name: str) -> UpdatePage:
    (page,) = pages(history, name)
    assert isinstance(page, UpdatePage)
    return page


def policy(history: History, version: int) -> PolicyPage:
    (page,) = pages(history, str(version))
    assert isinstance(page, PolicyPage)
    return page


def told(history: tuple[Noted, ...]) -> list[str]:
    return [f"{one.record} {one.reason}: {one.before} -> {one.after}" for one in history]


@pytest.fixture(scope="module")
def lived() -> History:
    return rich("rich", 1)


# --- trajectories


def test_a_trajectory_from_its_generation_to_its_end(lived: History) -> None:
    page = trajectory(lived, "t0")
    assert told(page.history) == [
        "Generated generated: none -> generated",
        "RewardReady rewarded: generated -> rewarded",
        "Reserve reserved: rewarded -> reserved",
        "Admit ok: reserved -> reserved",
        "UpdateStarted held: reserved -> reserved",
        "Commit trained: reserved -> consumed",
    ]
    assert [one.revision for one in page.history] == [1, 2, 3, 3, 3, 4]
    reserve = page.history[2]
    assert (reserve.update_id, reserve.lag, reserve.freshness) == ("u0", 0, "fresh")
    assert reserve.learner == LearnerRef(learner_id="a", epoch=3)
    assert reserve.meaning == Reason.RESERVED.meaning
    assert page.history[1].said == "reward 1 by exact 1"
    assert page.state == "consumed"


def test_a_trajectory_shows_what_became_of_its_group(lived: History) -> None:
    group = trajectory(lived, "t0").group
    assert group is not None
    assert group.members == {"consumed": 2, "generation_failed": 1, "reward_failed": 1}
    assert (group.expected, group.unknown) == (4, 0)


def test_a_failure_is_a_state_and_no_reward(lived: History) -> None:
    assert told(trajectory(lived, "t2").history) == ["GenerationFailed generation_failed: none -> generation_failed"]
    assert told(trajectory(lived, "t3").history)[-1] == "RewardFailed reward_failed: generated -> reward_failed"
    assert trajectory(lived, "t3").history[-1].said == "timeout, will be tried again"


def test_a_refused_row_shows_its_drift(lived: History) -> None:
    drifted = trajectory(lived, "t5").history[-1]
    assert (drifted.reason, drifted.after) == ("policy_drift", "quarantined")
    assert drifted.mean_abs_log_ratio == pytest.approx(0.9)


def test_a_roll_back_and_a_fenced_commit_are_told(lived: History) -> None:
    *_, undone, zombie = trajectory(lived, "t6").history
    assert (undone.record, undone.before, undone.after) == ("LearnerStarted", "consumed", "rewarded")
    assert undone.said == "learner a with the weights of checkpoint c0; 2 trajectories rolled back"
    assert (zombie.record, zombie.reason, zombie.after) == ("Commit", "learner_fenced", "rewarded")
    assert zombie.learner is not None
    assert zombie.learner.epoch < lived.epoch("a")


def test_what_was_never_known_is_explained_by_the_records_that_name_it(lived: History) -> None:
    waits = trajectory(lived, "t9")
    assert (waits.state, waits.known) == ("none", None)
    assert waits.waiting is not None
    assert told(waits.history) == ["RewardReady pending: none -> none"]
    refused = trajectory(lived, "t10")
    assert told(refused.history) == ["Generated unregistered_contract: none -> none"]
    assert pages(lived, "nobody") == []


def test_a_record_that_the_contract_refuses_is_told_too() -> None:
    history = History().opened()
    history.generated("t0")
    broken = history.log.records[-1].value or b""
    history.log.append(b"r", broken.replace(b"t0", b"t\x01", 1).replace(b"group of t0", b"group of t1", 1))
    history.log.append(b"r", broken.replace(b"group of t0", b"group of \x01\x01", 1))
    assert [one.outcome.value for one in trajectory(history, "t0").history] == ["accepted", "invalid"]


def test_every_one_of_many_that_changed_at_once_is_exact() -> None:
    history = History().opened()
    history.learner()
    names = [f"t{at}" for at in range(MANY)]
    history.ready(*names)
    history.trained("u0", *names)
    decision = history.learner()
    assert max(len(change.first_ids) for change in decision.mass_changes) < MANY
    run_watches = [TrajectoryWatch(name) for name in names]
    run = refold(stored(history), history.run_id, 0, 1, run_watches)
    for watch in run_watches:
        page = watch.page(run)
        assert page is not None
        assert told(page.history)[-1] == "LearnerStarted ok: consumed -> rewarded"
        assert page.history[-1].said.endswith(f"{MANY} trajectories rolled back")


def test_a_duplicate_changes_nothing_and_repeats_no_answer() -> None:
    history = History().opened()
    history.learner()
    history.ready("t0")
    history.reserve("u0", "t0")
    history.again()
    again = trajectory(history, "t0").history[-1]
    assert (again.outcome, again.reason, again.before, again.after) == (
        "duplicate",
        "duplicate",
        "reserved",
        "reserved",
    )
    assert again.lag is None
    assert update(history, "u0").fates == {"reserved": 1}


def test_what_falls_below_the_floor_is_forgotten() -> None:
    history = History().opened(max_lag=1, horizon=1)
    history.learner()
    history.ready("t0", "t1")
    history.trained("u0", "t0")
    for version in (1, 2):
        history.advanced(version)
    assert trajectory(history, "t0").state == FORGOTTEN
    assert "forgotten" in trajectory(history, "t0").history[-1].said
    assert trajectory(history, "t1").state == "offline"
    assert update(history, "u0").rows[0].state == FORGOTTEN
    assert update(history, "u0").groups.members == {"consumed": 1}


# --- updates


def test_an_update_with_all_that_it_asked_for(lived: History) -> None:
    page = update(lived, "u0")
    assert page.state == "committed"
    assert list(page.offsets) == ["open", "started", "committed"]
    assert page.fates == {"dropped": 1, "refused": 1, "trained": 2}
    assert page.refused == {"policy_drift": 1}
    assert (page.admitted, page.steps) == (3, 1)
    assert (page.expected_ranks, page.sealed_ranks) == ((0, 1), (0,))
    assert page.policies == (1,)
    rows = {row.trajectory_id: row for row in page.rows}
    assert rows["t4"].dropped == "not_trained, release"
    assert [rows[name].state for name in ("t0", "t4", "t5")] == ["consumed", "discarded", "quarantined"]


def test_an_update_counts_the_members_that_failed_beside_what_it_trained_on(lived: History) -> None:
    groups = update(lived, "u0").groups
    assert groups.expected == 6
    assert groups.members == {
        "consumed": 2,
        "generation_failed": 1,
        "quarantined": 1,
        "reward_failed": 1,
        "rewarded": 1,
    }


def test_an_undone_update_shows_by_what(lived: History) -> None:
    page = update(lived, "u1")
    assert (page.state, page.fates) == ("rolled_back", {"rolled_back": 2})
    undone = next(one for one in page.history if one.after == "rolled_back")
    assert (undone.record, undone.offset) == ("LearnerStarted", page.offsets["rolled_back"])
    assert page.history[-1].reason == "learner_fenced"


@pytest.mark.parametrize(
    ("end", "reason", "fates"),
    [
        ("abort", "update_failed", {"released": 2}),
        ("expire", "lease_expired", {"released": 2}),
        ("close", "ok", {"released": 2}),
    ],
)
def test_every_end_of_an_update_gives_its_rows_back(end: str, reason: str, fates: dict[str, int]) -> None:
    history = History().opened(lease_ms=1)
    history.learner()
    history.ready("t0", "t1")
    history.reserve("u0", "t0", "t1")
    if end == "abort":
        history.abort("u0", disposition=AbortDisposition.QUARANTINE, text=FORGED)
    elif end == "expire":
        history.expired("u0")
    else:
        history.closed()
    page = update(history, "u0")
    assert (page.history[-1].reason, page.fates) == (reason, fates)
    assert page.state == (FORGOTTEN if end == "close" else "aborted")


def test_an_update_that_was_only_refused() -> None:
    history = History().opened()
    history.learner()
    history.ready("t0")
    history.reserve("u0", "t0", revisions={"t0": 9})
    page = update(history, "u0")
    assert (page.state, page.refused, page.fates) == ("none", {"revision_conflict": 1}, {})


# --- policies


def test_a_policy_from_its_weights_to_its_activation(lived: History) -> None:
    page = policy(lived, 1)
    assert list(page.phases) == ["prepared", "committed", "active"]
    assert [(found.update_id, found.version, found.state) for found in page.contains] == [("u0", 1, "committed")]
    assert [(ack.worker_id, ack.outcome) for ack in page.acks] == [("w0", "pending")]
    assert page.serving == ("w0",)
    assert page.prepared is not None
    assert page.prepared.parent_version == 0
    assert "ActivationAck of offset" in page.history[1].said


def test_a_policy_that_is_orphaned_says_why(lived: History) -> None:
    page = policy(lived, 2)
    assert (page.state, page.undone) == ("orphaned", ("u1",))
    assert [(found.update_id, found.state) for found in page.contains] == [("u0", "committed"), ("u1", "rolled_back")]
    assert page.history[-1].reason == "policy_orphaned"


def test_a_policy_that_is_abandoned_says_why() -> None:
    history = History().opened()
    history.prepared(1)
    history.abandoned(1)
    page = policy(history, 1)
    assert (page.state, page.history[-1].said) == ("abandoned", "version 1: load_failed")


def test_the_policy_before_it_is_superseded() -> None:
    history = History().opened()
    history.advanced(1)
    assert told(policy(history, 0).history)[-1] == "Activate activated: active -> superseded"


def test_a_name_of_several_things_has_a_page_each() -> None:
    history = History().opened()
    history.learner()
    history.ready("0")
    history.reserve("0", "0")
    assert [page.kind for page in pages(history, "0")] == ["trajectory", "update", "policy"]


# --- whatever happens


@pytest.mark.parametrize("seed", range(12))
def test_every_history_is_continuous_and_ends_in_the_ledger(seed: int) -> None:
    history = warm()
    for rolls in deep(seed):
        act(history, rolls)
    trajectories = {name: TrajectoryWatch(name) for name in TRAJECTORIES}
    updates = {name: UpdateWatch(name) for name in UPDATES}
    policies = {version: PolicyWatch(version) for version in VERSIONS}
    watches: list[Watch] = [*trajectories.values(), *updates.values(), *policies.values()]
    run = refold(stored(history), history.run_id, 0, 1, watches)
    assert run.head == history.run.head
    for name, trajectory_watch in trajectories.items():
        known = run.trajectories.get(name)
        page = trajectory_watch.page(run)
        _continuous(page, None if known is None else known.status.value)
        assert page is None or page.history[-1].revision == (None if known is None else known.revision)
        _complete(page, {f.decision.source.offset for f in history.log.folded if _names(f.decision.model_dump(), name)})
    for name, update_watch in updates.items():
        state = run.updates.get(name)
        found = update_watch.page(run)
        doubt = ", in doubt" if state is not None and state.in_doubt else ""
        _continuous(found, None if state is None else state.status.value + doubt)
        if found is not None and state is not None:
            assert {row.trajectory_id for row in found.rows if row.fate == "reserved"} == set(state.held)
            trained = {row.trajectory_id for row in found.rows if row.fate == "trained"}
            assert trained >= set(state.trained)
            assert len(trained) == len(state.trained) + state.forgotten
    for version, policy_watch in policies.items():
        phase = run.policies.get(version)
        orphaned = ", orphaned" if run.head.active_orphaned and phase is not None and run.head.active else ""
        active = run.head.active is not None and run.head.active.version == version
        _continuous(
            policy_watch.page(run), None if phase is None else phase_of(run, phase) + (orphaned if active else "")
        )


def _continuous(page: Page | None, state: str | None) -> None:
    if page is None:
        assert state is None
        return
    assert page.history[0].before == "none"
    assert all(earlier.after == later.before for earlier, later in pairwise(page.history))
    assert page.state == page.history[-1].after == (state or page.state)
    assert state is not None or page.state in ("none", FORGOTTEN)


def _complete(page: Page | None, offsets: set[int]) -> None:
    assert offsets <= {one.offset for one in (() if page is None else page.history)}


def _names(value: object, name: str) -> bool:
    if isinstance(value, dict):
        return any(_names(one, name) for one in value.values())
    return value == name or (isinstance(value, tuple | list) and any(_names(one, name) for one in value))


# --- the command


@pytest.fixture(scope="module")
def own(broker: str) -> Iterator[Settings]:
    with own_topics(broker, PARTITIONS) as settings:
        yield settings


@pytest.fixture(scope="module")
def decided(own: Settings) -> History:
    history = rich("told", PARTITIONS)
    history.ready(HOSTILE)
    history.learner("c")
    history.reserve(HOSTILE, HOSTILE, learner="c")
    history.abort(HOSTILE, text=FORGED, learner="c")
    decide(own, history)
    return history


@pytest.fixture
def environment(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", own.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", own.topic_prefix)


def explained(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert rollbook(["explain", name, "--run", "told"]) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("environment")
def test_a_page_for_people(decided: History, capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(explained("t0", capsys).split())
    assert text.startswith("trajectory t0 run told state consumed")
    assert "its group now 2 consumed, 1 generation_failed, 1 reward_failed; 4 expected in 1 group reward 1" in text
    assert f"trained {Reason.TRAINED.meaning}" in text
    text = " ".join(explained("u0", capsys).split())
    assert "mean reward 0.75 over 2 of 2 that stand trained on" in text
    assert "1 generation_failed, 1 quarantined, 1 reward_failed, 1 rewarded; 6 expected in 2 groups" in text
    assert "1 of 2 ranks sealed in the weights of policy 1" in text
    text = " ".join(explained("2", capsys).split())
    assert "orphaned it contains undone updates: u1" in text
    assert "differs" not in text


@pytest.mark.usefixtures("environment")
def test_the_same_as_json(decided: History, capsys: pytest.CaptureFixture[str]) -> None:
    for name, kind in (("t0", "trajectory"), ("u0", "update"), ("2", "policy")):
        assert rollbook(["explain", name, "--run", "told", "--json"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        found = json.loads(line)
        (page,) = pages(decided, name)
        assert found["chain_agrees"] is True
        assert (found["page"]["kind"], found["page"]["id"]) == (kind, name)
        assert [one["offset"] for one in found["page"]["history"]] == [one.offset for one in page.history]
        assert all(one["at_ms"] > 0 and one["meaning"] for one in found["page"]["history"])
    assert rollbook(["explain", "u0", "--run", "told", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["page"]["rows"]
    assert {row["trajectory_id"]: row["raw_reward"] for row in rows} == {"t0": 1.0, "t1": 0.5, "t4": 1.0, "t5": 1.0}
    assert rollbook(["explain", "t3", "--run", "told", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["page"]["raw_reward"] is None


@pytest.mark.usefixtures("environment")
def test_an_id_forges_no_line(decided: History, capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(HOSTILE, capsys)
    assert "\u202e" not in text
    assert "[bold]evil[/bold]\\u202e" in text
    assert not any(line.split()[:1] == ["99"] for line in text.splitlines())
    assert "gone\\n  99  Commit  trained" in text


@pytest.mark.usefixtures("environment")
def test_an_unknown_id_or_run_is_a_no(decided: History, capsys: pytest.CaptureFixture[str]) -> None:
    for name, run in (("nobody\x1b[31m\nError: forged", "told"), ("7", "told"), ("t0", "another")):
        assert rollbook(["explain", name, "--run", run]) == (2 if run == "another" else 1)
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert "\x1b" not in captured.err


def test_what_the_processor_did_not_do_is_marked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last decision there is does not fit the log: something else wrote it. What is undecided is left out."""
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", settings.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", settings.topic_prefix)
    history = History("forged", topic_partitions=PARTITIONS).opened().ready("t0")
    log = history.log
    send(settings, [(one.partition, one.key or b"", one.value or b"") for one in log.records])
    last = log.folded[-2].decision.model_copy(update={"chain": "f" * 64})
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    for value in (*log.decisions[:-2], encode(last)):
        producer.produce(settings.topic(Topic.DECISIONS), value, b"forged", log.partition)
    assert producer.flush(20) == 0
    assert rollbook(["explain", "t0", "--run", "forged"]) == 0
    text = capsys.readouterr().out
    assert f"The chain differs from that of decision {last.sequence}" in text
    assert "Generated" in text
    assert "RewardReady" not in text
