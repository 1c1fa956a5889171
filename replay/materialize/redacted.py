"""A redaction policy, carried out on everything that materialize writes: bundles, provenance, and the names of both.
Pure.

A row has one redacted name in all bundles of its update, so that what a step took over can still be told.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from rollbook.replay.bundle.convention import RewardOnly, Unmeasured
from rollbook.replay.bundle.model import Sample
from rollbook.replay.bundle.redaction import Redactor
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.materialize.provenance import Provenance, UsedPayload
from rollbook.schemas.records.payload import StepRecording

T = TypeVar("T", Sample, RewardOnly)
_SAMPLE, _UPDATE, _RUN = "sample_id", "update_id", "run_id"


@dataclass(frozen=True, slots=True)
class PublicNames:
    """What a run and an update are called in file names and provenance. An update whose id must not be shown is named
    after the offset of its Commit, which is different for each."""

    run_id: str
    update_id: str

    @classmethod
    def of(cls, redactor: Redactor | None, run_id: str, update_id: str, commit_offset: int) -> "PublicNames":
        if redactor is None:
            return cls(run_id, update_id)
        shown = redactor.text(_UPDATE, update_id)
        return cls(
            redactor.text(_RUN, run_id) or "run", update_id if shown == update_id else f"at-offset-{commit_offset}"
        )


def sample_names(drafts: Iterable[Draft]) -> dict[str, str]:
    """Of all rows and members in an update's drafts, what they are called where their id is dropped."""
    names: dict[str, str] = {}
    for draft in drafts:
        samples = (sample.sample_id for sample in draft.index.samples)
        members = (member.sample_id for member in draft.index.cohort or ())
        for name in (*samples, *members):
            names.setdefault(name, f"s-{len(names)}")
    return names


def redacted(draft: Draft, redactor: Redactor, names: Mapping[str, str]) -> Draft:
    """The draft as the policy has it, which it states."""
    index = redactor.index(draft.index)
    pairs = zip(draft.index.samples, index.samples, strict=True)
    samples = tuple(_named(redactor, names, ours, done) for ours, done in pairs)
    changed: dict[str, object] = {"samples": samples}
    becomes = {ours.sample_id: done.sample_id for ours, done in zip(draft.index.samples, samples, strict=True)}
    if draft.index.cohort is not None and index.cohort is not None:
        members = zip(draft.index.cohort, index.cohort, strict=True)
        changed["cohort"] = tuple(_named(redactor, names, ours, done) for ours, done in members)
    if draft.index.unmeasured is not None:
        changed["unmeasured"] = tuple(
            Unmeasured(sample_id=becomes[one.sample_id], like=None if one.like is None else becomes[one.like])
            for one in draft.index.unmeasured
        )
    return replace(
        draft,
        index=index.model_copy(update=changed),
        producer=redactor.producer(draft.producer),
        redaction=dict(redactor.policy),
    )


def _named(redactor: Redactor, names: Mapping[str, str], ours: T, done: T) -> T:
    name = redactor.text(_SAMPLE, ours.sample_id) or names[ours.sample_id]
    return done.model_copy(update={_SAMPLE: name})


def redacted_provenance(provenance: Provenance, redactor: Redactor, public: PublicNames) -> Provenance:
    """Positions and digests stay: without the log they tell nothing, with it everything."""
    payloads = tuple(_payload(used, redactor, public) for used in provenance.payloads)
    changed = {_RUN: public.run_id, _UPDATE: public.update_id, "payloads": payloads}
    return provenance.model_copy(update=changed)


def _payload(used: UsedPayload, redactor: Redactor, public: PublicNames) -> UsedPayload:
    of_update = used.record_type == StepRecording.__name__
    subject = public.update_id if of_update else redactor.text(_SAMPLE, used.subject) or "dropped"
    return used.model_copy(update={"subject": subject})
