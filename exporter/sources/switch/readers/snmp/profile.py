"""SNMP profiles: the counter tables of a type of switch, as YAML files, built in or of the user.

A profile extends another one and adds tables, or replaces those of the same name. The profile of a switch is chosen by
a pattern that its sysDescr matches, else by the longest matching prefix of its sysObjectID.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

from exporter.config.errors import ConfigError
from exporter.config.units import Duration
from exporter.config.yaml_reader import read
from exporter.core.table import Schema
from exporter.snmp.ber import Oid, parse_oid
from exporter.sources.switch.merge import Family
from exporter.sources.switch.metrics import PORTS, PRIORITIES, PRIORITY_GROUPS, QUEUES

GENERIC = "generic"
"""The profile of a switch that no other profile matches."""

FOLDER = Path(__file__).with_name("profiles")

SCHEMAS: Mapping[str, Schema] = MappingProxyType(
    {
        "ports": PORTS,
        "priorities": PRIORITIES,
        "queues": QUEUES,
        "priority_groups": PRIORITY_GROUPS,
    }
)
"""Schemas by the value of `rows` of a table."""

LABELS = MappingProxyType({"priorities": "priority", "queues": "queue", "priority_groups": "priority_group"})
"""The part of an index that distinguishes the rows of a port, by the value of `rows`."""

_PART = re.compile(r"([a-z_]+)(?:=(\d{1,10})|-(\d{1,3}))?")


class ColumnSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One metric and its column. Of several columns with one metric, the first that the switch has is read.

    Attributes:
        column: Number of the column below the table's root.
        metric: Ending of the metric.
        width: Size of the counter in bits.
        factor, divisor: The exported value is the counter x factor / divisor.
        where: Selects the rows with this number in this part of the index.
        at: The priority or queue of the whole column, if it is not part of the index.
    """

    column: int
    metric: str
    width: Literal[32, 64] = 64
    factor: int = 1
    divisor: int = 1
    where: dict[str, int] = {}  # msgspec copies mutable defaults
    at: int | None = None

    def __post_init__(self) -> None:
        """Check that factor and divisor are positive."""
        if self.factor < 1 or self.divisor < 1:
            raise ValueError("factor and divisor are whole numbers from 1")


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A column of the same table whose value shows whether a row is counted."""

    column: int
    equals: int


class TableSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of counters.

    Attributes:
        family: Its family of metrics.
        rows: The type of its rows.
        root: Identifier of its entry; the number of a column is appended.
        index: Parts of the index in order: `port` first; `priority`, `queue` or `priority_group` according to `rows`,
            as `queue-1` where the switch numbers them from 1; `name=2` for a part that must be this number; any other
            name for a part that columns select by `where`.
        columns: The counters.
        condition: Selects the rows that are counted.
        every: Minimum time between two readings, for large tables that change slowly.
    """

    family: Family
    rows: Literal["ports", "priorities", "queues", "priority_groups"] = "ports"
    root: str
    index: tuple[str, ...] = ("port",)
    columns: tuple[ColumnSpec, ...]
    condition: Condition | None = None
    every: Duration | None = None

    def __post_init__(self) -> None:
        """Check the syntax of root and index, and that the metrics exist."""
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
                raise ValueError(f"{one.metric!r} is not a metric of {self.rows}; known are {', '.join(sorted(known))}")
            unknown = one.where.keys() - set(names)
            if unknown:
                raise ValueError(f"where names {min(unknown)!r}, which is not a part of index")
            if (label is not None) != ((label in names) or one.at is not None):
                raise ValueError(f"rows are {self.rows}, so index or at must contain the {label or 'port only'}")


class ProfileSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A profile in its file.

    Attributes:
        name: Its name; a profile of the user replaces a built-in one of the same name.
        extends: Name of the profile that it extends.
        object_ids: Prefixes of the sysObjectID of matching switches.
        descriptions: Shell patterns of the sysDescr of matching switches, whatever their sysObjectID.
        interval: Time between polls if the configuration sets none.
        refresh: Time between refreshes of the counters, as documented by the vendor.
        port_names: Shell patterns of the names of its ports, where bundles and bridges may have any name.
        stamps: Column with the sysUpTime at which the counters of a port were read.
        optics: MIB of module sensors: ENTITY-SENSOR-MIB, CISCO-ENTITY-SENSOR-MIB or JUNIPER-DOM-MIB.
        without: Names of tables of the extended profile that the switch does not have, or implements incorrectly.
        tables: By name.
    """

    name: str
    extends: str | None = None
    object_ids: tuple[str, ...] = ()
    descriptions: tuple[str, ...] = ()
    interval: Duration | None = None
    refresh: Duration | None = None
    port_names: tuple[str, ...] = ()
    stamps: str | None = None
    optics: Literal["entity", "cisco", "junos"] | None = None
    without: tuple[str, ...] = ()
    tables: dict[str, TableSpec] = {}  # msgspec copies mutable defaults

    def __post_init__(self) -> None:
        """Check the syntax of the name and the identifiers."""
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", self.name):
            raise ValueError(f"name is {self.name!r}; give up to 32 small letters, digits, - and _")
        for oid in (*self.object_ids, *([] if self.stamps is None else [self.stamps])):
            parse_oid(oid)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """One number of an index: its name, the number that it must be, and the offset that is subtracted from it."""

    name: str
    fixed: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Counter:
    """One column of counters, compiled.

    Attributes:
        oid: The column.
        ending: Ending of its metric.
        width, factor, divisor: As of a Column.
        tests: Positions in the index, and the numbers required there.
        at: The priority or queue of the whole column, if it is not part of the index.
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
    """One table of counters, compiled.

    Attributes:
        name: Its name in the profile.
        family: Its family of metrics.
        schema: Schema of its rows.
        counters: Its columns; of several with one ending and `at`, the first that the switch has is used.
        length: Length of an index.
        label: Position in the index of the priority, queue or priority group, and the offset that is subtracted from
            it; None if there is none, or columns have it in `at`.
        condition: Column and the number that a counted row has there.
        every: Minimum seconds between two readings.
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
    """A compiled profile, with all that it extends."""

    name: str
    tables: tuple[CounterTable, ...]
    interval: float | None = None
    refresh: float | None = None
    stamps: Oid | None = None
    optics: str | None = None
    port_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Profiles:
    """All profiles, by name, and the patterns that choose them."""

    _by_name: Mapping[str, Profile] = field(default_factory=dict)
    _descriptions: Sequence[tuple[str, str]] = ()
    _object_ids: Sequence[tuple[Oid, str]] = ()
    _fingerprints: Mapping[str, str] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """Compare what the files declare: compiled tables are compared by identity."""
        return isinstance(other, Profiles) and self.fingerprint() == other.fingerprint()

    def __hash__(self) -> int:
        return hash(self.fingerprint())

    @property
    def names(self) -> list[str]:
        """Names of the profiles, sorted."""
        return sorted(self._by_name)

    def fingerprint(self, name: str | None = None) -> str:
        """Return a digest of what the files declare of a profile, with those that it extends; of all without a name."""
        return self._fingerprints.get(name or "", "")

    def by_name(self, name: str) -> Profile:
        """Return the profile of a name.

        Raises:
            ConfigError: There is none.
        """
        found = self._by_name.get(name)
        if found is None:
            raise ConfigError(f"there is no profile {name!r}; known are {', '.join(self.names)}")
        return found

    def match(self, object_id: Oid, description: str = "") -> Profile:
        """Return the profile of a switch; the generic one if none matches.

        Args:
            object_id: Its sysObjectID; empty if it has none.
            description: Its sysDescr, which is matched first: many builds of SONiC have the sysObjectID of Linux.
        """
        name = next((name for pattern, name in self._descriptions if fnmatchcase(description, pattern)), None)
        if name is None:
            matches = ((len(prefix), name) for prefix, name in self._object_ids if object_id[: len(prefix)] == prefix)
            name = max(matches, default=(0, GENERIC))[1]
        return self._by_name[name]


@lru_cache(maxsize=1)
def builtin() -> Profiles:
    """Return the profiles of switches that this package brings: which MIB tables to read from which models."""
    return load([])


def load(paths: Iterable[Path]) -> Profiles:
    """Read the built-in profiles and those of the user's files, which replace those of the same name.

    Raises:
        ConfigError: A file cannot be read or is invalid, two have the same name, or one extends an unknown one.
    """
    specs = {spec.name: (spec, path) for path in sorted(FOLDER.glob("*.yml")) for spec in [_read(path)]}
    own: dict[str, Path] = {}
    for path in paths:
        spec = _read(path)
        if spec.name in own:
            raise ConfigError(f"{path}: the profile {spec.name!r} is in {own[spec.name]} too; rename one")
        own[spec.name] = path
        specs[spec.name] = (spec, path)
    profiles = {name: _extend(name, specs, ()) for name in specs}
    ordered = [spec for spec, _ in specs.values()]
    ordered.sort(key=lambda spec: spec.name not in own)  # the user's patterns take precedence
    return Profiles(
        profiles,
        [(pattern, spec.name) for spec in ordered for pattern in spec.descriptions],
        [(parse_oid(prefix), spec.name) for spec in ordered for prefix in spec.object_ids],
        _fingerprints({name: spec for name, (spec, _) in specs.items()}),
    )


def _fingerprints(specs: Mapping[str, ProfileSpec]) -> dict[str, str]:
    """Return a digest of each profile with those that it extends, and under "" one of all, in order of precedence."""
    encoded = {name: repr(spec).encode() for name, spec in specs.items()}
    found = {"": hashlib.sha256(b"\n".join(encoded.values())).hexdigest()}
    for name in specs:
        digest, base = hashlib.sha256(), specs.get(name)
        while base is not None:
            digest.update(encoded[base.name])
            base = specs.get(base.extends or "")
        found[name] = digest.hexdigest()
    return found


def _read(path: Path) -> ProfileSpec:
    spec: ProfileSpec = read(path, ProfileSpec)
    return spec


def _extend(name: str, specs: Mapping[str, tuple[ProfileSpec, Path]], derived: tuple[str, ...]) -> Profile:
    """Compile a profile with all that it extends; `derived` are those that extend it."""
    spec, path = specs[name]
    if name in derived:
        raise ConfigError(f"{path}: the profile {name!r} extends itself through {' and '.join(derived)}; cut the cycle")
    tables: dict[str, CounterTable] = {}
    base = Profile("", ())
    if spec.extends is not None:
        if spec.extends not in specs:
            raise ConfigError(f"{path}: extends {spec.extends!r}, which is unknown; known are {', '.join(specs)}")
        base = _extend(spec.extends, specs, (*derived, name))
        tables = {table.name: table for table in base.tables}
    for table in spec.without:
        if tables.pop(table, None) is None and path.parent != FOLDER:  # the user may have replaced its base
            raise ConfigError(f"{path}: is without the table {table!r}, which {spec.extends or 'it'} does not have")
    tables |= {key: _compile(key, table) for key, table in spec.tables.items()}
    return Profile(
        name,
        tuple(tables.values()),
        base.interval if spec.interval is None else float(spec.interval),
        base.refresh if spec.refresh is None else float(spec.refresh),
        base.stamps if spec.stamps is None else parse_oid(spec.stamps),
        spec.optics or base.optics,
        spec.port_names or base.port_names,
    )


def _compile(name: str, spec: TableSpec) -> CounterTable:
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
        None if place is None else (place, parts[place].offset),
        None if spec.condition is None else ((*root, spec.condition.column), spec.condition.equals),
        0.0 if spec.every is None else float(spec.every),
    )


def _parts(index: Sequence[str]) -> list[IndexPart]:
    """Parse the parts of an index. Raises ValueError if one is invalid, or there is none."""
    if not index:
        raise ValueError("index is empty; the first part is the port")
    parts = []
    for text in index:
        found = _PART.fullmatch(text)
        if found is None:
            raise ValueError(f"index has {text!r}; a part is a name, name=NUMBER or name-NUMBER")
        parts.append(IndexPart(found[1], None if found[2] is None else int(found[2]), int(found[3] or 0)))
    return parts
