"""The naive model's answers about weights: prepared, written, acknowledged, active, abandoned; and the floor."""

from dataclasses import replace

from rollbook.schemas.records import policy as records
from rollbook.schemas.records.run import RunConfigured
from rollbook.tests.processors.proof.answers import Answer, again, no, yes
from rollbook.tests.processors.proof.book import USABLE, Book, Policy, Waiting, Worker, body


def initial(book: Book, record: RunConfigured) -> None:
    """The policy that a run starts with."""
    first = record.initial_policy
    book.active = (first.version, first.artifact.hash)
    book.policies[first.version] = Policy(
        first.version, first.artifact.hash, body(record), None, False, (), True, activated_by=()
    )


def prepared(book: Book, record: records.PolicyPrepared, offset: int) -> Answer:
    """PolicyPrepared."""
    known = book.policies.get(record.version)
    if known is not None:
        return again() if known.said == body(record) else no("conflict")
    if record.parent_version not in book.policies:
        return no("unknown_parent")
    back = record.rollback_of
    if back is not None and back not in book.policies:
        return no("unknown_rollback")
    if back is not None and book.policies[back].abandoned:
        return no("policy_abandoned")
    source = record.parent_version if back is None else back
    if book.contains(source) & set(record.update_ids):
        return no("conflict")
    released = []
    early = sorted(ref for ref in book.early_commits if ref[0] == record.version)
    for ref in early:
        reason = "ok" if ref[1] == record.artifact.hash else "artifact_mismatch"
        released.append((book.early_commits.pop(ref).offset, "PolicyCommitted", str(record.version), reason))
    for name in sorted(book.workers):
        worker = book.workers[name]
        if worker.serves is not None and worker.serves[0] == record.version:
            reason = "ok" if worker.serves[1] == record.artifact.hash else "artifact_mismatch"
            released.append((worker.offset, "ActivationAck", name, reason))
    book.policies[record.version] = Policy(
        version=record.version,
        hash=record.artifact.hash,
        said=body(record),
        source=source,
        rollback=back is not None,
        adds=record.update_ids,
        written=record.committed or (record.version, record.artifact.hash) in early,
    )
    return yes(released=tuple(released))


def written(book: Book, record: records.PolicyCommitted, offset: int) -> Answer:
    """PolicyCommitted."""
    version, artifact_hash = record.policy.version, record.policy.artifact_hash
    known = book.policies.get(version)
    if known is not None:
        if known.hash != artifact_hash:
            return no("artifact_mismatch")
        if known.written:
            return again()
        book.policies[version] = replace(known, written=True)
        return yes()
    if (version, artifact_hash) in book.early_commits:
        return again()
    room, evicted = book.make_room(offset)
    if not room:
        return no("pending_full", released=evicted)
    book.early_commits[version, artifact_hash] = Waiting("PolicyCommitted", (artifact_hash,), offset)
    return Answer("pending", "pending", released=evicted)


def ack(book: Book, record: records.ActivationAck, offset: int) -> Answer:
    """ActivationAck."""
    report = (record.incarnation, record.report_seq)
    known = book.workers.get(record.worker_id)
    if known is not None and report < known.report:
        return no("stale_ack")
    if known is not None and report == known.report:
        return again() if known.said == body(record) else no("conflict")
    serves = None if record.serves is None else (record.serves.version, record.serves.artifact_hash)
    book.workers[record.worker_id] = Worker(report, serves, body(record), offset)
    if serves is not None and serves[0] not in book.policies:
        return Answer("pending", "pending")
    if serves is not None and book.policies[serves[0]].hash != serves[1]:
        return yes("artifact_mismatch")
    return yes()


