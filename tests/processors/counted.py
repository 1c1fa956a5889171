"""A log whose snapshot is counted again after each record, from its decisions and the ledger's rows, by other code."""

from collections import Counter
from typing import Any

from rollbook.processors.freshness import snapshot
from rollbook.processors.ledger.store import Run
from rollbook.schemas.codec import decode
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Decision, ItemDecision
from rollbook.schemas.records.ledger import PolicyState, UpdateState
from rollbook.schemas.records.rollout import Generated
from rollbook.tests.processors.log import Log

BOUNDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
GOOD = ("ok", "reserved", "idempotent_retry")
Figures = dict[str, Any]


class CountedLog(Log):
    """Counts with each record; an AssertionError shows the first figure that differs."""

    def __init__(self, partition: int = 0, topic_partitions: int = 1) -> None:
        super().__init__(partition, topic_partitions)
        self.consumed: Counter[int] = Counter()
        self.commits = 0
        self.drift: dict[float | None, list[int]] = {}
        self.floor: dict[int, list[int]] = {}
        self.refusals: Counter[tuple[str, str]] = Counter()
        self.failed: Counter[str] = Counter()
        self.admitted: set[tuple[str | None, str]] = set()
        self.owners: dict[str, str] = {}
        self.since = 0
        self.compared = 0

    def append(self, key: bytes | None, value: bytes | None) -> Decision:
        """Fold a record, count its decision, and compare all figures."""
        decision = super().append(key, value)
        if decision.run_id.startswith("~"):
            return decision
        run = self.ledger.run(decision.run_id)
        self._count(decision, run)
        if run.head.config_version and not run.head.closed:
            got = snapshot(run)
            for name, wanted in {**self._of_decisions(run), **of_rows(run)}.items():
                assert getattr(got, name) == wanted, f"{decision.record_type} at {decision.source.offset}: {name}"
            self.compared += 1
        return decision

    def _count(self, decision: Decision, run: Run) -> None:
        kind, outcome = decision.record_type, decision.outcome.value
        counted = 0
        if kind in ("Reserve", "Admit") and decision.items:
            if outcome != "duplicate":
                self.refusals.update((kind, one.reason) for one in decision.items if one.reason not in GOOD)
        elif outcome in ("rejected", "invalid"):
            self.refusals[kind, decision.reason] += 1
        if kind == "GenerationFailed":
            self.failed.update(decision.detail for one in decision.items if one.reason == "generation_failed")
        if kind == "Commit" and outcome == "accepted":
            lags = [
                max(-1, min(one.lag, 1_000))
                for one in decision.items
                if one.reason == "trained" and one.lag is not None
            ]
            self.consumed.update(lags)
            counted += len(lags)
        if kind == "Admit" and outcome == "accepted":
            counted += sum(self._judged(decision, one, run) for one in decision.items)
        if counted and not self.since:
            self.since = decision.sequence
        owners = {row.trajectory_id: row.update_id for row in run.trajectories.values() if row.status == "consumed"}
        self.commits += sum(self.owners.get(name) != owner for name, owner in owners.items())
        self.owners = owners

    def _judged(self, decision: Decision, one: ItemDecision, run: Run) -> bool:
        """Whether the drift of a row was judged, for the first time where it was admitted."""
        row = decision.update_id, one.trajectory_id
        if one.reason not in ("ok", "policy_drift") or (one.reason == "ok" and row in self.admitted):
            return False
        ratio = one.mean_abs_log_ratio
        assert ratio is not None
        bound = next((bound for bound in BOUNDS if ratio <= bound), None)
        counts = self.drift.setdefault(bound, [0, 0])
        counts[one.reason != "ok"] += 1
        if one.reason == "ok":
            self.admitted.add(row)
        if one.lag == 0 and (version := self._oldest(one)) >= run.head.floor:
            self.floor.setdefault(version, []).append(round(ratio * 1e9))
        return True

    def _oldest(self, one: ItemDecision) -> int:
        assert one.generated_offset is not None
        record = decode(self.records[one.generated_offset].value or b"")
        assert isinstance(record, Generated)
        spans = [span.policy for segment in record.segments for span in segment.spans]
        return min(policy.version for policy in spans if policy is not None)

    def _of_decisions(self, run: Run) -> Figures:
        got = snapshot(run)
        assert {(one.record_type, one.reason): one.count for one in got.refusals} == self.refusals
        assert {one.cause: one.count for one in got.failures if one.stage == "generation"} == self.failed
        assert {one.lag: one.count for one in got.consumed_by_lag} == self.consumed
        assert [(one.up_to, [one.admitted, one.refused]) for one in got.drift] == sorted(
            self.drift.items(), key=lambda found: float("inf") if found[0] is None else found[0]
        )
        assert {one.version: (one.rows, one.mean_abs_log_ratio) for one in got.drift_floor} == {
            version: (len(parts), sum(parts) / (len(parts) * 10**9))
            for version, parts in self.floor.items()
            if version >= run.head.floor
        }
        return {"consumed_lag_unknown": self.commits - self.consumed.total(), "figures_since": self.since}


