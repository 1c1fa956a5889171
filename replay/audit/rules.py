"""Other admission rules for a what-if: which limits are put in place of the run's own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.run import Admission, DriftGate, LagUnit
from rollbook.schemas.text import visible
from rollbook.schemas.types import ContractViolation

_NUMBERS: dict[str, type[int] | type[float]] = {"max_lag": int, "max_mean_abs_log_ratio": float}
_CHOICES: dict[str, type[StrEnum]] = {"lag_unit": LagUnit, "drift_gate": DriftGate}
_PLAIN = re.compile(r"[A-Za-z0-9.-][A-Za-z0-9.+-]*")
_FORMS = {
    "max_lag": "a whole number from 0 on",
    "lag_unit": "depth or ordinal",
    "max_mean_abs_log_ratio": "a number of nats from 0 on",
    "drift_gate": "required or off",
}


@dataclass(frozen=True, slots=True)
class Instead:
    """Limits in place of a run's; None leaves its own. Raises BadInput for what none can have."""

    max_lag: int | None = None
    lag_unit: LagUnit | None = None
    max_mean_abs_log_ratio: float | None = None
    drift_gate: DriftGate | None = None

    def __post_init__(self) -> None:
        try:
            self.of(_ANY)
        except ContractViolation as fault:
            given = visible(repr(getattr(self, fault.field)))
            raise BadInput(f"{fault.field}={given}: it must be {_FORMS[fault.field]}") from None

    def of(self, admission: Admission) -> Admission:
        """The run's rules with these limits in place."""
        return Admission(
            max_lag=admission.max_lag if self.max_lag is None else self.max_lag,
            lag_unit=self.lag_unit or admission.lag_unit,
            max_mean_abs_log_ratio=(
                admission.max_mean_abs_log_ratio if self.max_mean_abs_log_ratio is None else self.max_mean_abs_log_ratio
            ),
            drift_gate=self.drift_gate or admission.drift_gate,
        )


_ANY = Admission(max_lag=0, lag_unit=LagUnit.DEPTH, max_mean_abs_log_ratio=0.0, drift_gate=DriftGate.OFF)


def parse_instead(texts: Sequence[str]) -> Instead:
    """NAME=VALUE, each name once. Raises BadInput that says which names and values there are."""
    given: dict[str, object] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if name not in _FORMS or not sign:
            known = ", ".join(f"{one}=({form})" for one, form in _FORMS.items())
            raise BadInput(f"--with '{visible(text)}' is no rule of admission: give NAME=VALUE of {known}")
        if name in given:
            raise BadInput(f"--with {name} is given twice: give it once")
        given[name] = _value(name, value)
    return Instead(**given)  # type: ignore[arg-type]  # each value is parsed by its name


def _value(name: str, text: str) -> object:
    try:
        if not _PLAIN.fullmatch(text):  # Python takes `1_0`, ` 1`, `+1` and the digits of every script
            raise ValueError(text)
        return _NUMBERS[name](text) if name in _NUMBERS else _CHOICES[name](text)
    except ValueError:
        raise BadInput(f"--with {name}={visible(text)}: it must be {_FORMS[name]}") from None
