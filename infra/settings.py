"""Settings and topic names: the leaf that every part may import. The one place that reads the environment."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.infra.misspelled import is_of_kubernetes, meant_by
from rollbook.schemas.errors import BadInput, EnvironmentFault

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"
DEFAULT_TOPIC_PREFIX = "rollbook."
DEFAULT_PARTITIONS = 4

# The largest record values. The topics admit a little more, since a broker counts key, headers and batch as well.
LIFECYCLE_MAX_BYTES = PAYLOAD_MAX_BYTES = 4 * 1024 * 1024
DECISION_MAX_BYTES = 8 * 1024 * 1024


class Topic(StrEnum):
    """The six topics of a prefix."""

    LIFECYCLE = "lifecycle"
    PAYLOADS = "payloads"
    DECISIONS = "decisions"
    LEDGER = "ledger"
    FRESHNESS = "freshness"
    DEAD_LETTERS = "dead-letters"


SERVERS_VARIABLE = "ROLLBOOK_BOOTSTRAP_SERVERS"
PREFIX_VARIABLE = "ROLLBOOK_TOPIC_PREFIX"
KAFKA_VARIABLE = "ROLLBOOK_KAFKA_"
"""With the name of a librdkafka setting behind it, in capitals and with underscores for its dots."""
FILE_VARIABLE = "ROLLBOOK_KAFKA_CONFIG"

CAPTURE_VARIABLE = "ROLLBOOK_CAPTURE"
CAPTURE_DIR_VARIABLE = "ROLLBOOK_CAPTURE_DIR"
CAPTURE_UPDATES_VARIABLE = "ROLLBOOK_CAPTURE_UPDATES"
CAPTURE_ROLLOUTS_VARIABLE = "ROLLBOOK_CAPTURE_ROLLOUTS"
CAPTURE_VARIABLES: Mapping[str, str] = {
    CAPTURE_VARIABLE: "RELAX_REPLAY_CAPTURE",
    CAPTURE_DIR_VARIABLE: "RELAX_REPLAY_CAPTURE_DIR",
    CAPTURE_UPDATES_VARIABLE: "RELAX_REPLAY_CAPTURE_STEPS",
    CAPTURE_ROLLOUTS_VARIABLE: "RELAX_REPLAY_CAPTURE_ROLLOUTS",
}
"""Ours, and the name that trainers may have set already: it counts where ours is not set, and empty is unset there."""
TOKEN_VARIABLE = "ROLLBOOK_DASHBOARD_TOKEN"
CACHE_VARIABLE = "ROLLBOOK_CACHE_DIR"
DATA_VARIABLE = "ROLLBOOK_DATA_DIR"
TRACEBACK_VARIABLE = "ROLLBOOK_TRACEBACK"
VARIABLES = (
    SERVERS_VARIABLE,
    PREFIX_VARIABLE,
    FILE_VARIABLE,
    *CAPTURE_VARIABLES,
    TOKEN_VARIABLE,
    CACHE_VARIABLE,
    DATA_VARIABLE,
    TRACEBACK_VARIABLE,
)
"""All by name, but for those of librdkafka's settings."""
_OURS = "ROLLBOOK_"

_PLACE = "the cluster has a variable of its own, ROLLBOOK_BOOTSTRAP_SERVERS"
_READING = "rollbook reads committed records from the offsets that it knows"
_EXACT = "exactly-once depends on it"
_OFFSETS = "the ledger topic says where the fold stands, and offsets are committed in its transactions alone"
_GROUP = "it says who folds which partition"
_WAITING = "clients have arguments for how long they wait"
_SESSION = "it is `rollbook processor run --session-timeout-ms`"
RESERVED: Mapping[str, str] = {
    "bootstrap.servers": _PLACE,
    "metadata.broker.list": _PLACE,
    "transactional.id": f"{_EXACT}; it is `rollbook processor run --name`",
    "transaction.timeout.ms": _EXACT,
    "enable.idempotence": _EXACT,
    "enable.gapless.guarantee": _EXACT,
    "acks": _EXACT,
    "request.required.acks": _EXACT,
    "isolation.level": _READING,
    "auto.offset.reset": _READING,
    "enable.partition.eof": _READING,
    "allow.auto.create.topics": "`rollbook topics create` makes the topics, with their settings",
    "group.id": _GROUP,
    "group.instance.id": f"{_GROUP}; it is `rollbook processor run --name`",
    "group.protocol": _GROUP,
    "group.remote.assignor": _GROUP,
    "partition.assignment.strategy": _GROUP,
    "session.timeout.ms": _SESSION,
    "heartbeat.interval.ms": _SESSION,
    "enable.auto.commit": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "delivery.timeout.ms": _WAITING,
    "message.timeout.ms": _WAITING,
    "message.max.bytes": "the contract bounds the records, and the topics are made for that",
    "queue.buffering.max.messages": "the clients bound what waits in one place of their own",
    "queue.buffering.max.kbytes": "the clients bound what waits in one place of their own",
}
"""The librdkafka settings that are not to be given, each with the reason."""
_SECRET = re.compile(r"password|passphrase|secret|jaas|\.pem$|oauthbearer\.config|kinit\.cmd")
_MANUAL = "librdkafka's CONFIGURATION.md"
_SERVER = re.compile(
    r"((plaintext|ssl|sasl_plaintext|sasl_ssl)://)?(\[[0-9a-f:.%]+\]|[^\s:/\[\]]+)(:(?P<port>\d{1,5}))?", re.IGNORECASE
)
_HIGHEST_PORT = 65_535
_OF_PYTHON = ("logger", "default.topic.config")
"""What Python's client takes objects for, and no texts."""
_KAFKA_NAME = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*|log_level", re.ASCII)

