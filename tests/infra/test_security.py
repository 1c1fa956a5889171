"""On a broker with authorisation on: each role does its work with the rights of `rollbook topics acl`, and no more."""

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from rollbook.infra.command import run
from rollbook.infra.doctor.checks import diagnose
from rollbook.infra.doctor.facts import Level
from rollbook.infra.doctor.look import look
from rollbook.infra.looking.place import Place
from rollbook.infra.settings import Settings, Topic, variable_for
from rollbook.infra.topics.acl_table import RIGHTS, Named, Operation, Resource, Role, acls_for
from rollbook.infra.topics.acls import apply_acls
from rollbook.infra.topics.admin import connect
from rollbook.infra.topics.topics import check_topics, create_topics
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.kafka import Cluster
from rollbook.processors.host.transaction import Transactions
from rollbook.processors.ledger.keys import position_key
from rollbook.producers import (
    Coordinator,
    FreshnessReader,
    Options,
    RewardService,
    RolloutWorker,
    Trainer,
    current_epoch,
    new_id,
    new_identity,
    read_payload,
)
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.restore import restore
from rollbook.schemas.codec import encode
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.common import PayloadRef
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.ledger import Position
from rollbook.schemas.records.policy import EvidenceKind
from rollbook.schemas.records.rollout import FinishReason
from rollbook.schemas.records.run import Admission, Artifact, ArtifactKind, DriftGate, InitialPolicy, LagUnit
from rollbook.tests.infra.secured import SECRET, Secured, secured_broker
from rollbook.tests.producers.test_freshness_reader import until
from rollbook.tests.producers.world import PATIENT, POLICY, RULE, SAMPLING, TASK, row
from rollbook.tests.replay.test_restore import made as made_file

STRANGER = "stranger"
ADMISSION = Admission(max_lag=1, lag_unit=LagUnit.DEPTH, max_mean_abs_log_ratio=0.2, drift_gate=DriftGate.OFF)
NAME = "processor-0"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Topics made, and every role's rights given to a user of its name."""
    with secured_broker(tmp_path_factory.mktemp("secured"), [*Role, STRANGER]) as broker:
        create_topics(broker.admin, 2)
        apply_acls([acl for role in Role for acl in acls_for(role, f"User:{role}", broker.admin)], broker.admin)
        yield broker


def environment(settings: Settings) -> dict[str, str]:
    given = {variable_for(name): value for name, value in settings.kafka}
    return {**os.environ, "ROLLBOOK_BOOTSTRAP_SERVERS": settings.bootstrap_servers, **given}


@contextmanager
def processor(settings: Settings, output: Path) -> Iterator[None]:
    """`rollbook processor run`, which ends well."""
    command = [sys.executable, "-m", "rollbook.infra.cli", "processor", "run", "--name", NAME]
    with output.open("wb") as sink:
        process = subprocess.Popen(command, env=environment(settings), stdout=sink, stderr=sink)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    assert code == 0, output.read_text(encoding="utf-8")


def decisions(settings: Settings, run_id: str) -> list[Decision]:
    with KafkaLog(settings) as log:
        place = Place(settings, log, run_id, 2, partition_of(run_id, 2))
        bounds = log.bounds(place.topic(Topic.DECISIONS), place.partition)
        return [one.decision for one in place.decisions().read(bounds.first, bounds.end)]


class Patient(Cluster):
    """Its transactions are not ended by the broker, however long the next processor takes to start."""

    def producer(self, name: str, timeout_ms: int) -> Any:
        return super().producer(name, max(timeout_ms, 60_000))


def die_in_a_transaction(settings: Settings) -> Transactions:
    """Records of a processor that has no end: the next one must be allowed to see whose they are, and to end them."""
    dead = Transactions(Patient(settings), SystemClock(), f"{settings.topic_prefix}processor-dead")
    dead.begin()
    for partition in range(2):
        position = encode(Position(next_offset=9, transactional_id=dead.name))
        dead.produce(settings.topic(Topic.LEDGER), partition, position_key(partition), position)
        for topic in (Topic.DECISIONS, Topic.FRESHNESS):
            dead.produce(settings.topic(topic), partition, b"r", b"never to be seen")
    dead._producer.flush(20)
    return dead


