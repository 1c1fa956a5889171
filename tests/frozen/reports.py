"""What a replay says, without what rounding on another machine may change and without words for people: the verdict,
and of each stage its outcome, what was compared, and where it first differs."""

from rollbook.replay.result import FieldResult, ReplayReport
from rollbook.tests.frozen.table import Entry


def stages_of(report: ReplayReport) -> Entry:
    """By rank and stage."""
    stages = {
        f"{rank.rank} {stage.stage}": " ".join((stage.outcome.value, *map(_field, stage.fields)))
        for rank in report.ranks
        for stage in rank.stages
    }
    return {"verdict": report.verdict.value, **stages}


def _field(field: FieldResult) -> str:
    compared = f"{field.field}={field.values}@{field.tolerance.atol:g}+{field.tolerance.rtol:g}"
    if field.first is None:
        return compared
    place = f"{field.first.sample_id}:{field.first.token_offset}"
    return f"{compared}!{field.diverging_values}/{field.diverging_samples}:{place}"
