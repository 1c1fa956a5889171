"""The demo's result as JSON, in the run's folder: for tests and other programs."""

import json
from dataclasses import asdict
from typing import Any

from rollbook.infra.demo.config import EVAL_MARGIN
from rollbook.infra.demo.run import DemoResult


def write_summary(result: DemoResult) -> None:
    """Write `summary.json`."""
    text = json.dumps(_summary(result), indent=2) + "\n"
    result.folder.summary.write_text(text, encoding="utf-8")


def _summary(result: DemoResult) -> dict[str, Any]:
    config, settings = result.plan.config, result.cluster.settings
    return {
        "run": result.plan.run_id,
        "seed": config.seed,
        "seconds": round(result.seconds, 1),
        "bootstrap_servers": settings.bootstrap_servers,
        "topic_prefix": settings.topic_prefix,
        "figures": asdict(result.figures),
        "freshness": None if result.freshness is None else result.freshness.model_dump(mode="json"),
        "evaluation": {
            "before": result.figures.eval_of(0),
            "after": result.figures.eval_of(result.figures.last_version),
            "margin": EVAL_MARGIN,
        },
        "bundles": [{"path": str(bundle.path), "verdict": bundle.verdict.value} for bundle in result.bundles],
        "update_bundles": [
            {"path": str(bundle.path), "verdict": bundle.verdict.value} for bundle in result.update_bundles
        ],
        "undone": list(result.undone),
        "not_written": list(result.not_written),
    }