def test_a_restore_over_tls_is_the_restorers_and_lets_nothing_go_without_the_right(
    secured: Secured, tmp_path: Path
) -> None:
    files = [made_file(tmp_path / "lifecycle", {0: b"a", 1: b"b"}, partitions=2)]
    files += [made_file(tmp_path / "payloads", {1: b"p"}, topic=Topic.PAYLOADS, partitions=2)]
    for prefix, roles in (("restored.", (Role.RESTORER,)), ("not-restored.", (Role.READER, Role.WORKER))):
        admin = replace(secured.admin, topic_prefix=prefix)
        create_topics(admin, 2)
        apply_acls([acl for role in roles for acl in acls_for(role, f"User:{Role.RESTORER}", admin)], admin)
        user = replace(secured.tls_user(Role.RESTORER), topic_prefix=prefix)
        if roles == (Role.RESTORER,):
            done = restore(files, user)
            assert [(one.records, one.empty, one.end) for one in done.partitions] == [(2, 0, 2), (1, 1, 2)]
            continue
        with pytest.raises(EnvironmentFault, match="see that the user may delete records there") as refused:
            restore(files, user)
        assert SECRET not in str(refused.value)


def test_a_run_in_which_every_role_has_its_own_user(
    secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    run_id, group_id = f"run-{new_id()}", new_id()
    log = tmp_path / "processor.log"
    dead = die_in_a_transaction(secured.user(Role.PROCESSOR))
    with (
        processor(secured.user(Role.PROCESSOR), log),
        Coordinator(secured.user(Role.COORDINATOR), run_id, "c", options=PATIENT) as coordinator,
        RolloutWorker(secured.tls_user(Role.WORKER), run_id, "w", keep_tokens=True) as worker,
        RewardService(secured.user(Role.REWARD), run_id, "r", RULE) as rewards,
        Trainer(secured.user(Role.TRAINER), run_id, "t", options=PATIENT) as trainer,
        FreshnessReader(secured.tls_user(Role.WORKER), run_id) as freshness,
    ):
        artifact = Artifact(hash=POLICY.artifact_hash, kind=ArtifactKind.FILE)
        coordinator.configure(
            admission=ADMISSION,
            required_workers=["w"],
            initial_policy=InitialPolicy(version=POLICY.version, artifact=artifact),
        )
        contract = worker.register_contract(tokenizer="digits", template="plain", engine="toy 1.0", sampling=SAMPLING)
        worker.acknowledge(POLICY, EvidenceKind.FILE_HASH)
        for index in range(2):
            identity = new_identity(group_id, index, 2)
            worker.generated(
                identity,
                [row(index)],
                task=TASK,
                contract_hash=contract,
                finish_reason=FinishReason.STOP,
                rollout_partition_id="batch-0",
            )
            rewards.reward(identity.trajectory_id, float(index))
        trainer.start()
        with trainer.update(rollout_id=0) as update:
            update.claim(POLICY, max_groups=1, wait_s=30)
            loaded = update.load()
            assert len(loaded) == 2
            update.admit({one.trajectory_id: one.log_probs for one in loaded}, POLICY)
            update.start()
            update.step([one.trajectory_id for one in loaded])
        until(freshness, 2)
    read = decisions(secured.tls_user(Role.READER), run_id)
    assert [one.sequence for one in read] == list(range(1, len(read) + 1))
    assert {one.outcome for one in read} <= {Outcome.ACCEPTED, Outcome.PENDING}, "a reward may be quicker"
    assert read[-1].record_type == "Commit"
    told = capfd.readouterr()
    for text in (log.read_text(encoding="utf-8"), caplog.text, told.out, told.err):
        assert SECRET not in text
    assert f"ending the open transaction of {dead.name}" in log.read_text(encoding="utf-8")
    assert "records decided by this process" in log.read_text(encoding="utf-8")


def write(settings: Settings, topic: Topic, **config: object) -> KafkaError | None:
    """Try to put a record there; what the broker says."""
    told: list[KafkaError | None] = []
    producer = Producer(settings.client({"log_level": 0, "message.timeout.ms": 15_000, **config}))
    producer.produce(settings.topic(topic), b"value", b"key", 0, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(20) == 0
    return told[0]


def read(settings: Settings, topic: Topic) -> KafkaError | None:
    """Try to read the first record that is there; what the broker says."""
    quiet = {"enable.auto.commit": False, "log_level": 0}  # or its end would wait for a commit that nobody may make
    consumer = Consumer(settings.client({"group.id": "rollbook-reader", "enable.partition.eof": True, **quiet}))
    try:
        hidden: KafkaError | None = (
            consumer.list_topics(settings.topic(topic), timeout=10).topics[settings.topic(topic)].error
        )
        if hidden is not None:  # not even that it is there
            return hidden
        consumer.assign([TopicPartition(settings.topic(topic), 0, 0)])
        for _ in range(20):
            message: Message | None = consumer.poll(1)
            error = None if message is None else message.error()
            if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # about the group, which nobody needs to read
            if message is not None:
                return None if error is not None and error.code() == KafkaError._PARTITION_EOF else error
        raise AssertionError("neither a record nor a refusal")
    finally:
        consumer.close()


def use_transactions(settings: Settings, name: str) -> None:
    producer = Producer(settings.client({"transactional.id": name, "log_level": 0}))
    producer.init_transactions(10)


def operations(role: str, topic: Topic) -> set[Operation]:
    return {one for right in RIGHTS if right.role == role and right.on is topic for one in right.operations}


@pytest.mark.parametrize("topic", Topic)
@pytest.mark.parametrize("user", [*Role, STRANGER])
def test_a_user_writes_and_reads_what_its_role_says_and_nothing_else(secured: Secured, user: str, topic: Topic) -> None:
    settings, given = secured.user(user), operations(user, topic)
    if Operation.WRITE not in given:  # those who may are seen at work, and would leave rubbish here
        refused = write(settings, topic)
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    told = read(settings, topic)
    if Operation.READ in given:
        assert told is None
    else:
        assert told is not None
        assert told.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_the_table_leaves_decisions_and_transactions_to_the_processor() -> None:
    for topic in (Topic.DECISIONS, Topic.LEDGER, Topic.FRESHNESS, Topic.DEAD_LETTERS):
        assert [role for role in Role if Operation.WRITE in operations(role, topic)] == [Role.PROCESSOR]
    assert {right.role for right in RIGHTS if right.resource is Resource.TRANSACTIONAL_ID} == {Role.PROCESSOR}
    joining = {right.role for right in RIGHTS if isinstance(right.on, Named) and Operation.READ in right.operations}
    assert joining == {Role.PROCESSOR, Role.OPERATOR}


@pytest.mark.parametrize("user", [*(role for role in Role if role is not Role.PROCESSOR), STRANGER])
def test_nobody_but_the_processor_may_use_transactions(secured: Secured, user: str) -> None:
    with pytest.raises(KafkaException) as refusal:
        use_transactions(secured.user(user), f"{secured.admin.topic_prefix}{NAME}")
    assert refusal.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_processor_itself_only_under_its_names(secured: Secured) -> None:
    use_transactions(secured.user(Role.PROCESSOR), "rollbook.processor-of-mine")
    with pytest.raises(KafkaException) as refusal:
        use_transactions(secured.user(Role.PROCESSOR), "elsewhere")
    assert refusal.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_operator_sees_and_repairs_the_topics_and_looks_at_the_brokers(secured: Secured) -> None:
    operator = secured.user(Role.OPERATOR)
    assert check_topics(operator) == []
    assert create_topics(operator, repair=True).created == ()
    client = connect(operator)
    (future,) = client.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    assert "authorizer.class.name" in future.result(10)


def read_history(settings: Settings) -> None:
    with KafkaLog(settings) as log:
        log.bounds(settings.topic(Topic.LIFECYCLE), 0)


def make_worker(settings: Settings) -> None:
    RolloutWorker(settings, "run", "w", options=Options(connect_timeout_s=20))


def read_payload_of(settings: Settings) -> None:
    read_payload(settings, PayloadRef(topic="t", partition=0, offsets=(0,), size=1, sha256="0" * 64))


def refusal_of(ask: Callable[[Settings], object], settings: Settings) -> str:
    with pytest.raises(EnvironmentFault) as refusal:
        ask(settings)
    return str(refusal.value)


ASKING: tuple[Callable[[Settings], object], ...] = (
    check_topics,
    make_worker,
    read_history,
    read_payload_of,
    lambda settings: current_epoch(settings, "run", "t"),
)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("password", "sasl.username and sasl.password"),
        ("user", "sasl.username and sasl.password"),
        ("certificate", "ssl.ca.location, ssl.certificate.location and ssl.key.location"),
        ("mechanism", "sasl.mechanism and security.protocol"),
        ("a plain listener", "security.protocol"),
    ],
)
def test_who_is_not_let_in_is_told_so_with_the_settings_and_without_the_secret(
    secured: Secured, wrong: str, named: str, capfd: pytest.CaptureFixture[str]
) -> None:
    known = secured.user(Role.WORKER)
    settings = {
        "password": secured.user(Role.WORKER, f"{SECRET}-wrong"),
        "user": secured.user("nobody"),
        "certificate": secured.tls_user(Role.WORKER, trusting=False),
        "mechanism": replace(known, kafka=(*known.kafka[:1], ("sasl.mechanism", "SCRAM-SHA-512"), *known.kafka[2:])),
        "a plain listener": replace(secured.tls_user(Role.WORKER), bootstrap_servers=secured.admin.bootstrap_servers),
    }[wrong]
    with ThreadPoolExecutor(len(ASKING)) as together:  # each takes a second
        refusals = list(together.map(lambda ask: refusal_of(ask, settings), ASKING))
    for refusal in refusals:
        assert re.fullmatch(rf"the broker at {settings.bootstrap_servers} does not let us in \([^\n]*", refusal)
        assert refusal.endswith(f": see {named} in ROLLBOOK_KAFKA_* or ROLLBOOK_KAFKA_CONFIG")
        assert SECRET not in refusal
    told = capfd.readouterr()
    assert told.out + told.err == ""


