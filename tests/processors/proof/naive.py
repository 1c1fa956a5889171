"""An independent, deliberately naive model of the ledger: what each record must be answered, and what is true after it.

Written from the design's text, with plain dictionaries and recounts (`book.py`), and without a line of the fold. It is
slow and has no indexes; where it and the fold disagree, one of them is wrong. The text is silent here, and the model
follows the fold:

- a Dispatched that comes after what it announced is accepted as `late_dispatch`, however often it comes;
- the place in the group is compared before anything else that a known trajectory is refused for;
- of a failure and a reward that both wait for a trajectory, the reward stays; of failures, the last;
- an Admit is refused as a whole for `ordinal_mismatch` first, then for `unknown_policy`; a row with an unprepared span
  (observe mode takes such rows) is `unknown_policy` after evidence and mask are judged;
- a claim looks at groups by the oldest version of what can be trained on in them, then by its first offset;
- the items of a Commit follow the order in which the rows were reserved;
- in observe mode a Reserve by name takes whatever is rewarded and a Commit consumes what was rewarded without being
  reserved; a claim is judged as ever; a refused record is a violation; a Commit of what another learner holds makes the
  update the committing learner's, whose weights have the rows;
- `wrong_expected` names the version, an Activate is repeated only by the same expectation;
- policies that are orphaned do not raise the floor;
- a fact waits only for what is unknown or dispatched: when that ends otherwise, it is let go of;
- an id that a client uses again once its first trajectory is forgotten makes another trajectory.
"""

from dataclasses import replace
from typing import Any

from rollbook.schemas.digests import contract_hash, trajectory_evidence_digest
from rollbook.schemas.records import policy as policy_records
from rollbook.schemas.records import reward as reward_records
from rollbook.schemas.records import rollout as rollout_records
from rollbook.schemas.records import run as run_records
from rollbook.schemas.records import update as update_records
from rollbook.schemas.records.common import Lifecycle
from rollbook.tests.processors.proof import naive_policy as policies
from rollbook.tests.processors.proof import naive_update as updates
from rollbook.tests.processors.proof.answers import Answer, Released, again, no, yes
from rollbook.tests.processors.proof.book import USABLE, WAITED_FOR, Body, Book, Item, Row, Waiting, body


class Naive:
    """One run. `decide` predicts the decision of a record and makes the book true after it."""

    def __init__(self, topic_partitions: int = 1, book: Book | None = None) -> None:
        self.topic_partitions = topic_partitions
        self.book = book or Book()

    def copy(self) -> "Naive":
        """A model that goes its own way from here."""
        return Naive(self.topic_partitions, self.book.copy())

    def decide(self, record: Lifecycle, offset: int) -> Answer:
        """The answer to a valid record of this run."""
        book = self.book
        book.sequence += 1
        book.touched = set()
        answer = self._answer(record, offset)
        if not book.closed:
            book.sweep()
            book.let_go(*book.early_rewards)
        return answer._replace(violation=answer.violation or (answer.outcome == "rejected" and book.observes))

    def _answer(self, record: Lifecycle, offset: int) -> Answer:
        if self.book.closed:
            return no("run_closed")
        if isinstance(record, run_records.RunConfigured):
            return configured(self.book, record, self.topic_partitions)
        if not self.book.configs:
            return no("run_not_configured")
        answer: Answer = DECIDERS[type(record)](self.book, record, offset)
        return answer


# --- the run


def configured(book: Book, record: run_records.RunConfigured, topic_partitions: int) -> Answer:
    """RunConfigured."""
    known = book.configs.get(record.config_version)
    if known is not None:
        return again() if body(known) == body(record) else no("conflict")
    if record.partition_count != topic_partitions:
        return no("partition_count_changed")
    if book.configs:
        first, last = book.configs[min(book.configs)], book.config
        if record.config_version < last.config_version:
            return no("config_version_not_rising")
        if record.fold_version < last.fold_version:
            return no("fold_version_falls")
        if record.enforcement is not last.enforcement:
            return no("enforcement_changed")
        was, now = first.initial_policy, record.initial_policy
        if (was.version, was.artifact) != (now.version, now.artifact):
            return no("initial_policy_changed")
    else:
        policies.initial(book, record)
    book.configs[record.config_version] = record
    return yes()


