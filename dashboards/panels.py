"""Panels of the board: how a graph, a number, a list of the worst and a table look, whatever they show.

In a query `{}` stands for the selection of jobs and instances that the board's variables give.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = shapes.DataSourceRef(type_val="prometheus", uid="${datasource}")
SELECTED = '{job=~"$job", instance=~"$instance"}'

WORST = 12
"""Bars that a list of the worst shows."""

HEIGHT = 8
THIRD, HALF, FULL = 8, 12, 24

Panel: TypeAlias = timeseries.Panel | stat.Panel | table.Panel | bargauge.Panel


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


def lines(
    title: str, description: str, unit: str, queries: Iterable[Query], *, width: int = THIRD, top: float | None = None
) -> timeseries.Panel:
    """Draw values over time; `top` is where a share ends."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .min(0)
        .span(width)
        .height(HEIGHT)
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
    for target in _targets(queries):
        panel.with_target(target)
    return panel


def number(title: str, description: str, query: str, limits: Limits | None = None) -> stat.Panel:
    """Show one number, coloured where it has limits."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit("short")
        .span(4)
        .height(4)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_mode(shapes.BigValueColorMode.VALUE)
        .graph_mode(shapes.BigValueGraphMode.AREA)
        .thresholds(_thresholds(limits))
    )
    for target in _targets([Query(query)]):
        panel.with_target(target)
    return panel


def worst(
    title: str, description: str, unit: str, query: Query, limits: Limits | None = None, *, width: int = THIRD
) -> bargauge.Panel:
    """Show the worst few as bars, as of now."""
    panel = (
        bargauge.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .min(0)
        .span(width)
        .height(HEIGHT)
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .display_mode(shapes.BarGaugeDisplayMode.BASIC)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(limits))
        .no_value("none")
    )
    for target in _targets([Query(f"topk({WORST}, {query.expr})", query.legend)], instant=True):
        panel.with_target(target)
    return panel


def listing(
    title: str,
    description: str,
    columns: Sequence[tuple[str, str, str]],
    *,
    labels: Sequence[str],
    width: int = HALF,
    verdicts: Sequence[str] = (),
) -> table.Panel:
    """Show rows by their labels; `columns` are (name, unit, query), of which `verdicts` are 1 for good, 0 for bad."""
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit("short")
        .span(width)
        .height(HEIGHT)
        .filterable(True)
        .no_value("none")
        .with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(model.DataTransformerConfig(id_val="organize", options=_arranged(columns, labels)))
    )
    for name, unit, _ in columns:
        properties = [model.DynamicConfigValue(id_val="unit", value=unit)]
        if name in verdicts:
            properties.append(model.DynamicConfigValue(id_val="mappings", value=[_VERDICTS]))
        panel.override_by_name(name, properties)
    queries = [Query(f"max by ({', '.join(labels)}) ({expr})") for _, _, expr in columns]
    for target in _targets(queries, instant=True):
        panel.with_target(target.format(PromQueryFormat.TABLE))
    return panel


_VERDICTS = model.ValueMap(
    options={
        "0": model.ValueMappingResult(text="failing", color="red", index=1),
        "1": model.ValueMappingResult(text="good", color="green", index=0),
    }
)


def _arranged(columns: Sequence[tuple[str, str, str]], labels: Sequence[str]) -> dict[str, object]:
    """Order the columns of a table, labels first, and name those of its queries."""
    values = [f"Value #{_letter(place)}" for place in range(len(columns))] if len(columns) > 1 else ["Value"]
    return {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate([*labels, *values])},
        "renameByName": {value: name for value, (name, _, _) in zip(values, columns, strict=True)},
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


def _thresholds(limits: Limits | None) -> dashboard.ThresholdsConfig:
    steps = [model.Threshold(value=None, color="blue" if limits is None else "green")]
    if limits is not None:
        steps += [model.Threshold(value=limits.warning, color="orange"), model.Threshold(value=limits.bad, color="red")]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
