"""What a reader brings of a switch, in one form whatever the protocol, and how the readers of one switch are joined.

A reader gives parts: rows of one kind, without the label of the switch, which is not its matter. A switch may be asked
in several ways, SNMP for bytes and an API for marks: every column then has one owner, the first reader that ever gave
it, so that a counter never alternates between two that count differently.
"""

import enum
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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
from exporter.sources.switch.port_names import canonical


class Family(enum.Enum):
    """What a switch may count, or not; the value is a label."""

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

    COUNTED: there are values. NOT_COUNTED: the switch knows of it and says that it does not count (a feature that is
    switched off, `-`, `N/A`). UNSUPPORTED: it does not know of it. FAILED: asking for it failed, so nobody knows.
    """

    COUNTED = "counted"
    NOT_COUNTED = "not_counted"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"


_BETTER = (Support.COUNTED, Support.NOT_COUNTED, Support.FAILED, Support.UNSUPPORTED)


def best(supports: Iterable[Support]) -> Support:
    """Give what holds of a family that was asked for in several ways, of which each says something else."""
    return min(supports, key=_BETTER.index)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one kind, as one reader gave them.

    Attributes:
        schema: One of `metrics`: what the rows are; its first label, the switch, is not in the keys.
        keys: Label values of each row behind the switch: `(port,)`, `(port, priority)` … Hand in the very same object
            as long as nothing changed: then the rows are not looked at again.
        columns: By ending; counters are raw, as in a Table.
        time: Monotonic seconds of the reading.
        times: Monotonic seconds at which the switch counted, a row, where that is known to differ: by its own time
            stamps, or since its counters were not refreshed since the last reading. A row whose time did not move on
            keeps its rates.
        epochs: One hashable a row that changes with a restart; None where unknown.
        aspect: Tells apart several parts of one schema, where a reader asks for their columns at different times.
    """

    schema: Schema
    keys: Sequence[LabelValues]
    columns: Mapping[str, Column]
    time: float
    times: Sequence[float] | None = None
    epochs: Sequence[Hashable] | None = None
    aspect: str = ""


