"""Readings of a switch in one form for all protocols, and the merge of several protocols' readings into tables.

A reader returns partial tables: rows of one schema without the label `switch`. A switch may be polled by several
protocols, such as SNMP for octets and an API for ECN marks. Each column is then taken from one reader, the first that
returned it, so that a counter never alternates between readers that count differently.
"""

import enum
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol, TypeVar

from exporter.core.source import Failure
from exporter.core.table import (
    Column,
    LabelValues,
    RowKeeper,
    Schema,
    Table,
    TableBuilder,
    Value,
)
from exporter.core.vocabulary import RESETS
from exporter.sources.switch.port_labels import PortLabels
from exporter.switch_api.neighbour import LldpNeighbour


class Family(enum.Enum):
    """A family of metrics that a switch may count; the value is a label."""

    TRAFFIC = "traffic"
    ERRORS = "errors"
    PAUSE = "pause"
    PFC = "pfc"
    PFC_DURATION = "pfc_duration"
    ECN = "ecn"
    QUEUES = "queues"
    BUFFERS = "buffers"
    OPTICS = "optics"
    LLDP = "lldp"


class Support(enum.Enum):
    """Whether a switch counts a family; the value is a label.

    COUNTED: there are values. NOT_COUNTED: the switch has the counters and reports that it does not count (a feature
    that is disabled, `-`, `N/A`). UNSUPPORTED: the switch does not have the counters. FAILED: the request failed.
    """

    COUNTED = "counted"
    NOT_COUNTED = "not_counted"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"


_PREFERENCE = (Support.COUNTED, Support.NOT_COUNTED, Support.FAILED, Support.UNSUPPORTED)


def best_support(supports: Iterable[Support]) -> Support | None:
    """Return the support of a family that was requested several times with different results; None if it was not."""
    return min(supports, key=_PREFERENCE.index, default=None)


def best_by_family(supports: Iterable[tuple[Family, Support]]) -> dict[Family, Support]:
    """Return the support of each family, from that of all requests."""
    found: dict[Family, Support] = {}
    for family, support in supports:
        found[family] = min(support, found.get(family, support), key=_PREFERENCE.index)
    return found


@dataclass(frozen=True, slots=True)
class PartialTable:
    """Rows of one schema as read by one reader.

    Attributes:
        schema: One of `metrics`; its first label, the switch, is not in the keys.
        keys: Label values of each row after the switch: `(port,)`, `(port, priority)` … Pass the same object as long as
            nothing changed: then the rows are not compared again.
        columns: By ending; counters are raw, as in a Table.
        time: Monotonic seconds of the reading.
        times: Monotonic seconds at which the switch counted, by row, where that is known to differ: from its time
            stamps, or since its counters were not refreshed since the last reading. A row whose time did not advance
            keeps its rates.
        epochs: One hashable by row that changes with a restart; None where unknown.
        members: Number of ports of each row that is a bundle; None where unknown.
        aspect: Distinguishes several partial tables of one schema, whose columns a reader requests at different times.
    """

    schema: Schema
    keys: Sequence[LabelValues]
    columns: Mapping[str, Column]
    time: float
    times: Sequence[float] | None = None
    epochs: Sequence[Hashable] | None = None
    aspect: str = ""
    members: Sequence[int | None] | None = None


class PartialTableBuilder:
    """Builds a PartialTable row by row.

    A builder may be kept from poll to poll: as long as the rows are the same, so is the object of their keys.
    """

    def __init__(self, schema: Schema, aspect: str = "") -> None:
        self._rows = TableBuilder(schema)
        self._schema = schema
        self._aspect = aspect
        self._keys: Sequence[LabelValues] = ()

    def row(self, key: LabelValues, values: Mapping[str, Value | None]) -> None:
        """Add one row; `values` are by ending."""
        self._rows.row(key, values)

    def part(
        self, time: float, *, times: Sequence[float] | None = None, epochs: Sequence[Hashable] | None = None
    ) -> PartialTable:
        """Return the rows so far, and start the next table."""
        done, self._rows = self._rows, TableBuilder(self._schema)
        if done.keys != self._keys:
            self._keys = done.keys
        return PartialTable(self._schema, self._keys, done.columns(), time, times, epochs, self._aspect)


@dataclass(frozen=True, slots=True)
class SwitchDevice:
    """What a switch reports about itself; empty or None where it does not.

    Attributes:
        name: System name.
        description: System description.
        object_id: sysObjectID, by SNMP.
        model: Product.
        version: Software version.
        profile: The SNMP profile that is used.
        uptime: Seconds since its management started.
        refresh: Seconds between refreshes of its counters, as observed or configured; None if every reading had new
            values.
        unchanged: Readings so far with counters that were not refreshed since the one before.
        chassis: Its LLDP chassis ID, a MAC address as `aa:bb:cc:dd:ee:ff`, else text.
    """

    name: str = ""
    description: str = ""
    object_id: str = ""
    model: str = ""
    version: str = ""
    profile: str = ""
    uptime: float | None = None
    refresh: float | None = None
    unchanged: int | None = None
    chassis: str = ""


@dataclass(frozen=True, slots=True)
class SwitchReading:
    """One reading of a switch by one reader.

    Attributes:
        device: What it reports about itself.
        parts: Partial tables, at most one by schema and aspect.
        families: Support of the families that this reader requests.
        neighbours: All LLDP neighbours; None where they were not requested, or could not be read.
        failures: What could not be read.
    """

    device: SwitchDevice = SwitchDevice()
    parts: Sequence[PartialTable] = ()
    families: Mapping[Family, Support] = field(default_factory=dict)
    neighbours: Sequence[LldpNeighbour] | None = None
    failures: Sequence[Failure] = ()


