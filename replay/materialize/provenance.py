"""`<bundle>.provenance.json`: every record of the log that a bundle was made from, so that it can be looked up again.

It depends on the bundle alone, not on the range that was asked for: the same step has the same bytes in every range.
"""

import os
import secrets
from pathlib import Path
from typing import Final

from rollbook.replay.bundle.model import ActorStepId, Count, Digest, Id, Many, Record, Text
from rollbook.replay.bundle.strictjson import render
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.text import visible

PROVENANCE_VERSION: Final = "1"


class Position(Record):
    """A record of the log and the sha256 of its value."""

    topic: Id
    partition: Count
    offset: Count
    sha256: Digest


class UsedDecision(Record):
    """The decision of a record; `chain` vouches for everything before it."""

    position: Position
    sequence: Count
    outcome: Id
    reason: Id
    chain: Digest


class UsedRecord(Record):
    """A lifecycle record that the bundle was made from."""

    record_type: Id
    position: Position
    decision: UsedDecision


class UsedPayload(Record):
    """A payload that the bundle was made from; `subject` is the trajectory, or the update for a recording."""

    record_type: Id
    subject: Id
    segment: Count | None
    chunks: Many[Position]
    bytes: Count
    sha256: Digest


class Provenance(Record):
    """Everything that one bundle, of all its ranks, was made from, each in the order of the log. Without an
    `actor_step_id` it is of an update."""

    provenance_version: Text = PROVENANCE_VERSION
    bundle_id: Id
    run_id: Id
    update_id: Id
    actor_step_id: ActorStepId | None
    ranks: Many[Count]
    records: Many[UsedRecord]
    payloads: Many[UsedPayload]


def provenance_path(bundle: Path) -> Path:
    """Where the provenance of a bundle lies: beside its folder, which stays exactly what its format says."""
    return bundle.with_name(f"{bundle.name}.provenance.json")


def write_provenance(path: Path, provenance: Provenance) -> None:
    """Write it whole or not at all; one that a crash left behind is replaced: the same step has the same bytes."""
    temporary = path.with_name(f".{path.name}.writing-{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as out:
            out.write(render(provenance))
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except OSError as error:
        raise EnvironmentFault(f"cannot write {visible(path)}: {error.strerror}; check disk and folder") from None
    finally:
        temporary.unlink(missing_ok=True)
