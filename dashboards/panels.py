"""Builders of panels: graph, number, top list, table and heat map, each with its look.

In a query `{}` is replaced by the selection of jobs and instances by the dashboard's variables.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heat_model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = shapes.DataSourceRef(type_val="prometheus", uid="${datasource}")
SELECTED = '{job=~"$job", instance=~"$instance"}'

HOST_BOARD = "fabric-host"
"""The dashboard that host names link to."""

WORST = 8
"""Bars in a top list."""

BAR = 24
"""Greatest height of a bar in pixels: of one or two bars each would fill half of the panel."""

LEAST_COLUMN = 70
"""Least width of a column of a table in pixels; Grafana's 150 leave five columns in half a screen."""

HEIGHT = 8
EIGHTH, QUARTER, THIRD, HALF, FULL = 3, 6, 8, 12, 24
"""Widths; those of a row add up to FULL."""

WAYS = ("transmit", "receive")

Panel: TypeAlias = timeseries.Panel | stat.Panel | table.Panel | bargauge.Panel | heatmap.Panel
Made = TypeVar("Made", timeseries.Panel, stat.Panel, table.Panel, bargauge.Panel, heatmap.Panel)


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel, and the legend of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Values above which there is a warning, and above which the value is bad."""

    warning: float
    bad: float


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `meaning` maps its values to texts."""

    name: str
    unit: str
    expr: str
    meaning: model.ValueMap | None = None


def where(matcher: str) -> str:
    """Return the selection with one more matcher, where `{}` is not enough."""
    return f"{SELECTED[:-1]}, {matcher}}}"


def meaning(words: Mapping[int, tuple[str, str]]) -> model.ValueMap:
    """Return a value mapping: a text and a colour for each number."""
    return model.ValueMap(
        options={
            str(number): model.ValueMappingResult(text=text, color=color, index=place)
            for place, (number, (text, color)) in enumerate(words.items())
        }
    )


def lines(
    title: str,
    description: str,
    unit: str,
    queries: Iterable[Query],
    *,
    width: int = THIRD,
    low: float = 0,
    top: float | None = None,
    limits: Limits | None = None,
) -> timeseries.Panel:
    """Return a graph over time; the axis is from `low` to `top`."""
    panel = (
        _with_frame(timeseries.Panel(), title, description, unit, width, _targets(queries))
        .min(low)
        .line_width(1)
        .fill_opacity(0)  # filled series cover each other
        .show_points(shapes.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(shapes.LegendDisplayMode.LIST)
            .placement(shapes.LegendPlacement.BOTTOM)
        )
        .tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING))
    )
    if top is not None:
        panel.max(top)
    if limits is not None:
        style = common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED)
        panel.thresholds(_thresholds(limits)).thresholds_style(style)
    return panel


