"""The pure parts of the clients: ids, payload chunks, what an update may train on."""

import hashlib
import uuid

import pytest

from rollbook.producers import NotTrainable, new_id
from rollbook.producers.holdings import Holdings
from rollbook.schemas.errors import BadInput
from rollbook.schemas.payload_io import PayloadCorrupt, join, split
from rollbook.schemas.records.common import PayloadRef
from rollbook.schemas.records.decision import ItemDecision
from rollbook.schemas.records.update import Disposition


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


def test_a_commit_names_exactly_what_is_held() -> None:
    made = holdings("r a b c d; o a b c; s a b c d; x b")
    made.step(["a", "c"])
    made.step(["a"])
    steps, dropped = made.settle()
    assert [(step.step_id, step.trajectory_ids) for step in steps] == [(0, ("a", "c")), (1, ("a",))]
    assert [(drop.trajectory_id, drop.reason) for drop in dropped] == [("b", "length"), ("d", "unused")]
