"""Oversubscription of a leaf switch, Ethernet or InfiniBand: speed of its ports to hosts over that of its uplinks.

A leaf with equal speed down and up has a ratio of 1; one that lost one of four uplinks, 1.33. Only links that are up
count; the ratio is absent if the speed of one of them is unknown. Beside it is the utilization of all uplinks together:
hashing may fill one of them while others are idle, which the imbalance of their group shows.
"""

from collections.abc import Sequence
from types import MappingProxyType

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    LabelValues,
    Metric,
    Rows,
    Schema,
    Table,
    complete_sum,
)
from exporter.core.vocabulary import gauge

UP, DOWN = "uplink", "host"
"""Kinds of rows: ports of a switch that lead up, and ports to hosts."""

RATIO = "oversubscription_ratio"

UPLINK_RATES = MappingProxyType(
    {f"{way}_bytes_per_second": f"uplink_{way}_utilization_ratio" for way in ("receive", "transmit")}
)
"""Rates of ports, with the ending of their sum over all uplinks as a share of the sum of their speeds."""

_OWN = MappingProxyType(
    {
        RATIO: gauge(
            "Speed of all ports to hosts that are up over the speed of all uplinks that are up; absent if the speed of"
            " one of them is unknown."
        ),
        "uplink_receive_utilization_ratio": gauge(
            "Bytes received on all uplinks that are up over the last poll interval, as a share of the sum of their"
            " speeds."
        ),
        "uplink_transmit_utilization_ratio": gauge(
            "Bytes transmitted on all uplinks that are up over the last poll interval, as a share of the sum of their"
            " speeds."
        ),
    }
)

SCHEMAS = MappingProxyType(
    {
        prefix: vocabulary.schema(prefix, (label,), own=_OWN)
        for prefix, label in (("fabric_switch_", "switch"), ("fabric_ib_", "guid"))
    }
)
"""Schemas of switches, by the prefix of their ports."""


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` makes from tables of a schema: of ports of a switch."""
    made = _switch_schema(schema)
    return [] if made is None else list(made.metrics.values())


def _switch_schema(schema: Schema) -> Schema | None:
    """Return the schema of the switch of a table of ports; None for any other table."""
    return SCHEMAS.get(schema.prefix) if vocabulary.EXPECTED_SPEED in schema.metrics else None


def step(state: Rows | None, table: Table) -> tuple[Rows | None, Sequence[Table]]:
    """Add a table of the switch to a table of its ports; other tables pass unchanged.

    Args:
        state: The row of the last table, cached for its text.
        table: Any table, after the rates; all its rows are of one switch.
    """
    schema = _switch_schema(table.schema)
    if schema is None or table.kinds is None or not table.rows.keys:
        return state, (table,)
    ups = table.values("link_up") or [None] * len(table.rows)
    places: dict[str, list[int]] = {UP: [], DOWN: []}
    for place, kind in enumerate(table.kinds):
        if kind in places and ups[place] == 1:
            places[kind].append(place)
    values = _values(table, places[UP], places[DOWN])
    if not values:
        return state, (table,)
    key: LabelValues = table.rows.keys[0][:1]
    rows = state if state is not None and state.keys == (key,) else Rows(schema.labels, [key], {})
    columns = {ending: Column(schema.metrics[ending], [value]) for ending, value in values.items()}
    return rows, (table, Table(schema, rows, columns, table.time, part=table.part))


def _values(table: Table, up: Sequence[int], down: Sequence[int]) -> dict[str, float]:
    """Return the values of a switch, by ending."""
    speeds = table.numbers(vocabulary.SPEED)
    capacity = _sum(speeds, up)
    if not capacity:
        return {}
    values = {}
    of_hosts = _sum(speeds, down)
    if of_hosts is not None:
        values[RATIO] = of_hosts / capacity
    for rate, ending in UPLINK_RATES.items():
        moved = _sum(table.numbers(rate), up)
        if moved is not None:
            values[ending] = moved / capacity
    return values


def _sum(values: Sequence[float | None] | None, places: Sequence[int]) -> float | None:
    """Return the sum of the values of some rows; None if there are none, or one is missing."""
    return None if values is None else complete_sum([values[place] for place in places])
