"""The table of Kafka's errors: whole over all codes that the client library knows, and literal where it matters."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from rollbook.processors.host import errors
from rollbook.processors.host.clients import retried
from rollbook.processors.host.errors import MEANINGS, TABLE, UNKNOWN, Action, HostStopped
from rollbook.tests.locked import is_locked
from rollbook.tests.processors.test_metrics import HandClock


def known() -> dict[str, int]:
    """Every code of the library by name; what it does not know it calls ERR_n?."""
    codes = {KafkaError(code).name(): code for code in range(-300, 400)}
    return {name: code for name, code in codes.items() if not name.endswith("?")}


def error(name: str, flag: str = "") -> KafkaError:
    return KafkaError(known()[name], name, flag == "fatal", flag == "retriable", flag == "abortable")


def test_every_code_of_the_library_has_exactly_one_row() -> None:
    """An older one knows fewer."""
    listed = [name for row in TABLE for name in row.names]
    assert len(known()) > 150
    assert len(listed) == len(set(listed))
    assert known().keys() <= set(listed)
    assert known().keys() == set(listed) or not is_locked("confluent-kafka")


def test_an_error_that_nobody_knows_stops_the_process_wherever_it_comes_from() -> None:
    strange = KafkaError(3_999)
    assert errors.row_for(strange) is UNKNOWN
    assert (errors.action_for(strange), errors.consuming(strange)) == (Action.STOP, Action.STOP)
    assert not errors.passes(strange)
    for flags in ((True, False, False), (False, True, False), (False, False, True)):
        assert errors.action_for(KafkaError(3_999, "strange", *flags)) is Action.STOP


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.title)
def test_a_row_holds_for_each_of_its_errors(row: errors.Row) -> None:
    for name in known().keys() & row.names:
        assert errors.action_for(error(name, "fatal")) is row.fatal
        assert errors.action_for(error(name, "abortable")) is row.abortable
        assert errors.action_for(error(name, "retriable")) is row.retriable
        assert errors.action_for(error(name)) is row.plain
        assert errors.consuming(error(name)) is row.consuming
        assert errors.passes(error(name)) == (row.asking is Action.RETRY)
        assert errors.remedy(error(name)) == row.acts


@pytest.mark.parametrize("row", [*TABLE, UNKNOWN], ids=lambda row: row.title)
def test_rows_make_sense(row: errors.Row) -> None:
    assert row.fatal in (Action.STOP, Action.STOP_FENCED)  # a producer that is finished is never used again
    assert row.consuming in (Action.STOP, Action.STOP_FENCED, Action.TELL)
    assert row.asking in (Action.STOP, Action.RETRY)
    assert Action.TELL not in (row.fatal, row.abortable, row.retriable, row.plain)
    assert row.plain is not Action.RETRY  # nobody promised that the same call may be made again


LITERAL = [
    ("_FENCED", "fatal", Action.STOP_FENCED),
    ("PRODUCER_FENCED", "abortable", Action.STOP_FENCED),
    ("INVALID_PRODUCER_EPOCH", "", Action.STOP_FENCED),
    ("_TIMED_OUT", "retriable", Action.UNKNOWN_OUTCOME),
    ("_TIMED_OUT", "", Action.UNKNOWN_OUTCOME),
    ("_TIMED_OUT", "abortable", Action.ABORT),
    ("REQUEST_TIMED_OUT", "", Action.UNKNOWN_OUTCOME),
    ("COORDINATOR_LOAD_IN_PROGRESS", "retriable", Action.RETRY),
    ("_TRANSPORT", "", Action.UNKNOWN_OUTCOME),
    ("ILLEGAL_GENERATION", "abortable", Action.ABORT),
    ("MSG_SIZE_TOO_LARGE", "abortable", Action.STOP),
    ("TOPIC_AUTHORIZATION_FAILED", "abortable", Action.STOP),
    ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "fatal", Action.STOP),
    ("_STATE", "", Action.UNKNOWN_OUTCOME),
]


@pytest.mark.parametrize(("name", "flag", "action"), LITERAL)
def test_in_a_transaction(name: str, flag: str, action: Action) -> None:
    assert errors.action_for(error(name, flag)) is action


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("_AUTO_OFFSET_RESET", Action.STOP),
        ("GROUP_AUTHORIZATION_FAILED", Action.STOP),
        ("FENCED_INSTANCE_ID", Action.STOP_FENCED),
        ("_MAX_POLL_EXCEEDED", Action.TELL),
        ("_ALL_BROKERS_DOWN", Action.TELL),
        ("UNKNOWN_TOPIC_OR_PART", Action.TELL),
        ("_PARTITION_EOF", Action.TELL),
    ],
)
def test_while_consuming(name: str, action: Action) -> None:
    assert errors.consuming(error(name)) is action


def test_a_fatal_error_whose_text_tells_of_a_fence_is_one() -> None:
    assert errors.action_for(KafkaError(KafkaError._FATAL, "Local: fenced by a newer", True)) is Action.STOP_FENCED
    assert errors.action_for(KafkaError(KafkaError._FATAL, "out of order", True)) is Action.STOP


def test_a_question_is_asked_again_while_its_error_passes_and_no_longer_than_that() -> None:
    clock = HandClock()
    answers = iter([error("_TRANSPORT"), error("LEADER_NOT_AVAILABLE"), None])

    def ask() -> str:
        fault = next(answers)
        if fault is not None:
            raise KafkaException(fault)
        return "answer"

    assert retried(clock, "a thing", ask) == "answer"
    with pytest.raises(HostStopped, match=r"a thing: .*\(TOPIC_AUTHORIZATION_FAILED\): the cluster's operator: give"):
        retried(clock, "a thing", lambda: _refuse("TOPIC_AUTHORIZATION_FAILED"))
    began = clock.at
    with pytest.raises(HostStopped, match=r"\(_TRANSPORT\): the cluster's operator, if they do not pass"):
        retried(clock, "a thing", lambda: _refuse("_TRANSPORT"))
    assert 60 < clock.at - began < 61


def _refuse(name: str) -> None:
    raise KafkaException(error(name))


def test_every_action_is_explained() -> None:
    assert MEANINGS.keys() == set(Action)
