"""Bundles from a trainer's own process, without Kafka: what a trainer imports, and nothing heavier.

`BundleWriter` writes one bundle, `Capture` a running loop's. No torch, Kafka or command line is imported.
"""

from rollbook.replay.bundle.bundle_writer import BundleWriter, Finalized
from rollbook.replay.bundle.model import Capability, Config, Links, Producer, Redaction, StageId, StepBundle, World
from rollbook.replay.bundle.redaction import DEFAULT_REDACTION, Redactor
from rollbook.replay.bundle.rows import Origin, Rows, index_of
from rollbook.replay.capture.capture import Capture, Counts, Place
from rollbook.replay.capture.plan import CapturePlan, Choice
from rollbook.replay.capture.recorded import Recorded

__all__ = [
    "DEFAULT_REDACTION",
    "BundleWriter",
    "Capability",
    "Capture",
    "CapturePlan",
    "Choice",
    "Config",
    "Counts",
    "Finalized",
    "Links",
    "Origin",
    "Place",
    "Producer",
    "Recorded",
    "Redaction",
    "Redactor",
    "Rows",
    "StageId",
    "StepBundle",
    "World",
    "index_of",
]
