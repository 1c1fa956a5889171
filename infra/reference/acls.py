"""The page of the access rights: what each role may do, and why."""

from rollbook.infra.reference.markdown import code, page, table
from rollbook.infra.settings import DEFAULT_TOPIC_PREFIX, Settings
from rollbook.infra.topics.acl_table import ABOUT, RIGHTS, Named, Resource, Right, Role


def acls() -> str:
    """Every role with its rights."""
    blocks = []
    for role in Role:
        rows = ((_resource(right), ", ".join(right.operations), right.why) for right in RIGHTS if right.role is role)
        blocks += [f"## {role}", f"{ABOUT[role].capitalize()}.", table(("of", "operations", "why"), rows)]
    return page(
        "Access rights",
        f"From `infra/topics/acl_table.py`, with the prefix {code(DEFAULT_TOPIC_PREFIX)}. `rollbook topics acl` prints "
        "them as commands for Kafka's own tool; with `--apply` it sets them. Kafka judges by topic and not by record: "
        "whoever may write `lifecycle` may write any record there.",
        *blocks,
    )


def _resource(right: Right) -> str:
    if isinstance(right.on, Named):
        return f"{right.resource} {code(right.on.of(Settings()))}"
    if right.resource is Resource.TRANSACTIONAL_ID:
        return f"transactional ids that begin with {code(DEFAULT_TOPIC_PREFIX)}"
    return "the cluster" if right.on is None else f"topic {code(Settings().topic(right.on))}"