def activate(book: Book, record: records.Activate, offset: int) -> Answer:
    """Activate."""
    wanted = (record.policy.version, record.policy.artifact_hash)
    if not book.prepared(wanted):
        return no("unknown_version")
    known = book.policies[wanted[0]]
    if known.activated_by == body(record):
        return again()
    broken = _unfit(book, record, known)
    if broken is not None and not book.observes:
        return no(broken)
    required = book.config.required_workers
    serving = {name: book.workers[name].serves for name in required if name in book.workers}
    missing = tuple(sorted(set(required) - set(serving)))
    wrong = tuple(sorted(name for name, serves in serving.items() if serves != wanted))
    acks = "missing_worker_ack" if missing else "worker_mismatch" if wrong else None
    if acks is not None and not book.observes:
        return no(acks, missing=missing, mismatched=wrong)
    book.policies[wanted[0]] = replace(known, activated_by=body(record), activated_at=offset)
    book.active = wanted
    _raise_floor(book)
    broken = broken or acks
    return yes(broken or "activated", missing=missing, mismatched=wrong, violation=broken is not None)


def _unfit(book: Book, record: records.Activate, known: Policy) -> str | None:
    assert book.active is not None, "a configured run has an active policy"
    if record.expected_active_version != book.active[0]:
        return "wrong_expected"
    if not known.written:
        return "artifact_not_committed"
    if known.version <= book.active[0]:
        return "non_monotonic_version"
    if known.abandoned:
        return "policy_abandoned"
    if book.orphaned(known.version):
        return "policy_orphaned"
    standing = {name for name, update in book.updates.items() if update.state == "committed"}
    return None if book.contains(known.version) <= standing else "update_not_committed"


def _raise_floor(book: Book) -> None:
    """The oldest version that the active one was made from, directly or not, at most `horizon` behind it. Of what has
    ended below it, a group that others live in keeps what it would not be whole without, for one horizon more."""
    config, active = book.config, book.active
    if not config.horizon or active is None:
        return
    unit = config.admission.lag_unit
    newest = book.number(active[0], unit)
    reach, at = [active[0]], book.policies[active[0]].source
    while at is not None and book.number(at, unit) >= newest - config.horizon and reach[-1] > book.floor:
        reach.append(at)
        at = book.policies[at].source
    if min(reach) <= book.floor:
        return
    book.floor = min(reach)
    below = [n for n in sorted(book.rows) if book.rows[n].oldest < book.floor and book.state(n) != "reserved"]
    ended = [name for name in below if book.state(name) not in USABLE]
    for name in below:
        if name not in ended:
            book.change(name, shelf="offline")
    for name in ended:
        version = book.rows[name].oldest
        near = version in book.policies and book.number(version, unit) >= newest - 2 * config.horizon
        if not (near and _missed(book, name)):
            book.forgotten.update((update_id, name) for update_id in book.updates if book.holder(name) == update_id)
            del book.rows[name]
            book.marks.pop(name, None)
    turned = max((v for v, p in book.policies.items() if v < book.floor and p.activated_by is not None), default=None)
    since = None if turned is None else book.policies[turned].activated_at
    if since is None:
        return
    for name, fact in sorted(book.early_rewards.items()):
        if fact.offset < since and name not in book.rows:
            del book.early_rewards[name]
    for name, offset in book.strange().items():
        if offset < since:
            del book.marks[name]


def _missed(book: Book, name: str) -> bool:
    """Whether the group of a member that has ended lives on, and would lack its place."""
    row = book.rows[name]
    group = {other: one for other, one in book.rows.items() if one.group == row.group}
    alive = any(book.state(other) in (*USABLE, "reserved") for other in group)
    part = [one for one in group.values() if one.apart == row.apart]
    left = {one.sample for other, one in group.items() if one.apart == row.apart and other != name}
    return alive and row.sample not in left and len(left) < max(one.expected for one in part)


def abandoned(book: Book, record: records.PolicyAbandoned, offset: int) -> Answer:
    """PolicyAbandoned."""
    known = book.policies.get(record.version)
    if known is None:
        return no("unknown_version")
    if book.active is not None and book.active[0] == record.version:
        return no("policy_active")
    if known.abandoned:
        return again()
    book.policies[record.version] = replace(known, abandoned=True)
    return yes()
