"""A thing's history for people: what it is, what happened to it, and what the reasons mean."""

from collections.abc import Sequence

from rollbook.infra.looking.explain import Explained, Page
from rollbook.infra.looking.groups import Survivorship
from rollbook.infra.looking.noted import Noted
from rollbook.infra.looking.policy import PolicyPage
from rollbook.infra.looking.rows import Row
from rollbook.infra.looking.show import at, counted, figure, learner_of, maybe, print_figures, print_table
from rollbook.infra.looking.trajectory import TrajectoryPage
from rollbook.infra.looking.update import UpdatePage
from rollbook.schemas.records.decision import Outcome

Figures = list[tuple[str, object]]


def print_explained(explained: Explained) -> None:
    """A page for each thing of the name."""
    for page in explained.pages:
        print_figures([(page.kind, page.id), ("run", explained.run_id), ("state", page.state), *_figures(page)])
        _print_tables(page)
        _print_history(page.history)
    if not explained.chain_agrees:
        print_figures(
            [("", f"The chain differs from that of decision {explained.sequence}: this is not what the processor did.")]
        )


def _figures(page: Page) -> Figures:
    match page:
        case TrajectoryPage():
            return _trajectory(page)
        case UpdatePage():
            return _update(page)
        case PolicyPage():
            return _policy(page)


def _print_tables(page: Page) -> None:
    if isinstance(page, UpdatePage):
        _print_rows(page.rows)
    if isinstance(page, PolicyPage):
        print_table(
            "Updates in its weights",
            ("update", "added by", "state"),
            [(found.update_id, found.version, found.state) for found in page.contains],
            right=("added by",),
        )
        print_table(
            "Acknowledged",
            ("worker", "report", "artifact", "evidence", "offset", "decided"),
            [
                (ack.worker_id, ack.report, ack.artifact_hash, ack.evidence, ack.offset, f"{ack.outcome} {ack.reason}")
                for ack in page.acks
            ],
            right=("offset",),
        )


def _trajectory(page: TrajectoryPage) -> Figures:
    figures: Figures = []
    if page.waiting is not None:
        figures.append(("waits for it", f"{page.waiting.record_type} of offset {page.waiting.offset}"))
    known = page.known
    if known is None or page.group is None:
        return figures
    return [
        *figures,
        ("revision", known.revision),
        ("purpose", known.purpose.value),
        ("policies", ", ".join(f"{ref.version} ({ref.artifact_hash})" for ref in known.policies)),
        ("place", f"group {known.group_id}, sample {known.sample_index} of {known.group_expected}"),
        ("its group now", _members(page.group)),
        ("reward", figure(page.raw_reward) or "none"),
        ("update", known.update_id or "none"),
    ]


def _update(page: UpdatePage) -> Figures:
    trained = [row for row in page.rows if row.fate == "trained"]
    rewards = [row.raw_reward for row in trained if row.raw_reward is not None]
    mean = f"{figure(sum(rewards) / len(rewards))} over {len(rewards):,} of " if rewards else "none for "
    without = f"{len(trained):,} that stand trained on" if trained else "none: nothing stands trained on"
    expected, sealed = len(page.expected_ranks), len(page.sealed_ranks)
    return [
        ("learner", learner_of(page.learner)),
        ("states", ", ".join(f"{state} at offset {offset}" for state, offset in page.offsets.items()) or "none"),
        ("held in all", sum(row.held for row in page.rows)),
        ("of those", counted(page.fates.items())),
        ("admitted", page.admitted),
        ("refused", counted((reason, many) for reason, many in page.refused.items())),
        ("its whole groups", _members(page.groups)),
        ("mean reward", mean + without if trained else without),
        ("optimizer steps", page.steps),
        ("recordings", f"{sealed} of {expected} ranks sealed" if expected or sealed else "none"),
        ("in the weights of", ", ".join(f"policy {version}" for version in page.policies) or "no policy"),
    ]


def _members(groups: Survivorship) -> str:
    """Failures stand beside what was consumed: they are no rewards of 0."""
    states = counted((*groups.members.items(), ("unknown", groups.unknown)))
    return f"{states}; {groups.expected:,} expected in {groups.groups:,} group{'' if groups.groups == 1 else 's'}"


def _policy(page: PolicyPage) -> Figures:
    figures: Figures = [("phases", ", ".join(f"{phase} at offset {offset}" for phase, offset in page.phases.items()))]
    known, prepared = page.known, page.prepared
    if known is not None:
        source = "none" if known.source_version is None else f"version {known.source_version}"
        figures += [
            ("artifact", f"{known.artifact.hash} ({known.artifact.kind.value})"),
            ("label", "" if prepared is None else prepared.label),
            ("parent", source if prepared is None else f"version {prepared.parent_version}"),
            *([("rolls back to", source)] if prepared is not None and prepared.rollback_of is not None else []),
            ("depth, ordinal", f"{known.depth}, {known.ordinal}"),
            ("written whole", "yes" if known.committed else "no"),
        ]
    if page.undone:
        figures.append(("orphaned", f"it contains undone updates: {', '.join(page.undone)}"))
    figures.append(("served by", ", ".join(page.serving) or "nobody"))
    if page.mismatched:
        figures.append(("served with another hash by", ", ".join(page.mismatched)))
    figures.append(("trajectories with a span of it", counted(page.trajectories.items())))
    return figures


def _print_rows(rows: Sequence[Row]) -> None:
    print_table(
        "Trajectories",
        ("trajectory", "group", "became", "gate", "lag", "drift", "reward", "dropped for", "now"),
        [
            (
                row.trajectory_id,
                row.group_id,
                row.fate,
                row.refused or ("admitted" if row.admitted else ""),
                maybe(row.lag),
                figure(row.mean_abs_log_ratio),
                figure(row.raw_reward),
                row.dropped,
                row.state,
            )
            for row in rows
        ],
        right=("lag", "drift", "reward"),
    )


def _print_history(history: Sequence[Noted]) -> None:
    print_table(
        "History",
        (
            "offset",
            "time (UTC)",
            "record",
            "by",
            "reason",
            "state",
            "revision",
            "lag",
            "drift",
            "update",
            "learner",
            "",
        ),
        [
            (
                noted.offset,
                at(noted.at_ms),
                noted.record,
                noted.by,
                _reason(noted),
                noted.after if noted.before == noted.after else f"{noted.before} -> {noted.after}",
                maybe(noted.revision),
                maybe(noted.lag),
                figure(noted.mean_abs_log_ratio),
                noted.update_id or "",
                learner_of(noted.learner),
                noted.said,
            )
            for noted in history
        ],
        right=("offset", "revision", "lag", "drift"),
        limit=None,
    )
    meanings = {noted.reason: noted.meaning for noted in history}
    print_table("Reasons", ("reason", "meaning"), sorted(meanings.items()))


def _reason(noted: Noted) -> str:
    parts = [noted.reason] if noted.outcome in (Outcome.ACCEPTED, Outcome.PENDING) else [noted.outcome, noted.reason]
    told = " ".join(dict.fromkeys(parts))
    told += ", violation" if noted.violation else ""
    return f"{told} ({noted.detail})" if noted.detail else told
