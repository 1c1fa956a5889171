"""`rollbook dead-letters`: every undecodable record is listed and can be had back, and none breaks the terminal."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import Producer

from rollbook.infra.command import run as rollbook
from rollbook.infra.dead_letters import Asked, DeadLetters, Letter
from rollbook.infra.settings import LIFECYCLE_MAX_BYTES, Settings, Topic
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.kafka import Cluster
from rollbook.processors.host.transaction import Transactions
from rollbook.replay.history.kafka import KafkaLog
from rollbook.tests import recount
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.hosting import host_in_thread
from rollbook.tests.processors.test_host import _await
from rollbook.tests.session_broker import own_topics

HOSTILE = b"\x1b]0;owned\x07\x1b[2J\r\n  0:99  \xe2\x80\xae[bold]evil" + bytes(range(256))
VALUES: tuple[tuple[int, bytes | None, bytes | None], ...] = (
    (0, b"\x1b[31mkey", HOSTILE),
    (0, b"k", None),
    (1, None, b"{}"),
    (0, b"", bytes(LIFECYCLE_MAX_BYTES)),
    (1, b"k", b"\xc3\x01" + b"12345678" + b"body"),
)


@pytest.fixture(scope="module")
def own(broker: str) -> Iterator[Settings]:
    """A prefix with five dead letters, in both partitions."""
    with own_topics(broker, PARTITIONS) as settings:
        with host_in_thread(settings) as host:
            produce(settings, VALUES)
            _await(lambda: host.decided == len(VALUES))
        freed = Transactions(Cluster(settings), SystemClock(), f"{settings.topic_prefix}freed")
        freed.let_pass((settings.topic(Topic.DEAD_LETTERS), 0))  # writes something that is no letter
        yield settings


def produce(settings: Settings, values: tuple[tuple[int, bytes | None, bytes | None], ...]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": settings.bootstrap_servers,
            "enable.idempotence": True,  # or a retry could change their order
            "message.max.bytes": LIFECYCLE_MAX_BYTES * 2,
        }
    )
    for partition, key, value in values:
        producer.produce(settings.topic(Topic.LIFECYCLE), value, key, partition)
    assert producer.flush(30) == 0


@pytest.fixture(autouse=True)
def environment(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", own.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", own.topic_prefix)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert rollbook(["dead-letters", *arguments]) == 0
    text = capsys.readouterr().out
    assert re.fullmatch(r"[\x20-\x7e\n]*", text), "something that a terminal might obey"
    return [line.strip() for line in text.splitlines()]


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> set[str]:
    """The places in the JSON; in the same order as in the table."""
    letters = [json.loads(line) for line in shown(capsys, "--json", *arguments)]
    places = [f"{letter['partition']}:{letter['offset']}" for letter in letters]
    table = [line.split() for line in shown(capsys, *arguments) if re.match(r"\d{4}-", line)]
    assert [words[2] for words in table] == places
    return set(places)


def test_all_are_listed_and_can_be_narrowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys) == {"0:0", "0:1", "0:2", "1:0", "1:1"}
    assert listed(capsys, "--partition", "1") == {"1:0", "1:1"}
    assert listed(capsys, "--partition", "0", "--since", "1") == {"0:1", "0:2"}
    assert listed(capsys, "--since", "2") == {"0:2"}
    assert listed(capsys, "--partition", "0", "--limit", "1") == {"0:2"}


def test_the_json_is_the_letter(capsys: pytest.CaptureFixture[str], own: Settings) -> None:
    letters = [json.loads(line) for line in shown(capsys, "--json")]
    codec = recount.Codec()
    topic = recount.read_topic(own.bootstrap_servers, own.topic(Topic.DEAD_LETTERS))
    bodies = [codec.decode(record.value)[1] for record in topic if record.value is not None]
    assert [{name: letter[name] for name in bodies[0]} for letter in letters] == bodies


@pytest.mark.parametrize("arguments", [["--partition", "7"], ["--since", "3"], ["--partition", "1", "--since", "2"]])
def test_none_is_an_answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert rollbook(["dead-letters", *arguments]) == 1
    assert capsys.readouterr().err.startswith("Error: there is no such dead letter on ")


def test_one_is_shown_with_its_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "--show", "0:0")
    text = "\n".join(lines)
    assert re.search(r"lifecycle:0:0$", text, re.MULTILINE)
    assert re.search(r"key +\.\[31mkey$", text, re.MULTILINE)
    assert "not in Avro single-object encoding" in text
    assert "00000000  1b 5d 30 3b 6f 77 6e 65  64 07 1b 5b 32 4a 0d 0a  |.]0;owned..[2J..|" in lines
    assert lines[-1] == f"... {len(HOSTILE) - 256} more bytes; --out FILE writes all of them"
    assert sum("|" in line for line in lines) == 16


def test_a_tombstone_and_an_unknown_schema_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert any("none: a tombstone" in line for line in shown(capsys, "--show", "0:1"))
    (told,) = map(json.loads, shown(capsys, "--show", "0:1", "--json"))
    assert (told["tombstone"], told["size"], told["first_bytes_hex"], told["key_hex"]) == (True, 0, "", "6b")
    assert any("unknown schema fingerprint 3132333435363738" in line for line in shown(capsys, "--show", "1:1"))
    assert any(re.match(r"key +none", line) for line in shown(capsys, "--show", "1:0"))


@pytest.mark.parametrize(("place", "number"), [("0:0", 0), ("0:1", 1), ("0:2", 3), ("1:1", 4)])
def test_all_of_its_bytes_can_be_had(
    place: str, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record"
    shown(capsys, "--show", place, "--out", str(path))
    assert path.read_bytes() == (VALUES[number][2] or b"")
    assert rollbook(["dead-letters", "--show", place, "--out", str(path)]) == 2
    assert "exists: name a new file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--show", "0"], 2, "--show '0' is no PARTITION:OFFSET"),
        (["--show", "0:-1"], 2, "is no PARTITION:OFFSET"),
        (["--show", "0:9\x1b[2J"], 2, r"--show '0:9\x1b[2J' is no PARTITION:OFFSET"),
        (["--show", "0:7"], 1, "lifecycle:0:7 has no dead letter: its record could be decoded, or is not decided yet"),
        (["--show", "9:0"], 1, "lifecycle:9:0 has no dead letter"),
        (["--out", "x"], 2, "say which with --show"),
        (["--show", "0:0", "--limit", "1"], 2, "--show names one record"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rollbook(["dead-letters", *arguments]) == code
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert message in told


def test_letters_are_followed_as_they_come(settings: Settings) -> None:
    with host_in_thread(settings) as host, KafkaLog(settings) as log:
        produce(settings, VALUES[:1])
        _await(lambda: host.decided == 1)
        waits = iter(range(1_000))

        def pause(seconds: float) -> None:
            if next(waits) == 0:
                produce(settings, VALUES[1:3])
            _await(lambda: host.decided == 3)

        found = list(islice(DeadLetters(log, settings).follow(Asked(), 10, pause), 3))
    sizes = [one.letter.size for one in found if isinstance(one, Letter)]
    assert sizes[0] == len(HOSTILE)
    assert set(sizes) == {len(HOSTILE), 0, 2}


def test_what_somebody_else_wrote_is_told_and_hides_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", settings.topic_prefix)
    stranger = Producer({"bootstrap.servers": settings.bootstrap_servers})
    with host_in_thread(settings) as host:
        for number, value in enumerate(VALUES[:2]):
            produce(settings, (value,))
            _await(lambda number=number: host.decided == number + 1)  # type: ignore[misc]
            stranger.produce(settings.topic(Topic.DEAD_LETTERS), b"\x1b[2J no letter")
            assert stranger.flush(30) == 0
    rows = [line for line in shown(capsys) if re.match(r"\d{4}-", line)]
    assert ["is not a dead letter" in row for row in rows] == [False, True, False, True]
    told = [json.loads(line) for line in shown(capsys, "--json")]
    assert ["foreign" in one for one in told] == [False, True, False, True]
    assert len(shown(capsys, "--json", "--partition", "0")) == 2
    assert any("tombstone" in line for line in shown(capsys, "--show", "0:1"))
