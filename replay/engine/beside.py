"""A trainer's installed function beside our kernel of a stage: the same inputs, and which of recorded, ours and theirs
are one number. It tells a wrong reimplementation from another version than the recorded one.

The record is the pivot: two numbers that both agree with it are called one, however far apart within the tolerance.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.model import StageId, Tolerance
from rollbook.replay.engine.compare import Rounding, compare
from rollbook.replay.engine.installed import InstalledKernel, Values, call, required
from rollbook.replay.engine.result import Agreement, Beside, FieldBeside, Outcome, RankBeside, RecordedCode, StageResult
from rollbook.replay.engine.run import Run
from rollbook.replay.engine.selection import Selection
from rollbook.replay.stages.conventional import conventions_of
from rollbook.replay.stages.stage import Input, Origin, Output, Results, Stage, Unit
from rollbook.replay.stages.table import STAGES
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

_OF_INDEX: Mapping[str, Callable[[Run], object]] = {
    "loss_mask": lambda run: run.batch.mask,
    "raw_reward": lambda run: run.batch.raw_rewards,
    "group_index": lambda run: run.batch.group_index,
    "response_length": lambda run: run.batch.lengths,
}
_ALWAYS = ("loss_mask", "response_length")
_OF_CONVENTIONS = ("gamma", "lam", "eps_clip_c", "tau_pos", "tau_neg", "delta", "top_entropy_quantile")
_SCALARS_OF_PART = "it returned scalars of the whole step only, and only a part was selected"
_NOT_RECORDED = "the bundle does not record what it returned"
_UNMEASURED = "the bundle has samples that are not measured, of which a function of rewards and groups is not told"
_SHARED = "its tokens are shared out over context-parallel ranks"


@dataclass(frozen=True, slots=True)
class Judging:
    """How a stage's outputs are held against the record."""

    tolerance: Callable[[Output], Tolerance]
    rounding: Callable[[Output], Rounding]


@dataclass(slots=True)
class Bench:
    """The installed functions of a replay, and what they said so far; empty where none was named."""

    kernels: tuple[InstalledKernel, ...] = ()
    _found: dict[int, list[RankBeside]] = field(default_factory=dict)
    _recorded: dict[int, RecordedCode] = field(default_factory=dict)

    @classmethod
    def of(cls, kernels: Sequence[InstalledKernel], selection: Selection) -> "Bench":
        """Raises `BadInput` for a function whose stage cannot be told, or is not replayed."""
        return cls(tuple(_assigned(kernel, selection) for kernel in kernels))

    def take(self, run: Run, stage: Stage, ours: StageResult, results: Results, judging: Judging) -> None:
        """Run the functions of a stage, whose own result is known; `results` is empty where ours did not run."""
        for at, kernel in enumerate(self.kernels):
            if kernel.stage is stage.id:
                self._recorded.setdefault(at, _recorded(run.bundle, stage.id))
                self._found.setdefault(at, []).append(_beside(kernel, run, stage, ours, results, judging))

    def answers(self) -> tuple[Beside, ...]:
        return tuple(self._answer(at, kernel) for at, kernel in enumerate(self.kernels))

    def _answer(self, at: int, kernel: InstalledKernel) -> Beside:
        ranks = tuple(self._found.get(at, ()))
        agreement = _overall([one for rank in ranks for one in rank.fields])
        assert kernel.stage is not None
        return Beside(kernel.stage, kernel.code, kernel.adapts, self._recorded.get(at), agreement, ranks)


def _assigned(kernel: InstalledKernel, selection: Selection) -> InstalledKernel:
    stage = kernel.stage or _stage_by_arguments(kernel, selection)
    if not selection.has(stage):
        raise BadInput(f"kernel {kernel.shown} is one of {stage}, which --stage leaves out: name the stage there too")
    if not STAGES[stage].outputs:
        raise BadInput(f"kernel {kernel.shown}: stage {stage} has nothing to compare with: name another stage")
    return replace(kernel, stage=stage)


