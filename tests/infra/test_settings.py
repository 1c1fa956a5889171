"""Settings: what no cluster can have is refused by the name of its variable, wherever the settings come from."""

from dataclasses import replace

import pytest

from rollbook.infra.settings import LONGEST_PREFIX, Settings, Topic
from rollbook.schemas.errors import BadInput

SERVERS, PREFIX = "ROLLBOOK_BOOTSTRAP_SERVERS", "ROLLBOOK_TOPIC_PREFIX"


def test_the_defaults_and_the_environment() -> None:
    assert Settings.from_env({}) == Settings()
    given = Settings.from_env({SERVERS: " a:1,b:2 ", PREFIX: "team-a_1."})
    assert given == Settings("a:1,b:2", "team-a_1.")
    assert given.topic(Topic.DEAD_LETTERS) == "team-a_1.dead-letters"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        (PREFIX, " ", "is set but empty"),
        (PREFIX, "a b/", "is 'a b/', with which no topic's name can begin"),
        (PREFIX, "x\x1b[31m\n", r"is 'x\x1b[31m', with which"),
        (PREFIX, "é.", r"is '\xe9.', with which"),
        (PREFIX, "\udcff", r"is '\udcff', with which"),
        (PREFIX, "a" * 300, f"is '{'a' * 60}'..., 300 characters long: use at most {LONGEST_PREFIX}"),
        (SERVERS, "", "is set but empty"),
        (SERVERS, "a\udcff:1", r"is 'a\udcff:1', which names no host"),
        (SERVERS, "a\x00:1", r"is 'a\x00:1', which names no host"),
    ],
)
def test_what_is_refused(variable: str, value: str, told: str) -> None:
    with pytest.raises(BadInput) as from_env:
        Settings.from_env({variable: value})
    assert f"{variable} {told}" in str(from_env.value)
    assert str(from_env.value).isprintable()
    with pytest.raises(BadInput, match=variable):
        Settings(**{"bootstrap_servers" if variable == SERVERS else "topic_prefix": value})


@pytest.mark.parametrize("value", [None, 9092, b"a:1"])
def test_what_is_no_text(value: object) -> None:
    with pytest.raises(BadInput, match=f"{SERVERS} must be a text, not "):
        Settings(bootstrap_servers=value)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=f"{PREFIX} must be a text, not "):
        Settings(topic_prefix=value)  # type: ignore[arg-type]


def test_the_longest_prefix_leaves_room_for_the_longest_topic() -> None:
    longest = Settings(topic_prefix="a" * LONGEST_PREFIX)
    assert max(len(longest.topic(topic)) for topic in Topic) == 249
    with pytest.raises(BadInput, match="characters long"):
        replace(longest, topic_prefix="a" * LONGEST_PREFIX + ".")
