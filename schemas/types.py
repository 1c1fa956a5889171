"""The scalar types of the contract and the base of every record: frozen, strict, nothing extra."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_ITEMS = 8192
"""The most items one command may name (DESIGN section 5, bounded state)."""

INT63_MAX = 2**63 - 1

Text = Annotated[str, StringConstraints(strict=True, max_length=4096)]
Id = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]
RunId = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$")]
Digest = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
"""A sha256 in lower-case hexadecimal."""
Count = Annotated[int, Field(strict=True, ge=0, le=INT63_MAX)]
Positive = Annotated[int, Field(strict=True, ge=1, le=INT63_MAX)]
Flag = Annotated[bool, Field(strict=True)]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0.0)]


class OpenEnum(StrEnum):
    """A set of names that grows with the software: Avro carries it as a plain string."""


class Part(BaseModel):
    """A record of the contract, or a part of one. Frozen; unknown fields and coerced scalars are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class NamedText(Part):
    """One named text."""

    name: Id = Field(description="Name, unique in its list.")
    value: Text = Field(description="Text.")


class NamedNumber(Part):
    """One named number."""

    name: Id = Field(description="Name, unique in its list.")
    value: Finite = Field(description="Number; finite.")
