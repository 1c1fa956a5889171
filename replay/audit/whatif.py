"""What if: the history of a run judged under other admission rules.

    with open_history("my-run.avro", run="my-run") as history:
        (report,) = history.what_if(Instead(max_lag=2))

A refusal changes what follows it: the row leaves its update, the trainer commits another one, the next policy has other
weights, and those generate other rows. No log holds what never happened. To fold the records that there are under
other rules would not give it either: a Commit that still names the refused row would be refused as a whole, every later
policy would lack its update, and after a few records nothing would be admitted any more. So each judgement is made
again by itself, with the state as it was: the fold runs under the run's own rules, its decisions must be the topic's,
and beside each Reserve and Admit the same gates answer under the other rules. Held fixed are all records, which rows a
claim chose, and every policy, lag and ordinal. What can follow within an update does: a row that its Reserve would
refuse is not admitted, one that its Admit would refuse is not trained on, and one that was refused but would be
admitted counts as trained on where the update was committed.

A row that was never shown in an Admit has no drift that anybody could judge: it is called unmeasured.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rollbook.processors.gates import drift_gate, freshness_of, lag_gate
from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.judge import Asked, Judged, judge
from rollbook.processors.ledger.lag import behavior_of, known_policy, lag_of
from rollbook.processors.ledger.store import Run, behavior_version, is_open
from rollbook.processors.reasons import Reason
from rollbook.replay.audit.anchor import Anchor
from rollbook.replay.audit.audit import check_decided
from rollbook.replay.audit.decisions import Derived, Deriver, Differs, Stretch
from rollbook.replay.audit.findings import unfit
from rollbook.replay.audit.rules import Instead
from rollbook.replay.audit.whatif_report import UNMEASURED, Count, Rules, RunWhatIf, Stage, WhatIfReport
from rollbook.replay.history.source import LogSource
from rollbook.replay.progress import Watch
from rollbook.schemas.records.decision import ItemDecision, Outcome
from rollbook.schemas.records.ledger import RunConfig, UpdateState, UpdateStatus
from rollbook.schemas.records.run import Admission, DriftGate
from rollbook.schemas.records.update import Admit, Commit, Reserve, ReserveMode

_NOTHING = "of what would have been nothing can be said"
_BY_LAG = (Reason.RESERVED, Reason.ALL_OR_NONE, Reason.STALE_POLICY, Reason.FUTURE_POLICY)
_BY_FIGURES = (Reason.OK, Reason.STALE_POLICY, Reason.FUTURE_POLICY, Reason.POLICY_DRIFT)
_TAKEN = (Reason.RESERVED, Reason.IDEMPOTENT_RETRY)
_STALE = (Reason.STALE_POLICY, Reason.ALL_OR_NONE)
_ENDS = ("Commit", "Abort", "LeaseExpired", "LearnerStarted", "RunClosed")


def what_if(
    log: LogSource,
    stretch: Stretch,
    instead: Instead,
    *,
    anchor: Anchor | None = None,
    watch: Watch = lambda *_: None,
) -> WhatIfReport:
    """Judge a stretch again under other rules. Raises BadInput where it does not pass its audit, else as `audit`."""
    partitions = log.partitions(stretch.lifecycle)
    for edited in () if anchor is None else anchor.check():
        raise unfit(edited, _NOTHING)
    ledger = Ledger(stretch.partition, partitions) if anchor is None else anchor.ledger(stretch)
    deriver = Deriver(log, stretch, ledger)
    runs: dict[str, _OfRun] = {}
    try:
        for derived in deriver.derive("judged", watch):
            name = derived.decision.run_id
            if derived.decision.record_type in _JUDGED:
                runs.setdefault(name, _OfRun(name, instead)).take(derived, ledger.run(name))
    except Differs as first:
        raise unfit(first.finding, _NOTHING) from None
    check_decided(stretch, deriver.decided, deriver.undecided)
    return WhatIfReport(
        lifecycle=stretch.lifecycle,
        partition=stretch.partition,
        within=stretch.within,
        decided=deriver.decided,
        undecided=deriver.undecided,
        runs=tuple(runs[name].result() for name in sorted(runs) if runs[name].rules),
    )


@dataclass(slots=True)
class _Row:
    """A row of an open update: what its Reserve and its Admit said, and would say; None: never shown in an Admit."""

    version: int | None
    reserve_would: str
    admit_was: str | None = None
    admit_would: str | None = None


@dataclass(slots=True)
class _OfRun:
    """Memory grows with what open updates hold and with what is within reach, not with the history."""

    run_id: str
    instead: Instead
    observed: bool = False
    rules: dict[int, Rules] = field(default_factory=dict)
    _was: Counter[tuple[Stage, int | None, str]] = field(default_factory=Counter)
    _would: Counter[tuple[Stage, int | None, str]] = field(default_factory=Counter)
    _rows: dict[str, dict[str, _Row]] = field(default_factory=dict)
    _reach: dict[str, int] = field(default_factory=dict)

    def take(self, derived: Derived, run: Run) -> None:
        """One record; `run` as it is behind it, which the gates see as before it: nothing they look at changed."""
        record, outcome = derived.record, derived.decision.outcome
        items = derived.decision.items
        if isinstance(record, Reserve) and outcome in (Outcome.ACCEPTED, Outcome.REJECTED):
            if items or derived.decision.reason == Reason.NOTHING_TAKEN:
                self._reserve(record, items, run)
        elif isinstance(record, Admit) and outcome is Outcome.ACCEPTED:
            self._admit(record, items, run)
        elif isinstance(record, Commit) and outcome is Outcome.ACCEPTED:
            self._commit(record, items, run)
        if derived.decision.record_type in _ENDS:
            for update_id in list(self._rows):
                update = run.updates.get(update_id)
                if update is None or not is_open(update):
                    del self._rows[update_id]

    def result(self) -> RunWhatIf:
        keys = {*self._was, *self._would}
        ordered = sorted(keys, key=lambda key: (list(Stage).index(key[0]), -1 if key[1] is None else key[1], key[2]))
        return RunWhatIf(
            self.run_id,
            self.observed,
            tuple(self.rules[version] for version in sorted(self.rules)),
            tuple(Count(*key, self._was[key], self._would[key]) for key in ordered),
            tuple(sorted(Counter(self._reach.values()).items())),
        )

    def _reserve(self, record: Reserve, items: tuple[ItemDecision, ...], run: Run) -> None:
        config = self._config(run, record.update_id)
        rules = self._rules(config)
        answers = [(item, self._reserve_again(record, item, run, config, rules)) for item in items]
        for item, would in _all_or_none(record, answers, run):
            version = _version(run, item.trajectory_id)
            if item.reason == Reason.IDEMPOTENT_RETRY:  # the first answer was counted
                continue
            self._count(Stage.RESERVE, version, item.reason, would)
            if run.observes or item.reason == Reason.RESERVED:
                self._rows.setdefault(record.update_id, {})[item.trajectory_id] = _Row(version, would)
                self._reach.pop(item.trajectory_id, None)
            elif item.reason in _STALE and would in _TAKEN and version is not None:
                self._reach[item.trajectory_id] = version
        if record.claim is not None and rules.was != rules.would:
            self._passed_over(record, run, config, rules)

    def _reserve_again(
        self, record: Reserve, item: ItemDecision, run: Run, config: RunConfig, rules: Rules
    ) -> tuple[str, str]:
        """The row's group, and the answer."""
        known = run.trajectories.get(item.trajectory_id)
        group = "" if known is None else known.group_id
        if item.reason not in _BY_LAG:
            return group, item.reason
        lag = _lag(record, item, run, config, rules)
        refusal = None if lag is None else lag_gate(freshness_of(lag, rules.would.max_lag))
        return group, (refusal or Reason.RESERVED).value

    def _passed_over(self, record: Reserve, run: Run, config: RunConfig, rules: Rules) -> None:
        """Groups that the claim did not choose since they were stale, and that would pass."""
        update = run.updates.get(record.update_id) or _unopened(record, config)
        own, other = (Asked(record, update, config.but(admission=one)) for one in (rules.was, rules.would))
        groups = run.trajectories.groups
        for shape in groups.shapes():
            named = groups.claimable_of(shape)
            if _is_stale(_members(run, own, named[0][1])) and _passes(other, _members(run, other, named[0][1])):
                for _, group_id in named:
                    for member in _members(run, other, group_id):
                        if member.passes and member.trajectory is not None:
                            self._reach[member.trajectory_id] = behavior_version(member.trajectory)

    def _admit(self, record: Admit, items: tuple[ItemDecision, ...], run: Run) -> None:
        config = self._config(run, record.update_id)
        rules = self._rules(config)
        rows = self._rows.setdefault(record.update_id, {})
        for item in items:
            row = rows.get(item.trajectory_id)
            if row is None:  # not reserved; or it was before an anchor
                row = _Row(_version(run, item.trajectory_id), Reason.RESERVED.value)
                if item.reason != Reason.NOT_RESERVED:
                    rows[item.trajectory_id] = row
            if row.admit_was == Reason.OK:  # judged once an update: the first answer was counted
                continue
            row.admit_was = item.reason
            row.admit_would = self._admit_again(record, item, run, config, rules, row)
            self._count(Stage.ADMIT, row.version, row.admit_was, row.admit_would)

    def _admit_again(
        self, record: Admit, item: ItemDecision, run: Run, config: RunConfig, rules: Rules, row: _Row
    ) -> str:
        if row.reserve_would not in _TAKEN:
            return Reason.NOT_RESERVED.value
        ratio = item.mean_abs_log_ratio
        if item.reason not in _BY_FIGURES or ratio is None:
            return item.reason
        lag = _lag(record, item, run, config, rules)
        refusal = None if lag is None else lag_gate(freshness_of(lag, rules.would.max_lag))
        return (refusal or drift_gate(ratio, rules.would.max_mean_abs_log_ratio) or Reason.OK).value

    def _commit(self, record: Commit, items: tuple[ItemDecision, ...], run: Run) -> None:
        rules = self._rules(self._config(run, record.update_id))
        rows = self._rows.get(record.update_id, {})
        trained = {name for step in record.steps for name in step.trajectory_ids}
        for item in items:
            name = item.trajectory_id
            if name in trained:
                row = rows.get(name)
                version = _version(run, name) if row is None else row.version
                would = _trained_before(item, rules) if row is None else _trained(row, rules.would)
                self._count(Stage.TRAIN, version, Reason.TRAINED.value, would)
        dropped = {drop.trajectory_id for drop in record.dropped}
        for name, row in rows.items():
            refused = row.admit_was not in (None, Reason.OK) and name not in trained and name not in dropped
            if refused and _trained(row, rules.would) == Reason.TRAINED:
                self._would[Stage.TRAIN, row.version, Reason.TRAINED.value] += 1

    def _count(self, stage: Stage, version: int | None, was: str, would: str) -> None:
        self._was[stage, version, was] += 1
        self._would[stage, version, would] += 1

    def _config(self, run: Run, update_id: str) -> RunConfig:
        """That of the update's first Reserve."""
        update = run.updates.get(update_id)
        config = run.configs.get(run.head.config_version if update is None else update.config_version)
        assert config is not None, "configurations are never forgotten"
        self.observed = run.observes
        return config

    def _rules(self, config: RunConfig) -> Rules:
        version = config.config_version
        if version not in self.rules:
            would = self.instead.of(config.admission)
            self.rules[version] = Rules(version, config.admission, would, config.horizon)
        return self.rules[version]


