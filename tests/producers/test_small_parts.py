"""The pure parts of the clients: ids, payload chunks, what an update may train on."""

import hashlib
import uuid
from typing import Any

import pytest

from rollbook.producers import NotTrainable, Options, new_id, new_identity
from rollbook.producers.sending.command import Command
from rollbook.producers.sending.lane import Lane, Place
from rollbook.producers.updates.holdings import Holdings
from rollbook.schemas.codec import ContractViolation, Decoded
from rollbook.schemas.errors import BadInput
from rollbook.schemas.payload_io import PayloadCorrupt, join, split
from rollbook.schemas.records.common import Header, PayloadRef, Source, SourceKind
from rollbook.schemas.records.decision import Decision, ItemDecision, Outcome
from rollbook.schemas.records.reward import Discarded, DiscardReason
from rollbook.schemas.records.update import Disposition

HEADER = Header(run_id="run-0", event_id="e", occurred_at=0, source=Source(kind=SourceKind.TRAINER, id="l"))


def test_ids_are_of_version_7_and_sort_by_time() -> None:
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in ids} == {(7, uuid.RFC_4122)}
    stamps = [uuid.UUID(one).int >> 80 for one in ids]
    assert stamps == sorted(stamps)


def ref(data: bytes, chunks: int, **change: object) -> PayloadRef:
    whole = PayloadRef(
        topic="payloads",
        partition=1,
        offsets=tuple(range(7, 7 + chunks)),
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    return whole.model_copy(update=change)


@pytest.mark.parametrize("size", [1, 9, 10, 11, 30])
def test_a_payload_is_cut_and_joined(size: int) -> None:
    data = bytes(range(size))
    chunks = split(data, chunk_bytes=10)
    assert max(len(chunk) for chunk in chunks) <= 10
    assert join(chunks, ref(data, len(chunks))) == data


DATA = b"0123456789abc"
TWO = [DATA[:10], DATA[10:]]


@pytest.mark.parametrize(
    ("chunks", "problem"),
    [
        (TWO[:1], "1 chunks where the reference names 2"),
        ([TWO[0], b"ab"], "12 bytes where the reference says 13"),
        ([TWO[0], b"abd"], "sha256 is"),
        ([TWO[1], TWO[0]], "sha256 is"),
    ],
)
def test_chunks_that_are_not_the_payload_are_refused_with_their_place(chunks: list[bytes], problem: str) -> None:
    with pytest.raises(PayloadCorrupt, match=rf"^payload payloads:1@7 and 1 more: {problem}"):
        join(chunks, ref(DATA, 2))


def test_an_empty_payload_is_refused() -> None:
    with pytest.raises(BadInput, match="empty"):
        split(b"")


def decided(trajectory_id: str, reason: str, state: str = "reserved") -> ItemDecision:
    return ItemDecision(trajectory_id=trajectory_id, reason=reason, state_after=state)


def holdings(story: str, *, needs_admission: bool = True) -> Holdings:
    """r a b: reserved; p a: passed over; s a b: started with these; o a: admitted; d a: drifted; n a: no admission, but
    still reserved; x a: dropped."""
    made = Holdings("update-0", 0, needs_admission=needs_admission)
    for line in story.split(";"):
        verb, *ids = line.split()
        if verb == "r":
            made.reserved([decided(one, "reserved") for one in ids])
        elif verb == "p":
            made.reserved([decided(one, "stale_policy", "rewarded") for one in ids])
        elif verb == "s":
            made.started([decided(one, "held") for one in ids])
        elif verb == "o":
            made.judged([decided(one, "ok") for one in ids])
        elif verb == "d":
            made.judged([decided(one, "policy_drift", "quarantined") for one in ids])
        elif verb == "n":
            made.judged([decided(one, "policy_drift") for one in ids])
        elif verb == "x":
            made.drop(ids, "length", Disposition.RELEASE)
    return made


@pytest.mark.parametrize(
    ("story", "held", "trainable"),
    [
        ("r a b", "a b", ""),
        ("r a b; o a b", "a b", ""),
        ("r a b; s a b", "a b", ""),
        ("r a b; o a; s a b", "a b", "a"),
        ("r a b; s a b; o b", "a b", "b"),
        ("r a b; o a b; s a b; d b", "a", "a"),
        ("r a b; d a; s b; o b", "b", "b"),
        ("r a; p b; s a; o a", "a", "a"),
        ("r a b; o a b; s a", "a", "a"),  # the ledger's list is what counts
        ("r a; s a b; o b", "a b", "b"),
        ("r a b; o a b; s a b; x b", "a b", "a"),
        ("r a; n a; s a", "a", ""),
    ],
)
def test_what_may_be_trained_on(story: str, held: str, trainable: str) -> None:
    made = holdings(story)
    assert " ".join(item.trajectory_id for item in made.held) == held
    assert " ".join(made.trainable) == trainable
    for refused in set("abc") - set(trainable.split()):
        with pytest.raises(NotTrainable, match=f"trajectory {refused} must not enter step 0 of update update-0"):
            made.step([refused])
    assert not made.stepped


def test_with_the_drift_gate_off_the_start_is_enough() -> None:
    assert holdings("r a b; s a b; n a", needs_admission=False).trainable == ("a", "b")


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        ([], "step 0 of update update-0 has no rows"),
        (["a", "b", "a"], "trajectory a is named twice in step 0 of update update-0"),
    ],
)
def test_a_step_names_each_of_its_rows_once(ids: list[str], problem: str) -> None:
    made = holdings("r a b; o a b; s a b")
    with pytest.raises(NotTrainable, match=f"^{problem}"):
        made.step(ids)
    assert not made.stepped


