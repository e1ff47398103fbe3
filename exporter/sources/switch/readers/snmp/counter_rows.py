"""Rows of counter tables: which index of which column belongs to which row, and which indexes a column lacks."""

from collections import Counter as Counts
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias, TypeGuard

from exporter.core.table import LabelValues
from exporter.snmp.ber import COUNTER32, COUNTER64, Oid
from exporter.snmp.ber import Value as SnmpValue
from exporter.snmp.walk import WalkColumn
from exporter.sources.switch.merge import Family
from exporter.sources.switch.metrics import PORTS
from exporter.sources.switch.readers.snmp.inventory import IF, IFX, Inventory
from exporter.sources.switch.readers.snmp.profile import Counter, CounterTable
from exporter.sources.switch.readers.snmp.refresh import TICKS

Cells: TypeAlias = Mapping[Oid, int]
"""Values of a column by index."""

SWAPPED = MappingProxyType({"receive_pfc_": "transmit_pfc_", "transmit_pfc_": "receive_pfc_"})

UP, UNKNOWN = 1, 4
"""Values of ifOperStatus and ifAdminStatus."""

MAX_IF_SPEED = 2**32 - 1
"""ifSpeed of all interfaces that are faster than its range."""

MAX_IF_HIGH_SPEED = 10**8
"""Highest ifHighSpeed, in Mb/s, that is a speed: agents send the maximum of its range for unknown."""

_COUNTERS = (COUNTER32, COUNTER64)

STATE_COUNTER = Counter((), "", 32, 1, 1, (), None)
STATE_TABLE = CounterTable("", Family.TRAFFIC, PORTS, (STATE_COUNTER,), 1, None, None, 0.0)
"""Represents the columns of port states, which have rows but no counters."""


@dataclass(slots=True)
class CounterRows:
    """Rows of one schema, and where their cells are; rebuilt only if the indexes of the columns change.

    Attributes:
        indexes: Indexes of each column when the rows were built; None to rebuild them.
        keys: Keys of the partial table.
        ports: Index of the interface of each row.
        sources: By ending: the columns that have it, with the index of each row in it, which is empty where the column
            does not have the row.
    """

    indexes: Mapping[Counter, Sequence[Oid]] | None = None
    keys: Sequence[LabelValues] = ()
    ports: Sequence[Oid] = ()
    sources: Mapping[str, Sequence[tuple[Counter, Sequence[Oid]]]] = field(default_factory=dict)


def build_rows(
    tables: Sequence[CounterTable],
    indexes: Mapping[Counter, Sequence[Oid]],
    endings: Mapping[Counter, str],
    inventory: Inventory,
) -> CounterRows:
    """Assign each index of each column to a row.

    Args:
        tables: Tables of one schema.
        indexes: Indexes of each column.
        endings: Ending of the metric of each column.
        inventory: The ports.
    """
    order = {port: number for number, port in enumerate(inventory.ports)}
    found: dict[Counter, dict[tuple[int, int], Oid]] = {}
    for table in tables:
        for counter in table.counters:
            found[counter] = {
                (order[index[:1]], label): index
                for index in indexes.get(counter, ())
                if index[:1] in order and (label := _row_label(table, counter, index)) is not None
            }
    rows = sorted(set().union(*found.values()))
    ports = list(inventory.ports)
    by_port = tables[0].schema is PORTS
    names = [inventory.ports[ports[port]] for port, _ in rows]
    keys = [(name,) if by_port else (name, str(label)) for name, (_, label) in zip(names, rows, strict=True)]
    sources: dict[str, list[tuple[Counter, Sequence[Oid]]]] = {}
    for counter, cells in found.items():
        if cells and counter is not STATE_COUNTER:
            sources.setdefault(endings[counter], []).append((counter, [cells.get(row, ()) for row in rows]))
    return CounterRows(indexes, keys, [ports[port] for port, _ in rows], sources)


def _row_label(table: CounterTable, counter: Counter, index: Oid) -> int | None:
    """Return the priority, queue or the like of an index, 0 for a port; None if the index is not of this column."""
    if len(index) != table.length or any(index[place] != number for place, number in counter.tests):
        return None
    if counter.at is not None or table.label is None:
        return counter.at or 0
    place, offset = table.label
    return index[place] - offset if index[place] >= offset else None


def missing_indexes(table: CounterTable, oid: Oid, indexes: Sequence[Oid], inventory: Inventory) -> list[Oid]:
    """Return the indexes that a column should have and does not.

    Every interface has a row in IF-MIB, every Ethernet port and every LAG in other tables by port. In tables with
    several rows by port, every Ethernet port has as many as the first one.
    """
    if table.length == 1:
        expected: Iterable[Oid] = inventory.ports if oid[:-1] in (IF, IFX) else inventory.counting
        present = set(indexes)
        return [index for index in expected if index not in present]
    if table.condition is not None:
        return []
    first = next((index[:1] for index in indexes if index[:1] in inventory.ethernet), None)
    tails = [index[1:] for index in indexes if index[:1] == first]
    return [port + tail for port in sorted(inventory.ethernet - {index[:1] for index in indexes}) for tail in tails]


def counter_ending(counter: Counter, *, swapped: bool) -> str:
    """Return the ending of a column's metric; `swapped` exchanges the directions of PFC."""
    if swapped:
        for direction, other in SWAPPED.items():
            if counter.ending.startswith(direction):
                return other + counter.ending.removeprefix(direction)
    return counter.ending


def counter_cells(column: WalkColumn) -> Cells:
    """Return the counters of a column: all rows if they are Counter32 or Counter64, else the numbers from 0.

    Some agents send counters as signed numbers, and negative ones are invalid.
    """
    rows: Mapping[Oid, SnmpValue] = column.rows
    if column.tag in _COUNTERS and not column.other_tags:
        return rows  # type: ignore[return-value]  # the tag implies numbers
    return {index: value for index, value in rows.items() if isinstance(value, int) and value >= 0}


def is_up(status: int | None) -> int | None:
    """Return 1 or 0 for ifOperStatus or ifAdminStatus; None if it is unknown."""
    return None if status is None or status == UNKNOWN else int(status == UP)


def last_changes(ticks: Cells) -> Mapping[Oid, float]:
    """Return the uptime in seconds of each ifLastChange; none where the agent does not have it.

    Some agents have 0 for all interfaces, and some of Linux the time at which they read the list of interfaces.
    """
    numbers = Counts(ticks.values())
    if not any(numbers) or any(count > len(ticks) / 2 for number, count in numbers.items() if number):
        return {}
    return {index: value / TICKS for index, value in ticks.items()}


def speed_of(if_high_speed: int | None, if_speed: int | None) -> float | None:
    """Return bytes per second from ifHighSpeed (Mb/s), else ifSpeed (b/s); None for 0, which virtual ports have."""
    if has_high_speed(if_high_speed):
        return if_high_speed * 1e6 / 8
    return if_speed / 8 if if_speed and if_speed != MAX_IF_SPEED else None


def has_high_speed(if_high_speed: int | None) -> TypeGuard[int]:
    """Return whether ifHighSpeed is a speed: it is 0 below 0.5 Mb/s, and of agents that only have ifSpeed."""
    return if_high_speed is not None and 0 < if_high_speed <= MAX_IF_HIGH_SPEED
