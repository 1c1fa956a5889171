"""The Grafana dashboard is what its table makes, and Grafana can tell its panels and queries apart."""

import json
from collections import Counter
from typing import Any

from rollbook.infra.monitoring.files import File
from rollbook.infra.monitoring.grafana import dashboard_json
from rollbook.infra.monitoring.panels import SECTIONS

DASHBOARD: dict[str, Any] = json.loads(File.GRAFANA.text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]


def test_the_file_is_what_the_table_makes() -> None:
    assert File.GRAFANA.text() == dashboard_json(), (
        "run `python -m rollbook.infra.monitoring` and commit what it writes"
    )


def test_all_panels_are_there_in_order() -> None:
    titles = [title for section in SECTIONS for title in (section.title, *(panel.title for panel in section.panels))]
    assert [panel["title"] for panel in PANELS] == titles


def test_each_panel_has_a_number_and_a_place_of_its_own() -> None:
    assert max(Counter(panel["id"] for panel in PANELS).values()) == 1
    cells = Counter(
        (x, y)
        for at in (panel["gridPos"] for panel in PANELS)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    )
    assert max(cells.values()) == 1
    assert max(x for x, _ in cells) < 24


def test_each_query_of_a_panel_has_a_name_of_its_own() -> None:
    for panel in PANELS:
        names = [target["refId"] for target in panel.get("targets", ())]
        assert all(names)
        assert len(set(names)) == len(names)


def test_it_asks_the_prometheus_that_is_chosen() -> None:
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == ["datasource", "run"]
    asked = {panel["datasource"]["uid"] for panel in PANELS if panel["type"] != "row"}
    assert asked == {"${datasource}"}
