"""The ledger of a run for people: head, survivorship, what is open, who is there."""

from rollbook.infra.looking.ledger import LedgerView, UpdateLine
from rollbook.infra.looking.show import at, counted, figure, learner_of, maybe, print_figures, print_table
from rollbook.processors.lifecycle import Event

NOT_TRAINED_ON = {
    Event.GENERATION_FAILED: "generation_failed",
    Event.REWARD_FAILED: "reward_failed",
    Event.DISCARD: "discarded",
    Event.QUARANTINE: "quarantined",
    Event.EXPIRE: "offline",
}
"""How what never entered an update's weights ended, shown beside what did: a mean over the consumed alone is a mean
over the survivors."""


def print_ledger(view: LedgerView) -> None:
    """The page; only the trajectories asked for when some are."""
    if view.listed is not None:
        if view.update is not None:
            print_figures(_update_figures(view.update))
        _print_listed(view)
        if not view.listed:
            print_figures([("trajectories", "none")])
        return
    print_figures(_head(view))
    print_table("Trajectories that are known", ("state", "count"), list(view.trajectories.items()), right=("count",))
    print_table("What happened so far", ("what", "count"), list(view.happened.items()), right=("count",))
    print_table(
        "Open updates",
        ("update", "state", "learner", "since decision", "last heard of (UTC)", "offset", "holds"),
        [_open(update) for update in view.open_updates],
        right=("since decision", "offset", "holds"),
    )
    print_table(
        "Learners",
        ("learner", "epoch", "process", ""),
        [(one.learner_id, one.epoch, one.incarnation, "fenced" if one.fenced else "") for one in view.learners],
        right=("epoch",),
    )
    print_table(
        "Policies",
        ("version", "phase", "artifact", "depth", "ordinal", "made from", "adds updates", "activated at offset"),
        [
            (
                p.version,
                p.phase,
                p.artifact_hash,
                p.depth,
                p.ordinal,
                maybe(p.made_from),
                len(p.adds),
                maybe(p.activated_offset),
            )
            for p in reversed(view.policies)
        ],
        right=("version", "depth", "ordinal", "made from", "adds updates", "activated at offset"),
    )
    print_table(
        "Workers",
        ("worker", "serves", "artifact", "report", "offset"),
        [
            (
                one.worker_id,
                f"nothing: {one.failure}" if one.serves is None else one.serves.version,
                "" if one.serves is None else one.serves.artifact_hash,
                f"{one.incarnation}.{one.report_seq}",
                one.offset,
            )
            for one in view.workers
        ],
        right=("offset",),
    )
    print_table(
        "Facts that wait",
        ("record", "of", "offset"),
        [(one.record_type, one.subject_id, one.offset) for one in view.pending],
        right=("offset",),
    )


def _head(view: LedgerView) -> list[tuple[str, object]]:
    head, config = view.head, view.config
    active = "none" if head.active is None else f"{head.active.version} ({head.active.artifact_hash})"
    happened = view.happened
    beside = counted((name, happened.get(event, 0)) for event, name in NOT_TRAINED_ON.items())
    consumed = happened.get(Event.COMMIT, 0) - happened.get(Event.ROLL_BACK, 0)
    figures: list[tuple[str, object]] = [
        ("run", view.run_id + (", closed" if head.closed else "")),
        ("after decision", head.sequence),
        ("next lifecycle offset", view.next_offset),
        ("chain", head.chain),
        ("active policy", active + (", orphaned: it contains undone updates" if head.active_orphaned else "")),
        ("floor", f"version {head.floor}; what is final below it is forgotten" if head.floor else "none"),
        ("updates", counted(view.updates.items())),
        ("consumed so far", f"{consumed:,}; never trained on, and no reward of 0: {beside}"),
    ]
    if config is not None:
        admission = config.admission
        figures[1:1] = [
            ("enforcement", f"{config.enforcement.value}, configuration {config.config_version}"),
            ("largest tolerated lag", f"{admission.max_lag} ({admission.lag_unit.value})"),
        ]
    return figures


def _update_figures(update: UpdateLine) -> list[tuple[str, object]]:
    return [
        ("update", update.update_id),
        ("state", _state(update)),
        ("learner", learner_of(update.learner)),
        ("since decision", update.since_sequence),
        ("last heard of", f"{at(update.heard_ms)} UTC, offset {update.heard_offset}"),
        ("holds", len(update.held)),
        ("trained on", len(update.trained) + update.forgotten),
        ("ranks sealed", ", ".join(map(str, update.sealed_ranks)) or "none"),
    ]


def _print_listed(view: LedgerView) -> None:
    print_table(
        "Trajectories",
        ("trajectory", "state", "revision", "group", "sample", "policies", "update", "lag", "drift", "generated at"),
        [
            (
                row.trajectory_id,
                row.status.value,
                row.revision,
                row.group_id,
                f"{row.sample_index} of {row.group_expected}",
                ", ".join(str(ref.version) for ref in row.policies),
                row.update_id,
                maybe(row.lag),
                figure(row.admitted_ratio),
                row.generated_offset,
            )
            for row in view.listed or ()
        ],
        right=("revision", "lag", "drift", "generated at"),
    )


def _open(update: UpdateLine) -> tuple[object, ...]:
    return (
        update.update_id,
        _state(update),
        learner_of(update.learner),
        update.since_sequence,
        at(update.heard_ms),
        update.heard_offset,
        len(update.held),
    )


def _state(update: UpdateLine) -> str:
    return update.status.value + (", in doubt" if update.in_doubt else "")