class PartBuilder:
    """Collects a Part row by row, where a reader meets its values in that order.

    It may be kept from poll to poll: as long as the rows are the same, so is the object of their keys.
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
    ) -> Part:
        """Finish the part, and begin anew."""
        done, self._rows = self._rows, TableBuilder(self._schema)
        if done.keys != self._keys:
            self._keys = done.keys
        return Part(self._schema, self._keys, done.columns(), time, times, epochs, self._aspect)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Who is at the other end of a port, by LLDP; texts as the neighbour sent them, empty where it did not.

    Attributes:
        port: Name of the port here, as in the label.
        chassis: Identity of the neighbour: a MAC address as `aa:bb:cc:dd:ee:ff`, else text.
        peer_port: Its port's identity: a MAC address likewise, else text.
        name: Its system name.
        port_description: What it says of its port.
        description: What it says of itself.
        capabilities: Words such as `bridge`, `router`, `station`, of what it has switched on.
        addresses: Its management addresses.
    """

    port: str
    chassis: str = ""
    peer_port: str = ""
    name: str = ""
    port_description: str = ""
    description: str = ""
    capabilities: frozenset[str] = frozenset()
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Device:
    """What a switch says of itself; texts are empty, and None stands, where it says nothing.

    Attributes:
        name: System name.
        description: Description in its own words.
        object_id: sysObjectID, of SNMP.
        model: Product.
        version: Of its software.
        profile: How it is asked: the profile of SNMP.
        uptime: Seconds since its management started.
        refresh: Seconds between refreshes of its counters, as seen or configured; None where they always moved.
        unchanged: Readings so far that brought counters not refreshed since the one before.
        chassis: Its own identity in LLDP, a MAC address as `aa:bb:cc:dd:ee:ff`, else text.
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
class Harvest:
    """What one reader brought of a switch.

    Attributes:
        device: What it says of itself.
        parts: Rows, one Part a schema and aspect at most.
        families: What it counts and what not, of those families that this reader asks for.
        neighbours: All of them; None where they were not asked for, or could not be had.
        failures: What could not be read beside this.
    """

    device: Device = Device()
    parts: Sequence[Part] = ()
    families: Mapping[Family, Support] = field(default_factory=dict)
    neighbours: Sequence[Neighbour] | None = None
    failures: Sequence[Failure] = ()


class Reader(Protocol):
    """Asks one switch in one way.

    Attributes:
        way: The way's name, a key of the target: `snmp`, `onyx` …
    """

    way: str

    async def read(self) -> Harvest:
        """Poll once.

        Inventories and other slow matters are the reader's own: what it did not ask again it gives as it was.

        Raises:
            SourceError: The switch gives nothing in this way.
        """

    def nudge(self, port: str) -> None:
        """Take note that a trap told of a port, or of the switch where that is empty: what is known may be outdated."""

    async def close(self) -> None:
        """Let go of the connection; bounded in time."""


@dataclass(slots=True)
class Joint:
    """Joins the readers of one switch from poll to poll."""

    _owners: dict[tuple[str, tuple[str, ...], str], str] = field(default_factory=dict)
    _keepers: dict[tuple[str, Schema], RowKeeper] = field(default_factory=dict)
    _keys: dict[tuple[str, Schema], tuple[str, Sequence[LabelValues], Sequence[LabelValues]]] = field(
        default_factory=dict
    )
    _names: dict[str, tuple[str, str]] = field(default_factory=dict)

    def tables(self, switch: str, harvests: Mapping[str, Harvest]) -> list[Table]:
        """Make the tables of a switch.

        Args:
            switch: Its label.
            harvests: What each reader brought, by way, in order of preference; those that failed are left out.
        """
        tables: list[Table] = []
        for way, harvest in harvests.items():
            for part in harvest.parts:
                owner = f"{way} {part.aspect}".rstrip()
                columns = {
                    ending: one for ending, one in part.columns.items() if self._owns(owner, part.schema, ending)
                }
                if columns:
                    tables.append(self._table(switch, owner, part, columns))
        return tables

    def _owns(self, owner: str, schema: Schema, ending: str) -> bool:
        return self._owners.setdefault((schema.prefix, schema.labels, ending), owner) == owner

    def _spelled(self, way: str, keys: Sequence[LabelValues]) -> Sequence[LabelValues]:
        """Give keys with the ports in the spelling of the way that named them first: one port has one label."""
        made: list[LabelValues] = []
        for port, *rest in keys:
            first, label = self._names.setdefault(canonical(port), (way, port))
            made.append((port if first == way else label, *rest))
        return made if len(set(made)) == len(made) else keys  # where two would become one, they are not the same

    def _table(self, switch: str, owner: str, part: Part, columns: Mapping[str, Column]) -> Table:
        # The count of resets is a column of its own that meaning adds: one table of each kind of rows has it.
        first = self._owns(owner, part.schema, RESETS)
        schema = part.schema if first else _without_resets(part.schema)
        place = (owner, part.schema)
        known = self._keys.get(place)
        if known is None or known[0] != switch or known[1] is not part.keys:
            spelled = self._spelled(owner.partition(" ")[0], part.keys)
            known = self._keys[place] = (switch, part.keys, [(switch, *key) for key in spelled])
        keeper = self._keepers.get(place)
        if keeper is None:
            keeper = self._keepers[place] = RowKeeper(schema.labels)
        return Table(
            schema, keeper.rows(known[2]), columns, part.time, epochs=part.epochs, times=part.times, part=owner
        )


_reduced: dict[Schema, Schema] = {}


def _without_resets(schema: Schema) -> Schema:
    """Give the schema of tables that add columns to rows which another table has."""
    made = _reduced.get(schema)
    if made is None:
        metrics = {ending: metric for ending, metric in schema.metrics.items() if ending != RESETS}
        made = _reduced[schema] = Schema(schema.prefix, schema.labels, metrics, schema.internal, schema.details)
    return made