def contract(book: Book, record: run_records.GenerationContract, offset: int) -> Answer:
    """GenerationContract."""
    named = {name: getattr(record, name) for name in ("tokenizer", "template", "engine", "sampling", "deterministic")}
    if record.contract_hash != contract_hash(**named):
        return no("contract_hash_mismatch")
    if record.contract_hash in book.contracts:
        return again()
    book.contracts[record.contract_hash] = None
    return yes()


def closed(book: Book, record: run_records.RunClosed, offset: int) -> Answer:
    """RunClosed. Of the policies only the active pointer stays, marked where it was orphaned."""
    book.lapsed = book.active is not None and book.orphaned(book.active[0])
    for table in (
        book.contracts,
        book.rows,
        book.early_rewards,
        book.marks,
        book.early_commits,
        book.updates,
        book.learners,
    ):
        table.clear()
    for other in (book.checkpoints, book.policies, book.workers):
        other.clear()
    book.closed = True
    return yes()


# --- trajectories


def dispatched(book: Book, record: rollout_records.Dispatched, offset: int) -> Answer:
    """Dispatched."""
    name, state = record.identity.trajectory_id, book.state(record.identity.trajectory_id)
    met = _met(book, record, "conflict" if state == "dispatched" else None)
    if met is not None:
        return met
    if state is not None:
        return yes(items=(book.item(name, "late_dispatch"),))
    spans = ((record.policy.version, record.policy.artifact_hash),)
    refusal = _no_place(book, spans, fresh=True)
    if refusal is not None:
        return no(refusal)
    book.rows[name] = _row(record, offset, "dispatched", spans)
    return _entered(book, name, "dispatched", None)


def generated(book: Book, record: rollout_records.Generated, offset: int) -> Answer:
    """Generated."""
    name, state = record.identity.trajectory_id, book.state(record.identity.trajectory_id)
    refused = {None: None, "dispatched": None, "generation_failed": "illegal_transition"}.get(state, "conflict")
    met = _met(book, record, refused)
    if met is not None:
        return met
    every = {span.policy for segment in record.segments for span in segment.spans if span.policy is not None}
    spans = tuple(sorted((ref.version, ref.artifact_hash) for ref in every))
    config = book.config
    pinned, registered = config.pinned_contracts, record.contract_hash in book.contracts
    unpinned = bool(pinned) and record.contract_hash not in pinned
    refusal = _no_place(book, spans, fresh=state is None)
    if refusal is None and config.unpinned is run_records.Unpinned.REFUSE:
        refusal = "contract_not_pinned" if unpinned else None if registered else "unregistered_contract"
    if refusal is not None:
        return no(refusal)
    old = book.rows.get(name)
    row = _row(record, offset, "generated", spans)
    book.rows[name] = replace(
        row,
        apart=(record.contract_hash,) if unpinned or not registered else (),
        train=record.purpose is rollout_records.Purpose.TRAIN,
        tokens=sum(segment.active_tokens for segment in record.segments),
        evidence=trajectory_evidence_digest([segment.evidence_digest for segment in record.segments]),
        revision=1 if old is None else old.revision + 1,
    )
    return _entered(book, name, "generated", old)


def generation_failed(book: Book, record: rollout_records.GenerationFailed, offset: int) -> Answer:
    """GenerationFailed."""
    name, state = record.identity.trajectory_id, book.state(record.identity.trajectory_id)
    refused = {None: None, "dispatched": None, "generation_failed": "conflict"}.get(state, "illegal_transition")
    met = _met(book, record, refused)
    if met is not None:
        return met
    if record.policy.version < book.entrance and not _awaited(book, record.identity):
        return no("beyond_horizon")
    old = book.rows.get(name)
    row = _row(record, offset, "generation_failed", ((record.policy.version, record.policy.artifact_hash),))
    book.rows[name] = replace(row, revision=1 if old is None else old.revision + 1)
    return _entered(book, name, "generation_failed", old)


def _awaited(book: Book, place: Any) -> bool:
    """Whether members of its group live, and none is known at its place."""
    group = {name: row for name, row in book.rows.items() if row.group == place.group_id}
    alive = any(book.state(name) in (*USABLE, "reserved") for name in group)
    return alive and all(row.sample != place.sample_index for row in group.values())


