"""Ids and times that clients mint."""

import secrets
import time
import uuid

from rollbook.producers.arrays import Whole, real
from rollbook.schemas.records.common import TrajectoryIdentity


def now_ms() -> int:
    """The client's clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, then random bits; so ids sort roughly by time of birth."""
    value = (now_ms() & (2**48 - 1)) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def new_identity(group_id: str, sample_index: Whole, group_expected: Whole) -> TrajectoryIdentity:
    """A fresh trajectory of a group: one an attempt, so a retried generation takes a new one."""
    return TrajectoryIdentity(
        trajectory_id=new_id(), group_id=group_id, sample_index=real(sample_index), group_expected=real(group_expected)
    )
