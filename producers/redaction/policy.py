"""What clients may tell the log: one treatment a kind of content, applied before anything leaves the process. Pure."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import numpy as np

from rollbook.producers.redaction.convention_names import is_public
from rollbook.schemas.digests import IntArray, Mask, tokens_digest
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.convention import Conventions, NamedConvention
from rollbook.schemas.records.payload import GrpoConfig, Kernel, RowTerms
from rollbook.schemas.records.rollout import TaskSource
from rollbook.schemas.records.run import Artifact, InitialPolicy, RewardIdentity
from rollbook.schemas.types import NamedNumber, NamedText

_KEPT_CHARACTERS = 24
_DIGEST = re.compile(r"[0-9a-f]{64}")
_OWN_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_FINGERPRINT = re.compile(r"(sha1:|sha256:)?([0-9a-f]{40}|[0-9a-f]{64})")
_VERSION = r"v?\d{1,3}(?:\.\d{1,3}){1,3}(?:[.+-]?[a-z]{1,5}\d{0,3}){0,2}"
# A word needs a letter, and a number is short: a telephone number has no letter and is long.
_NAME = re.compile(rf"(?=[^A-Za-z]*[A-Za-z])\w[\w.+-]{{0,63}}(?: {_VERSION})?|\d{{1,6}}|{_VERSION}", re.ASCII)
_KEY = re.compile(
    r"=|(?<![A-Za-z0-9])(?:sk-|[prs]k_(?:live|test)_|gh[oprsu]_|github_pat_|glpat-|xox[a-z]-|AKIA|AIza|ya29\.|eyJ)"
    r"|(?<![A-Za-z0-9])(?:(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{20}|\d{3}[.-]\d{4}(?!\w))"
)
"""Assignments, the beginnings of well-known access keys, long runs of letters and digits, telephone numbers."""
_ENDPOINT = re.compile(r"//|@|(?<![\w.])(?!0\.)\d+\.\d+\.\d+\.\d+(?![\w.])|[\w.\]-]:\d+(?!\w)")
_PATH = re.compile(r"[\\/~]")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{0,15})://")
_BREAK = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN_SETTING = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^(true|false|none|null)$", re.IGNORECASE)
NO_DIGEST = "0" * 64
REDACTED_TOKEN = -1
"""Stands where a token id was, within a response that is otherwise kept."""
Named = TypeVar("Named", NamedNumber, NamedText, RowTerms)
C = TypeVar("C", bound=NamedConvention)


class Treatment(StrEnum):
    """What becomes of a content before it is published."""

    KEEP = "keep"
    HASH = "hash"
    TRUNCATE = "truncate"
    DROP = "drop"


_STRICTNESS = (Treatment.KEEP, Treatment.TRUNCATE, Treatment.HASH, Treatment.DROP)


@dataclass(frozen=True, slots=True)
class Redaction:
    """What leaves the process in which form; by default nothing that was said, only hashes of it.

    `prompts`, `responses` and `tool_output` are token ids: they are kept whole, or not stored at all, and their digest
    stays (`drop`: not even that). `truncate` keeps the last part of a path, the scheme of an endpoint, and the start of
    other texts up to the first word that could be a key or a place; a hash where that is nothing. Hashes are HMACs
    where there is a `key`: without one a short content can be found by trying. The same content has the same hash, so
    that what is hashed still joins.

    Names, labels and reasons stay where they are short identifiers (see `name`). What identifies is the user's own
    name and always stays: ids of runs, trajectories, groups, learners, workers, services, coordinators, updates and
    checkpoints, incarnations, and hashes of artifacts and checkpoints. There paths, endpoints and texts of several
    words are refused (`rollbook.producers.redaction.identifiers`).
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
        """The same, with all token ids stored that are not dropped: for trainers that load them from the log."""
        prompts, responses, tool_output = (
            treatment if treatment is Treatment.DROP else Treatment.KEEP
            for treatment in (self.prompts, self.responses, self.tool_output)
        )
        return replace(self, prompts=prompts, responses=responses, tool_output=tool_output)

    def text(self, value: str) -> str:
        """A free text. What is none is left to the record that it is for, which refuses it by its field."""
        if not isinstance(value, str):
            return value
        return self._treat(self.texts, value, _beginning(value))

    def label(self, value: str) -> str:
        """Labels, or the digest of them that the caller made already."""
        if _DIGEST.fullmatch(value) and self.labels is not Treatment.DROP:
            return value
        if self.labels is Treatment.HASH and value:
            return self._digest(value)
        return self._treat(self.labels, value, _beginning(value))

    def name(self, value: str) -> str:
        """A name, a label or a reason. Never empty.

        It stays if it is an identifier: one word of at most 64 letters, digits and `_.+-`, a version behind it or not,
        that has not the look of a key or an address; or a short number, or a version. Anything else is a path
        (`paths`), an endpoint (`endpoints`) or a free text (`texts`); where it has the look of several, the strictest
        treatment of them is taken.
        """
        if not isinstance(value, str) or not value or _is_identifier(value):  # what is no text: see `text`
            return value
        found = _ENDPOINT.search(value), _PATH.search(value)
        is_text = not any(found) or len(value.split()) != 1 or bool(_BREAK.search(value) or _KEY.search(value))
        kinds = [self.endpoints] if found[0] else [self.paths] if found[1] else []
        treatment = max([*kinds, self.texts] if is_text else kinds, key=_STRICTNESS.index)
        return self._treat(treatment, value, _beginning(value) if is_text else _part(value)) or "dropped"

    def distinct(self, names: Iterable[str]) -> dict[str, str]:
        """What becomes of each of these names, numbered where that has made two alike."""
        treated: dict[str, str] = {}
        taken: set[str] = set()
        for name in dict.fromkeys(names):
            base = becomes = self.name(name)
            number = 1
            while becomes in taken:
                number += 1
                becomes = f"{base}-{number}"
            taken.add(becomes)
            treated[name] = becomes
        return treated

    def named(self, items: Sequence[Named]) -> tuple[Named, ...]:
        """Named values with their names treated, numbered where that has made two alike."""
        names = self.distinct(item.name for item in items)
        return tuple(item.model_copy(update={"name": names[item.name]}) for item in items)

    def fingerprint(self, value: str) -> str:
        """A hash that the caller made, or a name in its place."""
        return value if _FINGERPRINT.fullmatch(value) else self.name(value)

    def place(self, value: str) -> str:
        """Where something lies, whatever form that has."""
        return self._treat(self.endpoints if _ENDPOINT.search(value) else self.paths, value, _part(value))

    def setting(self, value: str) -> str:
        """A setting that deviates: numbers and switches stay, all else may be a prompt and is a free text."""
        return value if isinstance(value, str) and _PLAIN_SETTING.match(value) else self.text(value)

    def artifact(self, artifact: Artifact) -> Artifact:
        """The artifact with its uri treated."""
        return artifact.model_copy(update={"uri": self.place(artifact.uri)})

    def initial_policy(self, policy: InitialPolicy) -> InitialPolicy:
        """The initial policy with its names treated."""
        return policy.model_copy(update={"artifact": self.artifact(policy.artifact), "label": self.name(policy.label)})

    def rule(self, rule: RewardIdentity) -> RewardIdentity:
        """The reward identity with its names treated."""
        names = {"rule_id": self.name(rule.rule_id), "version": self.name(rule.version)}
        return rule.model_copy(update={**names, "hash": self.fingerprint(rule.hash)})

    def config(self, config: GrpoConfig) -> GrpoConfig:
        """The conventions of a step with their names treated."""
        return config.model_copy(
            update={name: self.name(getattr(config, name)) for name in ("advantage_estimator", "kl_loss_type")}
        )

    def conventions(self, conventions: Conventions) -> Conventions:
        """Named conventions with their names treated; those that replay knows by name are public and stay."""
        return conventions.model_copy(
            update={
                "advantages": self._convention(conventions.advantages),
                "loss": self._convention(conventions.loss),
                "value_loss": self._convention(conventions.value_loss),
            }
        )

    def kernel(self, kernel: Kernel) -> Kernel:
        """The code of a step with its names treated."""
        return kernel.model_copy(update={name: self.name(getattr(kernel, name)) for name in Kernel.model_fields})

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

    def _convention(self, named: C | None) -> C | None:
        if named is None or is_public(named):
            return named
        return named.model_copy(update={name: self.name(getattr(named, name)) for name in NamedConvention.model_fields})

    def _hide(self, ids: IntArray, by_tool: Mask) -> IntArray:
        if self.tool_output is Treatment.KEEP:
            return ids
        return np.where(by_tool, np.int32(REDACTED_TOKEN), ids)

    def _digest_of(self, digest: str, *, dropped: bool) -> str:
        if dropped:
            return NO_DIGEST
        return self._digest(digest) if self.key else digest

    def _treat(self, treatment: Treatment, value: str, short: str) -> str:
        if treatment is Treatment.KEEP or not value:
            return value
        if treatment is Treatment.DROP:
            return ""
        if treatment is Treatment.TRUNCATE and short:
            return short
        return f"sha256:{self._digest(value)}"

    def _digest(self, value: str) -> str:
        data = value.encode("utf-8", "surrogatepass")
        return hmac.new(self.key, data, "sha256").hexdigest() if self.key else hashlib.sha256(data).hexdigest()


def holds_a_place(value: str) -> bool:
    """Whether it has the look of a path or of an endpoint."""
    return bool(_ENDPOINT.search(value) or _PATH.search(value))


def _is_identifier(value: str) -> bool:
    if _OWN_HASH.fullmatch(value):
        return True
    return bool(_NAME.fullmatch(value)) and not _KEY.search(value) and not _ENDPOINT.search(value)


def _part(place: str) -> str:
    """The scheme of an endpoint, or the last part of a path; empty where that is no identifier either."""
    if _ENDPOINT.search(place):
        scheme = _SCHEME.match(place)
        return scheme[1] if scheme else ""
    last = re.split(r"[\\/]", place.rstrip("\\/"))[-1]
    return last if _is_identifier(last) else ""


def _beginning(text: str) -> str:
    """The first characters, within a line and before any word that could be a key, a path or an endpoint."""
    end = min(len(text), _KEPT_CHARACTERS)
    for word in re.finditer(r"\S+", text):
        if word.start() >= end:
            break
        if any(pattern.search(word[0]) for pattern in (_KEY, _ENDPOINT, _PATH)):
            end = word.start()
    broken = _BREAK.search(text, 0, end)
    return text[: broken.start() if broken else end].rstrip()