@pytest.mark.parametrize("listener", ["sasl", "tls"])
def test_a_listener_that_wants_to_know_who_we_are_is_no_broker_that_is_down(secured: Secured, listener: str) -> None:
    settings = replace(secured.admin, bootstrap_servers=getattr(secured, listener))
    with pytest.raises(EnvironmentFault, match=r"hangs up on us: .*security\.protocol in ROLLBOOK_KAFKA_\*"):
        RolloutWorker(settings, "run", "w", options=Options(connect_timeout_s=1))


def test_rights_are_set_by_the_command_as_the_operators_admin(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment(secured.admin).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", "other.")
    theirs = secured.user(STRANGER)
    other = Settings(theirs.bootstrap_servers, "other.", theirs.kafka)
    create_topics(Settings(secured.admin.bootstrap_servers, "other."), 1)
    assert write(other, Topic.LIFECYCLE) is not None
    assert run(["topics", "acl", "--grant", f"worker=User:{STRANGER}", "--apply"]) == 0
    assert "# set: 5 entries" in capsys.readouterr().out
    assert write(other, Topic.LIFECYCLE) is None
    assert write(other, Topic.DECISIONS) is not None
    assert read(other, Topic.FRESHNESS) is None
    assert read(other, Topic.LEDGER) is not None
    assert write(secured.user(STRANGER), Topic.LIFECYCLE) is not None, "another prefix is another prefix"


def test_who_may_not_set_rights_is_told_so(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment(secured.user(Role.OPERATOR)).items():
        monkeypatch.setenv(name, value)
    assert run(["topics", "acl", "--grant", "worker=User:w", "--apply"]) == 3
    told = capsys.readouterr().err
    assert "a user who may alter the cluster" in told
    assert SECRET not in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--apply"], "--apply sets rights for users that exist"),
        (["--grant", "worker"], "'worker' is not ROLE=PRINCIPAL"),
        (["--grant", "cook=User:a"], "'cook=User:a' is not ROLE=PRINCIPAL"),
        (["--grant", "worker=Group:a"], "'worker=Group:a' is not ROLE=PRINCIPAL"),
    ],
)
def test_grants_that_mean_nothing(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "acl", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_the_commands_are_those_of_kafkas_own_tool(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "acl", "--grant", "processor=User:CN=p, O=x"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == (
        "kafka-acls.sh --bootstrap-server 127.0.0.1:9092 --add --allow-principal 'User:CN=p, O=x' --operation Write "
        "--transactional-id rollbook. --resource-pattern-type prefixed"
    )
    assert run(["topics", "acl", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == sum(len(acls_for(role, "User:x", Settings())) for role in Role)


def test_the_operator_may_run_the_doctor(secured: Secured) -> None:
    use_transactions(secured.user(Role.PROCESSOR), "rollbook.processor-of-mine")  # its topic is there from then on
    facts = look(secured.user(Role.OPERATOR))
    found = diagnose(facts)
    assert facts.internal
    assert [one for one in found if one.level is Level.UNSAFE] == []
    assert not any("authorizer" in one.problem for one in found), "there is one"
    with pytest.raises(EnvironmentFault, match=r"[Aa]uthorization failed"):
        look(secured.user(Role.READER))
