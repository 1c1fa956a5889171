"""The conventions of a recording as a bundle states them: key by key the same, absent where nothing is stated. Pure."""

from rollbook.replay.bundle.convention import Conventions
from rollbook.schemas.records.convention import Conventions as Recorded


def stated(recorded: Recorded | None) -> Conventions | None:
    """None where nothing is said that format 1.0.0 does not fix anyway."""
    if recorded is None or recorded == Recorded():
        return None
    content = recorded.model_dump(mode="json")
    return Conventions.model_validate({name: value for name, value in content.items() if value not in (None, [])})
