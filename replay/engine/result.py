"""What replay found, as typed records: per stage, per field, and the first divergence of the whole chain."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rollbook.replay.bundle.model import StageId, Tolerance
from rollbook.replay.stages.stage import Unit


class Outcome(StrEnum):
    """How one stage came out. Only the first two say that anything was verified."""

    PASSED = "pass"
    DIVERGES = "diverges"
    RECORDED_ONLY = "recorded-only"
    INSPECT_ONLY = "inspect-only"
    UNSUPPORTED = "unsupported"
    LACKING = "lacking"
    NO_CONTRACT = "no contract"
    NOT_SELECTED = "not selected"
    SKIPPED = "skipped"


class Verdict(StrEnum):
    """How a bundle came out."""

    PASSED = "pass"
    DIVERGES = "diverges"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True)
class Point:
    """One compared value. `sample_id` is None for a scalar, unless one sample alone would explain it; `token_offset`
    counts within the sample's response."""

    sample_id: str | None
    token_offset: int | None
    expected: float
    actual: float
    abs_error: float


@dataclass(frozen=True, slots=True)
class FieldResult:
    """One recorded output against the recomputed one. `rounded_values` agree only because a float32 trainer's rounding
    may do as much; `first` and `worst` are None when all values agree."""

    field: str
    unit: Unit
    tolerance: Tolerance
    values: int
    rounded_values: int
    diverging_values: int
    diverging_samples: int
    first: Point | None
    worst: Point | None


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage. `reason` says why nothing was compared, or what is known about where a divergence comes from."""

    stage: StageId
    outcome: Outcome
    reason: str
    fields: tuple[FieldResult, ...]
    culprit: Point | None = None

    @property
    def verified_values(self) -> int:
        return sum(field.values for field in self.fields)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a chain first leaves what was recorded."""

    rank: int
    stage: StageId
    field: str
    point: Point
    diverging_values: int
    diverging_samples: int
    reason: str


@dataclass(frozen=True, slots=True)
class RankResult:
    rank: int
    verdict: Verdict
    stages: tuple[StageResult, ...]


@dataclass(frozen=True, slots=True)
class InstalledCode:
    """What code is installed: how it was named and where it is defined, its distribution and version (empty where it
    is no installed one), its file's name and sha256."""

    name: str
    defined: str
    package: str
    version: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class RecordedCode:
    """What a bundle says about the code that computed a stage; `convention` is the one it names, else empty."""

    implementation: str
    contract_version: str
    convention: str
    commit: str
    torch_version: str


class Agreement(StrEnum):
    """Of three numbers, recorded, ours and that of an installed function: which two are one."""

    ALL = "all agree"
    OURS_DIFFERS = "ours differs"
    THEIRS_DIFFERS = "installed differs"
    RECORD_DIFFERS = "record differs"
    NONE = "all differ"
    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True)
class FieldBeside:
    """One output of an installed function: held against the record, and whether ours agrees with the record and with
    theirs; None where no kernel of ours computes it."""

    theirs: FieldResult
    ours_agrees: bool | None
    ours_is_theirs: bool | None
    agreement: Agreement


@dataclass(frozen=True, slots=True)
class RankBeside:
    """An installed function on one rank; `reason` says why nothing was compared."""

    rank: int
    agreement: Agreement
    reason: str
    fields: tuple[FieldBeside, ...]


@dataclass(frozen=True, slots=True)
class Beside:
    """An installed function beside our kernel of a stage, over all ranks."""

    stage: StageId
    code: InstalledCode
    adapts: InstalledCode | None
    recorded: RecordedCode | None
    agreement: Agreement
    ranks: tuple[RankBeside, ...]


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The answer for a bundle, all its ranks together. `beside` is what installed functions say, where some were named;
    the verdict is never theirs."""

    path: Path
    bundle_id: str
    verdict: Verdict
    ranks: tuple[RankResult, ...]
    first_divergence: Divergence | None
    selected_samples: int | None
    beside: tuple[Beside, ...] = ()


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several bundles or ranks: as bad as the worst of them."""
    return next(verdict for verdict in (Verdict.DIVERGES, Verdict.UNVERIFIED, Verdict.PASSED) if verdict in verdicts)


def most_specific(fields: tuple[FieldResult, ...]) -> FieldResult:
    """The diverging field that says most about where: a token's before a sample's before a scalar's."""
    order = (Unit.TOKEN, Unit.SAMPLE, Unit.SCALAR)
    return min((field for field in fields if field.first is not None), key=lambda field: order.index(field.unit))
