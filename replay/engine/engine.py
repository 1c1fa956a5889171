"""The engine: recompute the stages in order, compare each with what was recorded, name the first that leaves it.

Pure: a bundle in memory goes in, a report comes out. A recomputed value feeds the next stage; a stage that is not run
(not selected, no contract, recorded only) feeds what was recorded of it, so a selected stage is judged by itself. Where
a recomputed value agrees with the recorded one the latter goes on, so that no rounding adds up on the way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from rollbook.replay.bundle.bundle import Bundle, Cohort
from rollbook.replay.bundle.model import Capability, StageId, Tolerance
from rollbook.replay.engine.beside import Bench, Judging
from rollbook.replay.engine.compare import compare, settled
from rollbook.replay.engine.culprit import find_culprit
from rollbook.replay.engine.installed import InstalledKernel
from rollbook.replay.engine.result import (
    Divergence,
    FieldResult,
    Outcome,
    RankResult,
    ReplayReport,
    StageResult,
    Verdict,
    most_specific,
    overall,
)
from rollbook.replay.engine.run import Floats, Ints, Run, run_of
from rollbook.replay.engine.selection import Selection, positions_of
from rollbook.replay.stages.conventional import of_whole_batch
from rollbook.replay.stages.stage import EXACT, Output, Results, Roundings, Scope, Stage, Unit
from rollbook.replay.stages.table import STAGES
from rollbook.schemas.text import visible

_OF_ALL = "sums over all samples, and only a part was selected"
_NO_TOKENS = "no sample has a token, so there is nothing to compare"
_UNVERIFIED = {
    Capability.RECORDED_ONLY: Outcome.RECORDED_ONLY,
    Capability.INSPECT_ONLY: Outcome.INSPECT_ONLY,
    Capability.UNSUPPORTED: Outcome.UNSUPPORTED,
}


@dataclass(frozen=True, slots=True)
class Compared:
    """One field as it is compared, float64 flat arrays; `ends` is the end of each sample in a flat array of tokens."""

    rank: int
    stage: StageId
    result: FieldResult
    expected: Floats
    actual: Floats
    sample_ids: tuple[str, ...]
    ends: Ints


Watch = Callable[[Compared], None]


def replay_cohort(
    cohort: Cohort,
    selection: Selection | None = None,
    xp: Any = np,
    watch: Watch | None = None,
    kernels: Sequence[InstalledKernel] = (),
) -> ReplayReport:
    """Replay every rank; `xp` is the array library to recompute with (its arrays must convert to numpy). `watch` is
    shown every comparison as it is made, whose arrays are not kept. `kernels` are run beside ours, on the same inputs;
    the verdict is that of ours. Raises `BadInput` for one that fails."""
    selection = selection or Selection()
    bench = Bench.of(kernels, selection)
    ranks: list[RankResult] = []
    selected: list[int] = []
    for bundle, positions in zip(cohort.bundles, positions_of(cohort.bundles, selection), strict=True):
        if positions == ():
            continue
        # What overflows diverges, visibly; numpy need not warn about it as well.
        with np.errstate(all="ignore"):
            run = run_of(bundle, positions, xp)
            stages = tuple(_replay_stage(run, stage, selection, watch, bench) for stage in STAGES.values())
        selected.append(len(run.sample_ids))
        ranks.append(RankResult(bundle.rank, _verdict(bundle, stages, selection), stages))
    return ReplayReport(
        path=cohort.path,
        bundle_id=cohort.bundle_id,
        verdict=overall([rank.verdict for rank in ranks]),
        ranks=tuple(ranks),
        first_divergence=next(_divergences(ranks), None),
        selected_samples=sum(selected) if selection.is_part else None,
        beside=bench.answers(),
    )


def replay_bundle(
    bundle: Bundle, selection: Selection | None = None, xp: Any = np, kernels: Sequence[InstalledKernel] = ()
) -> ReplayReport:
    """Replay the bundle of one rank."""
    return replay_cohort(Cohort(Path(bundle.path), bundle.bundle_id, (bundle,)), selection, xp, kernels=kernels)


def _replay_stage(run: Run, stage: Stage, selection: Selection, watch: Watch | None, bench: Bench) -> StageResult:
    outcome, reason = _why_not(run, stage, selection)
    results: Results = {} if outcome is not None else stage.kernel(run.chain)

    @cache
    def roundings() -> Roundings:
        return stage.rounding(run.chain, results)

    # Theirs come first of all: what ours leave behind in the chain is no input of the stage.
    judging = Judging(
        tolerance=partial(_tolerance, run.bundle, stage),
        rounding=lambda output: partial(_of, roundings, output.result) if results else (lambda: None),
    )
    if outcome is not None:
        found = StageResult(stage.id, outcome, reason, ())
        bench.take(run, stage, found, results, judging)
        return found
    bench.take(run, stage, StageResult(stage.id, Outcome.PASSED, "", ()), results, judging)
    run.chain.recomputed.update(results)
    fields = tuple(_compare_outputs(run, stage, results, judging, watch))
    if not fields:
        return StageResult(stage.id, Outcome.SKIPPED, _OF_ALL, ())
    if not any(field.values for field in fields):
        return StageResult(stage.id, Outcome.SKIPPED, _NO_TOKENS, ())
    if all(field.first is None for field in fields):
        skipped = stage.scope is Scope.COHORT and run.positions is not None
        return StageResult(stage.id, Outcome.PASSED, f"its scalars are {_OF_ALL}" if skipped else "", fields)
    culprit, known = find_culprit(run, stage.id, fields)
    return StageResult(stage.id, Outcome.DIVERGES, known, fields, culprit)


def _why_not(run: Run, stage: Stage, selection: Selection) -> tuple[Outcome | None, str]:
    contract = run.bundle.manifest.stage_contracts.get(stage.id)
    if not selection.has(stage.id):
        return Outcome.NOT_SELECTED, ""
    if contract is None:
        return Outcome.NO_CONTRACT, ""
    refused = stage.refuses(run.bundle.index)
    if contract.capability is not Capability.RECOMPUTE:
        says = f"its contract says {contract.capability}"
        if contract.capability is Capability.RECORDED_ONLY and stage.recorded_only:
            says = f"{says}: {stage.recorded_only}"
        return _UNVERIFIED[contract.capability], visible(refused or says)
    if refused:
        return Outcome.UNSUPPORTED, visible(refused)
    if run.positions is not None and of_whole_batch(run.bundle.index.config, stage.id):
        return Outcome.SKIPPED, "its convention measures all samples together, and only a part was selected"
    if lacking := tuple(_lacking(run, stage)):
        return Outcome.LACKING, f"the bundle does not record {', '.join(lacking)}"
    return None, ""


def _lacking(run: Run, stage: Stage) -> Iterator[str]:
    """What a stage needs and a bundle in memory does not have; a reader refuses a file of the kind."""
    config = run.bundle.index.config
    yield from (f"payload {name}" for name in stage.payloads(config) if name not in run.bundle.tensors)
    if stage.grouped and run.batch.group_index is None:
        yield "group_index"
    yield from (f"{output.field} to compare with" for output in stage.outputs if not run.has(output))


def _compare_outputs(
    run: Run, stage: Stage, results: Results, judging: Judging, watch: Watch | None
) -> Iterator[FieldResult]:
    settling = set(results)
    for output in stage.outputs:
        if output.unit is Unit.SCALAR and run.positions is not None:
            continue
        recorded = run.recorded(output)
        if recorded is None:
            continue
        tolerance, rounding = judging.tolerance(output), judging.rounding(output)
        result = compare(output, recorded, results[output.result], tolerance, run.sample_ids, run.ends, rounding)
        if watch is not None:
            actual = np.asarray(results[output.result]).reshape(-1).astype(np.float64)
            watch(
                Compared(
                    run.bundle.rank, stage.id, result, recorded.astype(np.float64), actual, run.sample_ids, run.ends
                )
            )
        yield result
        if output.unit is not Unit.SCALAR and output.result in settling:
            settling.remove(output.result)
            run.chain.recomputed[output.result] = settled(recorded, results[output.result], rounding)


def _of(roundings: Callable[[], Roundings], result: str) -> Floats | None:
    return roundings().get(result)


def _tolerance(bundle: Bundle, stage: Stage, output: Output) -> Tolerance:
    policy = bundle.manifest.comparison_policy
    if output.field in policy.exact_fields or f"{stage.id}.{output.field}" in policy.exact_fields:
        return EXACT
    return stage.tolerance if stage.structural else policy.tolerances.get(stage.id, stage.tolerance)


def _verdict(bundle: Bundle, stages: tuple[StageResult, ...], selection: Selection) -> Verdict:
    """Passed only when something that the trainer computed was verified, and nothing that could be was left out. A
    structural stage counts for whoever asked for it by name."""
    contracts = bundle.manifest.stage_contracts
    verified = any(
        result.outcome is Outcome.PASSED and (bool(selection.stages) or not STAGES[result.stage].structural)
        for result in stages
    )
    broken_promise = any(
        contracts[result.stage].capability is Capability.RECOMPUTE
        for result in stages
        if result.outcome in (Outcome.UNSUPPORTED, Outcome.LACKING)
    )
    if any(result.outcome is Outcome.DIVERGES for result in stages):
        return Verdict.DIVERGES
    return Verdict.PASSED if verified and not broken_promise else Verdict.UNVERIFIED


def _divergences(ranks: list[RankResult]) -> Iterator[Divergence]:
    """In the order of the chain, over all ranks."""
    for at, stage in enumerate(STAGES):
        for rank in ranks:
            result = rank.stages[at]
            if result.outcome is Outcome.DIVERGES and result.culprit is not None:
                field = most_specific(result.fields)
                yield Divergence(
                    rank=rank.rank,
                    stage=stage,
                    field=field.field,
                    point=result.culprit,
                    diverging_values=field.diverging_values,
                    diverging_samples=field.diverging_samples,
                    reason=result.reason,
                )