def _met(book: Book, record: Any, refused: str | None) -> Answer | None:
    """The answer for a known trajectory, unless there is more to look at."""
    name = record.identity.trajectory_id
    known = book.rows.get(name)
    if known is None:
        return None
    if known.said == body(record):
        return again((book.item(name, "duplicate"),))
    place = (known.group, known.sample, known.expected)
    one = record.identity
    if refused is None and place != (one.group_id, one.sample_index, one.group_expected):
        refused = "conflict"
    return None if refused is None else no(refused, (book.item(name, refused),))


def _no_place(book: Book, spans: tuple[tuple[int, str], ...], *, fresh: bool) -> str | None:
    if any(version < book.entrance for version, _ in spans):
        return "beyond_horizon"
    return "backlog_full" if fresh and book.live() >= book.config.max_live else None


def _row(record: Any, offset: int, shelf: str, spans: tuple[tuple[int, str], ...]) -> Row:
    one = record.identity
    return Row(
        group=one.group_id,
        sample=one.sample_index,
        expected=one.group_expected,
        apart=(),
        train=True,
        spans=spans,
        tokens=0,
        evidence="",
        said=body(record),
        offset=offset,
        shelf=shelf,
    )


def _entered(book: Book, name: str, reason: str, old: Row | None) -> Answer:
    """A trajectory came, with what waited for it; a tainted one goes straight to quarantine."""
    book.touched.add(name)
    before = Item(name, reason, "none" if old is None else old.shelf, None if old is None else old.revision)
    strange = book.marks[name][-1][1] if old is None and book.marks.get(name) else None
    released: tuple[Released, ...] = ()
    waited = None if reason == "dispatched" else book.early_rewards.pop(name, None)
    if waited is not None:
        became = ("rewarded" if waited.kind == "RewardReady" else "reward_failed") if reason == "generated" else None
        if became is not None:
            _reward(book, name, waited, became)
        released = ((waited.offset, waited.kind, name, became or "illegal_transition"),)
    if book.rows[name].shelf != "generation_failed" and book.tainted(name):
        book.rows[name] = replace(book.rows[name], shelf="quarantined")
        before = before._replace(reason="quarantined")
    if book.rows[name].shelf == "rewarded":
        book.consume_marked(name)
    released += book.let_go(name)
    if strange is not None:
        lives = book.state(name) in (*USABLE, "reserved", "consumed")
        released += ((strange, "Commit", name, "ok" if lives else "illegal_transition"),)
    now = book.rows[name]
    return yes(items=(before._replace(after=book.state(name), revision_after=now.revision),), released=released)


def _reward(book: Book, name: str, fact: Waiting, became: str) -> None:
    row = replace(book.rows[name], shelf=became)
    if fact.kind == "RewardFailed":
        book.rows[name] = replace(row, failure=fact.said)
        return
    book.rows[name] = replace(
        row,
        reward=fact.said,
        failure=fact.replaced or row.failure,
        reward_offset=fact.offset,
        apart=row.apart + fact.apart,
    )


# --- rewards and filters


def reward_ready(book: Book, record: reward_records.RewardReady, offset: int) -> Answer:
    """RewardReady."""
    pinned = book.config.pinned_rewards
    usual = not pinned or record.reward in pinned
    if not usual and book.config.unpinned is run_records.Unpinned.REFUSE:
        return no("reward_not_pinned")
    items: list[Item] = []
    released: list[Released] = []
    for one in record.items:
        sha = None if one.payload is None else one.payload.sha256
        said: Body = ("reward", one.raw_reward, one.components, sha, record.reward, record.remote, record.label_hash)
        fact = Waiting("RewardReady", said, offset, () if usual else (record.reward,))
        item, facts = _fact(book, one.trajectory_id, fact)
        items.append(item)
        released += facts
    return _summed(tuple(items), "rewarded")._replace(released=tuple(released))


def reward_failed(book: Book, record: reward_records.RewardFailed, offset: int) -> Answer:
    """RewardFailed."""
    item, released = _fact(book, record.trajectory_id, Waiting("RewardFailed", body(record), offset))
    return _summed((item,), "reward_failed")._replace(released=released)


