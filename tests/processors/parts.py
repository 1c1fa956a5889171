"""The pieces that lifecycle records of tests are made of: same names in, same bytes out."""

import hashlib
from collections.abc import Sequence

from rollbook.schemas.digests import contract_hash
from rollbook.schemas.records.common import Header, PayloadRef, PolicyRef, Source, SourceKind, TrajectoryIdentity
from rollbook.schemas.records.rollout import Origin, Provenance, Segment, Span, TaskSource
from rollbook.schemas.records.run import GenerationContract, LogProbKind, RewardIdentity, Sampling

SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=64, log_probs=LogProbKind.RAW)
RULE = RewardIdentity(rule_id="exact", version="1", hash="rule-hash")
EPOCH_MS = 1_700_000_000_000
"""Client time of every record; it is information only."""


def sha(text: str) -> str:
    """A digest that belongs to a name."""
    return hashlib.sha256(text.encode()).hexdigest()


def policy(version: int, artifact_hash: str | None = None) -> PolicyRef:
    """A policy by version; its artifact is called weights-VERSION unless another hash is given."""
    return PolicyRef(version=version, artifact_hash=artifact_hash or f"weights-{version}")


def header(run: str, event_id: str, kind: SourceKind, writer: str) -> Header:
    """First field of a record."""
    return Header(run_id=run, event_id=event_id, occurred_at=EPOCH_MS, source=Source(kind=kind, id=writer))


def contract(head: Header, tokenizer: str = "tokenizer", named: str | None = None) -> GenerationContract:
    """A generation contract under its true hash, or under the one named."""
    true_hash = contract_hash(tokenizer=tokenizer, template="template", engine="engine", sampling=SAMPLING)
    return GenerationContract(
        header=head,
        contract_hash=named or true_hash,
        tokenizer=tokenizer,
        template="template",
        engine="engine",
        sampling=SAMPLING,
    )


def contract_named(tokenizer: str = "tokenizer") -> str:
    """The hash of `contract` with this tokenizer."""
    return contract_hash(tokenizer=tokenizer, template="template", engine="engine", sampling=SAMPLING)


def identity(trajectory_id: str, group: str, sample: int, of: int) -> TrajectoryIdentity:
    """Trajectory and group."""
    return TrajectoryIdentity(trajectory_id=trajectory_id, group_id=group, sample_index=sample, group_expected=of)


def segment(name: str, policies: Sequence[PolicyRef], active_tokens: int | None = None) -> Segment:
    """A training row of two model tokens for each policy, and a tool token after them."""
    spans = [
        Span(start=2 * at, end=2 * at + 2, origin=Origin.MODEL, policy=written) for at, written in enumerate(policies)
    ]
    end = 2 * len(policies)
    spans.append(Span(start=end, end=end + 1, origin=Origin.TOOL))
    return Segment(
        prompt_length=3,
        response_length=end + 1,
        spans=tuple(spans),
        active_tokens=end if active_tokens is None else active_tokens,
        tokens_digest=sha(f"tokens of {name}"),
        evidence_digest=sha(f"evidence of {name}"),
    )


def task(name: str) -> TaskSource:
    """The task that a group answers."""
    return TaskSource(task_id=f"task-{name}"[:256], prompt_hash=sha(f"prompt of {name}"), dataset="data/train", row=0)


PROVENANCE = Provenance(rollout_partition_id="batch-0", worker_id="worker-0")


def payload_ref(name: str) -> PayloadRef:
    """A reference to a payload that nobody reads."""
    return PayloadRef(topic="payloads", partition=0, offsets=(0,), size=8, sha256=sha(name))
