"""The access rights on a cluster: as commands for Kafka's own tool, or set by us."""

import shlex
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package forgets to mark them as exported
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from rollbook.infra.settings import Settings
from rollbook.infra.topics.acl_table import Acl, Operation, Resource
from rollbook.infra.topics.admin import connect
from rollbook.schemas.errors import EnvironmentFault

_TIMEOUT_S = 10.0
_SETTLE_TIMEOUT_S = 30.0
_POLL_S = 0.05
_TYPES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
    Resource.CLUSTER: ResourceType.BROKER,  # the library's name for it
}
_OPERATIONS = {
    Operation.READ: AclOperation.READ,
    Operation.WRITE: AclOperation.WRITE,
    Operation.CREATE: AclOperation.CREATE,
    Operation.DELETE: AclOperation.DELETE,
    Operation.DESCRIBE: AclOperation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS: AclOperation.ALTER_CONFIGS,
}
_EVERY = None  # its type says that it takes texts only
ANYTHING = AclBindingFilter(
    ResourceType.ANY,
    _EVERY,  # type: ignore[arg-type]
    ResourcePatternType.ANY,
    _EVERY,  # type: ignore[arg-type]
    _EVERY,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def commands(acls: Sequence[Acl], settings: Settings) -> list[str]:
    """Lines for Kafka's `kafka-acls.sh`, one a resource, for who would rather set them so."""
    lines: dict[tuple[str, Resource, str, bool], list[str]] = {}
    for acl in dict.fromkeys(acls):
        lines.setdefault((acl.principal, acl.resource, acl.name, acl.is_prefix), []).append(acl.operation.value)
    return [
        shlex.join(
            (
                *("kafka-acls.sh", "--bootstrap-server", settings.bootstrap_servers, "--add"),
                *("--allow-principal", principal),
                *(word for operation in operations for word in ("--operation", operation)),
                *((f"--{resource}",) if resource is Resource.CLUSTER else (f"--{resource}", name)),
                *(("--resource-pattern-type", "prefixed") if is_prefix else ()),
            )
        )
        for (principal, resource, name, is_prefix), operations in lines.items()
    ]


def apply_acls(acls: Sequence[Acl], settings: Settings) -> None:
    """Add the entries; those that are there already stay. Returns when the cluster shows them all.

    Raises EnvironmentFault when the cluster has no authoriser, or does not let us.
    """
    client = connect(settings)
    wanted = [_binding(acl) for acl in dict.fromkeys(acls)]  # two roles of one user share some
    for future in client.create_acls(wanted, request_timeout=_TIMEOUT_S).values():
        _result(future)
    deadline = time.monotonic() + _SETTLE_TIMEOUT_S
    while not set(wanted) <= set(_all(client)):
        if time.monotonic() > deadline:
            raise EnvironmentFault(
                f"waited {_SETTLE_TIMEOUT_S:.0f} s for the access rights to be in force: check the cluster's log"
            )
        time.sleep(_POLL_S)


def _binding(acl: Acl) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if acl.is_prefix else ResourcePatternType.LITERAL
    operation = _OPERATIONS[acl.operation]
    return AclBinding(_TYPES[acl.resource], acl.name, pattern, acl.principal, "*", operation, AclPermissionType.ALLOW)


def _all(client: AdminClient) -> list[AclBinding]:
    found: list[AclBinding] = _result(client.describe_acls(ANYTHING, request_timeout=_TIMEOUT_S))
    return found


def _result(future: "Future[Any]") -> Any:
    try:
        return future.result(timeout=_SETTLE_TIMEOUT_S)
    except KafkaException as fault:
        raise EnvironmentFault(
            f"the cluster refused a request about access rights ({fault.args[0].str()}): it needs an authoriser "
            "(authorizer.class.name), and we a user who may alter the cluster"
        ) from fault
    except TimeoutError as fault:
        raise EnvironmentFault(
            f"the cluster did not answer within {_SETTLE_TIMEOUT_S:.0f} s: check its log, then try again"
        ) from fault
