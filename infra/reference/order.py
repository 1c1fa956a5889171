"""The page of the records that do not commute: the table that the exhaustive test of orders knows no other than."""

from rollbook.infra.reference.markdown import code, page, table
from rollbook.tests.processors.order.pairs import PAIRS
from rollbook.tests.processors.order.steps import Kind

_BOTH_ABOUT = {
    Kind.TRAJECTORY: "a trajectory",
    Kind.UPDATE: "an update",
    Kind.LEARNER: "a learner",
    Kind.POLICY: "a policy",
    Kind.WORKER: "a worker",
    Kind.CONTRACT: "a contract",
    Kind.RUN: "the run",
    Kind.ORDINAL: "a learner, where lag is counted by ordinal",
    Kind.APART: "a group whose members may be kept apart",
    Kind.ROOM: "a run near `max_live`, `max_pending` or its horizon",
}


def order() -> str:
    """Every pair with what both are about, and why their order matters."""
    rows = ((_names(pair.records), _BOTH_ABOUT[pair.through], pair.why) for pair in PAIRS)
    return page(
        "Order",
        "From `tests/processors/order/pairs.py`. No order between producers is assumed: facts that come early wait for "
        "their turn. Two records about the same thing may end differently when they change places only if they are "
        "listed here; `tests/processors/order/` sends all pairs, and every order of small histories, and knows no "
        "other. Records of one producer keep their order.",
        table(("records", "both about", "why their order matters"), rows),
    )


def _names(records: frozenset[str]) -> str:
    first, *others = sorted(records)
    return " and ".join(map(code, (first, *others))) if others else f"{code(first)}, two of them"
