"""Redaction: what a bundle says about its origin, made fit to leave the cluster.

Tokens, prompts and responses have no place in a bundle at all. What could give something away are texts: labels, ids,
paths of weights, addresses. A policy says what becomes of them, and the manifest states it. HASH keeps what is equal
equal (sha256, with a key of yours an HMAC: without one a guess can be checked), TRUNCATE keeps the beginning, DROP
nothing.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from rollbook.replay.bundle.convention import RewardOnly, Unmeasured
from rollbook.replay.bundle.model import INDEX, MANIFEST, Identity, Index, Producer, Redaction, Sample
from rollbook.replay.bundle.problems import Problem
from rollbook.schemas.text import visible

LABEL, PATH, ENDPOINT, SECRET = "label", "path", "endpoint", "secret"
Policy = Mapping[str, Redaction]
DEFAULT_REDACTION: Final[Policy] = MappingProxyType(
    {
        LABEL: Redaction.HASH,
        PATH: Redaction.HASH,
        ENDPOINT: Redaction.HASH,
        SECRET: Redaction.DROP,
        "prompt": Redaction.DROP,
        "response": Redaction.DROP,
        "tool_output": Redaction.DROP,
    }
)
"""Labels, file paths and addresses hashed and what looks like a credential dropped, wherever they stand; the others are
never written."""

_KEPT_CHARS = 8
_OURS = re.compile(r"(hmac-)?sha256:[0-9a-f]{64}")
_HASHED = re.compile(rf"{_OURS.pattern}|[0-9a-f]{{64}}")
_KINDS = {
    SECRET: re.compile(
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\b(?:sk|hf|ghp|gho|ghs|glpat|xox[abp])[-_][A-Za-z0-9_-]{16,}"
        r"|\beyJ[A-Za-z0-9_-]{10,}\.|-----BEGIN |(?i:password|passwd|secret|token|api[_-]?key)\s*[=:]"
    ),
    ENDPOINT: re.compile(
        r"[A-Za-z][A-Za-z0-9+.-]*://|\S@\S|(?:localhost|(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}|[0-9]{1,3}(?:\.[0-9]{1,3}){3}):[0-9]{2,5}\b"
    ),
    PATH: re.compile(r"(?:^|[\s='\":,(])(?:file:|~?/|\.{1,2}/|[A-Za-z]:\\|\\\\)"),
}
"""What a text is, wherever it stands; the first that fits counts."""
_LISTS = ("rollout_partition_ids", "consumer_batch_ids", "semantic_group_ids", "normalization_cohort_ids")
_LINEAGE = ("rollout_weight", "actor_weight")
_PRODUCER = ("commit", "dirty_patch_digest", "torch_version")
_NEVER_WRITTEN = frozenset({"prompt", "response", "tool_output"})
FIELDS: Final = frozenset(
    {LABEL, *_KINDS, "sample_id", "micro_batch_id", "update_id", *_LISTS, *_LINEAGE, *_PRODUCER, *_NEVER_WRITTEN}
)
"""What a policy may name: fields of the format; `path`, `endpoint` and `secret`, any text that is one; and what is
never written."""


@dataclass(frozen=True, slots=True)
class Redactor:
    """A policy, applied. `key`: 16 bytes or more turn its hashes into HMACs; never written."""

    policy: Policy = field(default_factory=lambda: DEFAULT_REDACTION)
    key: bytes = field(default=b"", repr=False)

    def label(self, text: str) -> str:
        """A sample's label as `label_hash`: never as it is, whatever the policy says."""
        return self._done(text, self.policy.get(LABEL, Redaction.HASH)) if text else ""

    def index(self, index: Index) -> Index:
        """The index with the policy applied; what is redacted already stays as it is."""
        samples = tuple(self._sample(at, sample) for at, sample in enumerate(index.samples))
        changed: dict[str, object] = {"identity": self._identity(index.identity), "samples": samples}
        cohort = tuple(self._member(at, member) for at, member in enumerate(index.cohort or ()))
        if index.cohort is not None:
            changed["cohort"] = cohort
        if index.unmeasured is not None:
            names = {old.sample_id: new.sample_id for old, new in zip(index.samples, samples, strict=True)}
            names |= {old.sample_id: new.sample_id for old, new in zip(index.cohort or (), cohort, strict=True)}
            changed["unmeasured"] = tuple(self._unmeasured(one, names) for one in index.unmeasured)
        if index.links is not None:
            update_id = self.text("update_id", index.links.update_id) or "update"
            changed["links"] = index.links.model_copy(update={"update_id": update_id})
        return index.model_copy(update=changed)

    def producer(self, producer: Producer) -> Producer:
        return producer.model_copy(update={name: self.text(name, getattr(producer, name)) for name in _PRODUCER})

    def text(self, name: str, value: str) -> str:
        """A field's text: as the policy says of the field, or else of what the text is."""
        how = self.policy.get(name) or _by_kind(self.policy, value)
        return value if how is None or not value else self._done(value, how)

    def _sample(self, at: int, sample: Sample) -> Sample:
        batch = sample.micro_batch_id
        return sample.model_copy(
            update={
                "sample_id": self.text("sample_id", sample.sample_id) or f"s-{at}",
                "micro_batch_id": None if batch is None else self.text("micro_batch_id", batch) or None,
                "label_hash": self.label(sample.label_hash) if LABEL in self.policy else sample.label_hash,
            }
        )

    def _member(self, at: int, member: RewardOnly) -> RewardOnly:
        return member.model_copy(update={"sample_id": self.text("sample_id", member.sample_id) or f"c-{at}"})

    def _unmeasured(self, one: Unmeasured, names: Mapping[str, str]) -> Unmeasured:
        """Under the names that samples and members have now."""
        like = None if one.like is None else names.get(one.like, "") or self._missing(one.like)
        return Unmeasured(sample_id=names.get(one.sample_id, "") or self._missing(one.sample_id), like=like)

    def _missing(self, name: str) -> str:
        return self.text("sample_id", name) or "s-0"

    def _identity(self, identity: Identity) -> Identity:
        lists = {name: self._ids(name, getattr(identity, name)) for name in _LISTS}
        lineage = {name: self.text(name, getattr(identity.weight_lineage, name)) for name in _LINEAGE}
        return identity.model_copy(
            update={
                **lists,
                "micro_batch_ids": self._ids("micro_batch_id", identity.micro_batch_ids),
                "weight_lineage": identity.weight_lineage.model_copy(update=lineage),
            }
        )

    def _ids(self, name: str, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(done for done in (self.text(name, value) for value in values) if done)

    def _done(self, value: str, how: Redaction) -> str:
        if how is Redaction.DROP:
            return ""
        if how is Redaction.TRUNCATE:
            return value[:_KEPT_CHARS]
        if _OURS.fullmatch(value) and (not self.key or value.startswith("hmac-")):
            return value
        data = value.encode("utf-8", "surrogatepass")
        if self.key:
            return f"hmac-sha256:{hmac.new(self.key, data, hashlib.sha256).hexdigest()}"
        return f"sha256:{hashlib.sha256(data).hexdigest()}"


def check_policy(policy: Policy) -> Iterator[Problem]:
    """What a policy of ours names that nothing could be done about."""
    for name in policy:
        if name not in FIELDS:
            what = f"'{visible(name)}' is no field that can be redacted"
            yield Problem(MANIFEST, "redaction", what, f"name one of {', '.join(sorted(FIELDS))}")


def check_redacted(policy: Policy, index: Index, producer: Producer) -> Iterator[Problem]:
    """What a policy promises and a bundle that is to be written does not keep. Foreign names are left to their
    writer."""
    for position, sample in enumerate(index.samples):
        place = f"samples.{position}"
        yield from _kept(policy, LABEL, sample.label_hash, INDEX, f"{place}.label_hash")
        for name in ("sample_id", "micro_batch_id"):
            yield from _kept(policy, name, getattr(sample, name) or "", INDEX, f"{place}.{name}")
    for position, member in enumerate(index.cohort or ()):
        yield from _kept(policy, "sample_id", member.sample_id, INDEX, f"cohort.{position}.sample_id")
    for position, one in enumerate(index.unmeasured or ()):
        for name in ("sample_id", "like"):
            yield from _kept(policy, "sample_id", getattr(one, name) or "", INDEX, f"unmeasured.{position}.{name}")
    for name in _LISTS:
        for value in getattr(index.identity, name):
            yield from _kept(policy, name, value, INDEX, f"identity.{name}")
    for name in _LINEAGE:
        value = getattr(index.identity.weight_lineage, name)
        yield from _kept(policy, name, value, INDEX, f"identity.weight_lineage.{name}")
    if index.links is not None and (update_id := index.links.update_id) != "update":
        yield from _kept(policy, "update_id", update_id, INDEX, "links.update_id")
    for name in _PRODUCER:
        yield from _kept(policy, name, getattr(producer, name), MANIFEST, f"producer.{name}")


_KEPT: Mapping[Redaction, Callable[[str], bool]] = {
    Redaction.HASH: lambda value: value == "" or _HASHED.fullmatch(value) is not None,
    Redaction.TRUNCATE: lambda value: len(value) <= _KEPT_CHARS,
    Redaction.DROP: lambda value: value == "" or re.fullmatch(r"[cs]-[0-9]+", value) is not None,
}


def _kept(policy: Policy, name: str, value: str, file: str, place: str) -> Iterator[Problem]:
    how = policy.get(name) or (_by_kind(policy, value) if name != LABEL else None)
    if how is not None and not _KEPT[how](value):
        what = f"the redaction says {how}, and it was not done"  # the value stays out of the message
        yield Problem(file, place, what, "write with BundleWriter, or apply Redactor first")


def _by_kind(policy: Policy, value: str) -> Redaction | None:
    return next((policy[kind] for kind, looks in _KINDS.items() if kind in policy and looks.search(value)), None)
