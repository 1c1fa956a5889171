"""Reports as JSON for programs: strict JSON, ASCII only, so that no id can draw anything where it is printed."""

import json
from dataclasses import asdict
from math import isfinite
from typing import Any

from rollbook.replay.bundle.reading.cohort import Inspected, ValidationReport
from rollbook.replay.engine.chain import ChainDivergence, ChainReport, Link
from rollbook.replay.engine.handover import Handover
from rollbook.replay.engine.result import (
    Beside,
    Divergence,
    FieldBeside,
    FieldResult,
    Point,
    RankResult,
    ReplayReport,
    StageResult,
)


def validation_json(report: ValidationReport) -> str:
    problems = [
        {"file": found.file, "field": found.field, "what": found.what, "remedy": found.remedy}
        for found in report.problems
    ]
    return _text({"bundle": str(report.path), "valid": report.valid, "ranks": list(report.ranks), "problems": problems})


def replay_json(report: ReplayReport) -> str:
    return _text(_replay(report))


def chain_json(report: ChainReport) -> str:
    first = report.first_divergence
    return _text(
        {
            "folder": str(report.path),
            "verdict": report.verdict,
            "first_divergence": first and chain_divergence(first),
            "bundles": [link_fields(link) for link in report.links],
        }
    )


def chain_divergence(first: ChainDivergence) -> dict[str, Any]:
    return {"bundle_id": first.bundle_id, "in_handover": first.in_handover, **_divergence(first.divergence)}


def link_fields(link: Link) -> dict[str, Any]:
    """One bundle of a chain."""
    return {"handovers": [_handover(found) for found in link.handovers], **_replay(link.report)}


def inspect_json(inspected: tuple[Inspected, ...]) -> str:
    return _text(
        {
            "ranks": [
                {
                    "folder": found.label,
                    "complete": found.complete,
                    "samples": len(found.metadata.index.samples),
                    "identity": found.metadata.index.identity.model_dump(mode="json"),
                    "config": found.metadata.index.config.model_dump(mode="json"),
                    "links": found.metadata.index.links and found.metadata.index.links.model_dump(mode="json"),
                    "manifest": found.metadata.manifest.model_dump(mode="json"),
                }
                for found in inspected
            ]
        }
    )


def _replay(report: ReplayReport) -> dict[str, Any]:
    return {
        "bundle": str(report.path),
        "bundle_id": report.bundle_id,
        "verdict": report.verdict,
        "selected_samples": report.selected_samples,
        "first_divergence": report.first_divergence and _divergence(report.first_divergence),
        "ranks": [_rank(rank) for rank in report.ranks],
        "kernels": [_beside(found) for found in report.beside],
    }


def _beside(found: Beside) -> dict[str, Any]:
    return {
        "stage": found.stage,
        "agreement": found.agreement,
        "installed": asdict(found.code),
        "adapts": found.adapts and asdict(found.adapts),
        "recorded": found.recorded and asdict(found.recorded),
        "ranks": [
            {
                "rank": rank.rank,
                "agreement": rank.agreement,
                "reason": rank.reason,
                "fields": [_field_beside(field) for field in rank.fields],
            }
            for rank in found.ranks
        ],
    }


def _field_beside(found: FieldBeside) -> dict[str, Any]:
    return {
        "agreement": found.agreement,
        "ours_agrees": found.ours_agrees,
        "ours_is_theirs": found.ours_is_theirs,
        **_field(found.theirs),
    }


def _divergence(first: Divergence) -> dict[str, Any]:
    return {
        "rank": first.rank,
        "stage": first.stage,
        "field": first.field,
        **_point(first.point),
        "diverging_values": first.diverging_values,
        "diverging_samples": first.diverging_samples,
        "reason": first.reason,
    }


def _handover(found: Handover) -> dict[str, Any]:
    return {
        "from": found.upstream,
        "rank": found.rank,
        "shared_samples": found.shared_samples,
        "other_samples": found.other_samples,
        "fields": [_field(field) for field in found.fields],
    }


def _rank(rank: RankResult) -> dict[str, Any]:
    return {"rank": rank.rank, "verdict": rank.verdict, "stages": [_stage(stage) for stage in rank.stages]}


def _stage(stage: StageResult) -> dict[str, Any]:
    return {
        "stage": stage.stage,
        "outcome": stage.outcome,
        "reason": stage.reason,
        "fields": [_field(field) for field in stage.fields],
    }


def _field(field: FieldResult) -> dict[str, Any]:
    return {
        "field": field.field,
        "unit": field.unit,
        "atol": field.tolerance.atol,
        "rtol": field.tolerance.rtol,
        "values": field.values,
        "rounded_values": field.rounded_values,
        "diverging_values": field.diverging_values,
        "diverging_samples": field.diverging_samples,
        "first": field.first and _point(field.first),
        "worst": field.worst and _point(field.worst),
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "sample_id": point.sample_id,
        "token_offset": point.token_offset,
        "expected": _number(point.expected),
        "actual": _number(point.actual),
        "abs_error": _number(point.abs_error),
    }


def _number(value: float) -> float | str:
    """JSON has no NaN and no infinity: they are given by name."""
    return value if isfinite(value) else str(value)


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, allow_nan=False)
