"""The fold beside the naive model: every decision, and everything that is true after it, compared record by record."""

from typing import Any

from rollbook.processors import freshness
from rollbook.processors.ledger.store import Run
from rollbook.schemas.codec import decode
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.decision import Decision, ItemDecision
from rollbook.schemas.records.run import RunClosed
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof import book as naive_book
from rollbook.tests.processors.proof.answers import Answer
from rollbook.tests.processors.proof.book import Book, Item
from rollbook.tests.processors.proof.invariants import check_step
from rollbook.tests.processors.proof.naive import Naive

Facts = dict[str, Any]


class ProvenLog(Log):
    """A log whose every record is decided by both; an AssertionError shows the first difference."""

    def __init__(self, partition: int = 0, topic_partitions: int = 1) -> None:
        super().__init__(partition, topic_partitions)
        self.naive = Naive(topic_partitions)

    def append(self, key: bytes | None, value: bytes | None) -> Decision:
        """Fold a record, predict it, compare, and check what holds for every step."""
        run_id = "" if key is None else key.decode()
        before = state_of(self.ledger.run(run_id)) if run_id in self.ledger.runs else None
        decision = super().append(key, value)
        if decision.outcome.value in ("invalid", "undecodable"):
            if decision.run_id == run_id:
                self.naive.book.sequence += 1
            return decision
        record = decode(value or b"")
        assert isinstance(record, Lifecycle)
        answer = self.naive.decide(record, decision.source.offset)
        run = self.ledger.run(run_id)
        check_answer(answer, decision)
        after = state_of(run)
        check_state(state_of_book(self.naive.book), {kind: after[kind] for kind in after if kind != "tally"})
        check_step(before, after, decision, closing=isinstance(record, RunClosed))
        if not run.head.closed and run.head.config_version:
            check_freshness(self.naive.book, run)
        return decision


def check_answer(expected: Answer, decision: Decision) -> None:
    """The decision says what was predicted."""
    got = Answer(
        decision.outcome.value,
        decision.reason,
        tuple(map(_item, decision.items)),
        tuple((r.offset, r.record_type, r.subject_id, r.reason) for r in decision.released),
        decision.missing_workers,
        decision.mismatched_workers,
        decision.violation,
    )
    for name, ours, theirs in zip(Answer._fields, got, expected, strict=True):
        assert ours == theirs, f"{decision.record_type} at {decision.source.offset}: {name} {ours}, expected {theirs}"


def _item(one: ItemDecision) -> Item:
    return Item(
        one.trajectory_id,
        one.reason,
        one.state_before,
        one.revision_before,
        one.state_after,
        one.revision_after,
        one.lag,
        one.freshness,
        one.mean_abs_log_ratio,
    )


def check_state(expected: Facts, got: Facts) -> None:
    """The fold's tables say what the naive model's book says."""
    if expected != got:
        for kind in expected:
            for key in sorted(expected[kind].keys() | got[kind].keys(), key=str):
                ours, theirs = got[kind].get(key), expected[kind].get(key)
                assert ours == theirs, f"{kind} {key}: {ours}, expected {theirs}"


def state_of(run: Run) -> Facts:
    """Everything that the fold knows of a run, by kind and key."""
    head = run.head
    return {
        "head": {
            "sequence": head.sequence,
            "active": None if head.active is None else (head.active.version, head.active.artifact_hash),
            "active orphaned": head.active_orphaned,
            "floor": head.floor,
            "commits": head.commits,
            "closed": head.closed,
            "config": head.config_version,
        },
        "trajectory": {
            row.trajectory_id: (
                row.status.value,
                row.revision,
                (row.group_id, row.sample_index, row.group_expected, bool(row.apart), row.purpose.value),
                tuple((ref.version, ref.artifact_hash) for ref in row.policies),
                (row.active_tokens, row.evidence_digest, row.generated_offset, row.reward_offset),
                (row.update_id, row.lag, row.admitted_ratio),
                row.trained_by,
            )
            for row in run.trajectories.values()
        },
        "pending": {
            f"{fact.record_type} {fact.subject_id} {fact.artifact_hash}".strip(): fact.offset
            for fact in run.pending.values()
        },
        "update": {
            update.update_id: (
                update.status.value,
                None if update.learner is None else (update.learner.learner_id, update.learner.epoch),
                (update.config_version, update.opened_sequence, update.last_activity_offset),
                update.held,
                (update.trained, update.forgotten),
                tuple((first.record_type, first.part) for first in update.answers),
                tuple(one.rank for one in update.sealed),
                (update.in_doubt, update.commit_order),
            )
            for update in run.updates.values()
        },
        "learner": {one.learner_id: (one.epoch, one.incarnation, one.fenced) for one in run.learners.values()},
        "checkpoint": {
            one.checkpoint_id: (one.learner_id, one.digest, one.commit_order, one.orphaned)
            for one in run.checkpoints.values()
        },
        "policy": {
            one.version: (
                (one.artifact.hash, one.source_version, one.update_ids),
                (one.depth, one.ordinal),
                (one.committed, one.activated, one.orphaned, one.abandoned),
            )
            for one in run.policies.values()
        },
        "worker": {
            one.worker_id: (
                one.incarnation,
                one.report_seq,
                None if one.serves is None else (one.serves.version, one.serves.artifact_hash),
            )
            for one in run.workers.values()
        },
        "contract": dict.fromkeys(one.contract_hash for one in run.contracts.values()),
        "tally": {one.name: one.count for one in run.tallies.values()},
    }


