"""The reference pages are generated from the tables, and the tables are whole."""

import re

import pytest

from rollbook.infra.reference.markdown import anchor, table
from rollbook.infra.reference.pages import FOLDER, IMAGES, PAGES, contents, pictures
from rollbook.processors.ledger.matrix import MATRIX
from rollbook.processors.lifecycle import TRANSITIONS
from rollbook.processors.reasons import BY_STAGE, STAGES, TABLE, Reason, Stage
from rollbook.schemas.registry import RECORDS

OF_THE_ISSUE = ("generation", "reward", "admission", "update", "artifact", "distribution", "activation")


def test_every_reason_has_exactly_one_stage() -> None:
    listed = [reason for reasons in BY_STAGE.values() for reason in reasons]
    assert sorted(listed) == sorted(Reason)
    assert all(reason.stage is stage for stage, reasons in BY_STAGE.items() for reason in reasons)
    assert all(TABLE[reason].text == reason.meaning for reason in Reason)


def test_every_stage_of_the_pipeline_has_reasons() -> None:
    assert set(OF_THE_ISSUE) < set(Stage)
    assert list(BY_STAGE) == list(STAGES) == list(Stage)
    assert all(BY_STAGE.values())


@pytest.mark.parametrize("file", ["README.md", *(page.file for page in PAGES)])
def test_a_page_is_what_its_table_says(file: str) -> None:
    written = (FOLDER / file).read_text(encoding="utf-8")
    assert written == contents()[file], "run `python -m rollbook.infra.reference` and commit what it writes"


@pytest.mark.parametrize("name", pictures())
def test_a_picture_is_what_its_table_says(name: str) -> None:
    written = (IMAGES / name).read_text(encoding="utf-8")
    assert written == pictures()[name], "run `python -m rollbook.infra.reference` and commit what it writes"


def test_the_folder_holds_the_pages_and_nothing_else() -> None:
    assert {path.name for path in FOLDER.iterdir()} == contents().keys()


def test_every_transition_is_an_arrow_and_a_row() -> None:
    text = contents()["lifecycle.md"]
    drawn = re.findall(r"<title>(\w+) --&gt; (\w+): ([\w, ]+)</title>", pictures()["lifecycle.svg"])
    assert sorted((state, event, after) for state, after, events in drawn for event in events.split(", ")) == sorted(
        (str(state), str(event), str(after)) for (state, event), after in TRANSITIONS.items()
    )
    for (state, event), after in TRANSITIONS.items():
        assert f"| `{state}` | `{event}` | `{after}` |" in text


def test_every_pair_of_record_and_state_has_a_cell() -> None:
    sections = contents()["records-and-states.md"].split("\n## ")[1:]
    assert len(sections) == len(MATRIX)
    for rows, section in zip(MATRIX.values(), sections, strict=True):
        header, _, *lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
        cells = {
            (record.strip(), line[0].strip(" `")): cell.strip()
            for line in lines
            for record, cell in zip(header[1:], line[1:], strict=True)
        }
        assert cells.keys() == rows.keys()
        for pair, row in rows.items():
            assert row.outcome.value in cells[pair]
            assert f"`{row.reason}`" in cells[pair] or row.reason.value == row.outcome.value == cells[pair]


def test_every_record_and_each_of_its_fields_is_described() -> None:
    sections = dict(part.split("\n", 1) for part in contents()["records.md"].split("\n### ")[1:])
    for model in RECORDS:
        for name, field in model.model_fields.items():
            assert f"| `{name}` |" in sections[model.__name__]
            assert str(field.description) in sections[model.__name__]


def test_every_link_leads_somewhere() -> None:
    for file, text in contents().items():
        headings = {anchor(line.lstrip("# ")) for line in text.splitlines() if line.startswith("#")}
        for target in re.findall(r"\]\(([^)]+)\)", text):
            if target.startswith("#rollbook."):  # the site makes these: tests/docs follows them there
                continue
            assert target in headings or (FOLDER / target.partition("#")[0]).is_file(), f"{file}: {target}"


def test_a_cell_stays_in_its_row() -> None:
    assert table(("a",), [("x | y\nz",)]).splitlines()[2] == "| x \\| y z |"