def _stage_by_arguments(kernel: InstalledKernel, selection: Selection) -> StageId:
    """The only stage that is replayed, or the only one that has all the arguments that the function asks for."""
    if len(selection.stages) == 1:
        return selection.stages[0]
    asked = set(required(kernel))
    fitting = [
        stage.id
        for stage in STAGES.values()
        if asked and asked <= {*(one.name for one in stage.inputs if not one.borrowed), *_ALWAYS} and stage.inputs
    ]
    if len(fitting) == 1:
        return fitting[0]
    what = f"may be one of {', '.join(fitting)}" if fitting else "asks for what no stage has, or says nothing of it"
    raise BadInput(f"kernel {kernel.shown}: by its arguments it {what}: name the stage, STAGE={kernel.shown}")


def _beside(
    kernel: InstalledKernel, run: Run, stage: Stage, ours: StageResult, results: Results, judging: Judging
) -> RankBeside:
    if reason := _why_not(run, ours, results):
        return RankBeside(run.bundle.rank, Agreement.NOT_COMPARED, reason, ())
    theirs = call(kernel, dict(_inputs(run, stage)))
    by_result = _by_result(kernel, stage, theirs)
    fields = tuple(_fields(kernel, run, stage, by_result, results, judging))
    if fields:
        return RankBeside(run.bundle.rank, _overall(fields), "", fields)
    scalars = all(one.unit is Unit.SCALAR for one in stage.outputs if one.result in by_result)
    reason = _SCALARS_OF_PART if run.positions is not None and scalars else _NOT_RECORDED
    return RankBeside(run.bundle.rank, Agreement.NOT_COMPARED, reason, ())


def _why_not(run: Run, ours: StageResult, results: Results) -> str:
    """A stage that no kernel of ours computes may still be theirs; one that is not whole, or promises nothing, not."""
    if run.batch.measure is not None and STAGES[ours.stage].grouped:
        return _UNMEASURED
    if results:
        return ""
    if ours.outcome is not Outcome.UNSUPPORTED:
        return ours.reason or f"the stage's outcome is: {ours.outcome}"
    if run.positions is not None:
        return "no kernel of ours computes the stage, and only a part was selected"
    index = run.bundle.index
    return _SHARED if index.identity.rank.cp > 1 and index.context_parallel is None else ""


def _inputs(run: Run, stage: Stage) -> Iterator[tuple[str, object]]:
    """By name, as the kernel of ours gets them: numpy arrays, flat, and the numbers of the config."""
    given: dict[str, object] = {}
    for one in (*stage.inputs, *(Input(name, Origin.INDEX) for name in _ALWAYS)):
        if one.origin is Origin.CONFIG:
            *path, name = one.name.split(".")
            part: object = run.bundle.index.config
            for step in path:
                part = getattr(part, step, None)
            given[name] = getattr(part, name, None)
            continue
        if one.origin is Origin.INDEX:
            found = _OF_INDEX[one.name](run)
        else:
            found = run.chain.rewards if one.name == "rewards" else run.chain.tokens(one.name)
        if found is not None:
            given[one.name] = np.asarray(found)
    if stage.grouped and run.batch.cohort_rewards is not None:
        raw, groups = run.batch.with_cohort()
        given |= {"raw_reward": np.asarray(raw), "group_index": np.asarray(groups)}
    if run.bundle.index.config.conventions is not None:
        named = conventions_of(run.bundle.index.config)
        given |= {name: getattr(named, name) for name in _OF_CONVENTIONS}
    yield from given.items()


def _by_result(kernel: InstalledKernel, stage: Stage, theirs: Mapping[str, Values]) -> Mapping[str, Values]:
    names = list(dict.fromkeys(output.result for output in stage.outputs))
    if set(theirs) == {""}:
        single = list(dict.fromkeys(output.result for output in stage.outputs if not output.optional))
        if len(single) != 1:
            raise BadInput(
                f"kernel {kernel.shown} returned one array, but {stage.id} has several outputs: return a dict of some "
                f"of {', '.join(names)}"
            )
        return {single[0]: theirs[""]}
    strange = [name for name in theirs if name not in names]
    if strange or not theirs:
        what = f"'{visible(', '.join(strange))}'" if strange else "an empty dict"
        raise BadInput(f"kernel {kernel.shown} returned {what}: {stage.id} has the outputs {', '.join(names)}")
    return theirs