def number(
    title: str,
    description: str,
    query: str,
    limits: Limits | None = None,
    *,
    unit: str = "short",
    width: int = EIGHTH,
    absent: str = "none",
) -> stat.Panel:
    """Return a panel of one number, coloured if it has limits; `absent` is shown if there is no value."""
    return (
        _with_frame(stat.Panel(), title, description, unit, width, _targets([Query(query)]), HEIGHT // 2)
        .reduce_options(_last())
        .color_mode(shapes.BigValueColorMode.VALUE)
        .graph_mode(shapes.BigValueGraphMode.NONE)  # it does not fit
        .thresholds(_thresholds(limits))
        .no_value(absent)
    )


def top_list(
    title: str, description: str, unit: str, query: Query, limits: Limits | None = None, *, width: int = THIRD
) -> bargauge.Panel:
    """Return a top list of current values as bars; if the legend has the host, a bar links to its dashboard."""
    targets = _targets([Query(f"topk({WORST}, {query.expr})", query.legend)], instant=True)
    panel = (
        _with_frame(bargauge.Panel(), title, description, unit, width, targets)
        .min(0)
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .display_mode(shapes.BarGaugeDisplayMode.BASIC)
        .sizing(shapes.BarGaugeSizing.MANUAL)
        .min_viz_height(BAR // 2)
        .max_viz_height(BAR)
        .reduce_options(_last())
        .thresholds(_thresholds(limits))
        .no_value("none")
    )
    if unit == "percentunit":
        panel.max(1)  # else the highest share, however low, fills its bar
    if "{{host}}" in query.legend:
        panel.data_links([dashboard.DashboardLink(_LINK).url(_host_board("${__field.labels.host}"))])
    return panel


def table_of(
    title: str,
    description: str,
    columns: Sequence[Column],
    *,
    labels: Sequence[str],
    width: int = HALF,
) -> table.Panel:
    """Return a table with a row for each set of labels; host names link to their dashboard."""
    panel = (
        _with_frame(table.Panel(), title, description, None, width, _rows([one.expr for one in columns], labels))
        .filterable(True)
        .min_width(LEAST_COLUMN)
        .no_value("none")
        .with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(model.DataTransformerConfig(id_val="organize", options=_column_order(columns, labels)))
    )
    for column in columns:
        panel.override_by_name(column.name, _overrides(column))
    if "host" in labels:
        panel.override_by_name("host", _to_the_host())
    return panel


def info_table(title: str, description: str, expr: str, *, labels: Sequence[str], width: int = HALF) -> table.Panel:
    """Return a table of the labels of an info metric; host names link to their dashboard."""
    arranged = {
        "excludeByName": {"Time": True, "Value": True},
        "indexByName": {name: place for place, name in enumerate(labels)},
    }
    panel = (
        _with_frame(table.Panel(), title, description, None, width, _rows([expr], labels))
        .filterable(True)
        .min_width(LEAST_COLUMN)
        .no_value("none")
        .with_transformation(model.DataTransformerConfig(id_val="organize", options=arranged))
    )
    if "host" in labels:
        panel.override_by_name("host", _to_the_host())
    return panel


def heat_map(title: str, description: str, histogram: str, *, width: int = HALF) -> heatmap.Panel:
    """Return a heat map of samples per second in each bucket of a histogram of ratios."""
    query = Query(f"sum by (le) (rate({histogram}_bucket{{}}[$__rate_interval]))", "{{le}}")
    targets = [target.format(PromQueryFormat.HEATMAP) for target in _targets([query])]
    return (
        _with_frame(heatmap.Panel(), title, description, "cps", width, targets)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(heat_model.HeatmapColorMode.SCHEME)
            .scheme("Oranges")
            .scale(heat_model.HeatmapColorScale.EXPONENTIAL)
            .exponent(0.5)
            .steps(64)
        )
        .y_axis(heatmap.YAxisConfig().unit("percentunit"))
        .cell_values(heatmap.CellValues().unit("cps"))
        .show_value(shapes.VisibilityMode.NEVER)
        .show_legend()
    )


_LINK = "Show the host"


def _host_board(host: str) -> str:
    """Return the URL of a host's dashboard, with the same data source, jobs and time range as Grafana variables."""
    return f"/d/{HOST_BOARD}?var-host={host}&${{datasource:queryparam}}&${{job:queryparam}}&${{__url_time_range}}"


def _to_the_host() -> list[model.DynamicConfigValue]:
    """Return the override that links the cells of a column to the dashboard of their host."""
    link = {"title": _LINK, "url": _host_board("${__value.raw}")}
    return [model.DynamicConfigValue(id_val="links", value=[link])]


def _with_frame(
    panel: Made,
    title: str,
    description: str,
    unit: str | None,
    width: int,
    targets: Iterable[prometheus.Dataquery],
    height: int = HEIGHT,
) -> Made:
    """Set the properties that all panels have.

    Tables have no unit: Grafana would apply it to labels too, and show the job 4707 as 4.71 K.
    """
    for target in targets:
        panel.with_target(target)
    if unit is not None:
        panel.unit(unit)
    return panel.title(title).description(description).datasource(DATASOURCE).span(width).height(height)


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _overrides(column: Column) -> list[model.DynamicConfigValue]:
    """Return the overrides of a column: its unit and value mapping."""
    overrides = [model.DynamicConfigValue(id_val="unit", value=column.unit)]
    if column.meaning is not None:
        overrides += [
            model.DynamicConfigValue(id_val="mappings", value=[column.meaning]),
            model.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}),
        ]
    return overrides


def _column_order(columns: Sequence[Column], labels: Sequence[str]) -> dict[str, object]:
    """Return the options that order the columns of a table, labels first, and name the values."""
    values = [f"Value #{_letter(place)}" for place in range(len(columns))] if len(columns) > 1 else ["Value"]
    return {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate([*labels, *values])},
        "renameByName": {value: column.name for value, column in zip(values, columns, strict=True)},
    }


def _letter(place: int) -> str:
    return chr(ord("A") + place)


def _targets(queries: Iterable[Query], *, instant: bool = False) -> list[prometheus.Dataquery]:
    """Return the queries of a panel, with the selection filled in."""
    targets = []
    for place, query in enumerate(queries):
        target = (
            prometheus.Dataquery()
            .ref_id(_letter(place))
            .datasource(DATASOURCE)
            .expr(query.expr.replace("{}", SELECTED))
            .legend_format(query.legend)
        )
        targets.append(target.instant() if instant else target.range())
    return targets


def _rows(exprs: Iterable[str], labels: Sequence[str]) -> list[prometheus.Dataquery]:
    """Return the queries of a table, whose rows are distinguished by these labels only."""
    queries = [Query(f"max by ({', '.join(labels)}) ({expr})") for expr in exprs]
    return [target.format(PromQueryFormat.TABLE) for target in _targets(queries, instant=True)]


def _thresholds(limits: Limits | None) -> dashboard.ThresholdsConfig:
    steps = [model.Threshold(value=None, color="blue" if limits is None else "green")]
    if limits is not None:
        steps += [model.Threshold(value=limits.warning, color="orange"), model.Threshold(value=limits.bad, color="red")]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