# Kafka's own rule for a topic's name, of which the prefix is the beginning.
_LEGAL_IN_A_TOPIC = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_LONGEST_TOPIC = 249
LONGEST_PREFIX = _LONGEST_TOPIC - max(len(topic.value) for topic in Topic)
_SHOWN = 60
_SHORTEST_WITHIN_WORDS = 4


@dataclass(frozen=True, slots=True)
class Settings:
    """Which cluster, which topics, and how to be let in. Build it with `Settings.from_env()` unless a test needs its
    own.

    `kafka` are librdkafka settings for every client, by name: security above all. Their values are shown nowhere.
    Raises BadInput for servers or a prefix that no cluster can have, and for settings that are not to be given.
    """

    bootstrap_servers: str = DEFAULT_BOOTSTRAP_SERVERS
    topic_prefix: str = DEFAULT_TOPIC_PREFIX
    kafka: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        _check(SERVERS_VARIABLE, self.bootstrap_servers, DEFAULT_BOOTSTRAP_SERVERS)
        _check(PREFIX_VARIABLE, self.topic_prefix, DEFAULT_TOPIC_PREFIX)
        if not all(map(_is_server, filter(None, map(str.strip, self.bootstrap_servers.split(","))))):
            raise BadInput(
                f"{SERVERS_VARIABLE} is {_quoted(self.bootstrap_servers)}, which names no host: set it to HOST:PORT, "
                f"several with commas, such as {DEFAULT_BOOTSTRAP_SERVERS}"
            )
        if not _LEGAL_IN_A_TOPIC.fullmatch(self.topic_prefix):
            raise BadInput(
                f"{PREFIX_VARIABLE} is {_quoted(self.topic_prefix)}, with which no topic's name can begin: use letters "
                f"of ASCII, digits, '.', '_' and '-' only, such as {DEFAULT_TOPIC_PREFIX}"
            )
        if len(self.topic_prefix) > LONGEST_PREFIX:
            raise BadInput(
                f"{PREFIX_VARIABLE} is {_quoted(self.topic_prefix)}, {len(self.topic_prefix)} characters long: use at "
                f"most {LONGEST_PREFIX}, since a topic's name has at most {_LONGEST_TOPIC}"
            )
        if self.kafka:
            _check_kafka(self.kafka)

    def client(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration of any Kafka client of rollbook: its own, what `kafka` adds or changes, and the cluster."""
        config = {**own, **dict(self.kafka), "bootstrap.servers": self.bootstrap_servers}
        tell = config.get("error_cb")
        if tell is not None and any(_is_secret(name) for name, _ in self.kafka):
            config["error_cb"] = lambda error: tell(self._without_secrets(error))
        return config

    def hidden(self, text: str) -> str:
        """The text without any secret of the settings."""
        for name, value in self.kafka:
            if _is_secret(name):
                text = _without(value, text)
        return text

    def unreachable(self, faults: "Iterable[KafkaError]", waited_s: float) -> EnvironmentFault:
        """Why a cluster gave no answer, from what librdkafka's error_cb heard meanwhile: it does not let us in, or
        nobody is there. Names the settings to look at, and shows no secret."""
        heard = [(fault.name(), self.hidden(fault.str())) for fault in faults]
        at = self.bootstrap_servers
        for name, text in heard:
            wrong = _settings_behind(name, text)
            if wrong:
                return EnvironmentFault(
                    f"the broker at {at} does not let us in ({text}): see {wrong} in {KAFKA_VARIABLE}* or "
                    f"{FILE_VARIABLE}"
                )
        if heard and all(name == "_ALL_BROKERS_DOWN" for name, _ in heard):  # it was there, and said nothing
            return EnvironmentFault(
                f"what listens at {at} hangs up on us: see whether it is a Kafka broker, and whether it wants another "
                f"security.protocol in {KAFKA_VARIABLE}* or {FILE_VARIABLE}"
            )
        return EnvironmentFault(
            f"no Kafka broker answers at {at} (waited {waited_s:.0f} s): start one with `rollbook broker start`, or "
            f"set {SERVERS_VARIABLE} to a running cluster"
        )

    def missing(self, topic: str) -> str:
        """What is said wherever a topic is not there, with the remedy."""
        return (
            f"topic {topic} does not exist on {self.bootstrap_servers}: run `rollbook topics create`, or set "
            f"{PREFIX_VARIABLE} to the prefix in use"
        )

    def is_refusal(self, fault: "KafkaError") -> bool:
        """Whether it says that a broker is there and does not let us in: to wait longer would not help."""
        return bool(_settings_behind(fault.name(), fault.str()))

    def _without_secrets(self, error: "KafkaError") -> "KafkaError":
        from confluent_kafka import KafkaError

        text = error.str()
        if self.hidden(text) == text:
            return error
        return KafkaError(error.code(), self.hidden(text), error.fatal(), error.retriable(), error.txn_requires_abort())

    def topic(self, topic: Topic) -> str:
        """The full name of a topic on the cluster."""
        return f"{self.topic_prefix}{topic.value}"

    @staticmethod
    def from_env(environ: Mapping[str, str] | None = None) -> "Settings":
        """Read the environment; unset means the default, empty is an error. A variable for a librdkafka setting counts
        more than the file's line for it. Raises BadInput also for a variable whose name is nearly one of ours."""
        env = os.environ if environ is None else environ
        check_names(env)
        kafka = {**dict(_kafka_of_file(env)), **dict(_kafka_of_variables(env))}
        return Settings(
            bootstrap_servers=env.get(SERVERS_VARIABLE, DEFAULT_BOOTSTRAP_SERVERS).strip(),
            topic_prefix=env.get(PREFIX_VARIABLE, DEFAULT_TOPIC_PREFIX).strip(),
            kafka=tuple(sorted(kafka.items())),
        )


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that is set, by the name that it was found under."""

    name: str
    value: str


def capture_variables(environ: Mapping[str, str] | None = None) -> Mapping[str, Variable]:
    """What is set of `CAPTURE_VARIABLES`, by our names. What the values mean is capture's to say."""
    env = os.environ if environ is None else environ
    check_names(env)
    found = {}
    for ours, theirs in CAPTURE_VARIABLES.items():
        if ours in env:
            found[ours] = Variable(ours, env[ours].strip())
        elif env.get(theirs, "").strip():
            found[ours] = Variable(theirs, env[theirs].strip())
    return found


def check_names(env: Mapping[str, str]) -> None:
    """Refuse what is a slip of the pen for one of our variables: its setting would silently not be in force.

    A name that resembles none of ours is somebody else's business, and so is what Kubernetes sets.
    """
    for name in env:
        known = name in VARIABLES or name.startswith(KAFKA_VARIABLE) or is_of_kubernetes(name)
        if name.startswith(_OURS) and not known:
            meant = meant_by(name, VARIABLES, KAFKA_VARIABLE)
            if meant:
                raise BadInput(f"{_plain(name)} is no variable of rollbook: set {_plain(meant)} instead, or unset it")


def cache_dir() -> Path:
    """Where fetched and verified files live (`ROLLBOOK_CACHE_DIR`): safe to delete, they are fetched again."""
    import platformdirs  # which clients never ask, and which takes longer to import than this module

    return Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_path("rollbook")).absolute()


