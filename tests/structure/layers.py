"""The layers: within each part its folders and modules from the ground up. Imports go down this table, never up."""

from rollbook.tests.structure.tree import Module

SETTINGS_LEAF = "rollbook.infra.settings"

# What a part may import of rollbook. Of the processors, producers and replay may have what is pure.
ALLOWED = {
    "schemas": ("rollbook.schemas", SETTINGS_LEAF),
    "producers": ("rollbook.producers", "rollbook.schemas", "rollbook.processors", SETTINGS_LEAF),
    "processors": ("rollbook.processors", "rollbook.schemas", SETTINGS_LEAF),
    "replay": ("rollbook.replay", "rollbook.schemas", "rollbook.processors", SETTINGS_LEAF),
    "infra": ("rollbook",),
    "tests": ("rollbook",),
}

# A folder is one layer with all its modules; of the folders in OPEN each module is a layer of its own.
OPEN = (*(f"rollbook.{part}" for part in ALLOWED), "rollbook.processors.dashboard", "rollbook.infra.demo")
LAYERS = {
    "schemas": (
        "text", "errors", "wording", "partition", "writing", "types", "reading", "records", "digests", "payload_io",
        "registry", "avro_types", "codec",
    ),
    "producers": (
        "remedies", "errors", "arrays", "given", "identity", "redaction", "sending", "reading", "updates", "clients",
        "observing", "trl", "trl.asynchronous",
    ),
    "processors": (
        "fold_version", "lifecycle_schema", "decision_schema", "reasons", "gates", "lifecycle", "rules", "ledger",
        "capacity", "freshness", "metric", "metric_table", "address", "stopping", "host", "dashboard.answers",
        "dashboard.fold", "dashboard.shared", "dashboard.reading", "dashboard.metrics", "dashboard.exposition",
        "dashboard.supervisor", "dashboard.web", "dashboard.app", "commands",
    ),
    "replay": (
        "kernels", "bundle", "dialects", "stages", "bundle.reading", "bundle.writing", "capture", "engine",
        "recognition", "report", "wholefile", "html", "progress", "history", "materialize", "updates", "diff", "audit",
        "prove", "survivorship", "histories", "commands",
    ),
    "infra": (
        "misspelled", "settings", "output", "outcome", "lazy", "mounts", "command", "cli", "topics", "broker",
        "dead_letters", "looking", "watching", "monitoring", "demo.config", "demo.learning", "demo.processes",
        "demo.telling", "demo.cluster", "demo.interrupt", "demo.run", "demo.summary", "demo.table", "doctor",
        "commands", "reference",
    ),
}  # fmt: skip


def layer_of(module: Module) -> str:
    """The layer of a module: its folder, or in an open folder the module itself; without `rollbook` and the part."""
    name = module.name if module.package in OPEN and not module.is_package else module.package
    return ".".join(name.split(".")[2:])


def part_of(name: str) -> str:
    """The part that a module lies in."""
    return name.split(".")[1]
