"""What holds for the fold whatever is sent: shown on random walks over few ids."""

import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollbook.processors import freshness
from rollbook.processors.gates import freshness_of
from rollbook.processors.ledger.fold import Folded, Ledger, NewerFoldVersion, SourceRecord
from rollbook.processors.ledger.groups import is_ready
from rollbook.processors.ledger.judge import Asked, judge
from rollbook.processors.ledger.store import NO_CHAIN, Run, is_open
from rollbook.processors.lifecycle import NONE, TRANSITIONS
from rollbook.schemas.codec import decode, decode_as, encode
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.ledger import PolicyState, TrajectoryState, TrajectoryStatus, UpdateState, UpdateStatus
from rollbook.schemas.records.run import LagUnit
from rollbook.schemas.records.update import ClaimOrder, Reserve, ReserveMode
from rollbook.tests.nightly import often
from rollbook.tests.processors.history import History, refold
from rollbook.tests.processors.state import (
    Topic,
    all_rows,
    compacted,
    indexes,
    recounted,
    restored,
    rows,
    write_changes,
)
from rollbook.tests.processors.walk import act, deep, warm

SHORT = st.lists(st.binary(min_size=18, max_size=18), max_size=60)
DEEP = st.integers(0, 2**32).map(deep)
WALKS = SHORT | DEEP | DEEP
"""Each element drives one act; short walks shrink well, but what matters happens late."""

