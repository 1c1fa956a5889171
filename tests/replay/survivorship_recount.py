"""A simple count of what became of a run's trajectories: each state looked up after each record, each reward at the
offset that the state names. Slow, and nothing of it is shared with what it checks."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rollbook.processors.ledger.fold import Ledger, SourceRecord
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.reward import RewardReady
from rollbook.schemas.records.rollout import Dispatched, Generated, GenerationFailed
from rollbook.schemas.types import Part

ABOUT_THE_ROW = {
    "stale_policy": "refused_stale",
    "policy_drift": "refused_drift",
    "future_policy": "refused_other",
    "unknown_policy": "refused_other",
    "policy_not_active": "refused_other",
    "evidence_mismatch": "refused_other",
    "empty_action_mask": "refused_other",
}
OF_STATE = {
    "dispatched": "in_flight",
    "generated": "unrewarded",
    "rewarded": "waiting",
    "offline": "expired",
}


@dataclass
class Counted:
    """Trajectories by name."""

    states: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    versions: dict[str, int] = field(default_factory=dict)
    purposes: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    answers: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    refused: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)
    dispatched: set[str] = field(default_factory=set)
    admitted: set[str] = field(default_factory=set)
    rewards: dict[str, float] = field(default_factory=dict)
    kept: dict[str, float] = field(default_factory=dict)
    consumers: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        return {*self.states, *self.refused}

    def fate(self, name: str) -> str:
        if not self.states[name]:
            return "refused_at_entry"
        last = self.states[name][-1]
        if last == "consumed" or (last.endswith("_failed") and self.purposes[name] != "eval"):
            return last
        if self.purposes[name] == "eval":
            return "evaluation"
        if last not in ("rewarded", "offline", "quarantined", "forgotten"):
            return OF_STATE.get(last, last)
        kind, reason = self.answers[name][-1] if self.answers[name] else ("", "")
        if last == "quarantined":
            by_drift = kind == "Admit" and reason in ("policy_drift", "empty_action_mask")
            return ABOUT_THE_ROW[reason] if by_drift else last
        taken = [at for at, state in enumerate(self.states[name]) if state == "consumed"]
        if taken:
            return "rolled_back"
        return ABOUT_THE_ROW.get(reason, OF_STATE[last])

    def fates(self, names: Iterable[str] | None = None) -> dict[str, int]:
        return dict(Counter(self.fate(name) for name in (self.names if names is None else names)))

    def parts(self) -> dict[str, list[float]]:
        found = defaultdict(list)
        for name, reward in self.rewards.items():
            fate, trained = self.fate(name), "consumed" in self.states[name]
            if self.purposes.get(name) == "eval":
                found["evaluation"].append(reward)
                continue
            found["all"].append(reward)
            found["consumed" if fate == "consumed" else "rolled_back" if trained else "never_trained"].append(reward)
            if fate.startswith("refused") and not trained:
                found["refused"].append(reward)
            if fate == "discarded" and not trained:
                found["discarded"].append(reward)
        return {part: sorted(values) for part, values in found.items()}


def recount(run_id: str, sources: Iterable[SourceRecord], topic_partitions: int) -> Counted:
    """Folds the records once more, which need not be of one run, and looks at everything after each of them."""
    found, ledger, records = Counted(), Ledger(0, topic_partitions), {}
    for source in sources:
        ledger.partition = source.partition
        decision = ledger.fold(source).decision
        ledger.journal.keep()
        record = records[source.offset] = _decoded(source)
        if decision.run_id != run_id or record is None:
            continue
        for name, state in ledger.run(run_id).trajectories.items():
            if not found.states[name]:  # what was said of it when it was not taken in is forgotten
                found.lengths.pop(name, None)
                found.tasks.pop(name, None)
            if not found.states[name] or found.states[name][-1] != state.status.value:
                found.states[name].append(state.status.value)
                if state.status.value in ("reserved", "consumed"):
                    found.answers[name].clear()
            found.versions[name] = min(ref.version for ref in state.policies)
            found.purposes[name] = state.purpose.value
            if state.reward_offset is not None:
                found.offsets[name] = state.reward_offset
            if state.status.value == "consumed":
                found.consumers[name] = state.update_id
            if state.admitted_ratio is not None:
                found.admitted.add(name)
        for name, update_id in found.consumers.items() if decision.record_type == "LearnerStarted" else ():
            update = ledger.run(run_id).updates.get(update_id)
            is_undone = update is not None and update.status.value == "rolled_back"
            if is_undone and found.states[name][-1] == "consumed":
                found.states[name].append("forgotten")
        _note(found, decision, record)
    for name, offset in found.offsets.items():
        reward: Any = records[offset]
        found.rewards[name] = next(one.raw_reward for one in reward.items if one.trajectory_id == name)
    for name in [name for name in found.states if not found.states[name]]:
        del found.states[name]
    found.refused = {name: version for name, version in found.refused.items() if name not in found.states}
    found.versions |= found.refused
    for name in found.refused:
        if name in found.kept:
            found.rewards[name] = found.kept[name]
    return found


def _decoded(source: SourceRecord) -> Part | None:
    try:
        return decode(source.value or b"")
    except (UndecodableRecord, ContractViolation):
        return None


def _note(found: Counted, decision: Decision, record: Part) -> None:
    if isinstance(record, Dispatched | Generated | GenerationFailed):
        name = record.identity.trajectory_id
        if decision.outcome == "accepted" or (decision.outcome == "rejected" and not found.states[name]):
            if isinstance(record, Dispatched):
                found.dispatched.add(name)
            if isinstance(record, Dispatched):
                found.tasks.setdefault(name, record.task.task_id)
            if isinstance(record, Generated):
                found.tasks[name] = record.task.task_id
                found.lengths[name] = sum(one.response_length for one in record.segments)
        if decision.outcome == "rejected" and not found.states[name]:
            if isinstance(record, Generated):
                spans = [span.policy for one in record.segments for span in one.spans if span.policy is not None]
                found.refused[name] = min(ref.version for ref in spans)
                found.purposes[name] = record.purpose.value
            else:
                found.refused[name] = record.policy.version
    if isinstance(record, RewardReady):
        for reward, item in zip(record.items, decision.items, strict=False):
            if item.reason == "pending":
                found.kept[item.trajectory_id] = reward.raw_reward
    if decision.record_type in ("Reserve", "Admit") and decision.outcome != "duplicate":
        for item in decision.items:
            states = found.states[item.trajectory_id]
            if item.reason in ABOUT_THE_ROW and states and states[-1] not in ("reserved", "consumed"):
                found.answers[item.trajectory_id].append((decision.record_type, item.reason))
