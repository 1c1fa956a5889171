"""The compose file, read and compared with what the code demands; no Docker is needed, and none is run."""

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.broker.config import NodeExtras
from rollbook.infra.doctor import cluster
from rollbook.infra.doctor.checks import diagnose
from rollbook.infra.doctor.facts import Level
from rollbook.infra.doctor.look import look
from rollbook.infra.settings import DEFAULT_BOOTSTRAP_SERVERS, SERVERS_VARIABLE, Settings
from rollbook.infra.topics.topics import create_topics, describe_topics
from rollbook.tests.structure.tree import PRODUCT, ROOT


def parse(text: str) -> dict[str, Any]:
    """The part of YAML that the file keeps to: maps by indentation, JSON or plain values, and `|` blocks."""
    root: dict[str, Any] = {}
    open_maps: list[tuple[int, dict[str, Any]]] = [(-1, root)]
    lines = iter([*text.splitlines(), "end:"])
    line = next(lines)
    while line != "end:":
        indent = len(line) - len(line.lstrip())
        following = next(lines)
        if line.strip() and not line.lstrip().startswith("#"):
            name, colon, value = line.strip().partition(":")
            assert colon, f"not NAME: VALUE: {line}"
            while open_maps[-1][0] >= indent:
                open_maps.pop()
            here = open_maps[-1][1]
            assert name not in here, f"twice: {line}"
            if value.strip() == "|":
                block = []
                while following.startswith(" " * (indent + 1)):
                    block.append(following.strip())
                    following = next(lines)
                here[name] = "\n".join(block)
            elif not value:
                here[name] = {}
                open_maps.append((indent, here[name]))
            else:
                here[name] = json.loads(value) if value.strip()[0] in '["{' else value.strip()
        line = following
    return root


COMPOSE = parse((ROOT / "compose.yaml").read_text(encoding="utf-8"))
KAFKA, PROCESSOR = COMPOSE["services"]["kafka"], COMPOSE["services"]["processor"]


def properties() -> dict[str, str]:
    """The node's settings, as the image makes them of its environment."""
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in KAFKA["environment"].items()
    }


def listeners(name: str) -> dict[str, str]:
    return dict(one.split("://") for one in properties()[name].split(","))


def test_it_is_a_kafka_and_a_processor() -> None:
    assert set(COMPOSE) == {"services", "volumes"}
    assert set(COMPOSE["services"]) == {"kafka", "processor"}
    assert [volume.split(":")[0] for volume in KAFKA["volumes"]] == list(COMPOSE["volumes"])
    assert KAFKA["volumes"][0].split(":")[1] == properties()["log.dirs"], "the data is what is kept"


def test_it_is_the_kafka_that_the_tests_run() -> None:
    locked = tomllib.loads((ROOT / "infra" / "broker" / "kafka.toml").read_text(encoding="utf-8"))
    version = next(c.split(":")[2] for c in _strings(locked) if c.startswith("org.apache.kafka:kafka_"))
    assert KAFKA["image"] == f"apache/kafka:{version}"


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in _strings(one)]
    if isinstance(value, list):
        return [text for one in value for text in _strings(one)]
    return [value] if isinstance(value, str) else []


def test_clients_outside_find_it_at_the_default_address_and_only_on_this_machine() -> None:
    assert listeners("advertised.listeners")["OUTSIDE"] == DEFAULT_BOOTSTRAP_SERVERS
    assert KAFKA["ports"] == [f"{DEFAULT_BOOTSTRAP_SERVERS}:9092"]
    assert listeners("listeners")["OUTSIDE"] == ":9092"


def test_the_processor_finds_it_inside() -> None:
    inside = PROCESSOR["environment"][SERVERS_VARIABLE]
    assert inside == listeners("advertised.listeners")["INSIDE"]
    assert inside.split(":")[0] in COMPOSE["services"]
    assert PROCESSOR["depends_on"] == ["kafka"]


def test_the_processor_is_made_of_every_part_and_makes_its_topics_first() -> None:
    copied = {line.split()[1] for line in PROCESSOR["build"]["dockerfile_inline"].splitlines() if "COPY" in line}
    assert copied == {"pyproject.toml", *PRODUCT}
    shell, option, command = PROCESSOR["command"]
    assert (shell, option) == ("sh", "-c")
    words = shlex.split(command)
    assert words[:4] == ["rollbook", "topics", "create", "&&"]
    assert words[4:8] == ["exec", "rollbook", "processor", "run"]


def test_the_nodes_settings_are_known_to_kafka_and_nothing_is_unsafe_there(tmp_path: Path) -> None:
    """The same settings on a node of ours: what is bound to the container is left out."""
    placed = ("listener", "log.dirs", "node.id", "process.roles", "controller.", "advertised", "inter.broker")
    own = {name: value for name, value in properties().items() if not name.startswith(placed)}
    assert len(own) == 5
    with EmbeddedBroker(extras=NodeExtras(properties=own)) as broker:
        settings = Settings(broker.bootstrap_servers)
        create_topics(settings)
        facts = look(settings)
        for state in describe_topics(settings):
            assert state.replication == int(own["offsets.topic.replication.factor"]), "one node, one copy"
        assert [one for one in diagnose(facts) if one.level is Level.UNSAFE] == []
        assert [one.problem.split(" ")[0] for one in cluster.broker_settings(facts)] == ["authorizer.class.name"]
        (seen,) = facts.brokers
        assert {name: seen.settings[name] for name in own} == own


@pytest.mark.parametrize("text", ["a: 1\na: 2", "a\n"])
def test_the_reading_of_it_is_strict(text: str) -> None:
    with pytest.raises(AssertionError):
        parse(text)
