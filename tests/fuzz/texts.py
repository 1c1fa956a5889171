"""What people and supervisors write: arguments, environment, files of settings and of names, and what one process hands
to another."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rollbook.infra.broker.config import NodeLayout
from rollbook.infra.broker.daemon import daemon_state
from rollbook.infra.broker.storage import cluster_id
from rollbook.infra.dead_letters import Place
from rollbook.infra.demo.processes.journal import Journal, Stage
from rollbook.infra.settings import FILE_VARIABLE, Settings
from rollbook.processors.address import Address
from rollbook.processors.dashboard.web.access import Access, is_from_elsewhere
from rollbook.producers.updates.handle import UpdateHandle
from rollbook.replay.audit.noted import noted_digest
from rollbook.replay.audit.rules import parse_instead
from rollbook.replay.capture.plan import CapturePlan
from rollbook.replay.engine.locate import wanted
from rollbook.replay.engine.selection import stage_of
from rollbook.replay.history.ranges import looks_like_range, parse_range
from rollbook.replay.prove.asked import read_asked
from rollbook.replay.prove.names import Name, Unfit, names_in
from rollbook.schemas.records.common import PolicyRef, TrajectoryIdentity
from rollbook.schemas.text import visible
from rollbook.tests.fuzz.jsons import changed as json_changed
from rollbook.tests.fuzz.target import Target, told

_SETTINGS = Settings()


def _text(data: bytes) -> str:
    """As the operating system hands over an argument: bytes that are no UTF-8 become surrogates."""
    return data.decode("utf-8", "surrogateescape")


def offset_range(data: bytes) -> bool:
    """Ranges are read as they are written."""
    text = _text(data)
    found = told(lambda: parse_range(text, _SETTINGS))
    assert found is None or looks_like_range(text)
    if found is None:
        return False
    again = parse_range(str(found), _SETTINGS)
    assert again == found
    assert str(again) == str(found)
    return True


def address(data: bytes) -> bool:
    """Addresses are read as they are written."""
    found = told(lambda: Address.parse(_text(data), "--http", 9400))
    if found is None:
        return False
    assert Address.parse(str(found), "--http", 9400) == found
    assert isinstance(found.is_loopback, bool)
    assert isinstance(found.is_everywhere, bool)
    told(lambda: Access(found, None))
    return True


def letter_place(data: bytes) -> bool:
    found = told(lambda: Place.parse(_text(data)))
    assert found is None or Place.parse(str(found)) == found
    return found is not None


def rules(data: bytes) -> bool:
    """Several, a line each."""
    found = told(lambda: parse_instead(_text(data).split("\n")))
    return found is not None


def digest(data: bytes) -> bool:
    found = told(lambda: noted_digest(_text(data), "chain head", "an audit printed it"))
    assert found is None or len(bytes.fromhex(found)) == 32
    return found is not None


def step(data: bytes) -> bool:
    told(lambda: stage_of(_text(data)))
    found = told(lambda: wanted(_text(data), None))
    return found is not None


def shown(data: bytes) -> bool:
    """Whatever a text is, it is shown on one line that prints."""
    text = visible(_text(data))
    assert text.isprintable()
    assert len(text) <= 12 * 200
    text.encode()
    return True


def host(data: bytes) -> bool:
    """Headers from nobody knows whom, a line each: Host, Origin, Authorization, cookie."""
    given: list[str | None] = [*data.decode("latin-1").split("\n"), None, None, None, None]
    access = Access(Address("127.0.0.1", 9401), "t" * 20, ("rollbook.example.org",))
    everywhere = Access(Address("0.0.0.0", 9401), "t" * 20)
    is_ours = access.is_ours(given[0])
    assert not is_ours or everywhere.is_ours(given[0]) or "rollbook.example.org" in (given[0] or "").lower()
    is_from_elsewhere(given[1], given[0])
    known = access.is_known(given[2], given[3])
    assert not known or "t" * 20 in (given[2] or "") or given[3] == access.ticket
    return is_ours


def names(data: bytes) -> bool:
    """A file of tasks that should be absent: what is taken names the same tasks when it is given one by one."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "names.txt"
        path.write_bytes(data)
        asked = told(lambda: read_asked(path))
    if asked is None:
        return False
    found = set(told(lambda: list(names_in(data.decode("utf-8-sig"))), Unfit) or ())
    assert {(one.text, one.is_hash) for one in found} == {
        *((one, True) for one in asked.prompt_hashes),
        *((one, False) for one in asked.task_ids),
    }
    again = "\n".join(json.dumps({"prompt_hash" if one.is_hash else "task_id": one.text}) for one in sorted(found))
    assert set(names_in(again)) == {Name(one.text, one.is_hash) for one in found}
    return True


