"""The naive model's answers to learners: epochs, checkpoints, and updates from their first Reserve to their end."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rollbook.schemas.records import update as records
from rollbook.schemas.records.run import DriftGate, LagUnit, RunConfigured
from rollbook.tests.processors.proof.answers import Answer, again, no, yes
from rollbook.tests.processors.proof.book import (
    WAITED_FOR,
    Body,
    Book,
    First,
    Item,
    Learner,
    Ref,
    Row,
    Saved,
    Update,
    body,
    freshness,
)

# --- learners and checkpoints


def learner_started(book: Book, record: records.LearnerStarted, offset: int) -> Answer:
    """LearnerStarted."""
    name = record.learner_id
    known = book.learners.get(name)
    if known is not None and (known.said, known.incarnation) == (body(record), record.incarnation):
        return again()
    if record.expected_epoch != (0 if known is None else known.epoch):
        return no("epoch_conflict")
    contains: frozenset[str] = frozenset()
    if record.checkpoint is not None:
        saved = book.checkpoints.get(record.checkpoint.id)
        if saved is None or saved.digest != record.checkpoint.digest:
            return no("unknown_checkpoint")
        if saved.learner != name:
            return no("foreign_checkpoint")
        if book.lost(saved):
            return no("checkpoint_orphaned")
        contains = saved.contains
    book.learners[name] = Learner(book.sequence, record.incarnation, body(record))
    undone = [update_id for update_id in book.of(name, "committed") if update_id not in contains]
    opened = list(book.of(name, "open", "started"))
    gone = {update_id: book.updates[update_id] for update_id in (*opened, *undone)}
    for update_id in gone:
        state = "aborted" if update_id in opened else "rolled_back"
        book.updates[update_id] = replace(gone[update_id], state=state, held=(), firsts=(), doubt=False)
    for update_id in undone:
        for row in gone[update_id].trained:
            if (update_id, row) not in book.forgotten:
                book.free(row, "rewarded")
    for update_id in opened:
        for row in gone[update_id].held:
            book.free(row, "rewarded")
    return yes()


def checkpoint_saved(book: Book, record: records.CheckpointSaved, offset: int) -> Answer:
    """CheckpointSaved."""
    if _fenced(book, record):
        return no("learner_fenced")
    known = book.checkpoints.get(record.checkpoint.id)
    if known is not None:
        return again() if known.said == body(record) else no("conflict")
    mine = book.of(record.learner.learner_id, "committed")
    order = 0
    if record.last_update_id is not None:
        if record.last_update_id not in mine:
            return no("not_committed")
        order = mine[record.last_update_id].order
    contains = frozenset(name for name, update in mine.items() if update.order <= order)
    book.checkpoints[record.checkpoint.id] = Saved(
        record.learner.learner_id, record.checkpoint.digest, body(record), contains, order
    )
    return yes()


def _fenced(book: Book, record: Any) -> bool:
    known = book.learners.get(record.learner.learner_id)
    return known is None or known.fenced or known.epoch != record.learner.epoch


def _held_by(update: Update, record: Any) -> bool:
    return (update.learner, update.epoch) == (record.learner.learner_id, record.learner.epoch)


def _refused(book: Book, record: Any, part: int = 0) -> Answer | None:
    """Fenced, ended, not the holder, answered before: in this order."""
    if _fenced(book, record):
        return no("learner_fenced")
    update = book.updates.get(record.update_id)
    if update is None:
        return None if isinstance(record, records.Reserve | records.Abort) else no("not_holder")
    if update.over:
        return again() if update.end == body(record) and _held_by(update, record) else no("update_ended")
    if not _held_by(update, record):
        return no("not_holder")
    for first in update.firsts:
        if (first.kind, first.part) == (type(record).__name__, part):
            return again(first.items) if first.said == body(record) else no("conflict")
    return None


def _answered(update: Update, record: Any, part: int, items: tuple[Item, ...]) -> Update:
    return replace(update, firsts=(*update.firsts, First(type(record).__name__, part, body(record), items)))


# --- reservations


def reserve(book: Book, record: records.Reserve, offset: int) -> Answer:
    """Reserve."""
    refused = _refused(book, record, record.part)
    if refused is not None:
        return refused
    update = book.updates.get(record.update_id)
    if update is not None and update.state == "started":
        return no("update_started")
    if update is None:
        update = _opened(book, record, offset)
    before = book.copy()
    config = book.configs[update.config]
    if record.claim is not None:
        judged = _claimed(book, record, config)
    else:
        wanted = [(one.trajectory_id, None if book.observes else one.expected_revision) for one in record.items]
        judged = [_judge(book, record, config, name, revision) for name, revision in wanted]
    passed = [item for item in judged if item.reason in ("reserved", "idempotent_retry")]
    observing = book.observes and record.claim is None
    if not observing:
        if record.claim is None and record.mode is records.ReserveMode.ALL and len(passed) < len(judged):
            first = next(item.reason for item in judged if item not in passed)
            return no(first, tuple(_passed_in_vain(item) for item in judged))
        if not passed:
            reason = "nothing_taken" if record.claim is not None else judged[0].reason
            return no(reason, tuple(judged))
    takes = [item.name for item in (judged if observing else passed) if book.state(item.name) == "rewarded"]
    book.updates[record.update_id] = replace(update, held=(*update.held, *takes), heard=offset, doubt=False)
    for item in judged:
        if item.name in takes:
            book.change(item.name, lag=item.lag, ratio=None)
    items = tuple(book.item(item.name, item.reason, before, lag=item.lag, freshness=item.freshness) for item in judged)
    book.updates[record.update_id] = _answered(book.updates[record.update_id], record, record.part, items)
    broken = next((item.reason for item in judged if item not in passed), None) if observing else None
    return yes(broken or "ok", items, violation=broken is not None)


def _passed_in_vain(item: Item) -> Item:
    return item._replace(reason="all_or_none") if item.reason == "reserved" else item


def _opened(book: Book, record: Any, offset: int) -> Update:
    learner = record.learner
    return Update(learner.learner_id, learner.epoch, max(book.configs), opened=book.sequence, heard=offset)


def _judge(book: Book, record: records.Reserve, config: RunConfigured, name: str, revision: int | None) -> Item:
    row = book.rows.get(name)
    if row is None:
        return book.item(name, "missing_rollout")
    update = book.updates.get(record.update_id)
    if update is not None and not update.over and name in update.held and _held_by(update, record):
        return book.item(name, "idempotent_retry", lag=row.lag)
    if revision is not None and revision != row.revision:
        return book.item(name, "revision_conflict")
    if book.state(name) != "rewarded":
        return book.item(name, "not_rewarded")
    if not row.train:
        return book.item(name, "eval_only")
    learner = (record.policy.version, record.policy.artifact_hash)
    if not all(book.prepared(ref) for ref in (learner, *row.spans)):
        return book.item(name, "unknown_policy")
    if any(book.policies[version].activated_by is None for version, _ in row.spans):
        return book.item(name, "policy_not_active")
    lag, fresh = _lag(book, record, config, row.spans)
    refusal = {"future": "future_policy", "stale": "stale_policy"}.get(fresh, "reserved")
    return book.item(name, refusal, lag=lag, freshness=fresh)


def _lag(book: Book, record: Any, config: RunConfigured, spans: Sequence[Ref]) -> tuple[int, str]:
    """Learner's number minus the oldest span's."""
    unit = config.admission.lag_unit
    if unit is LagUnit.ORDINAL:
        learner = book.own_updates(record.learner.learner_id, record.update_id)
    else:
        learner = book.depth(record.policy.version)
    lag = learner - min(book.number(version, unit) for version, _ in spans)
    return lag, freshness(lag, config.admission.max_lag)


def _claimed(book: Book, record: records.Reserve, config: RunConfigured) -> list[Item]:
    """The ready members of the groups that a claim takes."""
    claim = record.claim
    assert claim is not None, "a Reserve names items or claims groups"
    enough = all if record.mode is records.ReserveMode.ALL else any
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, row in book.rows.items():
        groups.setdefault((row.group, row.apart), []).append(name)
    waiting = []
    for members in groups.values():
        rows = [book.rows[name] for name in members]
        places = {row.sample for row in rows} | _idle_places(book, rows[0])
        whole = len(places) >= max(row.expected for row in rows)
        ready = [name for name in members if book.ready(name)]
        if not ready or not whole or any(book.state(name) in WAITED_FOR for name in members):
            continue
        ready.sort(key=lambda name: (book.rows[name].sample, book.rows[name].offset))
        judged = [_judge(book, record, config, name, None) for name in ready]
        if not enough(item.reason == "reserved" for item in judged):
            continue
        version = min(book.rows[name].oldest for name in ready)
        oldest = claim.order is records.ClaimOrder.OLDEST
        waiting.append((version if oldest else -version, min(book.rows[name].offset for name in ready), judged))
    waiting.sort(key=lambda one: one[:2])
    return [item for _, _, judged in waiting[: claim.max_groups] for item in judged]


def _idle_places(book: Book, part: Row) -> set[int]:
    """Places of the group that ended before their member could be kept apart as this one is."""
    over = ("generation_failed", "reward_failed", "discarded", "quarantined", "offline")
    return {
        row.sample
        for name, row in book.rows.items()
        if row.group == part.group and row.apart == part.apart[: len(row.apart)] and book.state(name) in over
    }


# --- admissions


def admit(book: Book, record: records.Admit, offset: int) -> Answer:
    """Admit."""
    refused = _refused(book, record, record.part)
    if refused is not None:
        return refused
    if record.own_updates > book.own_updates(record.learner.learner_id, record.update_id):
        return no("ordinal_mismatch")
    if not book.prepared((record.policy.version, record.policy.artifact_hash)):
        return no("unknown_policy")
    items = tuple(_admit(book, record, one) for one in record.items)
    update = book.updates[record.update_id]
    book.updates[record.update_id] = _answered(replace(update, heard=offset, doubt=False), record, record.part, items)
    broken = next((item.reason for item in items if item.reason != "ok"), None) if book.observes else None
    return yes(broken or "ok", items, violation=broken is not None)


def _admit(book: Book, record: records.Admit, figures: records.AdmitItem) -> Item:
    name = figures.trajectory_id
    update = book.updates[record.update_id]
    config = book.configs[update.config]
    if name not in update.held:
        return book.item(name, "not_reserved")
    before, row = book.copy(), book.rows[name]
    if row.ratio is not None:
        fresh = None if row.lag is None else freshness(row.lag, config.admission.max_lag)
        return book.item(name, "ok", lag=row.lag, freshness=fresh, ratio=row.ratio)
    ratio = figures.sum_abs_log_ratio / figures.active_tokens if figures.active_tokens else None
    known = all(book.prepared(ref) for ref in row.spans)
    lag, fresh = _lag(book, record, config, row.spans) if known else (None, None)
    if (figures.active_tokens, figures.evidence_digest) != (row.tokens, row.evidence):
        reason = "evidence_mismatch"
    elif ratio is None:
        reason = "empty_action_mask"
    elif not known:
        reason = "unknown_policy"
    elif fresh in ("future", "stale"):
        reason = f"{fresh}_policy"
    elif ratio > config.admission.max_mean_abs_log_ratio:
        reason = "policy_drift"
    else:
        book.rows[name] = replace(row, lag=lag, ratio=ratio)
        return book.item(name, "ok", before, lag=lag, freshness=fresh, ratio=ratio)
    if config.admission.drift_gate is DriftGate.REQUIRED and not book.observes:
        kept = tuple(other for other in update.held if other != name)
        book.updates[record.update_id] = replace(update, held=kept)
        book.free(name, "quarantined" if reason in ("policy_drift", "empty_action_mask") else "rewarded")
    return book.item(name, reason, before, lag=lag, freshness=fresh, ratio=ratio)


# --- from the first step to the end


def started(book: Book, record: records.UpdateStarted, offset: int) -> Answer:
    """UpdateStarted."""
    refused = _refused(book, record)
    if refused is not None:
        return refused
    others = [name for name in book.of(record.learner.learner_id, "started") if name != record.update_id]
    if others and not book.observes:
        return no("other_started")
    update = book.updates[record.update_id]
    items = tuple(book.item(name, "held") for name in update.held)
    book.updates[record.update_id] = _answered(replace(update, state="started"), record, 0, items)
    return yes("other_started" if others else "ok", items, violation=bool(others))


def commit(book: Book, record: records.Commit, offset: int) -> Answer:
    """Commit."""
    known = book.updates.get(record.update_id)
    refused = _refused(book, record)
    again_over = known is not None and known.state == "aborted" and not _fenced(book, record)
    ours = known is None or _held_by(known, record)
    repeated = refused is not None and refused.outcome == "duplicate"
    if record.unreserved and ours and not repeated and not _fenced(book, record) and (known is None or again_over):
        refused = None
    fact = refused is not None and (refused.reason == "not_holder" or (refused.reason == "update_ended" and again_over))
    if refused is not None and not (book.observes and fact):
        return refused
    update = known or _opened(book, record, offset)
    trained = {name for step in record.steps for name in step.trajectory_ids}
    dropped = {drop.trajectory_id: drop for drop in record.dropped if drop.trajectory_id not in trained}
    broken = refused.reason if refused is not None else _wrong(book, record, update, trained)
    if record.unreserved:
        broken = "unreserved"
    elif broken is not None and not book.observes:
        return no(broken)
    before = book.copy()
    twice = [name for name in update.held if name in trained and _marked_elsewhere(book, name)]
    if twice and broken is None:
        broken = "trained_twice"
    named = [*update.held, *sorted((trained | set(dropped)) - set(update.held))]
    consumed = [n for n in named if n in trained and (n in update.held or book.state(n) == "rewarded")]
    book.commits += 1
    learner = record.learner
    book.updates[record.update_id] = replace(
        update,
        learner=learner.learner_id,
        epoch=learner.epoch,
        state="committed",
        held=(),
        firsts=(),
        doubt=False,
        trained=tuple(consumed),
        end=body(record),
        order=book.commits,
    )
    items = []
    for name in named:
        row = before.rows.get(name)
        if name in trained and name not in consumed:
            items.append(book.item(name, _mark(book, name, before.state(name), record.update_id, offset)))
            continue
        if row is None:
            items.append(book.item(name, "missing_rollout"))
            continue
        if name in consumed:
            book.change(name)
            reason = "trained"
        elif name in update.held and name not in trained:
            discard = name in dropped and dropped[name].disposition is records.Disposition.DISCARD
            book.free(name, "discarded" if discard else "rewarded")
            reason = "dropped" if name in dropped else "released"
        else:
            items.append(book.item(name, "not_held"))
            continue
        items.append(book.item(name, reason, before, lag=row.lag, ratio=row.ratio))
    return yes(broken or "ok", tuple(items), violation=broken is not None)


def _marked_elsewhere(book: Book, name: str) -> bool:
    states = {book.updates[update_id].state for update_id, _ in book.marks.get(name, ()) if update_id in book.updates}
    return "committed" in states


def _mark(book: Book, name: str, state: str | None, update_id: str, offset: int) -> str:
    """What is in the weights and cannot be consumed now is consumed once it would be free."""
    if state not in (None, "dispatched", "generated", "reward_failed", "reserved", "consumed"):
        return "not_held"
    marks = book.marks.get(name, ())
    if state is None and name not in book.strange() and len(book.strange()) >= book.config.max_pending:
        return "pending_full"
    if len(marks) < 16:
        book.marks[name] = (*marks, (update_id, offset))
    elif state is None:
        book.marks[name] = (*marks[:-1], (marks[-1][0], offset))
    return "not_held" if state in ("reserved", "consumed") else "pending"


def _wrong(book: Book, record: records.Commit, update: Update, trained: set[str]) -> str | None:
    if update.state != "started":
        return "not_started"
    named = [*trained, *(drop.trajectory_id for drop in record.dropped)]
    if sorted(named) != sorted(update.held):
        return "not_held"
    needed = book.configs[update.config].admission.drift_gate is DriftGate.REQUIRED
    if needed and any(book.rows[name].ratio is None for name in trained):
        return "not_admitted"
    return None


def abort(book: Book, record: records.Abort, offset: int) -> Answer:
    """Abort, by the learner or by an operator."""
    update = book.updates.get(record.update_id)
    if record.learner is None:
        if update is None:
            return no("unknown_update")
        if update.over:
            return again() if update.end == body(record) else no("update_ended")
        if update.state == "started":
            book.learners[update.learner] = replace(book.learners[update.learner], fenced=True)
            for other, one in book.of(update.learner, "open").items():
                book.updates[other] = replace(one, state="aborted", held=(), firsts=(), doubt=False)
                for name in one.held:
                    book.free(name, "rewarded")
    else:
        refused = _refused(book, record)
        if refused is not None:
            return refused
        if update is not None and update.state == "started":
            return no("update_in_doubt")
    shelf = "quarantined" if record.disposition is records.AbortDisposition.QUARANTINE else "rewarded"
    update = update or _opened(book, record, offset)
    return yes(record.reason.value, _given_up(book, record.update_id, update, shelf, body(record)))


def _given_up(book: Book, update_id: str, update: Update, shelf: str, end: Body) -> tuple[Item, ...]:
    before = book.copy()
    book.updates[update_id] = replace(update, state="aborted", held=(), firsts=(), end=end, doubt=False)
    for name in update.held:
        book.free(name, shelf)
    return tuple(book.item(name, "released", before) for name in update.held)


def renew(book: Book, record: records.Renew, offset: int) -> Answer:
    """Renew."""
    refused = _refused(book, record)
    if refused is not None:
        return refused
    book.updates[record.update_id] = replace(book.updates[record.update_id], heard=offset, doubt=False)
    return yes()


def lease_expired(book: Book, record: records.LeaseExpired, offset: int) -> Answer:
    """LeaseExpired."""
    update = book.updates.get(record.update_id)
    if update is None:
        return no("unknown_update")
    if update.over:
        return no("update_ended")
    if book.configs[update.config].lease_ms == 0:
        return no("no_lease")
    if record.basis < update.heard:
        return no("lease_renewed")
    if update.state == "open" and not book.observes:
        return yes("lease_expired", _given_up(book, record.update_id, update, "rewarded", body(record)))
    if update.doubt:
        return again()
    book.updates[record.update_id] = replace(update, doubt=True)
    return yes("in_doubt")


def sealed(book: Book, record: records.RecordingSealed, offset: int) -> Answer:
    """RecordingSealed."""
    if _fenced(book, record):
        return no("learner_fenced")
    update = book.updates.get(record.update_id)
    if update is None or not _held_by(update, record):
        return no("not_holder")
    if update.state in ("aborted", "rolled_back"):
        return no("update_ended")
    for rank, said in update.sealed:
        if rank == record.rank:
            return again() if said == body(record) else no("conflict")
    if update.state == "open":
        return no("not_started")
    book.updates[record.update_id] = replace(update, sealed=(*update.sealed, (record.rank, body(record))))
    return yes()
