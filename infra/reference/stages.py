"""The pages of replay's stages: the table, and one page a stage."""

from rollbook.infra.reference.formulas import FORMULAS
from rollbook.infra.reference.markdown import code, fenced, page, table
from rollbook.replay.bundle.model import StageId
from rollbook.replay.stages.stage import Input, Output, Stage
from rollbook.replay.stages.table import STAGES
from rollbook.replay.stages.topologies import KNOWN_ESTIMATORS, SUPPORTED_ESTIMATORS


def stage_file(stage: StageId) -> str:
    """The page of a stage."""
    return f"stage-{stage.replace('.', '-').replace('_', '-')}.md"


def stages() -> str:
    """The chain at a glance, and what decides how a stage comes out."""
    rows = (
        (
            f"[{stage.id}]({stage_file(stage.id)})",
            stage.version,
            stage.capability,
            stage.scope,
            ", ".join(dict.fromkeys(code(one.name) for one in stage.inputs)),
            ", ".join(code(one.field) for one in stage.outputs),
            _tolerance(stage),
        )
        for stage in STAGES.values()
    )
    estimators = ((code(name), meaning) for name, meaning in KNOWN_ESTIMATORS.items())
    return page(
        "Stages",
        "From `replay/stages/table.py`, in the order of the chain: a recomputed value feeds the next stage, and where "
        "it agrees with the recorded one the latter does, so that no rounding adds up.",
        table(("stage", "version", "capability", "scope", "inputs", "outputs", "tolerance"), rows),
        "Equal is |recomputed - recorded| <= atol + rtol * |recorded|, with the tolerance of the bundle where it "
        "states one; a field that it lists in `exact_fields` has none. What float32 rounding may do beyond that is on "
        "each stage's page.",
        "## How a stage comes out",
        table(
            ("outcome", "when", "of the bundle"),
            (
                ("pass", "every compared value agrees", "verified"),
                ("diverges", "a value does not", "exit code 1, the first one is named"),
                ("recorded-only, inspect-only", "its contract says so", "not verified, and no divergence"),
                (
                    "unsupported",
                    "its contract says so, or its topology has no contract",
                    "exit code 4 where the bundle promised that it can be recomputed",
                ),
                ("lacking", "an input or what to compare with is missing", "exit code 4"),
                ("no contract, not selected", "the bundle, or who asked, leaves it out", "not verified"),
                ("skipped", "it needs the whole cohort, and a part was selected", "not verified"),
            ),
        ),
        "A bundle of which nothing was verified is no pass: exit code 4.",
        "## Topologies without a contract",
        "Where a bundle names no convention (format 1.1.0): estimators other than "
        f"{', '.join(map(code, SUPPORTED_ESTIMATORS))}, by the names that trainers give them; "
        "context-parallel shards (cp above 1); flattened agentic samples (a group with more samples than "
        "`n_samples_per_prompt`). Each fails as unsupported, by name.",
        table(("advantage_estimator", "what it is"), estimators),
    )


def stage_page(stage_id: StageId) -> str:
    """What one stage computes, from what, and how it is compared."""
    stage, formula = STAGES[stage_id], FORMULAS[stage_id]
    blocks = [formula.about]
    if formula.lines:
        blocks += ["## Formula", fenced("text", formula.lines)]
    if formula.sources:
        blocks += ["## Source", "\n".join(f"- {source}" for source in formula.sources)]
    blocks += [
        "## Contract",
        table(
            ("what", "value"),
            (
                ("version", stage.version),
                ("capability", stage.capability),
                ("scope", stage.scope),
                ("recorded-only when", stage.recorded_only),
                ("kernel", code(f"{stage.kernel.__module__}.{stage.kernel.__name__}")),
                ("tolerance", _tolerance(stage)),
                ("allowed to float32 where that is more", formula.rounding),
            ),
        ),
    ]
    if stage.inputs:
        blocks += ["## Inputs", table(("input", "from", "when"), map(_input, stage.inputs))]
    if stage.outputs:
        blocks += [
            "## Compared",
            table(("output", "one value a", "recorded in", "needed"), map(_output, stage.outputs)),
        ]
    return page(f"Stage {stage_id}", "[All stages](stages.md)", *blocks)


def _input(one: Input) -> tuple[str, str, str]:
    return code(one.name), one.origin, one.when or "always"


def _output(one: Output) -> tuple[str, str, str, str]:
    needed = "compared where it is recorded" if one.optional else "yes"
    return code(one.field), "step" if one.unit == "scalar" else one.unit, code(one.place), needed


def _tolerance(stage: Stage) -> str:
    if not stage.outputs:
        return ""
    found = stage.tolerance
    return "exact" if not found.atol and not found.rtol else f"atol {found.atol:g}, rtol {found.rtol:g}"