class Reader(Protocol):
    """Polls one switch by one protocol.

    Attributes:
        protocol: Its name, a key of the target: `snmp`, `onyx` …
    """

    protocol: str

    async def read(self) -> SwitchReading:
        """Poll once. A reader caches what changes slowly, such as inventories, and returns it unchanged in between.

        Raises:
            SourceError: Nothing could be read by this protocol.
        """

    def invalidate_neighbours(self, port: str) -> None:
        """Invalidate neighbours and inventory of a port, or of the switch if it is empty, after a trap."""

    async def close(self) -> None:
        """Close the connection; bounded in time."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _LabelledRows:
    """The rows of a table with the labels of the ports.

    Attributes:
        switch: The label of the switch.
        keys: The keys that they were made of.
        labelled: Their keys.
        places: Position of each in `keys`; None where all of them are there.
        left_out: Ports above MAX_PORTS, whose rows are not there.
    """

    switch: str
    keys: Sequence[LabelValues]
    labelled: Sequence[LabelValues]
    places: Sequence[int] | None
    left_out: int

    def pick(self, values: Sequence[T]) -> Sequence[T]:
        """Return the values of these rows."""
        return values if self.places is None else [values[place] for place in self.places]


@dataclass(slots=True)
class ReadingMerger:
    """Merges the readings of one switch by several protocols, from poll to poll."""

    _owners: dict[tuple[str, tuple[str, ...], str], str] = field(default_factory=dict)
    _keepers: dict[tuple[str, Schema], RowKeeper] = field(default_factory=dict)
    _keys: dict[tuple[str, Schema], _LabelledRows] = field(default_factory=dict)
    _labels: PortLabels = field(default_factory=PortLabels)

    @property
    def ports_left_out(self) -> int:
        """Number of ports above MAX_PORTS that are in no table."""
        return max((rows.left_out for rows in self._keys.values()), default=0)

    def tables(self, switch: str, readings: Mapping[str, SwitchReading]) -> list[Table]:
        """Return the tables of a switch.

        Args:
            switch: Its label.
            readings: By protocol, in order of preference; without those that failed.
        """
        tables: list[Table] = []
        for protocol, reading in readings.items():
            for part in reading.parts:
                owner = f"{protocol} {part.aspect}".rstrip()
                columns = {
                    ending: column for ending, column in part.columns.items() if self._owns(owner, part.schema, ending)
                }
                if columns:
                    tables.append(self._table(switch, owner, part, columns))
        return tables

    def _owns(self, owner: str, schema: Schema, ending: str) -> bool:
        return self._owners.setdefault((schema.prefix, schema.labels, ending), owner) == owner

    def _rows(self, switch: str, owner: str, part: PartialTable) -> _LabelledRows:
        """Return the keys of a table with the labels of the ports; they are made again only for other rows."""
        cache_key = (owner, part.schema)
        cached = self._keys.get(cache_key)
        if cached is not None and cached.switch == switch and cached.keys is part.keys:
            return cached
        if "port" not in part.schema.labels:
            rows = _LabelledRows(switch, part.keys, [(switch, *key) for key in part.keys], None, 0)
            self._keys[cache_key] = rows
            return rows
        ports = dict.fromkeys(key[0] for key in part.keys)
        name = f"{owner} {part.schema.prefix} {' '.join(part.schema.labels)}"
        labels = self._labels.assign(name, owner.partition(" ")[0], ports, part.time)
        places = [place for place, key in enumerate(part.keys) if labels[key[0]] is not None]
        own = [(switch, *part.keys[place]) for place in places]
        renamed = [(switch, labels[port] or "", *rest) for _, port, *rest in own]
        if len(set(renamed)) < len(renamed):  # if two become equal, they are different ports
            renamed = own
        left_out = sum(label is None for label in labels.values())
        self._keys[cache_key] = _LabelledRows(switch, part.keys, renamed, places if left_out else None, left_out)
        return self._keys[cache_key]

    def _table(self, switch: str, owner: str, part: PartialTable, columns: Mapping[str, Column]) -> Table:
        # `exporter.meaning.ports.rates` adds `resets_total` to tables that declare it: only one table of each port may.
        first = self._owns(owner, part.schema, RESETS)
        schema = part.schema if first else _without_resets(part.schema)
        rows = self._rows(switch, owner, part)
        keeper = self._keepers.get((owner, part.schema))
        if keeper is None:
            keeper = self._keepers[owner, part.schema] = RowKeeper(schema.labels)
        return Table(
            schema,
            keeper.rows(rows.labelled),
            {ending: column._replace(values=rows.pick(column.values)) for ending, column in columns.items()}
            if rows.left_out
            else columns,
            part.time,
            epochs=part.epochs and rows.pick(part.epochs),
            times=part.times and rows.pick(part.times),
            part=owner,
            members=part.members and rows.pick(part.members),
        )


@lru_cache(maxsize=1024)
def _without_resets(schema: Schema) -> Schema:
    """Return the schema of tables that add columns to the rows of another table."""
    metrics = {ending: metric for ending, metric in schema.metrics.items() if ending != RESETS}
    return replace(schema, metrics=MappingProxyType(metrics))