def _fact(book: Book, name: str, fact: Waiting) -> tuple[Item, tuple[Released, ...]]:
    state, row = book.state(name), book.rows.get(name)
    if row is not None and fact.said == (row.reward if fact.kind == "RewardReady" else row.failure):
        return book.item(name, "duplicate"), ()
    if state in (None, "dispatched"):
        reason, evicted = _wait(book, name, fact)
        return book.item(name, reason), evicted
    if fact.kind == "RewardFailed" and state == "reward_failed":
        book.rows[name] = replace(book.rows[name], failure=fact.said)
        return book.item(name, "reward_failed"), ()
    good = ("generated", "reward_failed") if fact.kind == "RewardReady" else ("generated",)
    if state in good:
        before = book.copy()
        became = "rewarded" if fact.kind == "RewardReady" else "reward_failed"
        book.change(name)
        _reward(book, name, fact, became)
        if became == "rewarded":
            book.consume_marked(name)
        return book.item(name, became, before), ()
    scored = state in ("rewarded", "reserved", "consumed") and fact.kind == "RewardReady"
    return book.item(name, "conflict" if scored else "illegal_transition"), ()


def _wait(book: Book, name: str, fact: Waiting) -> tuple[str, tuple[Released, ...]]:
    waiting = book.early_rewards.get(name)
    if waiting is not None and fact.said in (waiting.said, waiting.replaced):
        return "duplicate", ()
    if waiting is not None and waiting.kind != "RewardFailed":
        return "conflict", ()
    room, evicted = book.make_room(fact.offset) if waiting is None else (True, ())
    if not room:
        return "pending_full", evicted
    book.early_rewards[name] = fact if waiting is None else fact._replace(replaced=waiting.said)
    return "pending", evicted


def taken_out(book: Book, record: Any, offset: int) -> Answer:
    """Discarded, Quarantine."""
    done = "discarded" if isinstance(record, reward_records.Discarded) else "quarantined"
    items = []
    for name in record.trajectory_ids:
        state = book.state(name)
        if state in (*WAITED_FOR, "reward_failed", "rewarded"):
            before = book.copy()
            book.change(name, shelf=done)
            items.append(book.item(name, done, before))
        elif state is None:
            items.append(book.item(name, "missing_rollout"))
        else:
            items.append(book.item(name, "duplicate" if state == done else "illegal_transition"))
    released = book.let_go(*(item.name for item in items if item.reason == done))
    return _summed(tuple(items), done)._replace(released=released)


def _summed(items: tuple[Item, ...], good: str) -> Answer:
    reasons = [item.reason for item in items]
    if good in reasons:
        return yes(items=items)
    if "pending" in reasons:
        return Answer("pending", "pending", items)
    if set(reasons) == {"duplicate"}:
        return again(items)
    return no(next(reason for reason in reasons if reason != "duplicate"), items)


DECIDERS: dict[type[Lifecycle], Any] = {
    run_records.RunClosed: closed,
    run_records.GenerationContract: contract,
    rollout_records.Dispatched: dispatched,
    rollout_records.Generated: generated,
    rollout_records.GenerationFailed: generation_failed,
    reward_records.RewardReady: reward_ready,
    reward_records.RewardFailed: reward_failed,
    reward_records.Discarded: taken_out,
    reward_records.Quarantine: taken_out,
    update_records.LearnerStarted: updates.learner_started,
    update_records.Reserve: updates.reserve,
    update_records.Admit: updates.admit,
    update_records.UpdateStarted: updates.started,
    update_records.Commit: updates.commit,
    update_records.Abort: updates.abort,
    update_records.Renew: updates.renew,
    update_records.LeaseExpired: updates.lease_expired,
    update_records.RecordingSealed: updates.sealed,
    update_records.CheckpointSaved: updates.checkpoint_saved,
    policy_records.PolicyPrepared: policies.prepared,
    policy_records.PolicyCommitted: policies.written,
    policy_records.PolicyAbandoned: policies.abandoned,
    policy_records.ActivationAck: policies.ack,
    policy_records.Activate: policies.activate,
}