_JUDGED = frozenset(("Reserve", "Admit", *_ENDS))


def _lag(record: Reserve | Admit, item: ItemDecision, run: Run, config: RunConfig, rules: Rules) -> int | None:
    """As it was decided; in another unit from the policies, whose numbers stay."""
    if rules.would.lag_unit is rules.was.lag_unit:
        return item.lag
    known, policy = run.trajectories.get(item.trajectory_id), known_policy(run, record.policy)
    behavior = None if known is None else behavior_of(run, known)
    if behavior is None or policy is None:
        return item.lag
    other = config.but(admission=rules.would)
    return lag_of(run, other, behavior, record.learner, record.update_id, policy)[0]


def _all_or_none(
    record: Reserve, answers: list[tuple[ItemDecision, tuple[str, str]]], run: Run
) -> Iterator[tuple[ItemDecision, str]]:
    """Mode all takes every item that is named or none; a claim so each group. What is only observed takes what it
    names."""
    spoilt = set()
    if record.mode is ReserveMode.ALL and not run.observes:
        spoilt = {_unit(record, group) for _, (group, would) in answers if would not in _TAKEN}
    for item, (group, would) in answers:
        is_alone = would == Reason.RESERVED and _unit(record, group) in spoilt
        yield item, Reason.ALL_OR_NONE.value if is_alone else would


