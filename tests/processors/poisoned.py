"""Whatever may lie on the lifecycle topic and is no record that can be decided, with what must become of it."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from hypothesis import HealthCheck, Phase, find, settings

from rollbook.infra.settings import LIFECYCLE_MAX_BYTES
from rollbook.schemas.codec import MARKER, PREFIX_LENGTH, decode, encode, make
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.reward import RewardItem, RewardReady
from rollbook.schemas.registry import LIFECYCLE, RECORDS
from rollbook.schemas.types import Part
from rollbook.tests.processors.test_host import _header
from rollbook.tests.schemas.strategies import records

_QUICK = settings(
    database=None,
    deadline=None,
    derandomize=True,
    max_examples=5,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
"""The first that comes will do; to look for a smaller one takes minutes."""


@dataclass(frozen=True, slots=True)
class Poison:
    """A record, and the outcome that it must have."""

    partition: int
    key: bytes | None
    value: bytes | None
    outcome: str


@cache
def of_every_type(run_id: str) -> tuple[bytes, ...]:
    """A record of each type of the lifecycle topic, all of this run."""
    return tuple(encode(_in_run(_some(model), run_id)) for model in LIFECYCLE)


def _some(model: type[Part]) -> Part:
    return find(records(model), lambda _: True, settings=_QUICK)


def _in_run(drawn: Part, run_id: str) -> Part:
    plain = drawn.model_dump()
    plain["header"] |= {"run_id": run_id}
    return make(type(drawn), **plain)


def prefixes(run_id: str, partitions: int) -> Iterator[Poison]:
    """Every prefix of a record of each type, the empty one among them."""
    place = partition_of(run_id, partitions), run_id.encode()
    for value in of_every_type(run_id):
        yield from (Poison(*place, value[:length], "undecodable") for length in range(len(value)))


def bytes_of_all_kinds(run_id: str, partitions: int, count: int, seed: int) -> Iterator[Poison]:
    """Random bytes, plain and behind the mark of a schema that is known, unknown or not of this topic; tombstones."""
    dice = random.Random(seed)
    place = partition_of(run_id, partitions), run_id.encode()
    known = [value[:PREFIX_LENGTH] for value in of_every_type(run_id)]
    for _ in range(count):
        noise = dice.randbytes(dice.choice((0, 1, 9, 10, 11, 64, 500)))
        yield Poison(*place, noise, "undecodable")
        yield Poison(*place, MARKER + dice.randbytes(8) + noise, "undecodable")
        yield Poison(*place, dice.choice(known) + noise, "undecodable or invalid")
    strangers = [model for model in RECORDS if not issubclass(model, Lifecycle)]
    for model in strangers:
        value = encode(_some(model))
        assert type(decode(value)) is model
        yield Poison(*place, value, "undecodable")
    for key in (run_id.encode(), None, b"", b"\xff\x00"):
        yield Poison(place[0], key, None, "undecodable")
        yield Poison(place[0], key, b"", "undecodable")
    yield Poison(*place, bytes(LIFECYCLE_MAX_BYTES), "undecodable")
    yield Poison(*place, known[0] + bytes(LIFECYCLE_MAX_BYTES - PREFIX_LENGTH), "undecodable")


def misplaced(run_id: str, partitions: int) -> Iterator[Poison]:
    """Whole records under a wrong key, or in another partition than the run's."""
    right = partition_of(run_id, partitions)
    for value in of_every_type(run_id):
        for key in (None, b"", b"another", run_id.encode() + b"\x00", b"\xff\xfe"):
            yield Poison(right, key, value, "invalid")
        yield Poison((right + 1) % partitions, run_id.encode(), value, "invalid")


def maximal_rewards(run_id: str, number: int) -> bytes:
    """Rewards of so many trajectories that nobody has generated yet that the record is as large as one may be."""
    identity = {"rule_id": "rule", "version": "1", "hash": "h"}
    names = (f"{number:03}-{at:04}-".ljust(256, "t") for at in range(8_192))
    items = tuple(
        make(
            RewardItem,
            trajectory_id=name,
            raw_reward=1.0,
            components=({"name": "part".ljust(200, "n"), "value": 1.0},),
        )
        for name in names
    )
    record = make(RewardReady, header=_header(run_id, number), items=items, reward=identity, remote=False)
    return encode(record)
