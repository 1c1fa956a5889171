"""Redaction at the source: planted secrets reach no topic, and what is kept is what was asked for."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import (
    Options,
    Redaction,
    RolloutWorker,
    SegmentArrays,
    Trainer,
    Treatment,
    new_identity,
)
from rollbook.producers.clients.segments import prepare_all
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.schemas.codec import decode_as, encode
from rollbook.schemas.digests import ints_of, tokens_digest
from rollbook.schemas.errors import BadInput
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.convention import Conventions, NamedConvention, NamedValueLoss
from rollbook.schemas.records.decision import DeadLetter, Decision
from rollbook.schemas.records.payload import SegmentPayload
from rollbook.schemas.records.rollout import FinishReason, Origin, Span
from rollbook.schemas.records.run import RunConfigured
from rollbook.schemas.registry import LIFECYCLE, PAYLOADS
from rollbook.schemas.types import NamedNumber
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.planted import (
    SECRET,
    TOKENS,
    fields_holding,
    holding,
    publish_in_gate,
    publish_observed,
    text_fields,
)
from rollbook.tests.producers.world import PATIENT, POLICY, TASK, World, processor, read_topic, row, world
from rollbook.tests.replay.materialized import tree

KEEP, HASH, TRUNCATE, DROP = Treatment


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_bundles(settings: Settings, runs: Sequence[str], out: Path) -> None:
    with KafkaLog(settings) as log:
        reports = [materialize(log, Wanted.of_run(run_id, log, settings), out) for run_id in runs]
    assert all(report.written for report in reports)


@pytest.mark.parametrize("how", [HASH, TRUNCATE, DROP])
def test_no_topic_and_no_bundle_holds_a_secret(settings: Settings, how: Treatment, tmp_path: Path) -> None:
    tokens = DROP if how is DROP else HASH
    redaction = Redaction(tokens, tokens, tokens, labels=how, paths=how, endpoints=how, texts=how)
    options = replace(PATIENT, redaction=redaction)
    with processor(settings):
        runs = publish_in_gate(settings, options), publish_observed(settings, options)
    write_bundles(settings, runs, tmp_path)
    for secret in (SECRET.encode(), b"555-0101", TOKENS.tobytes()):
        assert holding(settings, secret) == []
        assert [path for path, data in tree(tmp_path).items() if secret in data] == []


IDS = frozenset(
    {
        "artifact_hash",
        "event_id",
        "group_id",
        "incarnation",
        "last_update_id",
        "learner_id",
        "required_workers",
        "topic",
        "trajectory_id",
        "trajectory_ids",
        "update_id",
        "update_ids",
        "worker_id",
    }
)
"""Fields that name something by contract, whatever record they are in; see the identifiers' own test."""
MORE_IDS = ("artifact.hash", "checkpoint.id", "checkpoint.digest", "source.id")


def is_identifier(field: str) -> bool:
    return field.split(".")[-1] in IDS or field.endswith(MORE_IDS)


def test_every_text_of_the_contract_is_planted_or_an_identifier(settings: Settings, tmp_path: Path) -> None:
    everything = replace(PATIENT, redaction=Redaction(KEEP, KEEP, KEEP, KEEP, KEEP, KEEP, KEEP))
    with processor(settings):
        runs = publish_in_gate(settings, everything), publish_observed(settings, everything)
    texts = {field for record_type in (*LIFECYCLE, *PAYLOADS) for field in text_fields(record_type)}
    assert fields_holding(settings, SECRET) == {field for field in texts if not is_identifier(field)}
    assert set(holding(settings, TOKENS.tobytes())) == {"payloads: SegmentPayload"}
    assert {where.split(":")[0] for where in holding(settings, SECRET.encode())} >= {"lifecycle", "payloads", "ledger"}
    write_bundles(settings, runs, tmp_path)
    assert any(SECRET.encode() in data for data in tree(tmp_path).values())


