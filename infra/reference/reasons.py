"""The page of the reasons, by stage of the pipeline."""

from rollbook.infra.reference.markdown import code, page, table
from rollbook.processors.reasons import BY_STAGE, STAGES


def reasons() -> str:
    """Every reason with its meaning."""
    blocks = []
    for stage, meanings in BY_STAGE.items():
        rows = ((code(reason), meaning) for reason, meaning in meanings.items())
        blocks += [f"## {stage}", STAGES[stage], table(("reason", "meaning"), rows)]
    return page(
        "Reasons",
        "From `processors/reasons.py`. Each decision has one reason, and each of its items has one; each belongs to "
        "the stage of the pipeline whose rule gives it. New versions add reasons, and never change what one means.",
        *blocks,
    )
