"""Several bundles as one chain: a rollout, its optimizer steps in order, and what each step took over from the rollout.

A step may pass by itself and still be wrong: it started from other rewards or advantages than its rollout made. So
between the two stands a hand-over.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollbook.replay.bundle.bundle import Cohort
from rollbook.replay.bundle.model import Index
from rollbook.replay.bundle.reading.cohort import read_cohort
from rollbook.replay.engine.engine import Watch, replay_cohort
from rollbook.replay.engine.handover import Handover, Recording, handover
from rollbook.replay.engine.installed import InstalledKernel
from rollbook.replay.engine.linked import members, named_by
from rollbook.replay.engine.locate import Coordinates, coordinates
from rollbook.replay.engine.result import Divergence, ReplayReport, Verdict, overall
from rollbook.replay.engine.selection import Selection
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

Told = Callable[[str, int, int], None]
"""Hears what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True)
class Link:
    """One bundle of the chain, and before it what each of its ranks took over."""

    at: Coordinates | None
    handovers: tuple[Handover, ...]
    report: ReplayReport


@dataclass(frozen=True, slots=True)
class ChainDivergence:
    """Where the chain first leaves what was recorded: within a bundle, or on the way to it."""

    bundle_id: str
    in_handover: bool
    divergence: Divergence


@dataclass(frozen=True, slots=True)
class ChainReport:
    path: Path
    verdict: Verdict
    links: tuple[Link, ...]
    first_divergence: ChainDivergence | None


@dataclass(frozen=True, slots=True)
class _Claim:
    """What an update's bundle says of itself, and of each step that it names."""

    by: str
    update_id: str
    of: str
    at: Coordinates | None


@dataclass(frozen=True, slots=True)
class _Rollout:
    name: str
    at: Coordinates | None
    recording: Recording


def replay_chain(
    path: Path,
    rollout: int | None = None,
    selection: Selection | None = None,
    watch: Callable[[], Watch | None] = lambda: None,
    kernels: Sequence[InstalledKernel] = (),
    told: Told = lambda *_: None,
) -> ChainReport:
    """Replay the bundles in the folder at `path` (of one rollout, where it is given), or the bundle there and those
    that it is linked to, in the order of the training. `watch` is asked for a watch of each bundle; `kernels` are run
    beside ours; `told` hears how many bundles are done.

    Raises like `read_cohort`, and `BadInput` where there is none or one names another that is not there.
    """
    paths = members(path, rollout)
    links = tuple(linked(_read(paths, told), selection, watch, kernels))
    first = first_of(links)
    verdict = overall([link.report.verdict for link in links])
    return ChainReport(path, verdict if first is None else Verdict.DIVERGES, links, first)


def linked(
    named: Iterable[tuple[str, Cohort]],
    selection: Selection | None = None,
    watch: Callable[[], Watch | None] = lambda: None,
    kernels: Sequence[InstalledKernel] = (),
) -> Iterator[Link]:
    """Replay bundles, each with its name, as they come in the order of the training. Raises `BadInput` where their
    links contradict one another."""
    rollouts: list[_Rollout] = []
    claims: list[_Claim] = []
    for name, cohort in named:
        index = cohort.bundles[0].index
        at = coordinates(index.identity)
        _agree(name, index, at, claims)
        claims += _claims(name, index, at)
        # The bundles are in order, so no later step starts from an earlier rollout: its arrays are let go.
        rollouts = [one for one in rollouts if at and one.at and one.at.rollout_id == at.rollout_id]
        handovers = _handovers(cohort, index, rollouts)
        if index.identity.actor_step_id is None:
            recording = Recording.of(cohort.bundle_id, cohort.bundles)
            rollouts.append(_Rollout(name, at, recording))
        yield Link(at, handovers, replay_cohort(cohort, selection, watch=watch(), kernels=kernels))


def first_of(links: Sequence[Link]) -> ChainDivergence | None:
    """The first divergence of a chain."""
    return next(_divergences(links), None)


def _read(paths: Sequence[Path], told: Told) -> Iterator[tuple[str, Cohort]]:
    names = {one.absolute().name for one in paths}
    for count, one in enumerate(paths):
        told("bundles", count, len(paths))
        cohort = read_cohort(one)
        for named in named_by(cohort.bundles[0].index):
            if named not in names:
                raise BadInput(
                    f"bundle {visible(one)} names bundle '{visible(named)}', which is not beside it: put it there, or "
                    "replay the bundle by itself"
                )
        yield one.absolute().name, cohort


def _claims(name: str, index: Index, at: Coordinates | None) -> Iterator[_Claim]:
    if index.links is None or at is None or index.identity.actor_step_id is not None:
        return
    yield _Claim(name, index.links.update_id, name, at)
    for step in index.links.step_bundles:
        yield _Claim(name, index.links.update_id, step.bundle_id, Coordinates(at.rollout_id, step.step_id))


def _agree(name: str, index: Index, at: Coordinates | None, claims: Sequence[_Claim]) -> None:
    """Raises `BadInput` where a step and its update's bundle contradict one another: numbers of two updates, or of
    another step, would be held against each other as if they belonged together."""
    links = index.links
    for claim in claims:
        if claim.of == name and claim.at != at:
            raise BadInput(
                f"bundle {visible(claim.by)} names '{visible(name)}' as that of {claim.at}, which is of {at}: "
                "correct the link, or replay the bundle by itself"
            )
        if links is None or (claim.of != name and claim.by != links.update_bundle):
            continue
        if claim.update_id != links.update_id:
            raise BadInput(
                f"bundle {visible(name)} is of update '{visible(links.update_id)}', and bundle {visible(claim.by)}, "
                f"which is linked to it, of update '{visible(claim.update_id)}': correct the links, or replay the "
                "bundle by itself"
            )


def _handovers(cohort: Cohort, index: Index, rollouts: Sequence[_Rollout]) -> tuple[Handover, ...]:
    if index.identity.actor_step_id is None:
        return ()
    upstream = _upstream(index, rollouts)
    return () if upstream is None else tuple(handover(upstream.recording, bundle) for bundle in cohort.bundles)


def _upstream(index: Index, rollouts: Sequence[_Rollout]) -> _Rollout | None:
    """The bundle that a step names as its update's, else the only one of its rollout."""
    if index.links is not None and index.links.update_bundle is not None:
        named = index.links.update_bundle
        found = next((one for one in rollouts if one.name == named), None)
        if found is None:
            raise BadInput(
                f"bundle {visible(index.bundle_id)} names '{visible(named)}' as its update's bundle, which is none of "
                "its rollout: correct the link, or replay the bundle by itself"
            )
        return found
    assert index.identity.actor_step_id is not None
    wanted = Coordinates(index.identity.actor_step_id.rollout_id)
    same = [one for one in rollouts if one.at == wanted]
    return same[0] if len(same) == 1 else None


def _divergences(links: Sequence[Link]) -> Iterator[ChainDivergence]:
    for link in links:
        for found in link.handovers:
            if found.divergence is not None:
                yield ChainDivergence(link.report.bundle_id, True, found.divergence)
        if link.report.first_divergence is not None:
            yield ChainDivergence(link.report.bundle_id, False, link.report.first_divergence)
