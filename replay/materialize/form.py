"""In which form updates are written: with a bundle of the update or its steps alone, and what is redacted."""

from dataclasses import dataclass
from enum import StrEnum

from rollbook.replay.bundle.redaction import Redactor


class BundleFormat(StrEnum):
    """The newest format that may be used. 1.0.0 has no bundle of an update that its steps could name, and no place for
    members of a group that a step did not consume."""

    V1_0 = "1.0.0"
    V1_1 = "1.1.0"


@dataclass(frozen=True, slots=True)
class Form:
    """`redactor` None: all ids and texts are written as the log has them."""

    format: BundleFormat = BundleFormat.V1_1
    redactor: Redactor | None = None

    @property
    def linked(self) -> bool:
        """Whether an update has a bundle of its own, linked to those of its steps."""
        return self.format is BundleFormat.V1_1