def of_rows(run: Run) -> Figures:
    """What the rows alone say."""
    config, head = run.config, run.head
    policies = {one.version: one for one in run.policies.values()}
    active = policies[head.active.version] if head.active is not None else None
    assert active is not None
    standing = [one for one in policies.values() if not one.orphaned and not one.abandoned]
    learner = max(standing, key=lambda one: one.version, default=None)
    opened = sorted((u for u in run.updates.values() if u.status in ("open", "started")), key=_opened)
    ready = [t for t in run.trajectories.values() if t.status == "rewarded" and t.purpose == "train"]
    spans = [[ref.version for ref in t.policies] for t in ready]
    known = [versions for versions in spans if all(version in policies for version in versions)]

    def lags(behind: PolicyState) -> list[int]:
        return [number(run, behind) - min(number(run, policies[one]) for one in versions) for versions in known]

    names = sorted({*config.required_workers, *(worker.worker_id for worker in run.workers.values())})
    names.sort(key=lambda name: name not in config.required_workers)
    serving = {worker.worker_id: worker.serves for worker in run.workers.values()}
    rows = rows_of_an_update(run, opened)
    left = 0
    if learner is not None and active in standing:
        left = max(0, number(run, active) + config.admission.max_lag - upcoming(run, learner, opened) + 1)
    got = snapshot(run)
    assert {one.lag: one.count for one in got.ready_by_lag} == Counter(lags(active))
    assert [(one.update_id, one.status, one.held, one.in_doubt) for one in got.updates] == [
        (one.update_id, one.status.value, len(one.held), one.in_doubt) for one in opened
    ]
    assert [one.worker_id for one in got.workers] == names
    assert [one.serves for one in got.workers] == [serving.get(name) for name in names]
    return {
        "active_policy": head.active,
        "ready_unknown": len(ready) - len(known),
        "ready_future": sum(lag < 0 for lag in lags(active)),
        "learner_policy": learner and PolicyRef(version=learner.version, artifact_hash=learner.artifact.hash),
        "ready_stale_for_learner": sum(lag > config.admission.max_lag for lag in lags(learner)) if learner else 0,
        "in_doubt_count": sum(one.in_doubt for one in opened),
        "worker_count": len(names),
        "workers_behind": sum(serving.get(name) != head.active for name in config.required_workers),
        "rows_per_update": rows,
        "updates_left": left,
        "capacity": room(run, learner, opened, rows, left) if learner else 0,
    }


def _opened(update: UpdateState) -> int:
    return update.opened_sequence


def number(run: Run, policy: PolicyState) -> int:
    return policy.ordinal if run.config.admission.lag_unit == "ordinal" else policy.depth


def rows_of_an_update(run: Run, opened: list[UpdateState]) -> int | None:
    standing = sorted((one.commit_order, len(one.trained) + one.forgotten) for one in run.updates.values())
    committed = [rows for order, rows in standing if order and _stands(run, order)]
    return max([*committed[-8:], *(len(one.held) for one in opened if one.status == "started")], default=0) or None


def _stands(run: Run, order: int) -> bool:
    return any(one.commit_order == order and one.status == "committed" for one in run.updates.values())


def upcoming(run: Run, learner: PolicyState, opened: list[UpdateState]) -> int:
    """The number by which the next update is judged."""
    started = [one for one in opened if one.status == "started"]
    committed = [one for one in run.updates.values() if one.status == "committed"]
    if run.config.admission.lag_unit == "ordinal":
        mine = Counter(one.learner.learner_id for one in (*started, *committed) if one.learner is not None)
        return max(mine[one.learner_id] for one in run.learners.values()) if len(run.learners) else learner.ordinal
    exported = {update_id for policy in run.policies.values() for update_id in policy.update_ids}
    last = max(committed, key=lambda one: one.commit_order, default=None)
    waits = last is not None and last.update_id not in exported and not (learner.depth > 0 and learner.ordinal == 0)
    return learner.depth + len(started) + waits


def room(run: Run, learner: PolicyState, opened: list[UpdateState], rows: int | None, left: int) -> int | None:
    """How many more can be begun."""
    live = [t for t in run.trajectories.values() if t.status in LIVE]
    spare = run.config.max_live - len(live)
    if left == 0 or spare <= 0:
        return 0
    if rows is None:
        return None
    latest = upcoming(run, learner, opened) - run.config.admission.max_lag
    numbers = {one.version: number(run, one) for one in run.policies.values()}
    placed = 0
    for one in live:
        is_ready = one.status == "rewarded" and one.purpose == "train"
        if is_ready or one.status in ("dispatched", "generated", "reward_failed"):
            versions = [ref.version for ref in one.policies] if is_ready else [one.policies[0].version]
            placed += not all(version in numbers for version in versions) or (
                min(numbers[version] for version in versions) >= latest
            )
    placed += sum(len(one.held) for one in opened if one.status == "open")
    return min(spare, max(0, rows * left - placed))


LIVE = ("dispatched", "generated", "reward_failed", "rewarded", "reserved")