def state_of_book(book: Book) -> Facts:
    """The same, as the naive model knows it."""
    return {
        "head": {
            "sequence": book.sequence,
            "active": book.active,
            "active orphaned": book.lapsed
            if book.closed
            else book.active is not None and book.orphaned(book.active[0]),
            "floor": book.floor,
            "commits": book.commits,
            "closed": book.closed,
            "config": max(book.configs, default=0),
        },
        "trajectory": {
            name: (
                book.state(name),
                row.revision,
                (row.group, row.sample, row.expected, bool(row.apart), "train" if row.train else "eval"),
                row.spans,
                (row.tokens, row.evidence, row.offset, row.reward_offset),
                (book.holder(name) or "", row.lag, row.ratio),
                tuple(update_id for update_id, _ in book.marks.get(name, ())),
            )
            for name, row in book.rows.items()
        },
        "pending": {f"{fact.kind} {name}": fact.offset for name, fact in book.early_rewards.items()}
        | {f"Commit {name}": offset for name, offset in book.strange().items()}
        | {f"PolicyCommitted {ref[0]} {ref[1]}": fact.offset for ref, fact in book.early_commits.items()},
        "update": {
            name: (
                one.state,
                (one.learner, one.epoch),
                (one.config, one.opened, one.heard),
                one.held,
                book.remembered(name),
                tuple((first.kind, first.part) for first in one.firsts),
                tuple(rank for rank, _ in one.sealed),
                (one.doubt, one.order),
            )
            for name, one in book.updates.items()
        },
        "learner": {name: (one.epoch, one.incarnation, one.fenced) for name, one in book.learners.items()},
        "checkpoint": {
            name: (one.learner, one.digest, one.order, book.lost(one)) for name, one in book.checkpoints.items()
        },
        "policy": {
            version: (
                (one.hash, one.source, one.adds),
                (book.depth(version), len(book.contains(version))),
                (one.written, one.activated_by is not None, book.orphaned(version), one.abandoned),
            )
            for version, one in book.policies.items()
        },
        "worker": {name: (*one.report, one.serves) for name, one in book.workers.items()},
        "contract": book.contracts,
    }


def check_freshness(book: Book, run: Run) -> None:
    """The snapshot equals a recount."""
    admission, active = book.config.admission, book.active
    assert active is not None, "a configured run has an active policy"
    lags = []
    for name, row in book.rows.items():
        if book.ready(name) and all(version in book.policies for version, _ in row.spans):
            oldest = min(book.number(version, admission.lag_unit) for version, _ in row.spans)
            lags.append(book.number(active[0], admission.lag_unit) - oldest)
    judged = [naive_book.freshness(lag, admission.max_lag) for lag in lags]
    live: dict[tuple[int, str | None], int] = {}
    for name, row in book.rows.items():
        if book.state(name) in (*naive_book.USABLE, "reserved"):
            live[row.oldest, book.state(name)] = live.get((row.oldest, book.state(name)), 0) + 1
    figures = freshness.snapshot(run)
    assert (figures.sequence, figures.max_lag) == (book.sequence, admission.max_lag)
    assert figures.ready_fresh == judged.count("fresh")
    assert figures.ready_tolerated == judged.count("tolerated")
    assert figures.ready_stale == judged.count("stale")
    assert figures.ready_expiring == lags.count(admission.max_lag)
    assert figures.mean_lag == (sum(lags) / len(lags) if lags else None)
    assert {(count.version, count.state): count.count for count in figures.by_version} == live
    opened = [(update.opened, name) for name, update in book.updates.items() if not update.over]
    assert list(figures.open_updates) == [name for _, name in sorted(opened)]
