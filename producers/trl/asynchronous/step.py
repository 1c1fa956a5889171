"""An optimizer step that is under way, or was made and is not yet recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rollbook.producers.trl.facts import Conditions, Generation, MicroStep, RowFacts, StepFacts
from rollbook.schemas.records.common import PolicyRef


@dataclass(slots=True)
class Step:
    """`left_out`: what the ledger did not give; `rows` as they went through the forward pass, `refused`: what must not
    enter the weights."""

    update_id: str
    number: int
    policy: PolicyRef
    left_out: frozenset[str] = frozenset()
    rows: list[RowFacts] = field(default_factory=list)
    micro_steps: list[MicroStep] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    @property
    def trained(self) -> tuple[str, ...]:
        return tuple(row.trajectory_id for row in self.rows if row.trajectory_id not in self.refused)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of its rows, each once."""
        return tuple(dict.fromkeys(row.identity.group_id for row in self.rows))

    def generation(self, rows: Sequence[RowFacts]) -> Generation:
        """These rows as what its update is made of."""
        return Generation(
            rollout_id=self.number,
            policy=self.policy,
            rows=tuple(rows),
            tokens=float(sum(int(row.loss_mask.sum()) for row in rows)),
            steps_per_generation=1,
        )

    def facts(self, members: Sequence[RowFacts], conditions: Conditions) -> StepFacts:
        """All of it; `members` of its groups, which may be rows of other steps."""
        mine = {row.trajectory_id for row in self.rows}
        others = [one for one in members if one.trajectory_id not in mine]
        return StepFacts(
            step_id=0,
            epoch=0,
            update_id=self.update_id,
            generation=self.generation([*self.rows, *others]),
            micro_steps=tuple(self.micro_steps),
            refused=frozenset(self.refused),
            conditions=conditions,
        )
