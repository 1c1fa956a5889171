"""Bundles from a trainer's own process, without Kafka: what a trainer imports, and nothing heavier.

`BundleWriter` writes one bundle, `Capture` a running loop's. No torch, Kafka or command line is imported.
"""

from rollbook.replay.bundle.contextparallel import ContextParallel, HeldBy, Order, Scalars, context_parallel
from rollbook.replay.bundle.convention import (
    Conventions,
    Correction,
    NamedConvention,
    NamedValueLoss,
    Outlier,
    Reached,
    WholeBatch,
)
from rollbook.replay.bundle.model import Capability, Config, Links, Producer, Redaction, StageId, StepBundle, World
from rollbook.replay.bundle.redaction import DEFAULT_REDACTION, Redactor
from rollbook.replay.bundle.writing.bundle_writer import BundleWriter, Finalized
from rollbook.replay.bundle.writing.rows import NotConsumed, Origin, Rows, index_of
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
    "ContextParallel",
    "Conventions",
    "Correction",
    "Counts",
    "Finalized",
    "HeldBy",
    "Links",
    "NamedConvention",
    "NamedValueLoss",
    "NotConsumed",
    "Order",
    "Origin",
    "Outlier",
    "Place",
    "Producer",
    "Reached",
    "Recorded",
    "Redaction",
    "Redactor",
    "Rows",
    "Scalars",
    "StageId",
    "StepBundle",
    "WholeBatch",
    "World",
    "context_parallel",
    "index_of",
]