def test_what_is_refused_is_not_quoted(settings: Settings) -> None:
    """A writer that is no client of ours may send anything; the answers to it quote none of it."""
    with processor(settings), world(settings) as run:
        accepted = next(one for one in run.records() if isinstance(one, RunConfigured))
        wrong = accepted.but(pinned_contracts=(SECRET,))  # no client makes it
        producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
        for value in (SECRET.encode(), encode(accepted)[:-1] + SECRET.encode(), encode(wrong)):
            partition = partition_of(run.run_id, PARTITIONS)
            producer.produce(settings.topic(Topic.LIFECYCLE), value, run.run_id.encode(), partition)
        assert producer.flush(20) == 0
        run.coordinator.close_run()
    answers = [seen for topic in set(Topic) - {Topic.LIFECYCLE} for seen in read_topic(settings, topic)]
    assert {DeadLetter, Decision} <= {type(seen.record) for seen in answers if seen.value}
    assert not any(SECRET.encode() in seen.key + seen.value for seen in answers)


@pytest.mark.parametrize(
    ("treat", "redaction", "value", "becomes"),
    [
        (Redaction.text, Redaction(texts=DROP), "words", ""),
        (Redaction.text, Redaction(texts=KEEP), "words", "words"),
        (Redaction.text, Redaction(texts=TRUNCATE), "x" * 100, "x" * 24),
        (Redaction.text, Redaction(), "", ""),
        (Redaction.place, Redaction(), "", ""),
        (Redaction.place, Redaction(paths=TRUNCATE), "/home/me/weights.pt", "weights.pt"),
        (Redaction.place, Redaction(paths=TRUNCATE), "weights.pt", "weights.pt"),
        (Redaction.place, Redaction(paths=DROP), "weights.pt", ""),
        (Redaction.place, Redaction(endpoints=TRUNCATE), "s3://bucket/key", "s3"),
        (Redaction.place, Redaction(paths=KEEP), "/home/me", "/home/me"),
        (Redaction.place, Redaction(paths=TRUNCATE), "/home/me/my weights", "sha256:" + sha256("/home/me/my weights")),
        (Redaction.text, Redaction(texts=TRUNCATE), "cannot read /home/me: no", "cannot read"),
        (Redaction.text, Redaction(texts=TRUNCATE), "first line\nsecond line", "first line"),
        (Redaction.text, Redaction(texts=TRUNCATE), "key=sk-abc", "sha256:" + sha256("key=sk-abc")),
        (Redaction.name, Redaction(), "", ""),
        (Redaction.name, Redaction(), "sha256:" + "ab" * 32, "sha256:" + "ab" * 32),
        (Redaction.name, Redaction(paths=KEEP), "gsm8k/train", "gsm8k/train"),
        (Redaction.name, Redaction(paths=DROP), "gsm8k/train", "dropped"),
        (Redaction.name, Redaction(paths=TRUNCATE), "gsm8k/train", "train"),
        (Redaction.name, Redaction(endpoints=TRUNCATE), "https://host/key", "https"),
        (Redaction.name, Redaction(texts=KEEP), "odd ones", "odd ones"),
        (Redaction.name, Redaction(texts=TRUNCATE), "these are the odd ones of today", "these are the odd ones o"),
        (Redaction.name, Redaction(texts=DROP, paths=KEEP), "cannot read /home/me", "dropped"),
        (Redaction.name, Redaction(texts=KEEP, paths=DROP), "cannot read /home/me", "dropped"),
        (Redaction.name, Redaction(texts=KEEP, endpoints=TRUNCATE), "no answer of host:80 again", "no answer of"),
        (Redaction.fingerprint, Redaction(), "ab" * 32, "ab" * 32),
        (Redaction.fingerprint, Redaction(), "ab" * 20, "ab" * 20),
        (Redaction.fingerprint, Redaction(texts=DROP), "a1" * 30, "dropped"),
        (Redaction.name, Redaction(), "vllm 0.6.1.2", "vllm 0.6.1.2"),
        (Redaction.name, Redaction(paths=DROP), "/home/me", "dropped"),
        (Redaction.name, Redaction(paths=TRUNCATE), r"C:\models\llama", "llama"),
        (Redaction.name, Redaction(endpoints=DROP), "10.0.0.7:8000", "dropped"),
        (Redaction.name, Redaction(endpoints=DROP), "rewards.cluster.local:8000", "dropped"),
        (Redaction.setting, Redaction(), "0.7", "0.7"),
        (Redaction.setting, Redaction(), "-1e-3", "-1e-3"),
        (Redaction.setting, Redaction(), "True", "True"),
        (Redaction.label, Redaction(), "ab" * 32, "ab" * 32),
        (Redaction.label, Redaction(labels=DROP), "ab" * 32, ""),
        (Redaction.label, Redaction(labels=KEEP), "42", "42"),
        (Redaction.label, Redaction(), "", ""),
    ],
)
def test_what_becomes_of_a_text(
    treat: Callable[[Redaction, str], str], redaction: Redaction, value: str, becomes: str
) -> None:
    assert treat(redaction, value) == becomes


