"""What clients may tell the log: one treatment a kind of content, applied before anything leaves the process. Pure."""

import hashlib
import hmac
import re
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from rollbook.schemas.digests import IntArray, Mask, tokens_digest
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.rollout import TaskSource
from rollbook.schemas.records.run import Artifact, InitialPolicy, RewardIdentity

_KEPT_CHARACTERS = 24
_DIGEST = re.compile(r"^[0-9a-f]{64}$")
_ENDPOINT = re.compile(r"://|@[\w.-]+:\d+|^[\w.-]+\.[\w.-]+:\d+$|^\d+\.\d+\.\d+\.\d+(:\d+)?(/|$)")
_PATH = re.compile(r"^(/|~|\.{1,2}/|[A-Za-z]:[\\/]|\\\\)")
_PLAIN_SETTING = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^(true|false|none|null)$", re.IGNORECASE)
NO_DIGEST = "0" * 64
REDACTED_TOKEN = -1
"""Stands where a token id was, within a response that is otherwise kept."""


class Treatment(StrEnum):
    """What becomes of a content before it is published."""

    KEEP = "keep"
    HASH = "hash"
    TRUNCATE = "truncate"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Redaction:
    """What leaves the process in which form; by default nothing that was said, only hashes of it.

    `prompts`, `responses` and `tool_output` are token ids: they are kept whole, or not stored at all, and their digest
    stays (`drop`: not even that). `paths` and `endpoints` are recognised wherever names may hold them; `truncate` keeps
    the last part of a path, the scheme of an endpoint, and the beginning of other texts. Hashes are HMACs where there
    is a `key`: without one a short content can be found by trying.
    """

    prompts: Treatment = Treatment.HASH
    responses: Treatment = Treatment.HASH
    tool_output: Treatment = Treatment.HASH
    labels: Treatment = Treatment.HASH
    paths: Treatment = Treatment.HASH
    endpoints: Treatment = Treatment.HASH
    texts: Treatment = Treatment.HASH
    key: bytes = b""

    def __post_init__(self) -> None:
        for kind in ("prompts", "responses", "tool_output"):
            if getattr(self, kind) is Treatment.TRUNCATE:
                raise BadInput(f"Redaction: {kind} are token ids, which cannot be truncated: keep, hash or drop them")

    def keeping_tokens(self) -> "Redaction":
        """The same, with all token ids stored: for trainers that load them from the log."""
        kept = Treatment.KEEP
        return replace(self, prompts=kept, responses=kept, tool_output=kept)

    def text(self, value: str) -> str:
        """A free text."""
        return self._treat(self.texts, value, value[:_KEPT_CHARACTERS])

    def label(self, value: str) -> str:
        """Labels, or the digest of them that the caller made already."""
        if _DIGEST.match(value) and self.labels is not Treatment.DROP:
            return value
        if self.labels is Treatment.HASH and value:
            return self._digest(value)
        return self._treat(self.labels, value, value[:_KEPT_CHARACTERS])

    def name(self, value: str) -> str:
        """A name that may be a path or an endpoint; a mere name stays what it is. Never empty."""
        return self._place(value) or ("dropped" if value else "")

    def place(self, value: str) -> str:
        """Where something lies, whatever form that has."""
        return self._place(value, otherwise=self.paths)

    def setting(self, value: str) -> str:
        """A setting that deviates: numbers and switches stay, all else may be a prompt and is a free text."""
        return value if _PLAIN_SETTING.match(value) else self.text(value)

    def artifact(self, artifact: Artifact) -> Artifact:
        """The artifact with its uri treated."""
        return artifact.model_copy(update={"uri": self.place(artifact.uri)})

    def initial_policy(self, policy: InitialPolicy) -> InitialPolicy:
        """The initial policy with its names treated."""
        return policy.model_copy(update={"artifact": self.artifact(policy.artifact), "label": self.name(policy.label)})

    def rule(self, rule: RewardIdentity) -> RewardIdentity:
        """The reward identity with its names treated."""
        named = {name: self.name(getattr(rule, name)) for name in ("rule_id", "version", "hash")}
        return rule.model_copy(update=named)

    def task(self, task: TaskSource) -> TaskSource:
        """The task source with its names and the prompt's hash treated."""
        prompt_hash = self._digest_of(task.prompt_hash, dropped=self.prompts is Treatment.DROP)
        names = {"task_id": self.name(task.task_id), "dataset": self.name(task.dataset)}
        return task.model_copy(update={**names, "prompt_hash": prompt_hash})

    def stored_prompt(self, ids: IntArray, *, follows_tools: bool) -> IntArray:
        """The prompt's token ids as they are stored: all or none. `follows_tools`: a tool's output may be in them."""
        hidden = follows_tools and self.tool_output is not Treatment.KEEP
        return ids if self.prompts is Treatment.KEEP and not hidden else ids[:0]

    def stored_response(self, ids: IntArray, by_tool: Mask) -> IntArray:
        """The response's token ids as they are stored: all or none; those of tools may be hidden within them."""
        return self._hide(ids, by_tool) if self.responses is Treatment.KEEP else ids[:0]

    def digest_of_tokens(self, prompt: IntArray, response: IntArray, by_tool: Mask) -> str:
        """`tokens_digest` of what is stored; of all tokens where the response is not."""
        kept = self.responses is Treatment.KEEP
        over = self._hide(response, by_tool) if kept or self.tool_output is Treatment.DROP else response
        plain = tokens_digest(prompt, over)
        if kept and self.prompts is Treatment.KEEP:
            return plain
        return self._digest_of(plain, dropped=Treatment.DROP in (self.prompts, self.responses))

    def _hide(self, ids: IntArray, by_tool: Mask) -> IntArray:
        if self.tool_output is Treatment.KEEP:
            return ids
        return np.where(by_tool, np.int32(REDACTED_TOKEN), ids)

    def _digest_of(self, digest: str, *, dropped: bool) -> str:
        if dropped:
            return NO_DIGEST
        return self._digest(digest) if self.key else digest

    def _place(self, value: str, otherwise: Treatment = Treatment.KEEP) -> str:
        if _ENDPOINT.search(value):
            return self._treat(self.endpoints, value, value.split("://")[0] if "://" in value else "")
        short = re.split(r"[\\/]", value.rstrip("\\/"))[-1]
        return self._treat(self.paths if _PATH.match(value) else otherwise, value, short)

    def _treat(self, treatment: Treatment, value: str, short: str) -> str:
        if treatment is Treatment.KEEP or not value:
            return value
        if treatment is Treatment.DROP:
            return ""
        if treatment is Treatment.TRUNCATE:
            return short
        return f"sha256:{self._digest(value)}"

    def _digest(self, value: str) -> str:
        data = value.encode("utf-8", "surrogatepass")
        return hmac.new(self.key, data, "sha256").hexdigest() if self.key else hashlib.sha256(data).hexdigest()
