"""Builders of tables: one of values by labels, one of the labels of an info metric, and a grid of two labels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from links import BOARDS, value_link
from panels import GREY, HALF, HEIGHT, THIRD, Limits, Query, framed, letter, steps, targets_of, thresholds

LEAST_COLUMN = 60
"""Least width of a column in pixels; Grafana's 150 leave five columns in half a screen."""

WORST = 6
"""Rows of a top list, which fit."""

NOTHING = "-"
"""Text of a cell that is not concerned."""

NONE: Mapping[str, model.ValueMap] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of values.

    Attributes:
        name: Its title.
        unit: Unit, by Grafana's name.
        expr: Query.
        meaning: Texts and colours of its values; with limits, of some of them.
        limits: Limits from which on values are coloured.
        decimals: Decimals; None for Grafana's choice.
        width: Width in pixels, 50 at least; 0 for a share of what others leave.
    """

    name: str
    unit: str
    expr: str
    meaning: model.ValueMap | None = None
    limits: Limits | None = None
    decimals: int | None = None
    width: int = 0


def table_of(
    title: str,
    description: str,
    columns: Sequence[Column],
    *,
    labels: Sequence[str],
    worst: Sequence[str] = (),
    more: Sequence[tuple[str, Sequence[str]]] = (),
    key: str = "",
    absent: str = "none",
    width: int = HALF,
    height: int = HEIGHT,
    colors: Mapping[str, model.ValueMap] = NONE,
    widths: Mapping[str, int] = MappingProxyType({}),
) -> table.Panel:
    """Return a table with a row for each set of labels; names that have a board link to it.

    Args:
        title: Title of the panel.
        description: Meaning of the rows, and what to do.
        columns: Columns of values.
        labels: Labels, whose columns come first.
        worst: Columns by which rows are sorted, highest first; a name with a `-` before it sorts lowest first.
        more: Queries for more labels of a row, each with these; they are empty where it has no series.
        key: Label that identifies a row, by which `more` is joined, and that is not shown; empty for all `labels`.
        absent: Text if there is no row.
        width: Width of the panel.
        height: Height of the panel.
        colors: Colours of the values of labels.
        widths: Widths of the columns of labels, in pixels, 50 at least.
    """
    hidden = [key] if key else []
    queries = [(one.expr, [*hidden, *labels]) for one in columns]
    queries += [(expr, [*(hidden or labels), *added]) for expr, added in more]
    extra = [label for _, added in more for label in added]
    panel = _table(title, description, width, height, absent, worst, queries)
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        model.DataTransformerConfig(id_val="organize", options=_order(columns, [*labels, *extra], hidden, len(more)))
    )
    for column in columns:
        panel.override_by_name(column.name, _overrides(column))
    return _labels(panel, [*labels, *extra], colors, widths)


def info_table(
    title: str,
    description: str,
    expr: str,
    *,
    labels: Sequence[str],
    worst: Sequence[str] = (),
    absent: str = "none",
    width: int = HALF,
    height: int = HEIGHT,
    colors: Mapping[str, model.ValueMap] = NONE,
    widths: Mapping[str, int] = MappingProxyType({}),
) -> table.Panel:
    """Return a table of the labels of an info metric; the arguments are those of `table_of`."""
    panel = _table(title, description, width, height, absent, worst, [(expr, labels)])
    arranged = {
        "excludeByName": {"Time": True, "Value": True},
        "indexByName": {name: place for place, name in enumerate(labels)},
    }
    panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=arranged))
    return _labels(panel, labels, colors, widths)


def top_list(
    title: str,
    description: str,
    unit: str,
    expr: str,
    limits: Limits | None = None,
    *,
    labels: Sequence[str],
    width: int = THIRD,
    when: str = "now",
) -> table.Panel:
    """Return the highest values above 0 with a bar each, and the labels that the query groups by.

    It is a table: one bar alone would fill a bar gauge, without its name. `when` is the title of the values.
    """
    share = ({"min": 0, "max": 1} if unit == "percentunit" else {"min": 0}).items()
    queries = [Query(f"topk({WORST}, {expr}) > 0")]
    panel = _panel(title, description, width, HEIGHT, "nothing above 0", [when], queries).thresholds(thresholds(limits))
    arranged = {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate([*labels, "Value"])},
        "renameByName": {"Value": when},
    }
    panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=arranged))
    bar = {"type": "gauge", "mode": "basic", "valueDisplayMode": "color"}
    shown = [
        model.DynamicConfigValue(id_val="unit", value=unit),
        model.DynamicConfigValue(id_val="custom.cellOptions", value=bar),
        *(model.DynamicConfigValue(id_val=name, value=value) for name, value in share),
    ]
    if unit == "percentunit":
        shown.append(model.DynamicConfigValue(id_val="decimals", value=1))
    panel.override_by_name(when, shown)
    return _labels(panel, labels, NONE, {})


def grid(
    title: str,
    description: str,
    expr: str,
    *,
    row: str,
    column: str,
    meaning: model.ValueMap,
    width: int,
    height: int,
) -> table.Panel:
    """Return a table with a row for each value of a label, and a column for each one of another, in colours."""
    panel = _table(title, description, width, height, "no data", (f"-{row}",), [(expr, [row, column])])
    corner = f"{row}\\{column}"
    matrix = {"rowField": row, "columnField": column, "valueField": "Value", "emptyValue": "null"}
    panel.with_transformation(model.DataTransformerConfig(id_val="groupingToMatrix", options=matrix))
    panel.with_transformation(
        model.DataTransformerConfig(id_val="organize", options={"renameByName": {corner: row}, "excludeByName": {}})
    )
    shown = [
        model.DynamicConfigValue(id_val="mappings", value=[meaning, _nothing("transparent")]),
        model.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-background", "mode": "basic"}),
        model.DynamicConfigValue(id_val="custom.align", value="center"),
    ]
    panel.override_by_regexp(f"/^(?!{row}$).*/", shown)
    return _labels(panel, [row], NONE, {})


def _table(
    title: str,
    description: str,
    width: int,
    height: int,
    absent: str,
    worst: Sequence[str],
    queries: Iterable[tuple[str, Sequence[str]]],
) -> table.Panel:
    """Return a table with a row for each set of labels of its queries."""
    made = [Query(f"max by ({', '.join(labels)}) ({expr})") for expr, labels in queries]
    panel = _panel(title, description, width, height, absent, worst, made)
    return panel.override_by_regexp("/.*/", [model.DynamicConfigValue(id_val="noValue", value=NOTHING)])


def _panel(
    title: str,
    description: str,
    width: int,
    height: int,
    absent: str,
    worst: Sequence[str],
    queries: Iterable[Query],
) -> table.Panel:
    """Return a table with its queries and the order of its rows, as yet without transformations."""
    panel = framed(table.Panel(), title, description, width, height).min_width(LEAST_COLUMN).no_value(absent)
    for target in targets_of(queries, instant=True):
        panel.with_target(target.format(PromQueryFormat.TABLE))
    if worst:
        panel.sort_by(
            [
                common.TableSortByFieldState().display_name(name.removeprefix("-")).desc(not name.startswith("-"))
                for name in worst
            ]
        )
    return panel


def _labels(
    panel: table.Panel, labels: Sequence[str], colors: Mapping[str, model.ValueMap], widths: Mapping[str, int]
) -> table.Panel:
    """Set links, colours and widths of the columns of labels."""
    for label in labels:
        overrides = []
        if label in BOARDS:
            link = {"title": "Show more", "url": value_link(label, "${__value.raw}")}
            overrides.append(model.DynamicConfigValue(id_val="links", value=[link]))
        if label in colors:
            overrides += _colored(colors[label])
        if label in widths:
            overrides.append(model.DynamicConfigValue(id_val="custom.width", value=widths[label]))
        if overrides:
            panel.override_by_name(label, overrides)
    return panel


def _nothing(color: str) -> model.SpecialValueMap:
    """Return the look of a cell without a value: neither good nor bad."""
    result = model.ValueMappingResult(text=NOTHING, color=color)
    options = model.DashboardSpecialValueMapOptions(match=model.SpecialValueMatch.NULL_AND_NAN, result=result)
    return model.SpecialValueMap(options=options)


def _colored(*meanings: model.ValueMap | model.SpecialValueMap) -> list[model.DynamicConfigValue]:
    return [
        model.DynamicConfigValue(id_val="mappings", value=[*meanings]),
        model.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}),
    ]


def _overrides(column: Column) -> list[model.DynamicConfigValue]:
    """Return the overrides of a column of values."""
    overrides = [model.DynamicConfigValue(id_val="unit", value=column.unit)]
    if column.meaning is not None and column.limits is None:
        overrides += _colored(column.meaning, _nothing(GREY))
    if column.limits is not None:
        found = {
            "mode": "absolute",
            "steps": [{"value": one.value, "color": one.color} for one in steps(column.limits)],
        }
        overrides += [
            model.DynamicConfigValue(id_val="thresholds", value=found),
            model.DynamicConfigValue(
                id_val="mappings", value=[*([column.meaning] if column.meaning else ()), _nothing(GREY)]
            ),
            model.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}),
        ]
    if column.decimals is not None:
        overrides.append(model.DynamicConfigValue(id_val="decimals", value=column.decimals))
    if column.width:
        overrides.append(model.DynamicConfigValue(id_val="custom.width", value=column.width))
    return overrides


def _order(columns: Sequence[Column], labels: Sequence[str], hidden: Sequence[str], further: int) -> dict[str, object]:
    """Return the options that order the columns of a table, labels first, and name the values.

    Args:
        columns: Columns of values.
        labels: Labels that are shown.
        hidden: Labels that are not.
        further: Number of queries whose values are not shown.
    """
    count = len(columns) + further
    values = [f"Value #{letter(place)}" for place in range(count)] if count > 1 else ["Value"]
    shown = values[: len(columns)]
    return {
        "excludeByName": dict.fromkeys(["Time", *hidden, *values[len(columns) :]], True),
        "indexByName": {name: place for place, name in enumerate([*labels, *shown])},
        "renameByName": {value: column.name for value, column in zip(shown, columns, strict=True)},
    }
