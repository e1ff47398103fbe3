"""Builders of panels: graph, number and heat map, each with its look; tables.py has those of tables.

In a query `{}` is replaced by the selection of jobs and instances by the dashboard's variables.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heat_model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from links import board_link

DATASOURCE = shapes.DataSourceRef(type_val="prometheus", uid="${datasource}")
SELECTED = '{job=~"$job", instance=~"$instance"}'

HEIGHT = 8
EIGHTH, SIXTH, QUARTER, THIRD, HALF, FULL = 3, 4, 6, 8, 12, 24
"""Widths; those of a row add up to FULL."""

WAYS = ("transmit", "receive")

RATES = ("pps", "cps", "ops")
SMALL_SHARE = 0.01
"""Least top of an axis of shares, which would else magnify zeros."""

Panel: TypeAlias = timeseries.Panel | stat.Panel | table.Panel | heatmap.Panel
Made = TypeVar("Made", timeseries.Panel, stat.Panel, heatmap.Panel)


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel, and the legend of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Values from which on there is a warning, and from which on the value is bad; or below which, if `below`."""

    warning: float
    bad: float
    below: bool = False


ANY = Limits(1, 1)
"""For counts that should be 0."""

ANY_WARNS = Limits(1, 1_000_000)
"""For counts that should be 0, and are no fault of the fabric or have a page of their own."""


def where(matcher: str) -> str:
    """Return the selection with one more matcher, where `{}` is not enough."""
    return f"{SELECTED[:-1]}, {matcher}}}"


def meaning(words: Mapping[int, tuple[str, str]] | Mapping[str, tuple[str, str]]) -> model.ValueMap:
    """Return a value mapping: a text and a colour for each number or text."""
    return model.ValueMap(
        options={
            str(value): model.ValueMappingResult(text=text, color=color, index=place)
            for place, (value, (text, color)) in enumerate(words.items())
        }
    )


def lines(
    title: str,
    description: str,
    unit: str,
    queries: Iterable[Query],
    *,
    width: int = THIRD,
    height: int = HEIGHT,
    low: float = 0,
    top: float | None = None,
    limits: Limits | None = None,
    decimals: int | None = None,
    events: bool = False,
    absent: str = "no data",
) -> timeseries.Panel:
    """Return a graph over time; the axis is from `low` to `top`, or to the highest value, but never magnifies zeros.

    Of `events`, which are rare, only series above 0 are shown. `absent` is the text if there is no series.
    """
    queries = [*queries]
    if events:
        queries = [Query(f"{one.expr} > 0", one.legend) for one in queries]
    panel = (
        _with_frame(timeseries.Panel(), title, description, unit, width, targets_of(queries), height)
        .min(low)
        .line_width(1)
        .fill_opacity(0)  # filled series cover each other
        .show_points(shapes.VisibilityMode.AUTO if events else shapes.VisibilityMode.NEVER)
        .no_value("none in this time" if events else absent)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(shapes.LegendDisplayMode.LIST)
            .placement(shapes.LegendPlacement.BOTTOM)
        )
        .tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING))
    )
    least = _least_top(unit, limits)
    if top is not None:
        panel.max(top)
    elif least is not None:
        panel.axis_soft_max(least)
    if decimals is not None:
        panel.decimals(decimals)
    if limits is not None:
        panel.thresholds(thresholds(limits))
        _draw_limits(panel, unit, limits, queries)
    return panel


def _draw_limits(panel: timeseries.Panel, unit: str, limits: Limits, queries: Sequence[Query]) -> None:
    """Add a dashed line for each limit, with its value in the legend, as thresholds of Grafana have no text.

    Where there are no series there is no line, so that the panel shows its text.
    """
    present = " or ".join(f"count({one.expr})" for one in queries)
    for number, (value, color) in enumerate(((limits.warning, "orange"), (limits.bad, "red"))):
        text = f"limit {100 * value:.6g} %" if unit == "percentunit" else f"limit {value:g}"
        (target,) = targets_of([Query(f"0 * ({present}) + {value}", text)])
        panel.with_target(target.ref_id(letter(len(queries) + number)))
        looks = {
            "custom.lineStyle": {"fill": "dash", "dash": [8, 8]},
            "color": {"mode": "fixed", "fixedColor": color},
        }
        panel.override_by_name(text, [model.DynamicConfigValue(id_val=name, value=one) for name, one in looks.items()])