IDENTIFIERS = [
    "incomplete_group",
    "too-long",
    "iteration-12",
    "120",
    "v2",
    "0.1.0",
    "2.4.1+cu121",
    "vllm 0.6.1.post1",
    "Qwen2.5-0.5B",
    "DeepSeek-R1-Distill-Qwen-32B-20250101",
    "019ab4de-1234-7abc-8def-0123456789ab",
    "a" * 64,
]
NOT_IDENTIFIERS = [
    "the prompt leaked the customer's phone 555-0101",
    "555-0101",
    "phone-555-0101",
    "+4915112345",
    "key=sk-abc123",
    "sk-abc123",
    "AKIAIOSFODNN7EXAMPLE",
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYz12345678",
    "0123456789abcdef0123",
    "data/customer-acme/train.jsonl",
    r"data\customer",
    "~me",
    "host:8000",
    "10.0.0.7",
    "host 10.0.0.7",
    "[::1]:8000",
    "user@host:secret",
    "user@host",
    "odd ones",
    "two\nlines",
    "one\n",
    "a" * 65,
    "Schlüssel",
    " ",
]


@pytest.mark.parametrize("value", IDENTIFIERS)
def test_a_short_identifier_stays_whatever_the_policy(value: str) -> None:
    assert Redaction(texts=DROP, paths=DROP, endpoints=DROP).name(value) == value


@pytest.mark.parametrize("value", NOT_IDENTIFIERS)
def test_any_other_name_is_treated(value: str) -> None:
    assert Redaction().name(value) == f"sha256:{sha256(value)}"
    assert Redaction(texts=DROP, paths=DROP, endpoints=DROP).name(value) == "dropped"
    assert Redaction(texts=KEEP, paths=KEEP, endpoints=KEEP).name(value) == value


def test_a_convention_that_replay_knows_stays_and_any_other_is_a_name() -> None:
    known = NamedConvention(framework="trl", version="1.16.0", name="scale_rewards group")
    own = NamedConvention(framework="trl", version="1.16.0", name="the customer's own")
    value = NamedValueLoss(framework="openrlhf", version="0.11.2", name="value, token mean", clip=0.5)
    strict = Redaction(texts=DROP, paths=DROP, endpoints=DROP)
    treated = strict.conventions(Conventions(advantages=known, loss=own, value_loss=value, gamma=0.5))
    assert (treated.advantages, treated.value_loss, treated.gamma) == (known, value, 0.5)
    assert treated.loss == own.model_copy(update={"name": "dropped"})


def test_names_that_the_treatment_makes_alike_are_numbered() -> None:
    numbers = [NamedNumber(name=name, value=0.0) for name in ("a b", "dropped-2", "c d", "format")]
    assert [one.name for one in Redaction(texts=DROP).named(numbers)] == ["dropped", "dropped-2", "dropped-3", "format"]


@pytest.mark.parametrize(
    ("treat", "value"),
    [
        (Redaction.text, "words"),
        (Redaction.name, "odd ones"),
        (Redaction.fingerprint, "my template"),
        (Redaction.name, "/mnt/models/llama"),
        (Redaction.name, "~/models"),
        (Redaction.name, "file:///tmp/x"),
        (Redaction.place, "weights.pt"),
        (Redaction.setting, "you are a helpful assistant"),
    ],
)
def test_by_default_it_is_a_hash_and_with_a_key_another(treat: Callable[[Redaction, str], str], value: str) -> None:
    plain, again, keyed = treat(Redaction(), value), treat(Redaction(), value), treat(Redaction(key=b"k"), value)
    assert plain == again != keyed
    assert plain.startswith("sha256:")
    assert value not in plain


@pytest.mark.parametrize("kind", ["prompts", "responses", "tool_output"])
def test_token_ids_cannot_be_truncated(kind: str) -> None:
    with pytest.raises(BadInput, match=f"^Redaction: {kind} are token ids"):
        replace(Redaction(), **{kind: TRUNCATE})  # type: ignore[arg-type]


