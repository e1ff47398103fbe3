"""The counters of one switch, as its profile lists them: which columns to ask now, and parts made of the answers.

A switch lacks many of the columns that its kind may have: one that was empty rests until the next inventory. A column
may also end too soon, since some agents stop a walk at the first port of which they have nothing: what is missing
behind that is asked by name.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from exporter.core.source import Failure
from exporter.core.table import (
    Column,
    LabelValues,
    Schema,
    Value,
)
from exporter.snmp.ber import (
    COUNTER32,
    COUNTER64,
    Oid,
    Typed,
)
from exporter.snmp.ber import Value as Wire
from exporter.snmp.walk import Column as WalkedColumn
from exporter.snmp.walk import WalkResult
from exporter.sources.switch.merge import Family, Part, Support
from exporter.sources.switch.metrics import PORTS, PRIORITIES, QUEUES
from exporter.sources.switch.queues import PortSums
from exporter.sources.switch.readers.snmp.inventory import (
    IF,
    IF_ADMIN,
    IF_HIGH_SPEED,
    IF_OPER,
    IF_SPEED,
    IFX,
    Inventory,
)
from exporter.sources.switch.readers.snmp.profile import Counter, CounterTable, Profile

Cells: TypeAlias = Mapping[Oid, int]

Times: TypeAlias = Callable[[Sequence[Oid]], tuple[float, Sequence[float] | None]]
"""Gives the times at which the switch counted rows, by the interfaces of their ports: one for all, or each its own."""

SUMS: Mapping[str, tuple[str, ...]] = {
    f"{way}_packets_total": tuple(f"{way}_{cast}_packets_total" for cast in ("unicast", "multicast", "broadcast"))
    for way in ("receive", "transmit")
}
"""What IF-MIB counts only by kind of addressee."""

OCTETS = ("receive_bytes_total", "transmit_bytes_total")

SWAPPED = {"receive_pfc_": "transmit_pfc_", "transmit_pfc_": "receive_pfc_"}

UP, UNKNOWN = 1, 4
SATURATED = 2**32 - 1
"""ifSpeed of all that is faster than it can say."""

FASTEST = 10**8
"""Of ifHighSpeed, in Mb/s: more is the top of its range, and no speed."""

MOST_SINGLES = 2000
"""Instances that are asked by name in one poll, at most."""

_COUNTERS = (COUNTER32, COUNTER64)
_NONE: Cells = {}


@dataclass(slots=True)
class _Rows:
    """Rows of one schema, and where their cells are; made anew only where the indexes that columns have changed.

    Attributes:
        seen: Indexes of each column when this was made; None where it is to be made anew.
        keys: Of the part.
        ports: Index of the port of each row.
        sources: By ending: the columns that have it, with the index of each row in it, which is empty where the column
            has no such row.
    """

    seen: Mapping[Counter, Sequence[Oid]] | None = None
    keys: Sequence[LabelValues] = ()
    ports: Sequence[Oid] = ()
    sources: Mapping[str, Sequence[tuple[Counter, Sequence[Oid]]]] = field(default_factory=dict)


class Counters:
    """The counters of one switch, from inventory to inventory and from poll to poll."""

    def __init__(self, profile: Profile, *, swapped: bool = False, wide: bool = True) -> None:
        """Take the profile.

        Args:
            profile: Which tables there may be.
            swapped: Whether the agent has the directions of PFC swapped.
            wide: Whether the protocol can carry counters of 64 bits.
        """
        self._tables = profile.tables
        self._stamps = profile.stamps
        self._endings = {one: _ending(one, swapped) for table in self._tables for one in table.counters}
        self._wide = wide
        self._silent: set[Oid] = set()
        self._absent: set[Oid] = set()
        self._resting: dict[str, float] = {}  # by table: when it may be asked again
        self._cells: dict[Oid, Cells] = {}
        self._tags: dict[Oid, int | None] = {}
        self._checked: dict[Oid, tuple[Sequence[Oid], Sequence[Oid]]] = {}
        self._settled: set[str] = set()
        self._fresh: set[Schema] = set()
        self._rows: dict[Schema, _Rows] = {}
        self._parts: dict[Schema, Part] = {}
        self._sums = PortSums()
        self._summed: tuple[Part, dict[str, dict[LabelValues, Value | None]]] | None = None
        self._troubled: set[Oid] = set()
        self._families: dict[str, Support] = {}

    def forget(self) -> None:
        """Ask all columns again: there is a new inventory."""
        for kept in (self._silent, self._absent, self._resting, self._checked, self._settled, self._parts):
            kept.clear()
        for rows in self._rows.values():
            rows.seen = None  # the keys stay, as long as they are the same
        self._cells.clear()

    def wanted(self, now: float) -> list[Oid]:
        """Give the columns to walk now."""
        columns: list[Oid] = [IF_ADMIN, IF_OPER, IF_SPEED if IF_HIGH_SPEED in self._silent else IF_HIGH_SPEED]
        if self._stamps is not None:
            columns.append(self._stamps)
        for table in self._due(now):
            columns += [one.oid for one in table.counters if self._wide or one.width == 32]
            if table.condition is not None:
                columns.append(table.condition[0])
        return [oid for oid in dict.fromkeys(columns) if oid not in self._silent]

    def take(self, result: WalkResult, inventory: Inventory, now: float) -> list[Oid]:
        """Take what a walk of the wanted columns brought.

        Returns:
            Instances that it should have had and had not: to be asked by name, and handed to `add`.
        """
        troubled = self._troubled = {one.oid for one in result.problems}
        for oid, column in result.columns.items():
            self._cells[oid], self._tags[oid] = _cells(column), column.tag
            if not column.rows and column.complete and oid not in troubled:
                self._silent.add(oid)
        missing: list[Oid] = []
        self._fresh = {PORTS}
        for table in list(self._due(now)):
            walked = [one for one in table.counters if one.oid in result.columns]
            self._note_family(table, walked, troubled)
            if table.name not in self._settled and not troubled:
                self._settled.add(table.name)
                self._drop_losers(table)
            for oid in dict.fromkeys(one.oid for one in walked):
                if oid not in troubled and self._cells[oid]:
                    missing += self._missing(table, oid, inventory)
            self._fresh.add(table.schema)
            if table.every:
                self._resting[table.name] = now + table.every
        return missing[:MOST_SINGLES]

    def add(self, asked: Sequence[Oid], values: Mapping[Oid, Typed]) -> None:
        """Take what was asked by name; what the switch does not have then is not asked until the next inventory."""
        found: dict[Oid, dict[Oid, int]] = {}
        columns = {oid: len(oid) for oid in self._cells}
        for oid in asked:
            column = next(oid[:size] for size in range(len(oid) - 1, 0, -1) if oid[:size] in columns)
            value = values.get(oid)
            if value is not None and isinstance(value[1], int) and value[1] >= 0:
                found.setdefault(column, {})[oid[len(column) :]] = value[1]
            else:
                self._absent.add(oid)
        for column, cells in found.items():
            self._cells[column] = {**self._cells[column], **cells}

    def indexes(self) -> set[Oid]:
        """Give the interfaces that the walk showed in tables by port alone."""
        return set().union(*(cells for oid, cells in self._cells.items() if oid[:-1] in (IF, IFX)))

    def octets(self) -> dict[Hashable, int]:
        """Give the counters of bytes, by column and interface."""
        found: dict[Hashable, int] = {}
        for one, ending in self._endings.items():
            if ending in OCTETS:
                found.update(((ending, index), count) for index, count in self._cells.get(one.oid, _NONE).items())
        return found

    def stamps(self) -> Cells | None:
        """Give the time stamps of ports by index, in ticks; None where the switch has none."""
        return None if self._stamps is None else self._cells.get(self._stamps) or None

    def families(self) -> dict[Family, Support]:
        """Say what the switch counts, of what was asked."""
        better = (Support.COUNTED, Support.NOT_COUNTED, Support.FAILED, Support.UNSUPPORTED)
        found: dict[Family, Support] = {}
        for table in self._tables:
            support = self._families.get(table.name)
            if support is not None:
                found[table.family] = min(found.get(table.family, support), support, key=better.index)
        return found

    def rows_missing(self, inventory: Inventory) -> list[Failure]:
        """Name the ports of Ethernet that are up and have no count of bytes."""
        oper = self._cells.get(IF_OPER, _NONE)
        octets = [
            self._cells[one.oid]
            for one, ending in self._endings.items()
            if ending in OCTETS and self._cells.get(one.oid) and one.oid not in self._troubled
        ]
        return [
            Failure(
                inventory.ports[index],
                "rows_missing",
                f"{inventory.ports[index]}: is up, and the switch has no count of its bytes, walked or asked by name",
            )
            for index in sorted(inventory.ethernet)
            if oper.get(index) == UP and any(index not in cells for cells in octets)
        ]

    def parts(self, inventory: Inventory, times: Times, epoch: int) -> list[Part]:
        """Make the parts.

        Args:
            inventory: The ports.
            times: When the switch counted.
            epoch: Changes with a restart.
        """
        for schema in self._fresh - {PORTS}:
            part = self._part(schema, inventory, times, epoch)
            if part is None:
                self._parts.pop(schema, None)
            else:
                self._parts[schema] = part
        return [self._ports(inventory, times, epoch), *self._parts.values()]

    def _due(self, now: float) -> Iterable[CounterTable]:
        return (table for table in self._tables if now >= self._resting.get(table.name, now))

    def _note_family(self, table: CounterTable, walked: Sequence[Counter], troubled: set[Oid]) -> None:
        """Note whether the switch counts what a table tells, and let one rest that it says it does not."""
        if not walked:
            return
        some = any(self._cells[one.oid] for one in walked)
        if not some:
            failed = any(one.oid in troubled for one in walked)
            self._families[table.name] = Support.FAILED if failed else Support.UNSUPPORTED
            return
        self._families[table.name] = Support.COUNTED
        if table.condition is None:
            return
        column, wanted = table.condition
        counted = {index for index, value in self._cells.get(column, _NONE).items() if value == wanted}
        for one in walked:
            self._cells[one.oid] = {index: cell for index, cell in self._cells[one.oid].items() if index in counted}
        if not counted:
            self._families[table.name] = Support.FAILED if column in troubled else Support.NOT_COUNTED
            self._silent.update([column, *(one.oid for one in walked)])

    def _drop_losers(self, table: CounterTable) -> None:
        """Let columns rest whose metric stands in an earlier one too."""
        won: dict[tuple[str, int | None, tuple[tuple[int, int], ...]], Oid] = {}
        for other in self._tables:
            for one in other.counters:
                place = (self._endings[one], one.at, one.tests)
                if self._cells.get(one.oid) and won.setdefault(place, one.oid) != one.oid and other is table:
                    self._silent.add(one.oid)
                    self._cells[one.oid] = _NONE

    def _missing(self, table: CounterTable, oid: Oid, inventory: Inventory) -> list[Oid]:
        """Give the instances of a column that there should be and that the walk had not."""
        indexes = list(self._cells[oid])
        known, lacking = self._checked.get(oid, ([], []))
        if known != indexes:
            lacking = [oid + index for index in _lacking(table, oid, indexes, inventory)]
            self._checked[oid] = (indexes, lacking)
        return [one for one in lacking if one not in self._absent]

    def _part(
        self,
        schema: Schema,
        inventory: Inventory,
        times: Times,
        epoch: int,
    ) -> Part | None:
        rows = self._arranged(schema, inventory)
        columns = self._columns(schema, rows)
        if not columns:
            return None
        return Part(schema, rows.keys, columns, *times(rows.ports), epochs=[epoch] * len(rows.keys))

    def _ports(
        self,
        inventory: Inventory,
        times: Times,
        epoch: int,
    ) -> Part:
        metrics = PORTS.metrics
        rows = self._arranged(PORTS, inventory)
        columns = self._columns(PORTS, rows)
        others = self._parts
        if PRIORITIES in others and "receive_pfc_frames_total" in others[PRIORITIES].columns:
            self._drop_totals(columns)
        for ending, parts in SUMS.items():
            if all(part in columns for part in parts):
                cast = zip(*(columns[part].values for part in parts), strict=True)
                columns[ending] = Column(metrics[ending], [None if None in row else sum(row) for row in cast])
        for ending, values in self._of_queues().items():
            columns.setdefault(ending, Column(metrics[ending], [values.get(key) for key in rows.keys]))
        columns |= self._states(rows.ports, inventory)
        return Part(PORTS, rows.keys, columns, *times(rows.ports), epochs=[epoch] * len(rows.keys))

    def _of_queues(self) -> dict[str, dict[LabelValues, Value | None]]:
        """Give what the queues of each port come to, by ending and port; queues are read more seldom than ports."""
        queues = self._parts.get(QUEUES)
        if queues is None:
            return {}
        if self._summed is None or self._summed[0] is not queues:
            keys, summed = self._sums.columns(queues)
            values = {ending: dict(zip(keys, column.values, strict=True)) for ending, column in summed.items()}
            self._summed = (queues, values)
        return self._summed[1]

    def _states(self, indexes: Sequence[Oid], inventory: Inventory) -> dict[str, Column]:
        admin, oper = (self._cells.get(oid, _NONE) for oid in (IF_ADMIN, IF_OPER))
        fast, slow = (self._cells.get(oid, _NONE) for oid in (IF_HIGH_SPEED, IF_SPEED))
        ups = [_is_up(oper.get(index)) for index in indexes]
        speeds = [_speed(fast.get(index), slow.get(index)) for index in indexes]
        values: Mapping[str, Sequence[Value | None]] = {
            "link_up": ups,
            "admin_up": [_is_up(admin.get(index)) for index in indexes],
            "link_speed_bytes_per_second": [speed if up else None for speed, up in zip(speeds, ups, strict=True)],
            "info": [inventory.facts[index] for index in indexes],
        }
        return {ending: Column(PORTS.metrics[ending], cells) for ending, cells in values.items()}

    def _drop_totals(self, columns: dict[str, Column]) -> None:
        """Leave out the frames of all priorities together where there are those of each."""
        for one, ending in self._endings.items():
            if "_pfc_all_priorities_" in ending:
                self._silent.add(one.oid)
                self._cells[one.oid] = _NONE
                columns.pop(ending, None)

    def _arranged(self, schema: Schema, inventory: Inventory) -> _Rows:
        """Give the rows of a schema; the very same as long as the columns have the same indexes."""
        tables = [table for table in self._tables if table.schema is schema]
        seen = {
            one: list(cells) for table in tables for one in table.counters if (cells := self._cells.get(one.oid, _NONE))
        }
        if schema is PORTS:  # a port has a state even where it has no counter
            states = (self._cells.get(oid, _NONE) for oid in (IF_OPER, IF_ADMIN, IF_HIGH_SPEED))
            seen[_STATE] = list(dict.fromkeys(chain.from_iterable(states)))
        known = self._rows.get(schema)
        if known is not None and known.seen == seen:
            return known
        made = _arrange([*tables, *([_STATES] if schema is PORTS else [])], seen, self._endings, inventory)
        if known is not None and known.keys == made.keys:
            made.keys = known.keys
        self._rows[schema] = made
        return made

    def _columns(self, schema: Schema, rows: _Rows) -> dict[str, Column]:
        made: dict[str, Column] = {}
        for ending, sources in rows.sources.items():
            (first, indexes), *rest = sources
            values: list[int | None] = list(map(self._cells[first.oid].get, indexes))
            for one, others in rest:
                cells = self._cells[one.oid]
                values = [
                    cells.get(index) if value is None else value for value, index in zip(values, others, strict=True)
                ]
            width = 32 if self._tags.get(first.oid) == COUNTER32 else first.width
            made[ending] = Column(schema.metrics[ending], values, width, factor=first.factor, divisor=first.divisor)
        return {ending: one for ending, one in made.items() if any(value is not None for value in one.values)}


_STATE = Counter((), "", 32, 1, 1, (), None)
_STATES = CounterTable("", Family.TRAFFIC, PORTS, (_STATE,), 1, None, None, 0.0)
"""Stands for the columns of states, which make rows but no counters."""


def _arrange(
    tables: Sequence[CounterTable],
    seen: Mapping[Counter, Sequence[Oid]],
    endings: Mapping[Counter, str],
    inventory: Inventory,
) -> _Rows:
    """Find the row of each index of each column."""
    order = {port: place for place, port in enumerate(inventory.ports)}
    found: dict[Counter, dict[tuple[int, int], Oid]] = {}
    for table in tables:
        for one in table.counters:
            found[one] = {
                (order[index[:1]], label): index
                for index in seen.get(one, ())
                if index[:1] in order and (label := _label(table, one, index)) is not None
            }
    places = sorted(set().union(*found.values()))
    ports = list(inventory.ports)
    plain = tables[0].schema is PORTS
    names = [inventory.ports[ports[port]] for port, _ in places]
    keys = [(name,) if plain else (name, str(label)) for name, (_, label) in zip(names, places, strict=True)]
    sources: dict[str, list[tuple[Counter, Sequence[Oid]]]] = {}
    for one, cells in found.items():
        if cells and one is not _STATE:
            sources.setdefault(endings[one], []).append((one, [cells.get(place, ()) for place in places]))
    return _Rows(seen, keys, [ports[port] for port, _ in places], sources)


def _lacking(table: CounterTable, oid: Oid, indexes: Sequence[Oid], inventory: Inventory) -> list[Oid]:
    """Give the indexes that a column should have and has not.

    Every interface has its row in IF-MIB, every port of Ethernet and every bundle in other tables by port. In a table
    of finer rows, every port of Ethernet has as many as the first one.
    """
    if table.length == 1:
        expected: Iterable[Oid] = inventory.ports if oid[:-1] in (IF, IFX) else inventory.counting
        seen = set(indexes)
        return [index for index in expected if index not in seen]
    if table.condition is not None:
        return []
    first = next((index[:1] for index in indexes if index[:1] in inventory.ethernet), None)
    tails = [index[1:] for index in indexes if index[:1] == first]
    return [port + tail for port in sorted(inventory.ethernet - {index[:1] for index in indexes}) for tail in tails]


def _label(table: CounterTable, one: Counter, index: Oid) -> int | None:
    """Give what tells a row of a port apart; None for an index that is not of this column."""
    if len(index) != table.length or any(index[place] != number for place, number in one.tests):
        return None
    if one.at is not None or table.label is None:
        return one.at or 0
    place, less = table.label
    return index[place] - less if index[place] >= less else None


def _ending(one: Counter, swapped: bool) -> str:
    if swapped:
        for direction, other in SWAPPED.items():
            if one.ending.startswith(direction):
                return other + one.ending.removeprefix(direction)
    return one.ending


def _cells(column: WalkedColumn) -> Cells:
    """Give the counts of a column: all of one that is of counters throughout, else what is a number from 0.

    Some agents send counters as signed numbers, and below zero is none.
    """
    rows: Mapping[Oid, Wire] = column.rows
    if column.tag in _COUNTERS and not column.odd:
        return rows  # type: ignore[return-value]  # the tag says that they are
    return {index: value for index, value in rows.items() if isinstance(value, int) and value >= 0}


def _is_up(value: int | None) -> int | None:
    return None if value is None or value == UNKNOWN else int(value == UP)


def _speed(fast: int | None, slow: int | None) -> float | None:
    """Read ifHighSpeed, in Mb/s, or ifSpeed, in b/s; virtual ports have 0, which is no speed."""
    if fast is not None:
        return fast * 1e6 / 8 if 0 < fast <= FASTEST else None
    return slow / 8 if slow and slow != SATURATED else None