def number(
    title: str,
    description: str,
    query: str,
    limits: Limits | None = None,
    *,
    unit: str = "short",
    width: int = EIGHTH,
    height: int = 4,
    absent: str = "no data",
    filled: bool = False,
    link: str = "",
    decimals: int | None = None,
    name: str = "",
) -> stat.Panel:
    """Return a panel of one number, coloured if it has limits.

    Args:
        title: Title of the panel.
        description: Meaning of the number, and what to do.
        query: Query for the number.
        limits: Limits; without any the number is blue.
        unit: Unit, by Grafana's name.
        width: Width of the panel.
        height: Height of the panel.
        absent: Text if there is no value; it is grey, as it is neither good nor bad.
        filled: Whether the background has the colour, which is visible across a room.
        link: Board that shows more; empty for none.
        decimals: Decimals; None for Grafana's choice.
        name: Text beside the value, with labels of the series, as a legend; empty for none.
    """
    is_filled = filled and limits is not None
    color = shapes.BigValueColorMode.BACKGROUND_SOLID if is_filled else shapes.BigValueColorMode.VALUE
    nothing = model.DashboardSpecialValueMapOptions(
        match=model.SpecialValueMatch.NULL_AND_NAN, result=model.ValueMappingResult(text=absent, color=GREY)
    )
    targets = targets_of([Query(query, name)], instant=True)
    panel = (
        _with_frame(stat.Panel(), title, description, unit, width, targets, height)
        .reduce_options(_last())
        .color_mode(color)
        .graph_mode(shapes.BigValueGraphMode.NONE)  # it does not fit
        .thresholds(thresholds(limits, good=DIM if is_filled else "green"))
        .mappings([model.SpecialValueMap(options=nothing)])
        .no_value(absent)
    )
    if decimals is not None:
        panel.decimals(decimals)
    if name:
        panel.text_mode(shapes.BigValueTextMode.VALUE_AND_NAME)
        if width >= SIXTH:  # else Grafana's choice, which fits
            panel.text(common.VizTextDisplayOptions().title_size(14 if width >= QUARTER else 12).value_size(22))
    if link:
        panel.data_links([dashboard.DashboardLink("Show more").url(board_link(link))])
    return panel


GREY = "#4b5157"
FAINT = "#8e949b"
"""Grey of a text that can still be read."""

DIM = "#1f4a33"
"""Green of a filled number that is good, so that the eye goes to the others."""


def heat_map(title: str, description: str, histogram: str, *, width: int = HALF) -> heatmap.Panel:
    """Return a heat map of samples per second in each bucket of a histogram of ratios."""
    query = Query(f"sum by (le) (rate({histogram}_bucket{{}}[$__rate_interval]))", "{{le}}")
    targets = [target.format(PromQueryFormat.HEATMAP) for target in targets_of([query])]
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


def framed(panel: table.Panel, title: str, description: str, width: int, height: int) -> table.Panel:
    """Set the properties that tables share with other panels.

    Tables have no unit: Grafana would apply it to labels too, and show the job 4707 as 4.71 K.
    """
    return panel.title(title).description(description).datasource(DATASOURCE).span(width).height(height)


def targets_of(queries: Iterable[Query], *, instant: bool = False) -> list[prometheus.Dataquery]:
    """Return the queries of a panel, with the selection filled in."""
    targets = []
    for place, query in enumerate(queries):
        target = (
            prometheus.Dataquery()
            .ref_id(letter(place))
            .datasource(DATASOURCE)
            .expr(query.expr.replace("{}", SELECTED))
            .legend_format(query.legend)
        )
        targets.append(target.instant() if instant else target.range())
    return targets


def letter(place: int) -> str:
    """Return the name of a query by its place in the panel."""
    return chr(ord("A") + place)


def steps(limits: Limits | None, good: str = "green") -> list[model.Threshold]:
    """Return the colours of values: blue without limits, else green, orange and red."""
    if limits is None:
        return [model.Threshold(value=None, color="blue")]
    colors = ("red", "orange", good) if limits.below else (good, "orange", "red")
    values = (None, limits.bad, limits.warning) if limits.below else (None, limits.warning, limits.bad)
    return [model.Threshold(value=value, color=color) for value, color in zip(values, colors, strict=True)]


def thresholds(limits: Limits | None, good: str = "green") -> dashboard.ThresholdsConfig:
    """Return the thresholds of a panel."""
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps(limits, good))


def _with_frame(
    panel: Made,
    title: str,
    description: str,
    unit: str,
    width: int,
    targets: Iterable[prometheus.Dataquery],
    height: int = HEIGHT,
) -> Made:
    """Set the properties that all panels have."""
    for target in targets:
        panel.with_target(target)
    return panel.unit(unit).title(title).description(description).datasource(DATASOURCE).span(width).height(height)


def _least_top(unit: str, limits: Limits | None) -> float | None:
    """Return the least top of an axis."""
    if unit in RATES:
        return 1
    if unit == "percentunit":
        return SMALL_SHARE if limits is None else 2 * max(limits.warning, limits.bad)
    return None


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])
