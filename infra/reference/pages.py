"""The table of the reference pages, and the writing of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rollbook.infra.reference.acls import acls
from rollbook.infra.reference.alerts import alerts
from rollbook.infra.reference.api import APIS, api
from rollbook.infra.reference.commands import commands
from rollbook.infra.reference.diagram import diagram
from rollbook.infra.reference.doctor import doctor
from rollbook.infra.reference.errors import errors
from rollbook.infra.reference.exits import exits
from rollbook.infra.reference.markdown import page, table
from rollbook.infra.reference.metrics import metrics
from rollbook.infra.reference.order import order
from rollbook.infra.reference.reasons import reasons
from rollbook.infra.reference.records import records
from rollbook.infra.reference.settings import settings
from rollbook.infra.reference.stages import stage_file, stage_page, stages
from rollbook.infra.reference.states import lifecycle, records_and_states
from rollbook.infra.reference.topics import topics
from rollbook.replay.bundle.model import StageId

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
IMAGES = FOLDER.parent / "images"


@dataclass(frozen=True, slots=True)
class Page:
    """A file of the reference and what makes it."""

    file: str
    about: str
    make: Callable[[], str]


PAGES = (
    Page("lifecycle.md", "the states of a trajectory: diagram and table", lifecycle),
    Page("records-and-states.md", "what becomes of each record in each state", records_and_states),
    Page("order.md", "the pairs of records whose order matters, and why", order),
    Page("reasons.md", "every reason by stage of the pipeline, with its meaning", reasons),
    Page("records.md", "every record and its fields", records),
    Page("topics.md", "the six topics and their settings", topics),
    Page("acls.md", "what each role may do on a cluster with authorisation", acls),
    Page("doctor.md", "what `rollbook doctor` looks at", doctor),
    Page("commands.md", "every command, its arguments and options", commands),
    Page("exit-codes.md", "what `rollbook` exits with", exits),
    Page("settings.md", "every environment variable", settings),
    Page("metrics.md", "every metric of the processor and of the dashboard", metrics),
    Page("alerts.md", "every alert, and on what", alerts),
    Page("errors.md", "every error of Kafka, and who acts", errors),
    *(Page(one.file, f"{one.title.lower()}, from their docstrings", partial(api, one)) for one in APIS),
    Page("stages.md", "the stages of replay: inputs, outputs, tolerance, and how each comes out", stages),
    *(
        Page(stage_file(stage), f"stage {stage}: formula, source and contract", partial(stage_page, stage))
        for stage in StageId
    ),
)


def contents() -> dict[str, str]:
    """Every file of the folder by name, with its text."""
    index = page(
        "Reference",
        table(
            ("page", "what it holds"), ((f"[{one.file.removesuffix('.md')}]({one.file})", one.about) for one in PAGES)
        ),
    )
    return {"README.md": index, **{one.file: one.make() for one in PAGES}}


def pictures() -> dict[str, str]:
    """The pictures that pages show, by name."""
    return {"lifecycle.svg": diagram()}


def write_all(folder: Path = FOLDER) -> list[Path]:
    """Write the pages and the pictures, and remove what is no page; returns the paths of the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = contents()
    for stray in folder.glob("*.md"):
        if stray.name not in texts:
            stray.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, text in pictures().items():
        (IMAGES / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]
