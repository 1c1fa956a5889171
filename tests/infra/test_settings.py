"""Settings: what no cluster can have is refused by the name of its variable, wherever the settings come from."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from rollbook.infra.settings import FILE_VARIABLE, LONGEST_PREFIX, RESERVED, Settings, Topic, variable_for
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
        _ = Settings(bootstrap_servers=value) if variable == SERVERS else Settings(topic_prefix=value)


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


# What a password may look like, in every place where one can stand.
SECRET = "hunter2-$%=#"
SCRAM = {
    "ROLLBOOK_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "ROLLBOOK_KAFKA_SASL_MECHANISM": "SCRAM-SHA-256",
    "ROLLBOOK_KAFKA_SASL_USERNAME": "worker",
    "ROLLBOOK_KAFKA_SASL_PASSWORD": SECRET,
}


def test_any_setting_of_librdkafka_reaches_every_client() -> None:
    settings = Settings.from_env({**SCRAM, SERVERS: "a:1", "ROLLBOOK_KAFKA_LINGER_MS": "7"})
    assert settings.client({"linger.ms": 0, "group.id": "g"}) == {
        "linger.ms": "7",
        "group.id": "g",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "worker",
        "sasl.password": SECRET,
        "bootstrap.servers": "a:1",
    }
    assert Settings("a:1").client({"linger.ms": 0}) == {"linger.ms": 0, "bootstrap.servers": "a:1"}
    assert pickle.loads(pickle.dumps(settings)) == settings, "child processes get them whole"


def test_a_file_of_settings_of_which_a_variable_overrides_a_line(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"# ours\n\nclient.id = from-file\nsasl.password={SECRET}\nlinger.ms=3\n", encoding="utf-8")
    settings = Settings.from_env({FILE_VARIABLE: str(path), "ROLLBOOK_KAFKA_LINGER_MS": "5"})
    assert dict(settings.kafka) == {"client.id": "from-file", "sasl.password": SECRET, "linger.ms": "5"}


@pytest.mark.parametrize("line", [SECRET.replace("=", ""), "sasl.password=", f"Sasl Password={SECRET}", "\x00=1"])
def test_a_wrong_line_is_named_by_its_number_and_not_shown(line: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"linger.ms=1\n{line}\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"client.properties', line 2: not NAME=VALUE") as refusal:
        Settings.from_env({FILE_VARIABLE: str(path)})
    assert "hunter2" not in str(refusal.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"sasl.password=\xff")
    for name, why in (("nowhere", "No such file"), ("latin", "it is not UTF-8")):
        with pytest.raises(BadInput, match=rf"{FILE_VARIABLE} is .*{name}', which cannot be read \({why}"):
            Settings.from_env({FILE_VARIABLE: str(tmp_path / name)})


@pytest.mark.parametrize("name", RESERVED)
def test_what_would_break_rollbook_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(BadInput, match=rf"'{name}' \({variable_for(name)}, or .* is not to be set: .*; remove it"):
        Settings.from_env({variable_for(name): "1"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"ROLLBOOK_KAFKA_SASL_PASSWRD": SECRET}, r'No such configuration property: "sasl.passwrd"'),
        ({"ROLLBOOK_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, r"GSSAPI.*: set ROLLBOOK_KAFKA_SASL_MECHANISM, such as"),
        ({"ROLLBOOK_KAFKA_SECURITY_PROTOCOL": "TLS"}, r'Invalid value "TLS" for configuration property'),
        ({**SCRAM, "ROLLBOOK_KAFKA_SASL_USERNAME": " "}, r"ROLLBOOK_KAFKA_SASL_USERNAME is set but empty"),
        ({"ROLLBOOK_KAFKA_SECURITY_PROTOCOL": "SSL", "ROLLBOOK_KAFKA_SSL_KEY_PEM": SECRET}, r"ssl.key.pem failed"),
        ({"ROLLBOOK_KAFKA_SASL_PASSWORD": "x\x00"}, r"'sasl.password' is no librdkafka setting with a text"),
        ({"ROLLBOOK_KAFKA_MAX_POLL_INTERVAL_MS": "100"}, r"must be >= `session.timeout.ms`"),
        ({"ROLLBOOK_KAFKA_ERROR_CB": "print"}, r"No such configuration property"),
    ],
)
def test_what_librdkafka_would_not_take_is_told_before_anything_is_connected(given: dict[str, str], told: str) -> None:
    with pytest.raises(BadInput, match=told) as refusal:
        Settings.from_env(given)
    assert SECRET not in str(refusal.value)
    shown = None if refusal.value.__suppress_context__ else refusal.value.__context__
    assert shown is None, "a traceback would show librdkafka's own words"


def test_secrets_are_shown_nowhere() -> None:
    settings = Settings.from_env(SCRAM)
    assert SECRET not in f"{settings!r} {settings}"
    assert settings.hidden(f"refused: {SECRET}.") == "refused: ***."
    heard: list[KafkaError] = []
    tell = settings.client({"error_cb": heard.append})["error_cb"]
    tell(KafkaError(KafkaError._AUTHENTICATION, f"no such token {SECRET}", fatal=True))
    tell(KafkaError(KafkaError._TRANSPORT, "down"))
    assert [(one.code(), one.str(), one.fatal()) for one in heard] == [
        (KafkaError._AUTHENTICATION, "no such token ***", True),
        (KafkaError._TRANSPORT, "down", False),
    ]


def test_a_refusal_that_repeats_a_secret_is_told_without_it() -> None:
    settings = Settings.from_env(SCRAM)
    told = KafkaError(KafkaError._AUTHENTICATION, f"no such token {SECRET}")
    assert settings.is_refusal(told)
    assert "does not let us in (no such token ***)" in str(settings.unreachable([told], 5))


@pytest.mark.parametrize(
    "servers",
    ["127.0.0.1:99999", "http://kafka:9092", "kafka:port", "kafka:9092/topic", "a:1,b:", "::1", "kafka 1:9092"],
)
def test_what_names_no_server_is_told_before_anything_waits_for_it(servers: str) -> None:
    with pytest.raises(BadInput, match="which names no host: set it to HOST:PORT, several with commas, such as 127"):
        Settings(servers)


@pytest.mark.parametrize(
    "servers",
    ["kafka", "kafka_1.local:9092", "[::1]:9092", "SASL_SSL://b-1.example.org:9096", "a:1, b:2,", "10.0.0.1:1"],
)
def test_what_librdkafka_takes_for_servers_is_taken(servers: str) -> None:
    assert Settings(servers).bootstrap_servers == servers


def test_a_short_secret_is_not_shown_by_what_is_left_out_of_words() -> None:
    settings = Settings.from_env({**SCRAM, "ROLLBOOK_KAFKA_SASL_PASSWORD": "p"})
    assert settings.hidden("sasl_plaintext: password p refused") == "sasl_plaintext: password *** refused"
