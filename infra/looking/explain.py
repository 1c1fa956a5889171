"""The history of what an id names: the run folded again from its first record, watching the thing."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from rollbook.infra.looking.decisions import Wanted, last
from rollbook.infra.looking.place import Place
from rollbook.infra.looking.policy import PolicyPage, PolicyWatch
from rollbook.infra.looking.refold import refold
from rollbook.infra.looking.rows import with_rewards
from rollbook.infra.looking.trajectory import TrajectoryPage, TrajectoryWatch
from rollbook.infra.looking.update import UpdatePage, UpdateWatch
from rollbook.infra.settings import Topic
from rollbook.processors.ledger.store import Run
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.reward import RewardReady

Page: TypeAlias = TrajectoryPage | UpdatePage | PolicyPage

_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Explained:
    """What an id names, mostly one thing, and the last decision that the pages know of."""

    run_id: str
    pages: tuple[Page, ...]
    sequence: int
    chain_agrees: bool
    """Whether the fold ended in the chain of that decision: then it did what the processor did."""


def explain(place: Place, name: str) -> Explained:
    """What became of the trajectory, update or policy version of this name, over the run's decided records."""
    newest = last(place, 1, Wanted())
    if not newest:
        raise place.nothing("decision")
    decision = newest[0].decision
    topic = place.topic(Topic.LIFECYCLE)
    first = place.log.bounds(topic, place.partition).first
    records = place.log.read(topic, place.partition, first, decision.source.offset + 1)
    run, pages = look_up(name, records, place.run_id, place.partition, place.partitions)
    return Explained(
        run_id=place.run_id,
        pages=tuple(_with_rewards(place, page) for page in pages),
        sequence=decision.sequence,
        chain_agrees=run.head.chain == decision.chain,
    )


def look_up(
    name: str, records: Iterable[StoredRecord], run_id: str, partition: int, topic_partitions: int
) -> tuple[Run, list[Page]]:
    """The run at the end of the records, and a page for each thing that the name is of. Pure."""
    trajectory, update = TrajectoryWatch(name), UpdateWatch(name)
    policies = [PolicyWatch(int(name))] if name.isascii() and name.isdigit() and len(name) <= _MAX_DIGITS else []
    run = refold(records, run_id, partition, topic_partitions, (trajectory, update, *policies))
    pages: list[Page | None] = [trajectory.page(run), update.page(run), *(policy.page(run) for policy in policies)]
    return run, [page for page in pages if page is not None]


def _with_rewards(place: Place, page: Page) -> Page:
    """The raw rewards, read where the ledger says that they lie."""
    if isinstance(page, UpdatePage):
        offsets = {row.reward_offset for row in page.rows if row.reward_offset is not None}
        return replace(page, rows=with_rewards(page.rows, _rewards(place, offsets)))
    if isinstance(page, TrajectoryPage) and page.known is not None and page.known.reward_offset is not None:
        offset = page.known.reward_offset
        return replace(page, raw_reward=_rewards(place, {offset}).get((offset, page.id)))
    return page


def _rewards(place: Place, offsets: set[int]) -> dict[tuple[int, str], float]:
    found = {}
    for stored in place.log.read_at(place.topic(Topic.LIFECYCLE), place.partition, offsets):
        for item in decode_as(RewardReady, stored.value or b"").items:
            found[stored.offset, item.trajectory_id] = item.raw_reward
    return found