def kafka_file(data: bytes) -> bool:
    """A file of Kafka settings: taken, or refused without showing a secret."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kafka.properties"
        path.write_bytes(data)
        found = told(partial(Settings.from_env, {FILE_VARIABLE: str(path)}))
        _hides_secrets(partial(Settings.from_env, {FILE_VARIABLE: str(path)}), data)
    return found is not None


def _hides_secrets(make: Callable[[], Settings], data: bytes) -> None:
    try:
        said = repr(make())
    except Exception as refusal:
        said = str(refusal)
    for line in data.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        secret = value.strip()
        if "password" in name and len(secret) > 8 and secret.isalnum():
            assert secret not in said, f"a secret is shown: {said}"


def environment(data: bytes) -> bool:
    """Variables, a line each."""
    return told(lambda: Settings.from_env(_variables(data))) is not None


def capture(data: bytes) -> bool:
    plan = told(lambda: CapturePlan.from_env(_variables(data)))
    if plan is None:
        return False
    assert isinstance(plan.wants_step(3, 0), bool)
    assert isinstance(plan.wants_rollout(2**70), bool)
    return True


def _variables(data: bytes) -> Mapping[str, str]:
    lines = (_text(line).partition("=") for line in data.replace(b"\x00", b"").split(b"\n"))
    return {name: value for name, sign, value in lines if name and sign}


def handle(data: bytes) -> bool:
    """An update as one process hands it to another."""
    found = told(lambda: UpdateHandle.from_json(data))
    assert found is None or UpdateHandle.from_json(found.to_json()) == found
    return found is not None


def journal(data: bytes) -> bool:
    """A worker's journal, of which a crash may have left anything: it opens, and goes on."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "worker.journal"
        path.write_bytes(data)
        found = Journal(path)
        attempts = found.at(*Stage)
        for attempt in attempts:
            found.note(attempt, Stage.FAILED)
        found.close()
        again = Journal(path)
        assert len(again.at(Stage.FAILED)) == len(attempts)
        again.close()
    return bool(attempts)


def broker_state(data: bytes) -> bool:
    """The file that says which process a broker is."""
    with TemporaryDirectory() as folder:
        NodeLayout(Path(folder)).state_file.write_bytes(data)
        return told(lambda: (daemon_state(Path(folder)),)) is not None


def broker_folder(data: bytes) -> bool:
    """The file in which Kafka notes the cluster's id."""
    with TemporaryDirectory() as folder:
        layout = NodeLayout(Path(folder))
        layout.log_dir.mkdir()
        layout.meta_properties.write_bytes(data)
        return told(lambda: cluster_id(layout)) is not None


