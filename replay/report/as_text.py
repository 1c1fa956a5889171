"""Reports as text for people. What a bundle names (ids, fields, messages) is escaped and never read as markup."""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from rollbook.replay.bundle.model import Identity
from rollbook.replay.bundle.reading.cohort import Inspected, ValidationReport
from rollbook.replay.engine.chain import ChainReport
from rollbook.replay.engine.handover import Handover
from rollbook.replay.engine.result import Divergence, Outcome, Point, RankResult, ReplayReport, StageResult, Verdict
from rollbook.replay.report.beside import details, heading
from rollbook.replay.stages.stage import DEFAULT_TOLERANCE
from rollbook.replay.stages.table import STAGES, TOKEN_PAYLOADS
from rollbook.schemas.text import plural, visible

_STYLES = {
    Verdict.PASSED: "bold green",
    Verdict.DIVERGES: "bold red",
    Verdict.UNVERIFIED: "bold yellow",
    Outcome.PASSED: "green",
    Outcome.DIVERGES: "red",
    Outcome.UNSUPPORTED: "yellow",
    Outcome.LACKING: "yellow",
}


def print_validation(report: ValidationReport, console: Console) -> None:
    name = visible(report.path)
    if report.valid:
        ranks = f", {plural(len(report.ranks), 'rank')}" if len(report.ranks) > 1 else ""
        _line(console, Text.assemble((f"{name}: ", ""), ("valid", "bold green"), ranks))
        return
    count = plural(len(report.problems), "problem")
    _line(console, Text.assemble((f"{name}: ", ""), ("invalid", "bold red"), f", {count}"))
    for problem in report.problems:
        _line(console, Text(f"  {problem}"))


def print_replay(report: ReplayReport, console: Console) -> None:
    _print_ranks(report, console)
    _line(console, _summary(report))
    if report.first_divergence is not None:
        for line in divergence_lines(report.first_divergence, ranks=len(report.ranks)):
            _line(console, Text(line))
    _print_beside(report, console)


def _print_beside(report: ReplayReport, console: Console) -> None:
    for found in report.beside:
        _line(console, Text(heading(found)))
        for name, text in details(found):
            _line(console, Text(f"  {name}: {text}"))


def _print_ranks(report: ReplayReport, console: Console) -> None:
    for rank in report.ranks:
        title = f"{visible(report.bundle_id)} rank {rank.rank}" if len(report.ranks) > 1 else visible(report.bundle_id)
        console.print(_stage_table(title, rank))


def print_chain(report: ChainReport, console: Console) -> None:
    """Every bundle in the order of the training, and before a step what it took over."""
    for link in report.links:
        for found in link.handovers:
            _line(console, Text(_handover_line(found, ranks=len(link.handovers))))
        if not link.handovers and link.at is not None and link.at.step_id >= 0:
            _line(console, Text("no bundle of its rollout before it: what it started from is not compared"))
        _print_ranks(link.report, console)
        _print_beside(link.report, console)
        _line(console, Text())
    head = Text.assemble(f"{visible(report.path)}: ", (report.verdict, _STYLES[report.verdict]))
    head.append(f", {plural(len(report.links), 'bundle')} in the chain")
    _line(console, head)
    if report.first_divergence is not None:
        first = report.first_divergence
        ranks = next(len(one.report.ranks) for one in report.links if one.report.bundle_id == first.bundle_id)
        where = "on the way to" if first.in_handover else "in"
        _line(console, Text(f"{where} bundle {visible(first.bundle_id)}:"))
        for line in divergence_lines(first.divergence, ranks, "taken over" if first.in_handover else "recomputed"):
            _line(console, Text(line))


def _handover_line(found: Handover, ranks: int) -> str:
    where = f"rank {found.rank}: " if ranks > 1 else ""
    head = f"{where}from {visible(found.upstream)}: {plural(found.shared_samples, 'sample')} taken over"
    others = f", {plural(found.other_samples, 'sample')} that it does not have" if found.other_samples else ""
    compared = ", ".join(f"{field.field} {'diverges' if field.first else 'agrees'}" for field in found.fields)
    return f"{head}{others}; {compared or 'nothing to compare'}"


def print_inspected(inspected: tuple[Inspected, ...], console: Console) -> None:
    for found in inspected:
        manifest, index = found.metadata.manifest, found.metadata.index
        complete = "complete" if found.complete else "no COMPLETE: its writer has not finished or died"
        folder = f"{visible(found.label)}: " if found.label else ""
        _line(console, Text(f"{folder}{visible(manifest.bundle_id)}, format {manifest.format_version}, {complete}"))
        console.print(_facts(found))
        contracts = _table(None, "stage", "capability", "implementation", "version")
        for stage in STAGES:
            if stage in manifest.stage_contracts:
                contract = manifest.stage_contracts[stage]
                contracts.add_row(stage, contract.capability, contract.implementation, contract.version)
        console.print(contracts)
        payloads = _table(None, "payload", "dtype", "shape", "bytes", "sha256")
        for name, payload in sorted(manifest.payloads.items()):
            used = name if name in TOKEN_PAYLOADS else f"{name} (no stage uses it)"
            shape = str(list(payload.shape))
            payloads.add_row(used, Text(visible(payload.dtype)), Text(shape), f"{payload.bytes:,}", payload.sha256)
        console.print(payloads)
        _line(console, Text(f"{plural(len(index.samples), 'sample')}"))


