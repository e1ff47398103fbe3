"""The counters of one switch by SNMP, as listed in its profile: columns to walk, and partial tables of the responses.

A switch lacks many columns that its profile lists: an empty one is not walked again until the next inventory. A column
may also end early, since some agents stop a walk at the first port without the counter: missing instances are read by
GET.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias

from exporter.core.source import Failure
from exporter.core.table import (
    Column,
    LabelValues,
    Schema,
    Value,
    complete_sum,
)
from exporter.snmp.ber import (
    COUNTER32,
    Oid,
    Typed,
)
from exporter.snmp.walk import WalkResult
from exporter.sources.switch.merge import Family, PartialTable, Support, best_by_family
from exporter.sources.switch.metrics import PACKET_SUMS, PORTS, PRIORITIES, QUEUES
from exporter.sources.switch.queues import PortSums
from exporter.sources.switch.readers.snmp.counter_rows import (
    STATE_COUNTER,
    STATE_TABLE,
    UP,
    Cells,
    CounterRows,
    build_rows,
    counter_cells,
    counter_ending,
    has_high_speed,
    is_up,
    last_changes,
    missing_indexes,
    speed_of,
)
from exporter.sources.switch.readers.snmp.inventory import (
    IF,
    IF_ADMIN,
    IF_HIGH_SPEED,
    IF_LAST_CHANGE,
    IF_OPER,
    IF_SPEED,
    IFX,
    Inventory,
)
from exporter.sources.switch.readers.snmp.profile import Counter, CounterTable, Profile

Times: TypeAlias = Callable[[Sequence[Oid]], tuple[float, Sequence[float] | None]]
"""Returns the times at which the switch counted rows, by the interfaces of their ports: one for all, or one each."""

OCTETS = ("receive_bytes_total", "transmit_bytes_total")

MAX_INSTANCES = 2000
"""Most instances that are read by GET in one poll."""

_NO_CELLS: Cells = MappingProxyType({})


class SnmpCounters:
    """The counters of one switch, from poll to poll."""

    def __init__(self, profile: Profile, *, swapped: bool = False, has_counter64: bool = True) -> None:
        """Store the profile.

        Args:
            profile: The tables to read.
            swapped: Whether the agent has the directions of PFC swapped.
            has_counter64: Whether the SNMP version has 64-bit counters.
        """
        self._tables = profile.tables
        self._stamps = profile.stamps
        self._endings = {one: counter_ending(one, swapped=swapped) for table in self._tables for one in table.counters}
        self._has_counter64 = has_counter64
        self._empty: set[Oid] = set()  # columns without rows, or not needed
        self._absent: set[Oid] = set()  # instances that the switch does not have
        self._next_read: dict[str, float] = {}  # by table with a minimum interval
        self._cells: dict[Oid, Cells] = {}
        self._tags: dict[Oid, int | None] = {}
        self._missing: dict[Oid, tuple[Sequence[Oid], Sequence[Oid]]] = {}  # by column: its indexes, missing instances
        self._deduplicated: set[str] = set()  # tables
        self._updated: set[Schema] = set()
        self._rows: dict[Schema, CounterRows] = {}
        self._parts: dict[Schema, PartialTable] = {}
        self._sums = PortSums()
        self._queue_sums: tuple[PartialTable, dict[str, dict[LabelValues, Value | None]]] | None = None
        self._failed: set[Oid] = set()  # columns of the last walk
        self._support: dict[str, Support] = {}  # by table

    def reset(self) -> None:
        """Walk all columns again: there is a new inventory."""
        for cache in (self._empty, self._absent, self._next_read, self._missing, self._deduplicated, self._parts):
            cache.clear()
        for rows in self._rows.values():
            rows.indexes = None  # the keys are kept as long as they are the same
        self._cells.clear()

    def columns_to_walk(self, now: float) -> list[Oid]:
        """Return the columns to walk now."""
        columns: list[Oid] = [IF_ADMIN, IF_OPER, IF_HIGH_SPEED, IF_SPEED, IF_LAST_CHANGE]
        if self._stamps is not None:
            columns.append(self._stamps)
        for table in self._due(now):
            columns += [one.oid for one in table.counters if self._has_counter64 or one.width == 32]
            if table.condition is not None:
                columns.append(table.condition[0])
        return [oid for oid in dict.fromkeys(columns) if oid not in self._empty]

    def add_walk(self, result: WalkResult, inventory: Inventory, now: float) -> list[Oid]:
        """Store the result of a walk of `columns_to_walk`.

        Returns:
            Instances that are missing from it: to be read by GET, and passed to `add_values`.
        """
        failed = self._failed = {one.oid for one in result.problems}
        for oid, column in result.columns.items():
            self._cells[oid], self._tags[oid] = counter_cells(column), column.tag
            if not column.rows and column.complete and oid not in failed:
                self._empty.add(oid)
        high, low = (self._cells.get(oid, _NO_CELLS) for oid in (IF_HIGH_SPEED, IF_SPEED))
        if high and all(has_high_speed(high.get(index)) for index, speed in low.items() if speed):
            self._empty.add(IF_SPEED)  # every interface with a speed has the other one, which has precedence
            self._cells[IF_SPEED] = _NO_CELLS
        missing: list[Oid] = []
        self._updated = {PORTS}
        for table in list(self._due(now)):
            walked = [one for one in table.counters if one.oid in result.columns]
            self._update_support(table, walked, failed)
            if table.name not in self._deduplicated and not failed:
                self._deduplicated.add(table.name)
                self._drop_duplicates(table)
            for oid in dict.fromkeys(one.oid for one in walked):
                if oid not in failed and self._cells[oid]:
                    missing += self._missing_instances(table, oid, inventory)
            self._updated.add(table.schema)
            if table.every:
                self._next_read[table.name] = now + table.every
        return missing[:MAX_INSTANCES]

    def add_values(self, requested: Sequence[Oid], values: Mapping[Oid, Typed]) -> None:
        """Store the result of a GET; instances without a value are not requested until the next inventory."""
        found: dict[Oid, dict[Oid, int]] = {}
        columns = {oid: len(oid) for oid in self._cells}
        for oid in requested:
            column = next(oid[:size] for size in range(len(oid) - 1, 0, -1) if oid[:size] in columns)
            value = values.get(oid)
            if value is not None and isinstance(value[1], int) and value[1] >= 0:
                found.setdefault(column, {})[oid[len(column) :]] = value[1]
            else:
                self._absent.add(oid)
        for column, cells in found.items():
            self._cells[column] = {**self._cells[column], **cells}

    def unlisted_indexes(self, inventory: Inventory) -> frozenset[Oid]:
        """Return the interfaces that the walk found in IF-MIB and that are not in the inventory."""
        found = frozenset().union(*(cells for oid, cells in self._cells.items() if oid[:-1] in (IF, IFX)))
        return found - inventory.ports.keys() - inventory.excluded

    def octets(self) -> dict[Hashable, int]:
        """Return the counters of octets, by column and interface."""
        found: dict[Hashable, int] = {}
        for one, ending in self._endings.items():
            if ending in OCTETS:
                found.update(((ending, index), count) for index, count in self._cells.get(one.oid, _NO_CELLS).items())
        return found

    def stamps(self) -> Cells | None:
        """Return the time stamps of ports by index, in ticks; None where the switch has none."""
        return None if self._stamps is None else self._cells.get(self._stamps) or None

    def families(self) -> dict[Family, Support]:
        """Return the support of each family that was requested."""
        return best_by_family(
            (table.family, self._support[table.name]) for table in self._tables if table.name in self._support
        )

    def missing_rows(self, inventory: Inventory) -> list[Failure]:
        """Return a failure for each Ethernet port that is up and has no counter of octets."""
        oper = self._cells.get(IF_OPER, _NO_CELLS)
        octets: dict[str, list[Cells]] = {}
        for one, ending in self._endings.items():
            if ending in OCTETS and self._cells.get(one.oid) and one.oid not in self._failed:
                octets.setdefault(ending, []).append(self._cells[one.oid])
        return [
            Failure(
                inventory.ports[index],
                "rows_missing",
                f"{inventory.ports[index]}: is up, and the switch has no counter of its octets, by walk or by GET",
            )
            for index in sorted(inventory.ethernet)
            if oper.get(index) == UP and any(all(index not in cells for cells in ways) for ways in octets.values())
        ]

    def parts(self, inventory: Inventory, times: Times, epoch: int) -> list[PartialTable]:
        """Return the partial tables.

        Args:
            inventory: The ports.
            times: When the switch counted.
            epoch: Changes with a restart.
        """
        for schema in self._updated - {PORTS}:
            part = self._part(schema, inventory, times, epoch)
            if part is None:
                self._parts.pop(schema, None)
            else:
                self._parts[schema] = part
        return [self._ports(inventory, times, epoch), *self._parts.values()]

    def _due(self, now: float) -> Iterable[CounterTable]:
        return (table for table in self._tables if now >= self._next_read.get(table.name, now))

    def _update_support(self, table: CounterTable, walked: Sequence[Counter], failed: set[Oid]) -> None:
        """Update whether the switch counts a table, and drop rows that its condition excludes."""
        if not walked:
            return
        if not any(self._cells[one.oid] for one in walked):
            any_failed = any(one.oid in failed for one in walked)
            self._support[table.name] = Support.FAILED if any_failed else Support.UNSUPPORTED
            return
        self._support[table.name] = Support.COUNTED
        if table.condition is None:
            return
        column, number = table.condition
        counted = {index for index, value in self._cells.get(column, _NO_CELLS).items() if value == number}
        for one in walked:
            self._cells[one.oid] = {index: cell for index, cell in self._cells[one.oid].items() if index in counted}
        if not counted:
            self._support[table.name] = Support.FAILED if column in failed else Support.NOT_COUNTED
            self._empty.update([column, *(one.oid for one in walked)])

    def _drop_duplicates(self, table: CounterTable) -> None:
        """Stop walking columns of a table whose metric an earlier column has too.

        Octets of interfaces that the earlier one lacks stay: some agents have those of 64 bits for a part of them.
        """
        first: dict[tuple[str, int | None, tuple[tuple[int, int], ...]], Oid] = {}
        for other in self._tables:
            for one in other.counters:
                metric = (self._endings[one], one.at, one.tests)
                cells = self._cells.get(one.oid)
                if not cells or first.setdefault(metric, one.oid) == one.oid or other is not table:
                    continue
                if metric[0] not in OCTETS or cells.keys() <= self._cells[first[metric]].keys():
                    self._empty.add(one.oid)
                    self._cells[one.oid] = _NO_CELLS

    def _missing_instances(self, table: CounterTable, oid: Oid, inventory: Inventory) -> list[Oid]:
        """Return the instances of a column that should exist and are missing from the walk."""
        indexes = list(self._cells[oid])
        known, missing = self._missing.get(oid, ([], []))
        if known != indexes:
            missing = [oid + index for index in missing_indexes(table, oid, indexes, inventory)]
            self._missing[oid] = (indexes, missing)
        return [one for one in missing if one not in self._absent]

    def _part(
        self,
        schema: Schema,
        inventory: Inventory,
        times: Times,
        epoch: int,
    ) -> PartialTable | None:
        rows = self._rows_of(schema, inventory)
        columns = self._columns(schema, rows)
        if not columns:
            return None
        return PartialTable(schema, rows.keys, columns, *times(rows.ports), epochs=[epoch] * len(rows.keys))

    def _ports(
        self,
        inventory: Inventory,
        times: Times,
        epoch: int,
    ) -> PartialTable:
        metrics = PORTS.metrics
        rows = self._rows_of(PORTS, inventory)
        columns = self._columns(PORTS, rows)
        others = self._parts
        if PRIORITIES in others and "receive_pfc_frames_total" in others[PRIORITIES].columns:
            self._drop_pfc_totals(columns)
        for ending, parts in PACKET_SUMS.items():
            if all(part in columns for part in parts):
                counts = zip(*(columns[part].values for part in parts), strict=True)
                columns[ending] = Column(metrics[ending], [complete_sum(row) for row in counts])
        for ending, values in self._queue_totals().items():
            columns.setdefault(ending, Column(metrics[ending], [values.get(key) for key in rows.keys]))
        columns |= self._states(rows.ports, inventory)
        members = [inventory.members.get(port) for port in rows.ports]
        return PartialTable(
            PORTS, rows.keys, columns, *times(rows.ports), epochs=[epoch] * len(rows.keys), members=members
        )

    def _queue_totals(self) -> dict[str, dict[LabelValues, Value | None]]:
        """Return the sums over the queues of each port, by ending and port; queues are read less often than ports."""
        queues = self._parts.get(QUEUES)
        if queues is None:
            return {}
        if self._queue_sums is None or self._queue_sums[0] is not queues:
            keys, sums = self._sums.columns(queues)
            values = {ending: dict(zip(keys, column.values, strict=True)) for ending, column in sums.items()}
            self._queue_sums = (queues, values)
        return self._queue_sums[1]

    def _states(self, indexes: Sequence[Oid], inventory: Inventory) -> dict[str, Column]:
        admin, oper = (self._cells.get(oid, _NO_CELLS) for oid in (IF_ADMIN, IF_OPER))
        high, low = (self._cells.get(oid, _NO_CELLS) for oid in (IF_HIGH_SPEED, IF_SPEED))
        changed = last_changes(self._cells.get(IF_LAST_CHANGE, _NO_CELLS))
        ups = [is_up(oper.get(index)) for index in indexes]
        speeds = [speed_of(high.get(index), low.get(index)) for index in indexes]
        values: Mapping[str, Sequence[Value | None]] = {
            "link_up": ups,
            "link_changed_uptime_seconds": [changed.get(index) for index in indexes],
            "admin_up": [is_up(admin.get(index)) for index in indexes],
            "link_speed_bytes_per_second": [speed if up else None for speed, up in zip(speeds, ups, strict=True)],
            "info": [inventory.facts[index] for index in indexes],
        }
        return {ending: Column(PORTS.metrics[ending], cells) for ending, cells in values.items()}

    def _drop_pfc_totals(self, columns: dict[str, Column]) -> None:
        """Drop the PFC frames of all priorities where there are those of each priority."""
        for one, ending in self._endings.items():
            if "_pfc_all_priorities_" in ending:
                self._empty.add(one.oid)
                self._cells[one.oid] = _NO_CELLS
                columns.pop(ending, None)

    def _rows_of(self, schema: Schema, inventory: Inventory) -> CounterRows:
        """Return the rows of a schema; the same object as long as the columns have the same indexes."""
        tables = [table for table in self._tables if table.schema is schema]
        indexes = {
            one: list(cells)
            for table in tables
            for one in table.counters
            if (cells := self._cells.get(one.oid, _NO_CELLS))
        }
        if schema is PORTS:  # a port has a state even if it has no counter
            states = (self._cells.get(oid, _NO_CELLS) for oid in (IF_OPER, IF_ADMIN, IF_HIGH_SPEED))
            indexes[STATE_COUNTER] = list(dict.fromkeys(chain.from_iterable(states)))
        known = self._rows.get(schema)
        if known is not None and known.indexes == indexes:
            return known
        rows = build_rows([*tables, *([STATE_TABLE] if schema is PORTS else [])], indexes, self._endings, inventory)
        if known is not None and known.keys == rows.keys:
            rows.keys = known.keys
        self._rows[schema] = rows
        return rows

    def _columns(self, schema: Schema, rows: CounterRows) -> dict[str, Column]:
        columns: dict[str, Column] = {}
        for ending, sources in rows.sources.items():
            (first, indexes), *rest = sources
            values: list[int | None] = list(map(self._cells[first.oid].get, indexes))
            for one, others in rest:
                cells = self._cells[one.oid]
                values = [
                    cells.get(index) if value is None else value for value, index in zip(values, others, strict=True)
                ]
            width = 32 if self._tags.get(first.oid) == COUNTER32 else first.width
            columns[ending] = Column(schema.metrics[ending], values, width, factor=first.factor, divisor=first.divisor)
        return {ending: one for ending, one in columns.items() if any(value is not None for value in one.values)}
