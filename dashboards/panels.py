"""Panels of the boards: how a graph, a number, a list of the worst, a table and a heat map look, whatever they show.

In a query `{}` stands for the selection of jobs and instances that the board's variables give.
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
"""Where the name of a host leads."""

WORST = 12
"""Bars that a list of the worst shows."""

HEIGHT = 8
EIGHTH, QUARTER, THIRD, HALF, FULL = 3, 6, 8, 12, 24
"""Widths; those of neighbours add up to FULL."""

WAYS = ("transmit", "receive")

Panel: TypeAlias = timeseries.Panel | stat.Panel | table.Panel | bargauge.Panel | heatmap.Panel
Made = TypeVar("Made", timeseries.Panel, stat.Panel, table.Panel, bargauge.Panel, heatmap.Panel)


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel and how its series are named."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on a value is worth a look, and from where on it is bad."""

    warning: float
    bad: float


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `meaning` says what its numbers stand for."""

    name: str
    unit: str
    expr: str
    meaning: model.ValueMap | None = None


def where(matcher: str) -> str:
    """Give the selection with one more matcher, for a place where `{}` does not suffice."""
    return f"{SELECTED[:-1]}, {matcher}}}"


def meaning(words: Mapping[int, tuple[str, str]]) -> model.ValueMap:
    """Say what numbers stand for: each with a word and a colour."""
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
    """Draw values over time; a share begins at `low` and ends at `top`."""
    panel = (
        _framed(timeseries.Panel(), title, description, unit, width, _targets(queries))
        .min(low)
        .line_width(1)
        .fill_opacity(8)
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
    """Show one number, coloured where it has limits; `absent` stands where there is none."""
    return (
        _framed(stat.Panel(), title, description, unit, width, _targets([Query(query)]), HEIGHT // 2)
        .reduce_options(_last())
        .color_mode(shapes.BigValueColorMode.VALUE)
        .graph_mode(shapes.BigValueGraphMode.AREA)
        .thresholds(_thresholds(limits))
        .no_value(absent)
    )


def worst(
    title: str, description: str, unit: str, query: Query, limits: Limits | None = None, *, width: int = THIRD
) -> bargauge.Panel:
    """Show the worst few as bars, as of now; where the legend names the host, a bar leads to its board."""
    targets = _targets([Query(f"topk({WORST}, {query.expr})", query.legend)], instant=True)
    panel = (
        _framed(bargauge.Panel(), title, description, unit, width, targets)
        .min(0)
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .display_mode(shapes.BarGaugeDisplayMode.BASIC)
        .reduce_options(_last())
        .thresholds(_thresholds(limits))
        .no_value("none")
    )
    if "{{host}}" in query.legend:
        panel.data_links([dashboard.DashboardLink(_LINK).url(_host_board("${__field.labels.host}"))])
    return panel


def listing(
    title: str,
    description: str,
    columns: Sequence[Column],
    *,
    labels: Sequence[str],
    width: int = HALF,
) -> table.Panel:
    """Show rows by their labels; the name of a host leads to its board."""
    panel = (
        _framed(table.Panel(), title, description, "short", width, _rows([one.expr for one in columns], labels))
        .filterable(True)
        .no_value("none")
        .with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(model.DataTransformerConfig(id_val="organize", options=_arranged(columns, labels)))
    )
    for column in columns:
        panel.override_by_name(column.name, _looks(column))
    if "host" in labels:
        panel.override_by_name("host", _to_the_host())
    return panel


def facts(title: str, description: str, expr: str, *, labels: Sequence[str], width: int = HALF) -> table.Panel:
    """Show the labels of an info metric, whose value tells nothing; the name of a host leads to its board."""
    arranged = {
        "excludeByName": {"Time": True, "Value": True},
        "indexByName": {name: place for place, name in enumerate(labels)},
    }
    panel = (
        _framed(table.Panel(), title, description, "short", width, _rows([expr], labels))
        .filterable(True)
        .no_value("none")
        .with_transformation(model.DataTransformerConfig(id_val="organize", options=arranged))
    )
    if "host" in labels:
        panel.override_by_name("host", _to_the_host())
    return panel


def heat(title: str, description: str, histogram: str, *, width: int = HALF) -> heatmap.Panel:
    """Show how many samples a second fall into each bucket of a histogram of shares, and when."""
    query = Query(f"sum by (le) (rate({histogram}_bucket{{}}[$__rate_interval]))", "{{le}}")
    targets = [target.format(PromQueryFormat.HEATMAP) for target in _targets([query])]
    return (
        _framed(heatmap.Panel(), title, description, "cps", width, targets)
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
    """Give the address of a host's board, with the same source, jobs and time; Grafana fills in and escapes."""
    return f"/d/{HOST_BOARD}?var-host={host}&${{datasource:queryparam}}&${{job:queryparam}}&${{__url_time_range}}"


def _to_the_host() -> list[model.DynamicConfigValue]:
    """Make the cells of a column lead to the board of the host that they name."""
    link = {"title": _LINK, "url": _host_board("${__value.raw}")}
    return [model.DynamicConfigValue(id_val="links", value=[link])]


def _framed(
    panel: Made,
    title: str,
    description: str,
    unit: str,
    width: int,
    targets: Iterable[prometheus.Dataquery],
    height: int = HEIGHT,
) -> Made:
    """Give a panel what all have."""
    for target in targets:
        panel.with_target(target)
    return panel.title(title).description(description).datasource(DATASOURCE).unit(unit).span(width).height(height)


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _looks(column: Column) -> list[model.DynamicConfigValue]:
    """Give the unit of a column, and its words with their colours."""
    looks = [model.DynamicConfigValue(id_val="unit", value=column.unit)]
    if column.meaning is not None:
        looks += [
            model.DynamicConfigValue(id_val="mappings", value=[column.meaning]),
            model.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}),
        ]
    return looks


def _arranged(columns: Sequence[Column], labels: Sequence[str]) -> dict[str, object]:
    """Order the columns of a table, labels first, and name those of its queries."""
    values = [f"Value #{_letter(place)}" for place in range(len(columns))] if len(columns) > 1 else ["Value"]
    return {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate([*labels, *values])},
        "renameByName": {value: column.name for value, column in zip(values, columns, strict=True)},
    }


def _letter(place: int) -> str:
    return chr(ord("A") + place)


def _targets(queries: Iterable[Query], *, instant: bool = False) -> list[prometheus.Dataquery]:
    """Make the queries of a panel, with the selection put in."""
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
    """Make the queries of a table, whose rows are told apart by the labels and nothing else."""
    queries = [Query(f"max by ({', '.join(labels)}) ({expr})") for expr in exprs]
    return [target.format(PromQueryFormat.TABLE) for target in _targets(queries, instant=True)]


def _thresholds(limits: Limits | None) -> dashboard.ThresholdsConfig:
    steps = [model.Threshold(value=None, color="blue" if limits is None else "green")]
    if limits is not None:
        steps += [model.Threshold(value=limits.warning, color="orange"), model.Threshold(value=limits.bad, color="red")]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