def _facts(found: Inspected) -> RenderableType:
    manifest, index = found.metadata.manifest, found.metadata.index
    facts = Table.grid(padding=(0, 2))
    for key, value in _facts_of(index.identity):
        facts.add_row(key, Text(visible(value)))
    producer = manifest.producer
    patch = f", with a patch {producer.dirty_patch_digest}" if producer.dirty_patch_digest else ""
    facts.add_row("producer", Text(visible(f"commit {producer.commit}{patch}, torch {producer.torch_version}")))
    if (links := index.links) is not None:
        steps = ", ".join(f"{step.step_id} {step.bundle_id}" for step in links.step_bundles)
        named = f"update {links.update_id}, its bundle {links.update_bundle or 'this'}, steps {steps or 'not named'}"
        facts.add_row("links", Text(visible(named)))
    for field, value in index.config.model_dump().items():
        facts.add_row(field, Text(visible(value)))
    redaction = ", ".join(f"{field} {how}" for field, how in sorted(manifest.redaction.items()))
    facts.add_row("redaction", Text(visible(redaction or "none")))
    return facts


def _facts_of(identity: Identity) -> Iterator[tuple[str, str]]:
    step = identity.actor_step_id
    yield "level", f"step {step.rollout_id}:{step.step_id}" if step else f"rollout {identity.rollout_id}"
    lineage = identity.weight_lineage
    yield "weights", f"rollout {lineage.rollout_weight}, actor {lineage.actor_weight}"
    yield "world", ", ".join(f"{name} {size}" for name, size in identity.rank)
    for field in (
        "rollout_partition_ids",
        "consumer_batch_ids",
        "micro_batch_ids",
        "semantic_group_ids",
        "normalization_cohort_ids",
    ):
        yield field, ", ".join(getattr(identity, field)) or "none"


def _stage_table(title: str, rank: RankResult) -> Table:
    table = _table(title, "stage", "outcome", "compared", "note")
    for stage in rank.stages:
        compared = f"{stage.verified_values:,}" if stage.fields else ""
        outcome = Text(stage.outcome, style=_STYLES.get(stage.outcome, "dim"))
        table.add_row(stage.stage, outcome, compared, Text(_note(stage)))
    return table


def _note(stage: StageResult) -> str:
    notes: list[str] = []
    diverging = [field for field in stage.fields if field.first is not None]
    if diverging:
        notes.append(", ".join(f"{field.field} ({field.diverging_values:,})" for field in diverging))
    tolerances = {field.tolerance for field in stage.fields} - {DEFAULT_TOLERANCE}
    if not STAGES[stage.stage].structural:
        notes += [f"tolerance of the bundle: atol {found.atol:g}, rtol {found.rtol:g}" for found in tolerances]
    rounded = sum(field.rounded_values for field in stage.fields)
    if rounded:
        notes.append(f"{plural(rounded, 'value')} within a float32 trainer's rounding")
    return "; ".join(notes) or stage.reason


def _summary(report: ReplayReport) -> Text:
    part = "" if report.selected_samples is None else f" ({plural(report.selected_samples, 'sample')} selected)"
    head = Text.assemble(f"{visible(report.path)}: ", (report.verdict, _STYLES[report.verdict]), part)
    if report.verdict is Verdict.UNVERIFIED:
        head.append(": not everything that the bundle promises, or nothing at all, could be verified")
    return head


def divergence_lines(first: Divergence, ranks: int, actual: str = "recomputed") -> Iterator[str]:
    """Where, and the two numbers."""
    where = f"rank {first.rank}, " if ranks > 1 else ""
    counted = plural(first.diverging_samples, "sample") if first.diverging_samples else "a scalar of the whole step"
    if first.diverging_values > first.diverging_samples > 0:
        counted = f"{plural(first.diverging_values, 'value')} in {counted}"
    yield f"first divergence: {where}{first.stage}, {first.field}: {counted}"
    yield f"  {_point_line(first.point, actual, of_sample=first.diverging_samples > 0)}"
    if first.reason:
        yield f"  {first.reason}"


def _point_line(point: Point, actual: str, *, of_sample: bool) -> str:
    """The numbers, with their place; a scalar's belong to no sample, even where one is known to explain them."""
    sample = f"sample {visible(point.sample_id)}" if of_sample else ""
    token = "" if point.token_offset is None else f", token {point.token_offset}"
    place = f"{sample}{token}: " if sample else ""
    numbers = f"expected {point.expected:.9g}, {actual} {point.actual:.9g}, absolute error {point.abs_error:.3g}"
    return f"{place}{numbers}"


def _table(title: str | None, *columns: str) -> Table:
    table = Table(title=None if title is None else Text(title), title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _line(console: Console, text: Text) -> None:
    """One line stays one line: a script that reads the report must not depend on the terminal's width."""
    console.print(text, soft_wrap=True, highlight=False)
