"""The Grafana dashboard, built from the table of panels. Needs grafana-foundation-sdk, which only this needs: what it
makes is kept beside it."""

from itertools import count
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import BigValueColorMode, GraphDrawStyle, StackingMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from rollbook.infra.monitoring.panels import SECTIONS, Look, Panel, Query
from rollbook.processors import metric_table as table

TITLE = "rollbook"
UID = "rollbook"
_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_STAT_SPAN, _STAT_HEIGHT = 3, 4
_SPAN, _HEIGHT = 12, 8
_GREEN, _RED = "green", "red"
_Built = stat.Panel | timeseries.Panel | heatmap.Panel


def dashboard_json() -> str:
    """The dashboard's file, which Grafana imports."""
    built = (
        dashboard.Dashboard(TITLE)
        .uid(UID)
        .description("Freshness of asynchronous RL training runs, and the processor that keeps their ledger.")
        .tags(["rollbook"])
        .refresh("10s")
        .time("now-1h", "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("run")
            .label("Run")
            .datasource(_SOURCE)
            .query(f"label_values({table.RUN_DECISIONS.name}, run)")
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
        )
    )
    numbers = count(1)
    for section in SECTIONS:
        built = built.with_row(dashboard.Row(section.title).id(next(numbers)))
        for panel in section.panels:
            built = built.with_panel(_panel(panel).id(next(numbers)))
    return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"


def _panel(panel: Panel) -> _Built:
    built = _look(panel).title(panel.title).description(panel.about).datasource(_SOURCE).unit(panel.unit.value)
    for name, query in zip(ascii_uppercase, panel.queries, strict=False):
        built = built.with_target(_target(panel, query).ref_id(name))
    return built


def _look(panel: Panel) -> _Built:
    match panel.look:
        case Look.STAT:
            return (
                stat.Panel()
                .span(_STAT_SPAN)
                .height(_STAT_HEIGHT)
                .color_mode(BigValueColorMode.VALUE)
                .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
                .thresholds(_thresholds(panel.bad_from))
            )
        case Look.HEAT:
            return heatmap.Panel().span(_SPAN).height(_HEIGHT).calculate(False)
        case Look.LINES | Look.AREAS:
            lines = (
                timeseries.Panel()
                .span(_SPAN)
                .height(_HEIGHT)
                .axis_soft_min(0)
                .draw_style(GraphDrawStyle.LINE)
                .fill_opacity(0 if panel.look is Look.LINES else 40)
            )
            stacking = StackingMode.NONE if panel.look is Look.LINES else StackingMode.NORMAL
            return lines.stacking(common.StackingConfig().mode(stacking))


def _thresholds(bad_from: float | None) -> dashboard.ThresholdsConfig:
    steps = [models.Threshold(value=None, color=_GREEN)]
    if bad_from is not None:
        steps.append(models.Threshold(value=bad_from, color=_RED))
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _target(panel: Panel, query: Query) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend or "__auto")
    return target.format(PromQueryFormat.HEATMAP if panel.look is Look.HEAT else PromQueryFormat.TIME_SERIES)
