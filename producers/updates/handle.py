"""What one process hands to another so that it goes on with an update: small, typed, and plain JSON on the way."""

from typing import Self

from pydantic import Field, ValidationError

from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import LearnerRef
from rollbook.schemas.records.decision import ItemDecision
from rollbook.schemas.text import visible
from rollbook.schemas.types import Count, Id, Part, RunId
from rollbook.schemas.wording import worded


class UpdateHandle(Part):
    """An update that is reserved and not started, as the decisions that were read say it. Use it once: two processes
    that adopt the same handle would train on the same rows, and the second is turned away when it starts. All that one
    process hands over is adopted by one other, in order: only so its weights have all of it."""

    run_id: RunId = Field(description="The run.")
    learner: LearnerRef = Field(description="The learner in the epoch that reserved.")
    update_id: Id = Field(description="The update.")
    rollout_id: Count = Field(description="Training iteration that it makes.")
    held: tuple[ItemDecision, ...] = Field(description="What it holds, in the order it was reserved.")
    admitted: tuple[ItemDecision, ...] = Field(description="Answers to Admit that were ok.")
    refused: tuple[ItemDecision, ...] = Field(description="The last refusal of each trajectory.")
    reserve_part: Count = Field(description="Part of the next Reserve.")
    admit_part: Count = Field(description="Part of the next Admit.")
    own_updates: Count = Field(description="Updates in the learner's weights.")
    after: Id | None = Field(default=None, description="The update handed over before it, by the same process.")

    def to_json(self) -> str:
        """The handle as text, for whatever carries it to the other process."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The handle in the text. Raises BadInput."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as problem:
            first = problem.errors(include_url=False, include_input=False)[0]
            where = visible(".".join(str(part) for part in first["loc"]) or "text")
            raise BadInput(
                f"this is no handle of an update: {where}: {worded(first)}; hand over update.handle()"
            ) from None
