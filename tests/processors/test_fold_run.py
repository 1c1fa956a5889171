"""Form and place of a record; configurations, contracts, and trajectories as they become known."""

import hashlib

import pytest

from rollbook.processors.ledger.fold import NewerFoldVersion, SourceRecord
from rollbook.schemas.codec import decode_as, encode
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.payload import CurrentLogProbs
from rollbook.schemas.records.rollout import Generated, Origin, Purpose, Span
from rollbook.schemas.records.run import RewardIdentity
from rollbook.schemas.types import INT63_MAX
from rollbook.tests.processors import parts
from rollbook.tests.processors.history import History, Log, item, reasons, refold, says
from rollbook.tests.processors.parts import policy, sha

# --- form and place


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xc3",
        b"\xc3\x01\x00\x00\x00",
        b"\xc3\x01" + bytes(8),
        b'{"run_id": "r"}',
        encode(CurrentLogProbs(run_id="r", update_id="u", trajectory_id="t", log_probs=b"")),
    ],
    ids=["tombstone", "empty", "marker", "short fingerprint", "unknown fingerprint", "json", "another topic's record"],
)
def test_what_is_no_lifecycle_record_is_undecodable(value: bytes | None) -> None:
    history = History().opened()
    decision = history.log.append(b"r", value)
    assert says(decision) == "undecodable undecodable"
    assert (decision.run_id, decision.sequence, decision.record_type, decision.event_id) == ("~partition-0", 1, "", "")
    assert decision.source.sha256 == hashlib.sha256(value or b"").hexdigest()
    assert history.log.folded[-1].undecodable
    assert history.run.head.sequence == 2


def test_strays_have_a_chain_of_their_own() -> None:
    history = History().opened()
    first, second = history.log.append(b"r", b"x"), history.log.append(b"r", b"x")
    assert (first.sequence, second.sequence) == (1, 2)
    assert first.chain != second.chain
    assert history.contract("another").sequence == 3


@pytest.mark.parametrize("key", [None, b"", b"other", b"r "])
def test_a_record_under_another_key_is_misplaced(key: bytes | None) -> None:
    history = History()
    history.configured()
    decision = history.log.append(key, history.log.records[0].value)
    assert says(decision) == "invalid wrong_partition"
    assert (decision.run_id, decision.detail, decision.event_id) == ("~partition-0", "r", "event-0")


def test_a_record_in_another_partition_is_misplaced() -> None:
    home = partition_of("r", 8)
    away = History("r", log=Log(partition=(home + 1) % 8, topic_partitions=8))
    assert says(away.configured()) == "invalid wrong_partition"
    assert away.last.run_id == f"~partition-{(home + 1) % 8}"
    assert says(History("r", topic_partitions=8).configured()) == "accepted ok"


def _broken(history: History, original: bytes, changed: bytes) -> str:
    """The decision on the last record with some bytes changed, all of the same length."""
    value = history.log.records[-1].value or b""
    assert value.count(original) == 1
    decision = history.log.append(history.log.records[-1].key, value.replace(original, changed))
    return f"{decision.run_id} {says(decision)} {decision.detail}"


def test_a_value_that_avro_takes_but_the_contract_refuses_is_invalid_by_its_field() -> None:
    history = History().opened()
    history.generated("t0")
    nan, one = b"\x00\x00\x00\x00\x00\x00\xf8\x7f", b"\x00\x00\x00\x00\x00\x00\xf0\x3f"
    history.rewarded("t0")
    assert _broken(history, one, nan) == "r invalid contract_violation items.0.raw_reward"
    history.prepared(7, parent=3)
    assert _broken(history, b"weights-7\x04", b"weights-\x07\x04") == "r invalid contract_violation artifact.hash"
    assert history.status("t0") == "rewarded"


def test_a_negative_count_is_invalid_by_its_field() -> None:
    history = History().opened()
    history.ack("worker", 5, seq=23)
    assert _broken(history, b"worker\x00\x2e", b"worker\x00\x2d") == "r invalid contract_violation report_seq"


def test_a_header_that_breaks_the_contract_is_a_stray_by_its_field() -> None:
    history = History().opened()
    history.contract("another")
    assert (
        _broken(history, b"\x02r\x0eevent-2", b"\x02!\x0eevent-2")
        == "~partition-0 invalid contract_violation header.run_id"
    )
    history.contract("yet another")
    assert _broken(history, b"event-4", b"event\x004") == "~partition-0 invalid contract_violation header.event_id"


# --- configuration


