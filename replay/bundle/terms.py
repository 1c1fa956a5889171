"""`rollbook-terms.json`: each sample's share of the policy loss, so that a divergence of the loss names its sample.

Format 1.0.0 records the results of loss.policy as scalars, in which no sample can be told. Our extension lies in a file
of its own beside the format's three: a reader of 1.0.0 opens these by name and never sees it, the payloads stay exactly
what the format says (flat token tensors), and whoever copies the bundle's folder copies it too. It vouches for itself
(digest, bundle, rank, samples), since COMPLETE hashes the format's files alone. A bundle without it is as good, and
replay then says that the scalars cannot tell; deleting it does no harm.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np

from rollbook.replay.bundle.folder import Folder
from rollbook.replay.bundle.layout import max_json_bytes
from rollbook.replay.bundle.model import Digest, Id, Index, Many, Rank, Record
from rollbook.replay.bundle.problems import Problem, Refused
from rollbook.replay.bundle.strictjson import parse, render
from rollbook.replay.bundle.tensorfile import Tensor

TERMS: Final = "rollbook-terms.json"
Terms = Mapping[str, Sequence[float] | Tensor]
"""Values by name, one for each sample in index order."""
TermName = Literal["pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl", "value_loss", "value_clipfrac"]
_REMEDY = "delete it (the bundle is whole without it), or materialize again"


class SampleTerms(Record):
    """Masked means of each sample, in index order; in format 1.0.0 their sums are the scalars of loss.policy."""

    bundle_id: Id
    rank: Rank
    sample_ids: Many[Id]
    terms: dict[TermName, Many[float]]


class TermsFile(Record):
    """The file: `sha256` is that of `content` as it is written by itself."""

    terms_version: Literal["1"] = "1"
    content: SampleTerms
    sha256: Digest


def render_terms(index: Index, rank: int, terms: Terms) -> bytes:
    """The file's bytes. Raises pydantic's ValidationError for an unknown name or a value that is not finite."""
    content = SampleTerms.model_validate(
        {
            "bundle_id": index.bundle_id,
            "rank": rank,
            "sample_ids": [sample.sample_id for sample in index.samples],
            "terms": {name: [float(value) for value in values] for name, values in terms.items()},
        }
    )
    return render(TermsFile(content=content, sha256=_digest(content)))


def check_terms(index: Index, terms: Terms) -> tuple[Problem, ...]:
    """What is wrong with terms that are to be written."""
    found = ((name, len(values)) for name, values in terms.items() if len(values) != len(index.samples))
    return tuple(
        Problem(TERMS, name, f"{count} values for {len(index.samples)} samples", "give one value per sample")
        for name, count in found
    )


def read_terms(folder: Folder, index: Index, rank: int) -> dict[str, Tensor]:
    """float64 [samples] by name; empty where the bundle has no such file. Raises `Refused`."""
    if TERMS not in folder.names():
        return {}
    file = parse(TERMS, folder.read(TERMS, max_json_bytes(TERMS)), TermsFile)
    content = file.content
    whose = (content.bundle_id, content.rank, content.sample_ids)
    terms: dict[str, Tensor] = {name: np.asarray(values, np.float64) for name, values in content.terms.items()}
    problems = list(check_terms(index, terms))
    if _digest(content) != file.sha256:
        problems.append(Problem(TERMS, "sha256", "not that of its content: damaged or changed", _REMEDY))
    if whose != (index.bundle_id, rank, tuple(sample.sample_id for sample in index.samples)):
        problems.append(Problem(TERMS, "content", "of another bundle, rank or list of samples", _REMEDY))
    if problems:
        raise Refused(*problems)
    return terms


def _digest(content: SampleTerms) -> str:
    return hashlib.sha256(render(content)).hexdigest()
