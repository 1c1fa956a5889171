"""Bundles as a strict reader has them of what drafts are written into, without a disk in between. Pure."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from rollbook.replay.bundle.bundle import Bundle, Cohort
from rollbook.replay.bundle.problems import Refused
from rollbook.replay.bundle.reading.reassembly import reassembled
from rollbook.replay.bundle.writing.drafts import Draft, check_ranks, files_of


def cohort_of(bundle_id: str, drafts: Mapping[int, Draft]) -> Cohort:
    """The bundles of all ranks of one step or rollout, by rank, named by `bundle_id`. Raises `Refused` with all for
    which they would not be written, so that what is never a bundle is never replayed as one."""
    if len(drafts) > 1 and (problems := check_ranks(drafts)):
        raise Refused(*problems)
    path = Path(bundle_id)
    return Cohort(path, bundle_id, reassembled(list(_bundles(path, drafts))))


def _bundles(path: Path, drafts: Mapping[int, Draft]) -> Iterator[Bundle]:
    for rank, draft in sorted(drafts.items()):
        # The files of one rank at a time are made and let go: only they are checked as a reader checks them.
        manifest = files_of(draft).manifest
        yield Bundle(
            path=path,
            rank=rank,
            expected_ranks=draft.expected_ranks,
            manifest=manifest,
            index=draft.index,
            expected=draft.expected,
            tensors={name: np.ascontiguousarray(tensor) for name, tensor in draft.tensors.items()},
            terms={name: np.asarray(values, np.float64) for name, values in draft.terms.items()},
        )