def _fields(
    kernel: InstalledKernel,
    run: Run,
    stage: Stage,
    theirs: Mapping[str, Values],
    results: Results,
    judging: Judging,
) -> Iterator[FieldBeside]:
    for output in stage.outputs:
        if output.result not in theirs or (output.unit is Unit.SCALAR and run.positions is not None):
            continue
        values = _shaped(kernel, output, theirs[output.result], run)
        recorded = run.recorded(output)
        if recorded is None:
            continue
        tolerance, rounding = judging.tolerance(output), judging.rounding(output)

        def agrees(
            expected: Values,
            actual: Values,
            output: Output = output,
            tolerance: Tolerance = tolerance,
            rounding: Rounding = rounding,
        ) -> bool:
            return compare(output, expected, actual, tolerance, run.sample_ids, run.ends, rounding).first is None

        ours = None if output.result not in results else np.asarray(results[output.result]).reshape(-1)
        if ours is not None and ours.dtype.kind == "f":
            with np.errstate(all="ignore"):
                values = values.astype(ours.dtype)
        found = compare(output, recorded, values, tolerance, run.sample_ids, run.ends, rounding)
        ours_agrees = None if ours is None else agrees(recorded, ours)
        same = None if ours is None else agrees(ours, values)
        yield FieldBeside(found, ours_agrees, same, _agreement(found.first is None, ours_agrees, same))


def _shaped(kernel: InstalledKernel, output: Output, values: Values, run: Run) -> Values:
    size = {Unit.TOKEN: int(run.ends[-1]) if run.ends.size else 0, Unit.SAMPLE: len(run.sample_ids), Unit.SCALAR: 1}
    expected = size[output.unit]
    others = run.batch.cohort_rewards
    if output.unit is Unit.SAMPLE and others is not None and values.shape == (expected + len(others),):
        values = values[:expected]
    scalar = output.unit is Unit.SCALAR and values.shape == ()
    if values.shape != (expected,) and not scalar:
        each = {Unit.TOKEN: "one value a token", Unit.SAMPLE: "one a sample", Unit.SCALAR: "a single number"}
        raise BadInput(
            f"kernel {kernel.shown} returned {output.result} of shape {values.shape}, not ({expected},): return "
            f"{each[output.unit]}, flat, in the order of the inputs"
        )
    return values.reshape(-1).astype(np.float64)


def _agreement(theirs: bool, ours: bool | None, same: bool | None) -> Agreement:
    if ours is None:
        return Agreement.REPRODUCED if theirs else Agreement.NOT_REPRODUCED
    if theirs:
        return Agreement.ALL if ours else Agreement.OURS_DIFFERS
    if ours:
        return Agreement.THEIRS_DIFFERS
    return Agreement.RECORD_DIFFERS if same else Agreement.NONE


def _overall(fields: Sequence[FieldBeside]) -> Agreement:
    """Of several fields and ranks: a number is one with another where it is in all of them."""
    if not fields:
        return Agreement.NOT_COMPARED
    theirs = all(one.theirs.first is None for one in fields)
    if any(one.ours_agrees is None for one in fields):
        return _agreement(theirs, None, None)
    return _agreement(theirs, all(one.ours_agrees for one in fields), all(one.ours_is_theirs for one in fields))


def _recorded(bundle: Bundle, stage: StageId) -> RecordedCode:
    """What the bundle says of the code that computed the stage."""
    contract = bundle.manifest.stage_contracts.get(stage)
    conventions = conventions_of(bundle.index.config)
    of_advantages = stage in (StageId.REWARD_POST_PROCESS, StageId.ADVANTAGE_ESTIMATE)
    named = conventions.advantages if of_advantages else conventions.loss if stage is StageId.LOSS_POLICY else None
    producer = bundle.manifest.producer
    return RecordedCode(
        implementation="" if contract is None else contract.implementation,
        contract_version="" if contract is None else contract.version,
        convention="" if named is None else str(named),
        commit=producer.commit,
        torch_version=producer.torch_version,
    )