TOOL = Span(start=1, end=3, origin=Origin.TOOL)
SPANS = [Span(start=0, end=1, origin=Origin.MODEL, policy=POLICY), TOOL]
WITH_TOOL = SegmentArrays([1, 2], [7, 8, 9], [-0.5] * 3, [1, 0, 0], spans=SPANS)
AFTER = SegmentArrays([1, 2, 7, 8, 9], [4], [-0.5], policy=POLICY)


@pytest.mark.parametrize(
    ("redaction", "stored"),
    [
        (Redaction(), [([], []), ([], [])]),
        (Redaction().keeping_tokens(), [([1, 2], [7, 8, 9]), ([1, 2, 7, 8, 9], [4])]),
        (Redaction(responses=KEEP), [([], [7, -1, -1]), ([], [4])]),
        (Redaction(prompts=KEEP), [([1, 2], []), ([], [])]),  # a tool's output would be in the later prompt
        (Redaction(prompts=KEEP, tool_output=KEEP), [([1, 2], []), ([1, 2, 7, 8, 9], [])]),
        (Redaction(KEEP, KEEP, DROP), [([1, 2], [7, -1, -1]), ([], [4])]),
        (Redaction(prompts=DROP).keeping_tokens(), [([], [7, 8, 9]), ([], [4])]),
        (Redaction(tool_output=DROP).keeping_tokens(), [([1, 2], [7, -1, -1]), ([], [4])]),
        (Redaction(responses=DROP).keeping_tokens(), [([1, 2], []), ([1, 2, 7, 8, 9], [])]),
    ],
)
def test_which_token_ids_are_stored(redaction: Redaction, stored: list[tuple[list[int], list[int]]]) -> None:
    for segment, (prompt, response) in zip(prepare_all([WITH_TOOL, AFTER]), stored, strict=True):
        payload = decode_as(SegmentPayload, segment.payload("run-0", "t", redaction))
        assert ints_of(payload.prompt_ids).tolist() == prompt
        assert ints_of(payload.response_ids).tolist() == response
        assert len(payload.action_mask) == len(segment.response_ids), "replay needs the mask"
        if len(prompt) == len(segment.prompt_ids) and len(response) == len(segment.response_ids):
            assert segment.record(redaction).tokens_digest == tokens_digest(prompt, response)


def test_of_what_is_not_stored_there_is_a_digest_unless_it_is_dropped() -> None:
    (segment,) = prepare_all([WITH_TOOL])
    plain = tokens_digest([1, 2], [7, 8, 9])
    assert segment.record(Redaction()).tokens_digest == plain
    assert segment.record(Redaction(key=b"k")).tokens_digest != plain
    assert segment.record(Redaction(prompts=DROP)).tokens_digest == "0" * 64
    assert segment.record(Redaction(tool_output=DROP)).tokens_digest == tokens_digest([1, 2], [7, -1, -1])


def publish(run: World, options: Options, keep_tokens: bool) -> str:
    with RolloutWorker(run.settings, run.run_id, "worker-1", options=options, keep_tokens=keep_tokens) as worker:
        trajectory_id = worker.generated(
            new_identity("group-0", 0, 1),
            [row()],
            task=TASK,
            contract_hash=run.contract_hash,
            finish_reason=FinishReason.STOP,
            rollout_partition_id="batch-0",
        )
    run.rewards.reward(trajectory_id, 1.0)
    return trajectory_id


@pytest.mark.parametrize(
    ("redaction", "keep", "prompt", "response"),
    [
        (Redaction(), False, 0, 0),
        (Redaction(prompts=DROP, responses=DROP, key=b"k"), False, 0, 0),
        (Redaction(responses=KEEP), False, 0, 5),
        (Redaction(prompts=KEEP), False, 3, 0),
        (Redaction(), True, 3, 5),
        (Redaction(prompts=DROP), True, 0, 5),
    ],
)
def test_redacted_rows_load_and_are_trained_on(
    run: World, trainer: Trainer, redaction: Redaction, keep: bool, prompt: int, response: int
) -> None:
    trajectory_id = publish(run, Options(redaction=redaction), keep)
    with trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        (loaded,) = update.load()
        assert (len(loaded.segments[0].prompt_ids), len(loaded.segments[0].response_ids)) == (prompt, response)
        update.admit({trajectory_id: loaded.log_probs}, POLICY)
        update.start()
        update.step([trajectory_id])
    assert PolicyRef(version=0, artifact_hash="weights-0") in loaded.policies
