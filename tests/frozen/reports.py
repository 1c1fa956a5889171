"""What audit, replay and materialize say of a log, without what rounding on another machine may change and without
words for people: of a replay the verdict, and of each stage its outcome, what was compared, and where it first differs.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from rollbook.infra.settings import Settings
from rollbook.replay.audit.anchor import Anchor
from rollbook.replay.audit.audit import audit, stretch_of
from rollbook.replay.engine.result import FieldResult, ReplayReport
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import LogSource
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.updates.replayed import replay_history
from rollbook.tests.frozen.table import Entry, digest


def said_of(
    log: LogSource, settings: Settings, wanted: OffsetRange, *, payloads: bool, anchor: Anchor | None = None
) -> Entry:
    """All of them, of a range of the lifecycle topic."""
    updates = Wanted.of_range(wanted, settings)
    return {
        "audit": _audited(log, settings, wanted, payloads, anchor),
        "updates": dict(_replayed(log, updates)),
        "bundles": dict(_bundles(log, updates)),
    }


def _audited(log: LogSource, settings: Settings, wanted: OffsetRange, payloads: bool, anchor: Anchor | None) -> Entry:
    whole = stretch_of(log, settings, wanted, None)
    report = audit(log, settings, whole, anchor=anchor, payloads=payloads).report
    return {
        "findings": [str(one.kind) for one in report.findings],
        "decided": report.decided,
        "undecided": report.undecided,
        "heads": {one.run_id: f"{one.sequence} {one.chain}" for one in report.heads},
        "checked": {"admits": report.checked.admits, "recordings": report.checked.recordings},
    }


def _replayed(log: LogSource, wanted: Wanted) -> Iterator[tuple[str, Entry]]:
    for update in replay_history(log, wanted).updates:
        yield (
            f"{update.run_id} {update.update_id}",
            {
                "commit": update.commit,
                "outcome": update.outcome.value,
                "problems": [str(one.reason) for one in (*update.problems, *update.without_update)],
                "bundles": {link.report.bundle_id: stages_of(link.report) for link in update.links},
            },
        )


def _bundles(log: LogSource, wanted: Wanted) -> Iterator[tuple[str, str]]:
    """Each bundle and each provenance, by the digest of all that it is on disk."""
    with TemporaryDirectory() as name:
        materialize(log, wanted, Path(name))
        for path in sorted(Path(name).iterdir()):
            yield path.name, digest_of(path)


def digest_of(path: Path) -> str:
    """Of a file, or of all below a folder with their names."""
    files = sorted(one for one in (path, *path.rglob("*")) if one.is_file())
    return digest(part for one in files for part in (one.relative_to(path).as_posix().encode(), one.read_bytes()))


def stages_of(report: ReplayReport) -> Entry:
    """By rank and stage."""
    stages = {
        f"{rank.rank} {stage.stage}": " ".join((stage.outcome.value, *map(_field, stage.fields)))
        for rank in report.ranks
        for stage in rank.stages
    }
    return {"verdict": report.verdict.value, **stages}


def _field(field: FieldResult) -> str:
    compared = f"{field.field}={field.values}@{field.tolerance.atol:g}+{field.tolerance.rtol:g}"
    if field.first is None:
        return compared
    place = f"{field.first.sample_id}:{field.first.token_offset}"
    return f"{compared}!{field.diverging_values}/{field.diverging_samples}:{place}"