def test_before_its_configuration_a_run_refuses_everything() -> None:
    history = History()
    for decision in (
        history.contract(),
        history.generated("t0"),
        history.rewarded("t0"),
        history.learner(),
        history.written(1),
        history.ack("w", 0),
        history.abort("u0", operator=True),
    ):
        assert says(decision) == "rejected run_not_configured"
    assert (history.last.sequence, history.last.config_version, history.last.active_policy) == (7, 0, None)
    assert says(history.configured()) == "accepted ok"
    assert (history.last.config_version, history.last.fold_version, history.last.active_policy) == (1, 1, policy(0))
    assert history.status("t0") == "none"


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"config_version": 6}, "accepted ok"),
        ({"config_version": 5}, "duplicate duplicate"),
        ({"config_version": 5, "max_lag": 9}, "rejected conflict"),
        ({"config_version": 4}, "rejected config_version_not_rising"),
        ({"config_version": 6, "partition_count": 2}, "rejected partition_count_changed"),
        ({"config_version": 6, "initial": policy(0, "other")}, "rejected initial_policy_changed"),
        ({"config_version": 6, "initial": policy(1)}, "rejected initial_policy_changed"),
        ({"config_version": 6, "max_lag": 0, "workers": ("w",)}, "accepted ok"),
    ],
)
def test_a_later_configuration(change: dict[str, object], answer: str) -> None:
    history = History()
    assert says(history.configured(5)) == "accepted ok"
    history.prepared(1)
    assert says(history.configured(**change)) == answer  # type: ignore[arg-type]
    assert history.run.head.config_version == (6 if answer == "accepted ok" else 5)


def test_a_first_configuration_for_another_partition_count_opens_nothing() -> None:
    history = History()
    assert says(history.configured(partition_count=2)) == "rejected partition_count_changed"
    assert says(history.contract()) == "rejected run_not_configured"


def test_an_earlier_configuration_sent_again_is_still_a_duplicate() -> None:
    history = History()
    history.configured(1)
    history.configured(2, max_lag=4)
    assert says(history.again(2)) == "duplicate duplicate"
    assert history.run.config.admission.max_lag == 4


def test_rules_newer_than_ours_stop_the_partition_and_name_the_record() -> None:
    history = History().opened()
    before = history.run.head
    with pytest.raises(NewerFoldVersion, match=r"partition 0 offset 2: run r asks for fold version 2.*install a newer"):
        history.configured(2, fold_version=2)
    assert history.run.head == before


# --- contracts


def test_a_contract_is_registered_once_under_its_true_hash() -> None:
    history = History()
    history.configured()
    assert says(history.contract()) == "accepted ok"
    assert says(history.contract()) == "duplicate duplicate"
    assert says(history.contract("another")) == "accepted ok"
    assert says(history.contract("third", named=sha("anything"))) == "rejected contract_hash_mismatch"
    assert history.last.detail == f"expected {parts.contract_named('third')}"


@pytest.mark.parametrize(
    ("pinned", "cited", "answer"),
    [
        ((), "tokenizer", "accepted ok"),
        ((), "unheard", "rejected unregistered_contract"),
        (("tokenizer",), "tokenizer", "accepted ok"),
        (("tokenizer",), "another", "rejected contract_not_pinned"),
        (("unheard",), "unheard", "rejected unregistered_contract"),
    ],
)
def test_a_trajectory_cites_a_registered_and_pinned_contract(pinned: tuple[str, ...], cited: str, answer: str) -> None:
    history = History()
    history.configured(contracts=tuple(map(parts.contract_named, pinned)))
    history.contract("tokenizer")
    history.contract("another")
    assert says(history.generated("t0", contract=parts.contract_named(cited))) == answer
    assert history.status("t0") == ("generated" if answer == "accepted ok" else "none")


def test_a_refused_trajectory_leaves_no_trace_and_is_judged_anew() -> None:
    history = History()
    history.configured()
    assert says(history.generated("t0")) == "rejected unregistered_contract"
    history.contract()
    assert says(history.again(2)) == "accepted ok"


# --- trajectories become known


def test_a_trajectory_becomes_known_with_its_state_and_offsets() -> None:
    history = History().opened()
    decision = history.generated("t0", group="g", sample=1, of=2)
    found = item(decision, "t0")
    assert (found.reason, found.state_before, found.state_after) == ("generated", "none", "generated")
    assert (found.revision_before, found.revision_after) == (None, 1)
    assert (found.generated_offset, found.reward_offset) == (decision.source.offset, None)
    assert (decision.subject and (decision.subject.kind, decision.subject.id)) == ("trajectory", "t0")


