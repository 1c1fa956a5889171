"""An audit's report: lines for a terminal, JSON for scripts, Markdown and HTML to keep."""

import html
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rollbook.replay.audit.audit import AuditReport
from rollbook.replay.audit.findings import MEANING, Finding
from rollbook.replay.wholefile import check_place, keep_page
from rollbook.schemas.text import plural, visible

_STARTS = {
    ".md": "# Audit\n\nMade by ",
    ".html": '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Audit</title>',
}
"""How a page begins, by which an older one is known."""


def lines(report: AuditReport) -> Iterator[str]:
    """For a person at a terminal."""
    what = "" if report.run_id is None else f" of run {visible(report.run_id)}"
    where = visible(f"{report.lifecycle}:{report.partition}:{report.within.first}-{report.within.end}")
    yield f"{'PASS' if report.passed else 'FAIL'}  {where}{what}"
    yield f"  {plural(report.decided, 'decision')} derived, byte for byte the topic's"
    if report.undecided:
        yield f"  {plural(report.undecided, 'record')} at the end not decided yet"
    checked = report.checked
    yield f"  drift of {plural(checked.admits, 'row')} and {plural(checked.recordings, 'recording')} computed again"
    if report.bundles:
        yield f"  {plural(report.bundles, 'bundle')} made again from the log"
    for head in report.heads:
        yield f"  head of {visible(head.run_id)}: {head.chain} (decision {head.sequence:,}, fold {head.fold_version})"
    for text in report.unchecked:
        yield f"  not checked: {visible(text, 1000)}"
    for finding in report.findings:
        yield from _finding(finding)
    if report.more:
        yield f"  ... and {report.more:,} more"


def _finding(finding: Finding) -> Iterator[str]:
    yield f"  {finding.kind}  {visible(finding.place, 4096)}  {visible(finding.what, 1000)}"
    yield f"    {MEANING[finding.kind]}"
    for name in dict.fromkeys((*finding.said, *finding.derived)):
        yield f"    {visible(name)}"
        yield f"      there    {visible(finding.said.get(name, '-'), 1000)}"
        yield f"      derived  {visible(finding.derived.get(name, '-'), 1000)}"


def plain(report: AuditReport) -> dict[str, Any]:
    """For scripts: keys only ever grow."""
    return {
        "passed": report.passed,
        "lifecycle": report.lifecycle,
        "partition": report.partition,
        "start": report.within.first,
        "end": report.within.end,
        "run_id": report.run_id,
        "decided": report.decided,
        "undecided": report.undecided,
        "admitted_rows_checked": report.checked.admits,
        "admitted_rows_unmeasured": report.checked.unmeasured,
        "admitted_rows_without_log_probs": report.checked.without_log_probs,
        "admitted_rows_without_generated": report.checked.without_generated,
        "rows_refused_for_evidence": report.checked.refused,
        "recordings_checked": report.checked.recordings,
        "payloads_gone": report.checked.gone,
        "bundles_checked": report.bundles,
        "heads": [
            {"run_id": one.run_id, "sequence": one.sequence, "chain": one.chain, "fold_version": one.fold_version}
            for one in report.heads
        ],
        "findings": [
            {
                "kind": one.kind.value,
                "meaning": MEANING[one.kind],
                "place": one.place,
                "what": one.what,
                "there": one.said,
                "derived": one.derived,
            }
            for one in report.findings
        ],
        "more_findings": report.more,
        "unchecked": list(report.unchecked),
    }


def check_page(path: Path) -> None:
    """Before an audit, which may take long: raises BadInput for a name that is neither Markdown nor HTML, and for a
    place where something else than an older page of an audit would be lost."""
    check_place(path, _STARTS, "an audit")


def keep(reports: Sequence[AuditReport], path: Path) -> None:
    """Write a page to keep, as Markdown or HTML by its name, in place of an older one. Raises as `check_page`, and
    EnvironmentFault; what was there stays then."""
    check_page(path)
    keep_page(path, (_html if path.suffix == ".html" else _markdown)(reports))


def _made() -> str:
    return f"rollbook {version('rollbook')}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def _markdown(reports: Sequence[AuditReport]) -> str:
    parts = [f"{_STARTS['.md']}{_made()}.\n"]
    for report in reports:
        body = "\n".join(lines(report)).replace("```", "` ` `")
        parts.append(f"## {'Passed' if report.passed else 'Failed'}\n\n```\n{body}\n```\n")
    return "\n".join(parts)


def _html(reports: Sequence[AuditReport]) -> str:
    sections = [
        f"<h2 class={'pass' if report.passed else 'fail'}>{'Passed' if report.passed else 'Failed'}</h2>\n"
        f"<pre>{html.escape(chr(10).join(lines(report)))}</pre>"
        for report in reports
    ]
    style = (
        ":root{color-scheme:light dark}body{font:16px/1.5 system-ui;max-width:70rem;margin:2rem auto;padding:0 1rem}"
        "pre{overflow:auto}.pass{color:#18794e}.fail{color:#cd2b31}"
    )
    return (
        f"{_STARTS['.html']}"
        '<meta name="viewport" content="width=device-width"><meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{style}</style></head><body><h1>Audit</h1><p>Made by {html.escape(_made())}.</p>\n"
        + "\n".join(sections)
        + "</body></html>\n"
    )
