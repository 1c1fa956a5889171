"""What a record names, whatever became of it: also one that the contract or a gate refused."""

from collections.abc import Iterator
from typing import Any

from rollbook.infra.looking.refold import Step
from rollbook.schemas.records.policy import Activate, ActivationAck, PolicyAbandoned, PolicyCommitted, PolicyPrepared

_TRAJECTORY = frozenset({"trajectory_id", "trajectory_ids"})
_UPDATE = frozenset({"update_id", "update_ids", "last_update_id"})


def names_trajectory(step: Step, trajectory_id: str) -> bool:
    """Whether the record names the trajectory."""
    return step.may_name(trajectory_id.encode()) and trajectory_id in _values(step.fields, _TRAJECTORY)


def names_update(step: Step, update_id: str) -> bool:
    """Whether the record names the update."""
    return step.may_name(update_id.encode()) and update_id in _values(step.fields, _UPDATE)


def policy_named(step: Step) -> int | None:
    """The policy that the record is about; a trajectory's or a learner's policy is not what its records are about."""
    if step.decision.record_type not in _OF_POLICIES:
        return None
    match step.record:
        case PolicyPrepared(version=version) | PolicyAbandoned(version=version):
            return version
        case PolicyCommitted(policy=policy) | Activate(policy=policy):
            return policy.version
        case ActivationAck(serves=serves) if serves is not None:
            return serves.version
    return None


_OF_POLICIES = {model.__name__ for model in (PolicyPrepared, PolicyCommitted, PolicyAbandoned, ActivationAck, Activate)}


def _values(fields: Any, names: frozenset[str]) -> Iterator[str]:
    if isinstance(fields, list):
        for one in fields:
            yield from _values(one, names)
    elif isinstance(fields, dict):
        for name, value in fields.items():
            if name in names:
                yield from value if isinstance(value, list) else (value,)
            else:
                yield from _values(value, names)
