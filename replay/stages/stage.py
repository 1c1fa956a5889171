"""What a stage of replay is: one line of the table in stages.py."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rollbook.replay.bundle.model import Capability, Config, Expected, Index, Sample, StageId, Tolerance
from rollbook.replay.kernels.array import Array
from rollbook.replay.stages.batch import Chain
from rollbook.replay.stages.rounding import Floats

Results = Mapping[str, Array]
Roundings = Mapping[str, Floats]

DEFAULT_TOLERANCE = Tolerance(atol=1e-6, rtol=1e-5)
EXACT = Tolerance(atol=0.0, rtol=0.0)


class Unit(StrEnum):
    """What one value of an array belongs to."""

    TOKEN = "token"
    SAMPLE = "sample"
    SCALAR = "scalar"


class Scope(StrEnum):
    """How much a stage must see at once: a part of a bundle is whole groups, but not the whole cohort."""

    SAMPLE = "sample"
    GROUP = "group"
    COHORT = "cohort"


class Origin(StrEnum):
    """Where an input comes from."""

    INDEX = "index.json"
    CONFIG = "index.json, config"
    PAYLOAD = "payload"
    CHAIN = "the stages before, else recorded"


def _always(_: Config) -> bool:
    return True


def _known(_: Config) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Input:
    """Something that a stage reads; `when` says in words what `needed` asks of the config; `borrowed`: it is another
    stage's own, and who asks for it is not thereby of this one."""

    name: str
    origin: Origin
    needed: Callable[[Config], bool] = _always
    when: str = ""
    borrowed: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """A recorded result and the recomputed one it is compared with. Exactly one of the four sources is set."""

    field: str
    unit: Unit
    result: str
    payload: str | None = None
    term: str | None = None
    expected: Callable[[Expected], tuple[float, ...] | float | None] | None = None
    index: Callable[[Sample], float] | None = None
    optional: bool = False

    @property
    def place(self) -> str:
        """The file of a bundle that records it, for readers."""
        if self.payload is not None:
            return f"payloads/{self.payload}.pt"
        if self.term is not None:
            return "rollbook-terms.json"
        return "expected.json" if self.expected is not None else "index.json"


@dataclass(frozen=True, slots=True)
class Stage:
    """One line of the table. `refuses` says why a config or topology is outside what the kernel computes, or None;
    `rounding` says of results how far a float32 trainer's may be off; `tolerance` holds where the bundle states none; a
    structural stage checks the bundle against itself, which verifies nothing that the trainer computed;
    `recorded_only` is why a bundle may promise no more than what was recorded; `unknown` says why a config is of a
    format that does not have the stage, or None."""

    id: StageId
    version: str
    capability: Capability
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    kernel: Callable[[Chain], Results]
    refuses: Callable[[Index], str | None]
    rounding: Callable[[Chain, Results], Roundings] = lambda *_: {}
    tolerance: Tolerance = DEFAULT_TOLERANCE
    scope: Scope = Scope.SAMPLE
    structural: bool = False
    recorded_only: str = ""
    unknown: Callable[[Config], str | None] = _known

    def payloads(self, config: Config) -> tuple[str, ...]:
        """The tensors it needs under a config."""
        return tuple(one.name for one in self.inputs if one.origin is Origin.PAYLOAD and one.needed(config))

    @property
    def grouped(self) -> bool:
        return self.scope is Scope.GROUP
