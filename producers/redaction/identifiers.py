"""What names something in a record is a name: neither a place nor a text, since nothing redacts it. Pure."""

import re

from rollbook.producers.redaction.policy import holds_a_place
from rollbook.schemas.records.common import Source
from rollbook.schemas.records.run import Artifact
from rollbook.schemas.records.update import Checkpoint
from rollbook.schemas.types import INT63_MAX, ContractViolation, Part, called

_NAMES = frozenset(
    {
        "artifact_hash",
        "group_id",
        "incarnation",
        "last_update_id",
        "learner_id",
        "required_workers",
        "trajectory_id",
        "trajectory_ids",
        "update_id",
        "update_ids",
        "worker_id",
    }
)
_MORE_NAMES = frozenset({(Source, "id"), (Checkpoint, "id"), (Checkpoint, "digest"), (Artifact, "hash")})
_ID = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
"""As nearly all are; a record can name thousands."""


def is_identifier(part: type[Part], field: str) -> bool:
    """Whether this field of a record names something, so that it is published as it is."""
    return field in _NAMES or (part, field) in _MORE_NAMES


def check_identifiers(record: Part) -> None:
    """Raises ContractViolation for the first identifier of the record that is no name; it quotes none of it."""
    _check(type(record).__name__, "", record)


def check_update(update_id: object, rollout_id: object) -> None:
    """Raises ContractViolation for what can name no update."""
    if type(rollout_id) is not int or not 0 <= rollout_id <= INT63_MAX:
        told = str(rollout_id) if type(rollout_id) is int else f"it is {called(rollout_id)}, which"
        raise ContractViolation("Commit", "rollout_id", f"{told} is not the number of an iteration, from 0")
    if not isinstance(update_id, str) or not _ID.fullmatch(update_id):
        raise ContractViolation("Reserve", "update_id", "it must be a name of 1 to 256 characters on one line")
    _check_name("Reserve", "update_id", update_id)


def _check(record_type: str, path: str, part: Part) -> None:
    kind = type(part)
    for field in kind.model_fields:
        value = getattr(part, field)
        place = f"{path}.{field}" if path else field
        if isinstance(value, str):
            if is_identifier(kind, field):
                _check_name(record_type, place, value)
        elif isinstance(value, Part):
            _check(record_type, place, value)
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, Part):
                    _check(record_type, f"{place}.{index}", item)
                elif isinstance(item, str) and is_identifier(kind, field):
                    _check_name(record_type, f"{place}.{index}", item)


def _check_name(record_type: str, place: str, value: str) -> None:
    if _PLAIN.fullmatch(value):
        return
    if holds_a_place(value):
        problem = "it holds a path, a URL or an address"
    elif len(value.split()) > 1:
        problem = "it holds a text"
    else:
        return
    raise ContractViolation(
        record_type, place, f"{problem}, and an identifier is published as it is: use a name without / \\ ~ @ or a port"
    )