def test_the_same_trajectory_again_is_a_duplicate_and_another_under_its_id_a_conflict() -> None:
    history = History().opened()
    history.generated("t0")
    assert says(history.generated("t0")) == "duplicate duplicate"  # another event id, the same content
    assert says(history.generated("t0", group="elsewhere")) == "rejected conflict"
    assert says(history.failed("t0")) == "rejected illegal_transition"
    assert reasons(history.last) == {"t0": "illegal_transition"}
    assert history.revision("t0") == 1


def test_a_failed_generation_stays_failed() -> None:
    history = History().opened()
    assert says(history.failed("t0")) == "accepted ok"
    assert item(history.last, "t0").state_after == "generation_failed"
    assert says(history.failed("t0")) == "duplicate duplicate"
    assert says(history.failed("t0", 1)) == "rejected conflict"
    assert says(history.generated("t0")) == "rejected illegal_transition"
    assert says(history.rewarded("t0")) == "rejected illegal_transition"
    assert history.status("t0") == "generation_failed"


def test_a_full_backlog_refuses_trajectories_until_some_are_gone() -> None:
    history = History().opened(max_live=2)
    history.ready("t0", "t1")
    assert says(history.generated("t2")) == "rejected backlog_full"
    assert says(history.failed("t3")) == "accepted ok", "a failure is not live"
    history.discarded("t0")
    assert says(history.generated("t2")) == "accepted ok"


def test_a_trajectory_of_an_undone_or_otherwise_known_policy_is_quarantined_on_arrival() -> None:
    history = History().opened()
    history.learner()
    history.abort("u0")
    history.prepared(1, "u0")
    assert reasons(history.generated("t0", 1)) == {"t0": "quarantined"}
    assert reasons(history.generated("t1", policy(0, "other"))) == {"t1": "quarantined"}
    assert reasons(history.generated("t2", 0, 1)) == {"t2": "quarantined"}
    assert reasons(history.generated("t3", 2)) == {"t3": "generated"}, "nobody knows version 2 yet"
    assert says(history.rewarded("t0")) == "rejected illegal_transition"
    assert reasons(history.failed("t4", 1)) == {"t4": "generation_failed"}, "a failure is final as it is"


def test_token_counts_beyond_63_bits_do_not_stop_the_partition() -> None:
    history = History().opened()
    history.generated("t0")
    sent = decode_as(Generated, history.log.records[-1].value or b"")
    span = Span(start=0, end=INT63_MAX, origin=Origin.MODEL, policy=policy(0))
    changes = {"spans": (span,), "response_length": INT63_MAX, "active_tokens": INT63_MAX}
    huge = sent.segments[0].but(**changes)
    hostile = sent.but(segments=(huge, huge), identity=parts.identity("t1", "g1", 0, 1))
    assert (says(history.send(hostile)), history.last.detail) == (
        "invalid contract_violation",
        "segments.active_tokens",
    )
    assert history.log.ledger.changes(), "each changed row can be written"


def test_evaluation_is_known_and_rewarded_but_never_ready() -> None:
    history = History().opened()
    history.generated("e0", purpose=Purpose.EVAL)
    history.rewarded("e0")
    assert history.status("e0") == "rewarded"
    assert history.run.trajectories.claimable_groups() == []


def test_runs_share_a_partition_but_nothing_else() -> None:
    first = History("run-a").opened()
    second = History("run-b", log=first.log)
    assert says(second.generated("t0")) == "rejected run_not_configured"
    second.opened()
    for history in (first, second):
        history.ready("t0")
        history.learner()
    first.discarded("t0")
    assert (first.status("t0"), second.status("t0")) == ("discarded", "rewarded")
    assert (first.run.head.sequence, second.run.head.sequence) == (6, 6)
    assert refold(first.log) == first.log.decisions


def test_gaps_in_the_offsets_are_of_no_interest() -> None:
    history = History().opened()
    history.log.next_offset += 7
    assert history.generated("t0").source.offset == 9
    assert history.last.sequence == 3


def test_reward_identities_that_are_not_pinned_are_refused() -> None:
    history = History()
    history.configured(rewards=(parts.RULE,))
    history.contract()
    history.generated("t0")
    other = RewardIdentity(rule_id="exact", version="2", hash="rule-hash")
    assert says(history.rewarded("t0", rule=other)) == "rejected reward_not_pinned"
    assert says(history.rewarded("t0")) == "accepted ok"


def test_the_source_of_a_decision_is_its_record() -> None:
    history = History().opened()
    record = SourceRecord(0, 2, b"r", history.log.records[-1].value)
    folded = history.log.ledger.fold(record)
    assert folded.decision.source.sha256 == hashlib.sha256(record.value or b"").hexdigest()
    assert folded.decision.event_id == "event-1"