def _unit(record: Reserve, group: str) -> str:
    return group if record.claim is not None else ""


def _version(run: Run, trajectory_id: str) -> int | None:
    known = run.trajectories.get(trajectory_id)
    return None if known is None or not known.policies else behavior_version(known)


def _trained_before(item: ItemDecision, rules: Rules) -> str:
    """The same of a row that was reserved before an anchor, by the figures of its admission; without a Reserve at all
    nobody judged it."""
    lag, ratio = item.lag, item.mean_abs_log_ratio
    is_gated = rules.would.drift_gate is DriftGate.REQUIRED
    if lag is None or rules.would.lag_unit is not rules.was.lag_unit or (is_gated and ratio is None):
        return UNMEASURED
    refusal = lag_gate(freshness_of(lag, rules.would.max_lag))
    if is_gated and ratio is not None:
        refusal = refusal or drift_gate(ratio, rules.would.max_mean_abs_log_ratio)
    return (refusal or Reason.TRAINED).value


def _trained(row: _Row, rules: Admission) -> str:
    """What would have become of a row at the Commit of its update."""
    if row.reserve_would not in _TAKEN:
        return row.reserve_would
    if rules.drift_gate is DriftGate.OFF:
        return Reason.TRAINED.value
    if row.admit_would is None:
        return UNMEASURED
    return Reason.TRAINED.value if row.admit_would == Reason.OK else row.admit_would


def _members(run: Run, asked: Asked, group_id: str) -> list[Judged]:
    return [judge(run, asked, one.trajectory_id, None) for one in run.trajectories.ready_members(group_id)]


def _passes(asked: Asked, members: list[Judged]) -> bool:
    enough = all if asked.record.mode is ReserveMode.ALL else any
    return enough(one.passes for one in members)


def _is_stale(members: list[Judged]) -> bool:
    return any(one.reason is Reason.STALE_POLICY for one in members)


def _unopened(record: Reserve, config: RunConfig) -> UpdateState:
    """The update of a claim that took nothing."""
    return UpdateState(
        update_id=record.update_id,
        status=UpdateStatus.OPEN,
        learner=record.learner,
        config_version=config.config_version,
        opened_sequence=0,
        last_activity_offset=0,
    )
