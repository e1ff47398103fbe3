"""Profiles: which tables of counters a kind of switch has, as YAML files that this package brings and users add to.

A profile extends another one and adds tables, or replaces those of the same name. Which one fits a switch is told by
what it says of itself: a pattern that its description fits, else the longest beginning of its sysObjectID.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from exporter.config.units import Duration
from exporter.config.yaml_reader import ConfigError, read
from exporter.core.table import Schema
from exporter.snmp.ber import Oid, parse_oid
from exporter.sources.switch.merge import Family
from exporter.sources.switch.metrics import (
    PORTS,
    PRIORITIES,
    PRIORITY_GROUPS,
    QUEUES,
)

GENERIC = "generic"
"""The profile of a switch that none other fits."""

FOLDER = Path(__file__).with_name("profiles")

SCHEMAS: Mapping[str, Schema] = {
    "ports": PORTS,
    "priorities": PRIORITIES,
    "queues": QUEUES,
    "priority_groups": PRIORITY_GROUPS,
}
"""What the rows of a table may be."""

LABELS = {"priorities": "priority", "queues": "queue", "priority_groups": "priority_group"}
"""The part of an index that tells rows of a port apart."""

_PART = re.compile(r"([a-z_]+)(?:=(\d{1,10})|-(\d{1,3}))?")


class ColumnSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One metric, and where it stands. Of several of one metric the first that the switch has is read.

    Attributes:
        column: Number of the column below the table's root.
        metric: Ending of the metric.
        width: Size of the counter in bits.
        factor, divisor: What is exported is what was read x factor / divisor.
        where: Only the rows that have this number in this part of the index.
        at: What the row is where the index does not tell: a priority or queue of which the column alone is.
    """

    column: int
    metric: str
    width: Literal[32, 64] = 64
    factor: int = 1
    divisor: int = 1
    where: dict[str, int] = {}  # msgspec copies mutable defaults
    at: int | None = None

    def __post_init__(self) -> None:
        """Refuse a scale without sense."""
        if self.factor < 1 or self.divisor < 1:
            raise ValueError("factor and divisor are whole numbers from 1")


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A column of the same table that says whether a row is counted at all."""

    column: int
    equals: int


class TableSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of counters.

    Attributes:
        family: What it tells of.
        rows: What its rows are.
        root: Identifier of its entry; a column's number goes behind it.
        index: Parts of the index in their order: `port` first; `priority`, `queue`, `priority_group` of what the rows
            are, which may be written `queue-1` where the switch counts from one more; `name=2` for a part that must
            be this number; any other name for a part that columns choose by `where`.
        columns: The counters.
        condition: What says which rows are counted.
        every: Least time between two readings: of large tables of what changes slowly.
    """

    family: Family
    rows: Literal["ports", "priorities", "queues", "priority_groups"] = "ports"
    root: str
    index: tuple[str, ...] = ("port",)
    columns: tuple[ColumnSpec, ...]
    condition: Condition | None = None
    every: Duration | None = None

    def __post_init__(self) -> None:
        """See that root, index and metrics are such."""
        parse_oid(self.root)
        if not self.columns:
            raise ValueError("has no columns; give one or more")
        parts = _parts(self.index)
        if parts[0].name != "port":
            raise ValueError(f"index begins with {parts[0].name!r}; the first part is the port")
        names = [part.name for part in parts]
        if len(set(names)) != len(names):
            raise ValueError("index names a part twice")
        known = SCHEMAS[self.rows].metrics
        label = LABELS.get(self.rows)
        for one in self.columns:
            if one.metric not in known:
                raise ValueError(f"{one.metric!r} is no metric of {self.rows}; known are {', '.join(sorted(known))}")
            unknown = one.where.keys() - set(names)
            if unknown:
                raise ValueError(f"where names {min(unknown)!r}, which is no part of index")
            if (label is not None) != ((label in names) or one.at is not None):
                raise ValueError(f"rows are {self.rows}, so one of index and at must tell the {label or 'port alone'}")


class ProfileSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A profile as it stands in its file.

    Attributes:
        name: Its name; one of a user's files replaces one of this package.
        extends: Name of the profile that it adds to.
        object_ids: Beginnings of the sysObjectID of switches that it fits.
        descriptions: Shell patterns of the description (sysDescr) of switches that it fits, whatever their sysObjectID.
        interval: Time between polls where the configuration gives none.
        refresh: Time between refreshes of the counters, as documented by the maker.
        stamps: Column with the sysUpTime at which the counters of a port were read.
        optics: Where sensors of modules are: ENTITY-SENSOR-MIB, Cisco's older one, or Juniper's table.
        without: Names of tables of the extended profile that this kind of switch has wrong, or not.
        tables: By name.
    """

    name: str
    extends: str | None = None
    object_ids: tuple[str, ...] = ()
    descriptions: tuple[str, ...] = ()
    interval: Duration | None = None
    refresh: Duration | None = None
    stamps: str | None = None
    optics: Literal["entity", "cisco", "junos"] | None = None
    without: tuple[str, ...] = ()
    tables: dict[str, TableSpec] = {}  # msgspec copies mutable defaults

    def __post_init__(self) -> None:
        """See that the name and the identifiers are such."""
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", self.name):
            raise ValueError(f"name is {self.name!r}; give up to 32 small letters, digits, - and _")
        for oid in (*self.object_ids, *([] if self.stamps is None else [self.stamps])):
            parse_oid(oid)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """One number of an index: its name, the number that it must be, and what is taken off it."""

    name: str
    fixed: int | None = None
    less: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Counter:
    """One column of counters, ready to ask.

    Attributes:
        oid: The column.
        ending: Of its metric.
        width, factor, divisor: As of a Column.
        tests: Places in the index, and the numbers that must stand there.
        at: What the row is where the index does not tell.
    """

    oid: Oid
    ending: str
    width: int
    factor: int
    divisor: int
    tests: tuple[tuple[int, int], ...]
    at: int | None


@dataclass(frozen=True, slots=True, eq=False)
class CounterTable:
    """One table of counters, ready to ask.

    Attributes:
        name: In the profile.
        family: What it tells of.
        schema: What its rows are.
        counters: Its columns; of several with one ending and `at` the first that the switch has counts.
        length: Numbers of an index.
        label: Place in the index of what tells the rows of a port apart, and what is taken off it; None where nothing
            does, or a column says it by `at`.
        condition: Column and number that a row must have there to be counted.
        every: Seconds between two readings at least.
    """

    name: str
    family: Family
    schema: Schema
    counters: tuple[Counter, ...]
    length: int
    label: tuple[int, int] | None
    condition: tuple[Oid, int] | None
    every: float


@dataclass(frozen=True, slots=True)
class Profile:
    """How a kind of switch is asked, with all that it extends."""

    name: str
    tables: tuple[CounterTable, ...]
    interval: float | None = None
    refresh: float | None = None
    stamps: Oid | None = None
    optics: str | None = None


@dataclass(frozen=True, slots=True)
class Profiles:
    """All profiles, by name, and how they are recognised."""

    _made: Mapping[str, Profile] = field(default_factory=dict)
    _descriptions: Sequence[tuple[str, str]] = ()
    _object_ids: Sequence[tuple[Oid, str]] = ()

    @property
    def names(self) -> list[str]:
        """List their names."""
        return sorted(self._made)

    def named(self, name: str) -> Profile:
        """Give the profile of a name.

        Raises:
            ConfigError: There is none.
        """
        found = self._made.get(name)
        if found is None:
            raise ConfigError(f"there is no profile {name!r}; known are {', '.join(self.names)}")
        return found

    def of(self, object_id: Oid, description: str = "") -> Profile:
        """Give the profile that fits a switch best: the generic one where none does.

        Args:
            object_id: Its sysObjectID; empty where it has none.
            description: Its sysDescr, which decides first: many builds of SONiC have the sysObjectID of mere Linux.
        """
        name = next((name for pattern, name in self._descriptions if fnmatchcase(description, pattern)), None)
        if name is None:
            fitting = ((len(start), name) for start, name in self._object_ids if object_id[: len(start)] == start)
            name = max(fitting, default=(0, GENERIC))[1]
        return self._made[name]


@cache
def builtin() -> Profiles:
    """Give the profiles that this package brings."""
    return load([])


_used: list[Profiles] = []


def use(profiles: Profiles) -> None:
    """Let readers that are made from now on use these profiles."""
    _used[:] = [profiles]


def used() -> Profiles:
    """Give the profiles that readers use: those of this package where nothing else was said."""
    return _used[0] if _used else builtin()


def load(paths: Iterable[Path]) -> Profiles:
    """Read the profiles of this package and those of a user's files, which replace those of the same name.

    Raises:
        ConfigError: A file cannot be read or does not fit, two have one name, or one extends what there is not.
    """
    specs = {spec.name: (spec, path) for path in sorted(FOLDER.glob("*.yml")) for spec in [_read(path)]}
    own: dict[str, Path] = {}
    for path in paths:
        spec = _read(path)
        if spec.name in own:
            raise ConfigError(f"{path}: the profile {spec.name!r} stands in {own[spec.name]} too; rename one")
        own[spec.name] = path
        specs[spec.name] = (spec, path)
    made = {name: _made(name, specs, ()) for name in specs}
    ordered = [spec for spec, _ in specs.values()]
    ordered.sort(key=lambda spec: spec.name not in own)  # a user's own recognition goes first
    return Profiles(
        made,
        [(pattern, spec.name) for spec in ordered for pattern in spec.descriptions],
        [(parse_oid(start), spec.name) for spec in ordered for start in spec.object_ids],
    )


def _read(path: Path) -> ProfileSpec:
    spec: ProfileSpec = read(path, ProfileSpec)
    return spec


def _made(name: str, specs: Mapping[str, tuple[ProfileSpec, Path]], behind: tuple[str, ...]) -> Profile:
    """Put a profile together with all that it extends; `behind` are those that extend it."""
    spec, path = specs[name]
    if name in behind:
        raise ConfigError(f"{path}: the profile {name!r} extends itself by way of {' and '.join(behind)}; cut the ring")
    tables: dict[str, CounterTable] = {}
    base = Profile("", ())
    if spec.extends is not None:
        if spec.extends not in specs:
            raise ConfigError(f"{path}: extends {spec.extends!r}, which there is not; known are {', '.join(specs)}")
        base = _made(spec.extends, specs, (*behind, name))
        tables = {table.name: table for table in base.tables}
    for gone in spec.without:
        if tables.pop(gone, None) is None and path.parent != FOLDER:  # whose base a user may have replaced
            raise ConfigError(f"{path}: is without the table {gone!r}, which {spec.extends or 'it'} does not have")
    tables |= {key: _compiled(key, table) for key, table in spec.tables.items()}
    return Profile(
        name,
        tuple(tables.values()),
        base.interval if spec.interval is None else float(spec.interval),
        base.refresh if spec.refresh is None else float(spec.refresh),
        base.stamps if spec.stamps is None else parse_oid(spec.stamps),
        spec.optics or base.optics,
    )


def _compiled(name: str, spec: TableSpec) -> CounterTable:
    root, parts = parse_oid(spec.root), _parts(spec.index)
    places = {part.name: place for place, part in enumerate(parts)}
    fixed = {places[part.name]: part.fixed for part in parts if part.fixed is not None}
    counters = tuple(
        Counter(
            (*root, one.column),
            one.metric,
            one.width,
            one.factor,
            one.divisor,
            tuple(sorted((fixed | {places[part]: number for part, number in one.where.items()}).items())),
            one.at,
        )
        for one in spec.columns
    )
    label = LABELS.get(spec.rows)
    place = places.get(label or "")
    return CounterTable(
        name,
        spec.family,
        SCHEMAS[spec.rows],
        counters,
        len(parts),
        None if place is None else (place, parts[place].less),
        None if spec.condition is None else ((*root, spec.condition.column), spec.condition.equals),
        0.0 if spec.every is None else float(spec.every),
    )


def _parts(index: Sequence[str]) -> list[IndexPart]:
    """Read the parts of an index. Raises ValueError if one cannot be read, or there is none."""
    if not index:
        raise ValueError("index is empty; the first part is the port")
    made = []
    for text in index:
        found = _PART.fullmatch(text)
        if found is None:
            raise ValueError(f"index has {text!r}; a part is a name, name=NUMBER or name-NUMBER")
        made.append(IndexPart(found[1], None if found[2] is None else int(found[2]), int(found[3] or 0)))
    return made