def test_a_text_is_no_list_of_ids() -> None:
    made = holdings("r abc; o abc; s abc")
    calls = (made.step, made.unreserved, lambda ids: made.drop(ids, "length", Disposition.RELEASE))
    for call in calls:
        with pytest.raises(NotTrainable, match=r"wanted as a list, and 'abc' is a text: put it in a list"):
            call("abc")
    assert made.step(["abc"]).trajectory_ids == ("abc",)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((name, value) for name in ("max_events", "max_bytes") for value in (0, -1, 1.0, True, None)),
        *(
            (f"{name}_timeout_s", value)
            for name in ("connect", "delivery", "decision", "close")
            for value in (-1, 0, float("inf"), float("nan"), 1e9, "1", None, True)
        ),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"^Options: {option} is "):
        Options(**{option: value})


def test_a_place_outside_its_group_is_refused_when_it_is_minted() -> None:
    with pytest.raises(ContractViolation, match=r"^TrajectoryIdentity: field sample_index"):
        new_identity("g", 5, group_expected=2)


def test_a_commit_names_exactly_what_is_held() -> None:
    made = holdings("r a b c d; o a b c; s a b c d; x b")
    made.step(["a", "c"])
    made.step(["a"])
    steps, dropped = made.settle()
    assert [(step.step_id, step.trajectory_ids) for step in steps] == [(0, ("a", "c")), (1, ("a",))]
    assert [(drop.trajectory_id, drop.reason) for drop in dropped] == [("b", "length"), ("d", "unused")]


def answered(story: str) -> int | None:
    """c: a copy is sent; @3: it is known to lie at offset 3; @: it has arrived, nobody can say where; y3, n3: what lies
    at offset 3 was accepted, refused. The offset of the answer that counts."""
    command = Command(Discarded(header=HEADER, trajectory_ids=("t",), reason=DiscardReason.SURPLUS))
    answers: list[Decoded] = []
    for word in story.split():
        if word == "c":
            command.next_copy()
        elif word.startswith("@"):
            command.arrived, command.last_offset = True, int(word[1:]) if word[1:] else None
        else:
            outcome = Outcome.ACCEPTED if word[0] == "y" else Outcome.REJECTED
            fields = {"outcome": outcome.value, "source": {"offset": int(word[1:])}}
            answers.append(Decoded(Decision, fields, ""))
    chosen = command.answer(answers)
    return None if chosen is None else int(chosen.fields["source"]["offset"])


@pytest.mark.parametrize(
    ("story", "counts"),
    [
        ("c", None),
        ("c n3", 3),  # the acknowledgement may come after the decision
        ("c y3", 3),
        ("c @3 c n3", None),
        ("c @3 c @7 n3", None),
        ("c @3 c @7 n3 y7", 7),
        ("c @3 c @7 y3", 3),
        ("c @3 c @7 n3 n7", 7),
        ("c @3 c n3 n7", None),  # which copy lies at 7 is not known yet
        ("c c @7 n7", 7),  # the first was lost
        ("c @3 c @7 c @9 n3 n7", None),
        ("c @3 c @7 c @9 n3 y7 n9", 7),
        ("c @ n3", 3),
        ("c @3 c @ n3", None),
        ("c @3 c @ n3 n7", 7),
        ("c @3 c @ n3 y7", 7),
    ],
)
def test_which_answer_counts_when_a_command_was_sent_more_than_once(story: str, counts: int | None) -> None:
    assert answered(story) == counts


def departures(story: str) -> str:
    """a-z: queue a record that holds back, A-Z: one that does not; +a: it is ready. Which left, in order."""
    lane, left = Lane(), list[str]()
    places: dict[str, Place] = {}
    for word in story.split():
        if word[0] == "+":
            lane.ready(places[word[1:]])
        else:
            places[word] = lane.queue(lambda name=word: left.append(name), holds=word.islower())  # type: ignore[misc]
    return " ".join(left)


@pytest.mark.parametrize(
    ("story", "left"),
    [
        ("a b +b", ""),
        ("a b +b +a", "a b"),
        ("a +a b +b", "a b"),
        ("a b c +c +a", "a"),
        ("a b c +c +a +b", "a b c"),
        ("A b +b", "b"),
        ("A b +b +A", "b A"),
        ("a B c +B +c", ""),
        ("a B c +B +c +a", "a B c"),
        ("a B c +c +a +B", "a c B"),
    ],
)
def test_records_leave_in_the_order_in_which_they_queued(story: str, left: str) -> None:
    assert departures(story) == left


def test_what_is_queued_while_a_record_leaves_follows_it() -> None:
    lane, left = Lane(), list[str]()

    def first() -> None:
        lane.ready(lane.queue(lambda: left.append("second")))
        left.append("first")

    lane.ready(lane.queue(first))
    assert left == ["first", "second"]