def _seeds(*texts: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [text.encode() for text in texts]


def _journal_seed() -> list[bytes]:
    line = {
        "key": "v0-g1",
        "number": 1,
        "policy": {"version": 0, "artifact_hash": "w"},
        "identities": [{"trajectory_id": "t", "group_id": "g", "sample_index": 0, "group_expected": 2}],
        "stage": "begun",
    }
    assert PolicyRef(**line["policy"])  # type: ignore[arg-type]
    assert TrajectoryIdentity(**line["identities"][0])  # type: ignore[index]
    text = json.dumps(line).encode()
    return [text + b"\n", text + b"\n" + text.replace(b"begun", b"published") + b"\n", text[:-9]]


def _handle_seed() -> list[bytes]:
    item = {
        "trajectory_id": "t",
        "reason": "reserved",
        "revision_before": 1,
        "revision_after": 2,
        "state_after": "reserved",
    }
    filled = {
        "run_id": "r",
        "learner": {"learner_id": "l", "epoch": 1},
        "update_id": "u",
        "rollout_id": 0,
        "held": [item],
        "admitted": [{**item, "reason": "ok", "mean_abs_log_ratio": 0.25}],
        "refused": [],
        "reserve_part": 1,
        "admit_part": 0,
        "own_updates": 3,
        "after": None,
    }
    return [json.dumps(filled).encode(), json.dumps({**filled, "held": [], "admitted": [], "after": "u0"}).encode()]


def _state_seed() -> list[bytes]:
    state = {
        "process": {"pid": 4242, "started_ticks": 17, "boot_id": "b"},
        "folder": {"device": 1, "inode": 2},
        "port": 9092,
        "cluster_id": "c",
    }
    return [json.dumps(state).encode(), json.dumps({**state, "process": {**state["process"], "pid": 1}}).encode()]  # type: ignore[dict-item]


_HASH = "3f" * 32
TARGETS = (
    Target(
        "range",
        "TOPIC:PARTITION:START-END",
        _seeds(
            "lifecycle:0:0-100", "rollbook.payloads:3:-", "lifecycle:0:@2026-01-31T12:00:00Z-", "decisions:1:5-@2026"
        ),
        offset_range,
        words=(b"@2026-01-31T12:00:00+01:00", b"@0001-01-01", b"@9999-12-31T23:59:59.999999", b"@20260131T120000,5Z"),
    ),
    Target("address", "HOST:PORT", _seeds("127.0.0.1:9400", "[::1]:0", "localhost:65535", "[fe80::1%eth0]:1"), address),
    Target("letter-place", "--show PARTITION:OFFSET", _seeds("0:1234"), letter_place),
    Target(
        "rules",
        "--with NAME=VALUE",
        _seeds("max_lag=1", "max_lag=0\nlag_unit=ordinal\nmax_mean_abs_log_ratio=0.5\ndrift_gate=off"),
        rules,
        words=(b"max_lag=", b"lag_unit=depth", b"drift_gate=required", b"max_mean_abs_log_ratio=1e308"),
    ),
    Target("digest", "a digest that was noted: --head, --anchor-digest", _seeds(_HASH, f" {_HASH.upper()}\n"), digest),
    Target("step", "--step ROLLOUT:STEP and --stage NAME", _seeds("120:0", "loss.policy"), step),
    Target("visible", "any text that is shown", _seeds("a name", "\x1b[31m\u202e"), shown),
    Target(
        "host",
        "the dashboard's headers Host, Origin, Authorization, and its cookie",
        _seeds(
            "127.0.0.1:9401\nhttp://127.0.0.1:9401\nBearer " + "t" * 20 + "\n", "[::1]\n\n\n", "rollbook.example.org"
        ),
        host,
    ),
    Target(
        "names",
        "--absent FILE: a line each, JSON, or a table",
        _seeds(
            f"{_HASH}\ngsm8k-17\n# a comment\n",
            f'["{_HASH}", "task-1", {{"task_id": "t"}}]',
            f'{{"prompt_hash": "{_HASH}"}}\n"a text"\n',
            f'task_id,prompt_hash\nt1,{_HASH}\n"a,b",\n',
            f"{_HASH}  file.txt\nSHA256 (x) = {_HASH}\n",
            "task_id\tn\na\t1\n",
        ),
        names,
        words=(b"sha256:", b"task_id", b"prompt_hash", b'{"task_id": "x"}', _HASH.encode(), b"0" * 64, b"- ", b"..."),
    ),
    Target(
        "kafka-file",
        "ROLLBOOK_KAFKA_CONFIG: lines NAME=VALUE",
        _seeds(
            "# how to be let in\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=u\n"
            "sasl.password=hunter2hunter2\n",
            "socket.timeout.ms=5000\nclient.id = a b\n",
        ),
        kafka_file,
        words=(b"ssl.key.password=secretsecret\n", b"log_level=7\n", b"acks=all\n", b"linger.ms=", b"logger=x\n"),
    ),
    Target(
        "environment",
        "ROLLBOOK_* variables",
        _seeds(
            "ROLLBOOK_BOOTSTRAP_SERVERS=a:1,b:2\nROLLBOOK_TOPIC_PREFIX=team.\n",
            "ROLLBOOK_KAFKA_CLIENT_ID=x\nROLLBOOK_KAFKA_LOG_LEVEL=3\n",
        ),
        environment,
        words=(b"ROLLBOOK_KAFKA_", b"ROLLBOOK_KAFKA_CONFIG=/nowhere\n", b"ROLLBOOK_TOPIC_PREFIX="),
    ),
    Target(
        "capture",
        "ROLLBOOK_CAPTURE*, and what trainers may have set already",
        _seeds(
            "ROLLBOOK_CAPTURE=1\nROLLBOOK_CAPTURE_DIR=/tmp/x\nROLLBOOK_CAPTURE_UPDATES=7, 7:0,10-19\n",
            "RELAX_REPLAY_CAPTURE=yes\nRELAX_REPLAY_CAPTURE_DIR=y\nROLLBOOK_CAPTURE_ROLLOUTS=none\n",
        ),
        capture,
        words=(b"ROLLBOOK_CAPTURE=on\n", b"ROLLBOOK_CAPTURE_ROLLOUTS=", b"1-99999999999999"),
    ),
    Target("handle", "an update handed to another process", _handle_seed, handle, json_changed),
    Target("journal", "a demo worker's journal after a crash", _journal_seed, journal, json_changed),
    Target("broker-state", "a broker's state file", _state_seed, broker_state, json_changed),
    Target(
        "broker-folder",
        "Kafka's meta.properties",
        _seeds("version=1\ncluster.id=abc\nnode.id=1\n"),
        broker_folder,
        words=(b"cluster.id=",),
    ),
)