def data_dir() -> Path:
    """Where data that must survive lives, such as the broker's logs (`ROLLBOOK_DATA_DIR`)."""
    import platformdirs

    return Path(os.environ.get(DATA_VARIABLE) or platformdirs.user_data_path("rollbook")).absolute()


def variable_for(setting: str) -> str:
    """The environment variable of a librdkafka setting."""
    return f"{KAFKA_VARIABLE}{setting.replace('.', '_').upper()}"


def _kafka_of_variables(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for variable, value in env.items():
        if variable.startswith(KAFKA_VARIABLE) and variable != FILE_VARIABLE and not is_of_kubernetes(variable):
            if not value.strip():
                raise BadInput(f"{_plain(variable)} is set but empty: unset it, or set it to a value")
            name = variable.removeprefix(KAFKA_VARIABLE).lower()
            yield name if name == "log_level" else name.replace("_", "."), value


def _kafka_of_file(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Lines of NAME=VALUE; what is wrong with one is told by its number, since any line may hold a secret."""
    if FILE_VARIABLE not in env:
        return
    path = Path(env[FILE_VARIABLE])
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8"
        raise BadInput(
            f"{FILE_VARIABLE} is {str(path)!a}, which cannot be read ({why}): set it to a file of lines NAME=VALUE"
        ) from None
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith("#"):
            name, _, value = (part.strip() for part in line.partition("="))
            if not value or not _KAFKA_NAME.fullmatch(name):
                raise BadInput(
                    f"{str(path)!a}, line {number}: not NAME=VALUE with the name of a librdkafka setting, such "
                    "as security.protocol=SASL_SSL"
                )
            yield name, value


@lru_cache(maxsize=16)
def _check_kafka(given: tuple[tuple[str, str], ...]) -> None:
    """First our own rules, then librdkafka's: it is asked to make clients of these settings, which connect nowhere."""
    for name, value in given:
        if name in RESERVED:
            raise BadInput(
                f"{_quoted(name)} ({variable_for(name)}, or a line of {FILE_VARIABLE}) is not to be set: "
                f"{RESERVED[name]}; remove it"
            )
        is_name = _KAFKA_NAME.fullmatch(name) and name not in _OF_PYTHON
        if not is_name or not "".join(value.splitlines()).isprintable():  # a PEM has lines
            raise BadInput(f"{_quoted(name)} is no librdkafka setting with a text for its value: see {_MANUAL}")
    from confluent_kafka import Consumer, KafkaException, Producer

    try:
        Producer({"log_level": 0, **dict(given)})
        Consumer({"log_level": 0, "group.id": "none", **dict(given)}).close()
    except KafkaException as fault:
        why = " ".join(fault.args[0].str().split())
        for name, value in given:
            why = _without(value, why) if _is_secret(name) else why
        # Kerberos is what it takes where no mechanism is named.
        unnamed = "GSSAPI" in why and not any(name in ("sasl.mechanism", "sasl.mechanisms") for name, _ in given)
        remedy = f"set {variable_for('sasl.mechanism')}, such as SCRAM-SHA-512" if unnamed else f"see {_MANUAL}"
        raise BadInput(
            f"the librdkafka settings of {KAFKA_VARIABLE}* or {FILE_VARIABLE} are refused by librdkafka ({why}): "
            f"{remedy}"
        ) from None


def _without(secret: str, text: str) -> str:
    """A secret of a few letters only where it stands alone: within words it would be shown by what is left out."""
    if len(secret) < _SHORTEST_WITHIN_WORDS:
        return re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    return text.replace(secret, "***")


def _is_server(text: str) -> bool:
    """Whether it has the form that librdkafka takes, with a port that there can be; its name is not looked up."""
    found = _SERVER.fullmatch(text)
    return found is not None and text.isprintable() and int(found["port"] or 0) <= _HIGHEST_PORT


def _is_secret(setting: str) -> bool:
    return _SECRET.search(setting) is not None


def _settings_behind(name: str, text: str) -> str:
    """The settings to look at after a refused log-in or TLS handshake; empty after anything else."""
    if name == "_AUTHENTICATION":
        # The listener names the mechanisms that it has; none where it asks nobody who he is.
        return "sasl.mechanism and security.protocol" if "AUTH_HANDSHAKE" in text else "sasl.username and sasl.password"
    if "connecting to a PLAINTEXT" in text:
        return "security.protocol"
    if name == "_SSL":
        return "ssl.ca.location, ssl.certificate.location and ssl.key.location"
    return ""


def _check(variable: str, value: object, example: str) -> None:
    if not isinstance(value, str):
        raise BadInput(f"{variable} must be a text, not {type(value).__name__}: set it to a value such as {example}")
    if not value.strip():
        raise BadInput(f"{variable} is set but empty: unset it, or set it to a value such as {example}")


def _plain(variable: str) -> str:
    """A variable's name as it is, or in quotes where it is an odd one."""
    return variable if re.fullmatch(r"[A-Za-z0-9_]{1,100}", variable) else _quoted(variable)


def _quoted(text: str) -> str:
    """Whatever is in it, as printable ASCII."""
    return ascii(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!a}..."