quick = settings(
    max_examples=often(each_time=25, each_night=200),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
UNCHANGING = (Outcome.REJECTED, Outcome.DUPLICATE, Outcome.INVALID, Outcome.UNDECODABLE)


def walked(walk: list[bytes]) -> History:
    history = warm()
    for rolls in walk:
        act(history, rolls)
    return history


@quick
@given(WALKS)
def test_each_record_has_its_one_decision_and_folding_again_gives_the_same_bytes(walk: list[bytes]) -> None:
    history = walked(walk)
    assert refold(history.log) == history.log.decisions
    for record, folded in zip(history.log.records, history.log.folded, strict=True):
        assert decode(folded.encoded) == folded.decision
        assert folded.decision.source.offset == record.offset


@quick
@given(WALKS)
def test_the_chain_vouches_for_the_whole_prefix(walk: list[bytes]) -> None:
    history = walked(walk)
    heads: dict[str, tuple[int, str]] = {}
    for record, folded in zip(history.log.records, history.log.folded, strict=True):
        decision = folded.decision
        sequence, previous = heads.get(decision.run_id, (0, NO_CHAIN))
        without_chain = encode(decision.but(chain=""))[:-1]  # an empty string is one byte
        source = hashlib.sha256(record.value or b"").digest()
        chain = hashlib.sha256(bytes.fromhex(previous) + source + without_chain).hexdigest()
        assert (decision.sequence, decision.chain) == (sequence + 1, chain)
        heads[decision.run_id] = (decision.sequence, decision.chain)
    for run_id, (sequence, chain) in heads.items():
        head = history.log.ledger.run(run_id).head
        assert (head.sequence, head.chain) == (sequence, chain)


@quick
@given(WALKS)
def test_a_record_changes_a_trajectory_at_most_once_and_along_the_table(walk: list[bytes]) -> None:
    history = warm()
    for rolls in walk:
        before = {row.trajectory_id: row for row in history.run.trajectories.values()}
        act(history, rolls)
        for after in history.run.trajectories.values():
            old = before.get(after.trajectory_id)
            if old is None:
                assert after.revision == 1
            elif old.status is not after.status:
                assert after.revision == old.revision + 1
                assert _reachable(old.status, after.status)
            else:
                assert after.revision == old.revision
        assert set(before) <= {row.trajectory_id for row in history.run.trajectories.values()}


def _reachable(start: str, end: str) -> bool:
    """Within two events: what is given back may be quarantined or discarded as part of the same change; what is taken
    as a fact is consumed without a reservation."""
    once = {after for (state, _), after in TRANSITIONS.items() if state == start}
    twice = {after for (state, _), after in TRANSITIONS.items() if state in once}
    taken = end == "consumed" and start in ("generated", "reward_failed", "rewarded")
    return end in once or (start in ("reserved", "consumed") and end in twice) or start == NONE or taken


@quick
@given(WALKS)
def test_refused_and_repeated_records_change_nothing_but_the_head(walk: list[bytes]) -> None:
    history = warm()
    for rolls in walk:
        before = rows(history.run)
        act(history, rolls)
        if history.last.outcome in UNCHANGING and history.last.run_id == history.run_id:
            after = rows(history.run)
            head, old = after.pop("run")[0], before.pop("run")[0]
            after.pop("tally"), before.pop("tally")
            assert after == before
            assert head == old.model_copy(update={"sequence": head.sequence, "chain": head.chain})


@quick
@given(WALKS)
def test_a_trajectory_is_held_by_one_open_update_or_by_none(walk: list[bytes]) -> None:
    history = warm()
    for rolls in walk:
        act(history, rolls)
        run = history.run
        held = [name for update in run.updates.values() for name in update.held]
        reserved = [t for t in run.trajectories.values() if t.status is TrajectoryStatus.RESERVED]
        assert sorted(held) == sorted(t.trajectory_id for t in reserved)
        for trajectory in reserved:
            update = run.updates.get(trajectory.update_id)
            assert update is not None
            assert is_open(update)
            assert trajectory.trajectory_id in update.held
        for update in run.updates.values():
            if update.status is UpdateStatus.COMMITTED:
                states = [run.trajectories.get(name) for name in update.trained]
                assert all(
                    state is not None
                    and state.status is TrajectoryStatus.CONSUMED
                    and state.update_id == update.update_id
                    for state in states
                )
        consumed = [t.trajectory_id for t in run.trajectories.values() if t.status is TrajectoryStatus.CONSUMED]
        standing = [u for u in run.updates.values() if u.status is UpdateStatus.COMMITTED]
        assert sorted(consumed) == sorted(name for update in standing for name in update.trained)


@quick
@given(WALKS)
def test_no_policy_with_undone_updates_is_whole_and_none_of_its_trajectories_can_be_taken(walk: list[bytes]) -> None:
    run = walked(walk).run
    undone = (UpdateStatus.ABORTED, UpdateStatus.ROLLED_BACK)
    for policy in run.policies.values():
        contained = [run.updates.get(name) for name in _contained(run.policies.values(), policy)]
        assert policy.orphaned == any(update is not None and update.status in undone for update in contained)
    orphaned = {policy.version for policy in run.policies.values() if policy.orphaned}
    hashes = {policy.version: policy.artifact.hash for policy in run.policies.values()}
    for trajectory in run.trajectories.values():
        tainted = any(
            ref.version in orphaned or hashes.get(ref.version, ref.artifact_hash) != ref.artifact_hash
            for ref in trajectory.policies
        )
        assert not (tainted and trajectory.status.value in ("generated", "rewarded", "reward_failed"))
    active = run.head.active
    assert active is not None
    assert run.head.active_orphaned == (active.version in orphaned)


def _contained(policies: list[PolicyState], policy: PolicyState) -> set[str]:
    by_version = {known.version: known for known in policies}
    if policy.source_version is None:
        return set()
    return set(policy.update_ids) | _contained(policies, by_version[policy.source_version])


@quick
@given(WALKS)
def test_a_fenced_learner_is_never_told_yes(walk: list[bytes]) -> None:
    history = warm()
    commands = ("Reserve", "Admit", "UpdateStarted", "Commit", "RecordingSealed", "Abort")
    for rolls in walk:
        act(history, rolls)
        decision = history.last
        if decision.record_type in commands and decision.outcome in (Outcome.ACCEPTED, Outcome.DUPLICATE):
            sent = getattr(decode(history.log.records[-1].value or b""), "learner")  # noqa: B009
            if sent is not None:
                state = history.run.learners.get(sent.learner_id)
                assert state is not None
                assert (state.epoch, state.fenced) == (sent.epoch, False)


@quick
@given(WALKS, st.integers(0, 99), st.integers(1, 9))
def test_a_restart_goes_on_as_if_it_had_never_stopped(walk: list[bytes], stop: int, batch: int) -> None:
    history = warm()
    topic: Topic = []
    for at, rolls in enumerate(walk[:stop]):
        act(history, rolls)
        if at % batch == 0:
            write_changes(topic, history.log.ledger)
    write_changes(topic, history.log.ledger)
    whole = restored(topic, history.log.partition, history.log.topic_partitions)
    ledger = restored(compacted(topic), history.log.partition, history.log.topic_partitions)
    assert all_rows(whole) == all_rows(ledger) == all_rows(history.log.ledger)
    assert indexes(whole.run("r")) == indexes(ledger.run("r")) == indexes(history.run)
    start = len(history.log.records)
    for rolls in walk[stop:]:
        act(history, rolls)
    assert [ledger.fold(record).encoded for record in history.log.records[start:]] == history.log.decisions[start:]
    assert sorted(ledger.changes()) == sorted(history.log.ledger.changes())


@quick
@given(WALKS, st.integers(0, 69), st.integers(1, 69))
def test_an_undone_batch_leaves_no_trace(walk: list[bytes], start: int, length: int) -> None:
    records = walked(walk).log.records
    ledger, never = Ledger(0, 1), Ledger(0, 1)
    kept = records[: 5 + start]
    for record in kept:
        ledger.fold(record)
        never.fold(record)
    ledger.journal.keep()
    for record in records[5 + start : 5 + start + length]:
        ledger.fold(record)
    ledger.journal.undo()
    assert all_rows(ledger) == all_rows(never)
    assert indexes(ledger.run("r")) == indexes(never.run("r"))
    assert not ledger.changes()
    rest = records[5 + start :]
    assert [ledger.fold(record).encoded for record in rest] == [never.fold(record).encoded for record in rest]


@quick
@given(WALKS)
def test_indexes_and_figures_equal_a_naive_recount(walk: list[bytes]) -> None:
    history = warm()
    for rolls in walk:
        act(history, rolls)
    assert indexes(history.run) == recounted(history.run)
    _compare_snapshot(history)


def _compare_snapshot(history: History) -> None:
    run = history.run
    admission = run.config.admission
    active = run.head.active
    assert active is not None

    def number(ref: PolicyRef | None) -> int | None:
        known = None if ref is None else run.policies.get(ref.version)
        return None if known is None else known.ordinal if admission.lag_unit is LagUnit.ORDINAL else known.depth

    def lag(trajectory: TrajectoryState) -> int | None:
        numbers = [number(ref) for ref in trajectory.policies]
        known = [found for found in numbers if found is not None]
        learner = number(active)
        return learner - min(known) if learner is not None and len(known) == len(numbers) else None

    ready = [t for t in run.trajectories.values() if t.status.value == "rewarded" and t.purpose.value == "train"]
    lags = [found for found in map(lag, ready) if found is not None]
    judged = [freshness_of(found, admission.max_lag).value for found in lags]
    figures = freshness.snapshot(run)
    assert figures.sequence == run.head.sequence
    assert figures.ready_fresh == judged.count("fresh")
    assert figures.ready_tolerated == judged.count("tolerated")
    assert figures.ready_stale == judged.count("stale")
    assert figures.ready_expiring == lags.count(admission.max_lag)
    assert figures.mean_lag == (pytest.approx(sum(lags) / len(lags)) if lags else None)
    assert sum(count.count for count in figures.by_version) == run.trajectories.live
    encode(figures)


@quick
@given(WALKS, st.sampled_from(ClaimOrder), st.sampled_from(ReserveMode), st.integers(1, 3))
def test_a_claim_chooses_what_judging_every_group_would(
    walk: list[bytes], order: ClaimOrder, mode: ReserveMode, groups: int
) -> None:
    history = walked(walk)
    history.claim("u9", groups, order=order, mode=mode, learner="a")
    record = decode_as(Reserve, history.log.records[-1].value or b"")
    asked = Asked(record, _fresh_update(), history.run.config)
    without = Ledger(0, 1)
    for source in history.log.records[:-1]:
        without.fold(source)
    expected = _naive_claim(without.run("r"), asked, groups)
    if history.last.reason != "learner_fenced":
        assert [item.trajectory_id for item in history.last.items] == expected


def _fresh_update() -> UpdateState:
    return UpdateState(
        update_id="u9",
        status=UpdateStatus.OPEN,
        learner=None,
        config_version=1,
        opened_sequence=1,
        last_activity_offset=0,
    )


def _naive_claim(run: Run, asked: Asked, groups: int) -> list[str]:
    waiting = []
    for name in run.trajectories.claimable_groups():
        members = [t for t in run.trajectories.members(name) if is_ready(t)]
        version = min(t.policies[0].version for t in members)
        judged = [judge(run, asked, t.trajectory_id, None).passes for t in members]
        if all(judged) if asked.record.mode is ReserveMode.ALL else any(judged):
            oldest = asked.record.claim is not None and asked.record.claim.order is ClaimOrder.OLDEST
            first = min(t.generated_offset for t in members)
            waiting.append((version if oldest else -version, first, [t.trajectory_id for t in members]))
    return [name for _, _, names in sorted(waiting)[:groups] for name in names]


@quick
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=20))
def test_bytes_that_no_client_would_write_never_stop_the_fold(flips: list[tuple[int, int]]) -> None:
    history = warm()
    for at, (place, flip) in enumerate(flips):
        record = history.log.records[at % len(history.log.records)]
        value = bytearray(record.value or b"")
        if value:
            value[place % len(value)] ^= flip
        try:
            assert isinstance(history.log.append(record.key, bytes(value)), Decision)
        except NewerFoldVersion:  # the one stop that a record can ask for
            continue
    assert refold(history.log) == history.log.decisions


def test_an_exception_in_the_fold_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    history = warm()
    before = all_rows(history.log.ledger)
    record = SourceRecord(0, 99, b"r", History().opened().ready("t9").log.records[-2].value)

    def broken(*_: object, **__: object) -> Folded:
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr(Ledger, "_decide", broken)
    with pytest.raises(RuntimeError):
        history.log.ledger.fold(record)
    assert all_rows(history.log.ledger) == before
