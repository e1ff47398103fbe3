"""The interface inventory of a switch by IF-MIB: names, aliases, types, and which interfaces are exported.

The label of a port is its ifName, since ifIndex may change at a restart, and ifDescr with the firmware. Only interfaces
that a walk of these columns lists are exported.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import MappingProxyType

from exporter.core.source import Failure, SourceError
from exporter.snmp.ber import Oid
from exporter.snmp.ber import Value as SnmpValue
from exporter.snmp.client import SnmpClient
from exporter.snmp.walk import WalkResult
from exporter.sources.switch.metrics import KIND
from exporter.sources.switch.options import Target
from exporter.sources.switch.port_kinds import Evidence, PortKind, port_info
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.readers.snmp.text import (
    dotted,
    failures_of,
    number_of,
    text_of,
)
from exporter.switch_api.port import MAX_PORTS
from exporter.switch_api.port_settings import parse_mtu

IF = (1, 3, 6, 1, 2, 1, 2, 2, 1)
IFX = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
IF_DESCR, IF_TYPE, IF_MTU, IF_SPEED, IF_ADMIN, IF_OPER = (*IF, 2), (*IF, 3), (*IF, 4), (*IF, 5), (*IF, 7), (*IF, 8)
IF_LAST_CHANGE = (*IF, 9)
IF_NAME, IF_HIGH_SPEED, IF_ALIAS = (*IFX, 1), (*IFX, 15), (*IFX, 18)

IF_CONNECTOR, IF_STACK = (*IFX, 17), (1, 3, 6, 1, 2, 1, 31, 1, 2, 1, 3)
ATTACHED = (1, 2, 840, 10006, 300, 43, 1, 2, 1, 1, 13)
"""IEEE8023-LAG-MIB dot3adAggPortAttachedAggID: by port, the index of the bundle that it is in."""

COLUMNS = (IF_NAME, IF_DESCR, IF_TYPE, IF_ALIAS, IF_CONNECTOR, IF_STACK, ATTACHED, IF_MTU)

ETHERNET = frozenset({6, 62, 69, 117})
"""Values of ifType of Ethernet ports: ethernetCsmacd and the obsolete values."""

_ACTIVE = 1
_TRUTH = MappingProxyType({1: True, 2: False})

MAX_MISSED_READINGS = 3
"""Readings in a row with failures for which the texts of an interface that they do not list are kept."""

MAX_INLINE_ROWS = 4000
"""Rows above which an inventory is made in a thread, since that takes ten milliseconds and more."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The interfaces of a switch.

    Attributes:
        ports: Index of each exported interface to the label of its port.
        facts: Index to the label values of the metric `info`.
        excluded: Indexes of interfaces that are not exported.
        ethernet: Indexes of exported Ethernet ports, those for management included.
        counting: Indexes of exported Ethernet ports and bundles, which all have counters.
        members: Index of each bundle to the number of its ports, where the switch lists them.
        mtus: Index of each of `counting` to its MTU in bytes, where the switch has it.
        by_name: Canonical ifName and ifDescr to the index; without names that two interfaces share.
        by_name_or_alias: The same with ifAlias, which is free text.
        texts: The columns as read, for a later reading in which some fail.
        ages: Readings since each interface was last in one of the columns.
    """

    ports: Mapping[Oid, str]
    facts: Mapping[Oid, tuple[str, ...]]
    excluded: frozenset[Oid]
    ethernet: frozenset[Oid]
    counting: frozenset[Oid]
    members: Mapping[Oid, int]
    mtus: Mapping[Oid, int]
    by_name: Mapping[str, Oid]
    by_name_or_alias: Mapping[str, Oid]
    texts: Mapping[Oid, Mapping[Oid, SnmpValue]]
    ages: Mapping[Oid, int]


async def read_inventory(
    client: SnmpClient, target: Target, known: Inventory | None = None, port_names: Sequence[str] = ()
) -> tuple[Inventory, list[Failure]]:
    """Walk the interface table.

    Args:
        client: Client of the switch.
        target: Selects the exported ports.
        known: The previous inventory: columns that fail keep its values, so that labels do not change.
        port_names: Patterns of the names of ports, as of a Profile.

    Raises:
        SourceError: There are no interfaces.
        SnmpError: The switch does not respond.
    """
    result = await client.walk(COLUMNS)
    if result.empty:
        raise SourceError("empty", f"{client.address}: responds, but returns no interfaces; check its SNMP view")
    rows = sum(len(column.rows) for column in result.columns.values())
    build = partial(_build, target, result, known, port_names)
    inventory, left_out = build() if rows <= MAX_INLINE_ROWS else await asyncio.to_thread(build)
    failures = failures_of(result)
    if left_out:
        detail = f"{target.name}: more than {MAX_PORTS} interfaces; {left_out} are left out"
        failures.append(Failure("interfaces", "too_many", detail))
    return inventory, failures


def _build(
    target: Target, result: WalkResult, known: Inventory | None, port_names: Sequence[str]
) -> tuple[Inventory, int]:
    """Return the inventory, and the number of interfaces above MAX_PORTS, which are not exported."""
    texts, ages = _texts(result, known)
    names, descriptions, types, aliases = (texts[oid] for oid in COLUMNS[:4])
    found: dict[Oid, str] = {}
    for index in sorted({*names, *descriptions}):
        found[index] = text_of(names.get(index)) or text_of(descriptions.get(index)) or dotted(index)
    ports = unique_labels(found)
    info_of = _info_of(target, texts, port_names)
    facts = {index: info_of(index) for index, port in ports.items() if target.matches(port)}
    left_out = max(0, len(facts) - MAX_PORTS)
    if left_out:  # those that are not ports are left out first
        in_order = sorted(facts, key=lambda index: facts[index][KIND] != PortKind.PHYSICAL)
        facts = {index: facts[index] for index in sorted(in_order[:MAX_PORTS])}
    exported = {index: ports[index] for index in facts}
    kinds = {index: info[KIND] for index, info in facts.items()}
    ethernet = frozenset(
        index
        for index, kind in kinds.items()
        if kind in (PortKind.PHYSICAL, PortKind.MANAGEMENT) and number_of(types.get(index)) in ETHERNET
    )
    bundles = {index for index, kind in kinds.items() if kind == PortKind.AGGREGATE}
    attached: Counter[Oid] = Counter(
        (bundle,) for index, bundle in texts[ATTACHED].items() if isinstance(bundle, int) and index != (bundle,)
    )
    inventory = Inventory(
        exported,
        facts,
        frozenset(ports.keys() - exported.keys()),
        ethernet,
        ethernet | bundles,
        {index: attached[index] for index in bundles if attached[index]},
        {index: mtu for index in ethernet | bundles if (mtu := parse_mtu(texts[IF_MTU].get(index))) is not None},
        index_by_name(names, descriptions),
        index_by_name(names, descriptions, aliases),
        texts,
        ages,
    )
    return inventory, left_out


def _texts(result: WalkResult, known: Inventory | None) -> tuple[dict[Oid, Mapping[Oid, SnmpValue]], dict[Oid, int]]:
    """Return the columns, where some failed with values of the previous inventory, and the ages of interfaces."""
    texts: dict[Oid, Mapping[Oid, SnmpValue]] = {oid: column.rows for oid, column in result.columns.items()}
    ages: dict[Oid, int] = dict.fromkeys(set().union(*texts.values()), 0)
    if known is not None:
        kept = {
            index: age + 1
            for index, age in known.ages.items()
            if index not in ages and age < MAX_MISSED_READINGS and result.problems
        }
        ages |= dict(islice(kept.items(), MAX_PORTS))
        for problem in result.problems:
            old = {index: value for index, value in known.texts[problem.oid].items() if index in ages}
            texts[problem.oid] = {**old, **texts[problem.oid]}
    return texts, ages


def _info_of(
    target: Target, texts: Mapping[Oid, Mapping[Oid, SnmpValue]], port_names: Sequence[str]
) -> Callable[[Oid], tuple[str, ...]]:
    """Return the function of the label values of the metric `info` of an interface."""
    names, descriptions, types, aliases = (texts[oid] for oid in COLUMNS[:4])
    evidence = _evidence(texts, port_names)
    return lambda index: port_info(
        target.name,
        text_of(names.get(index)) or text_of(descriptions.get(index)),
        dotted(index),
        text_of(aliases.get(index)),
        text_of(types.get(index)),
        evidence(index),
    )


def _evidence(texts: Mapping[Oid, Mapping[Oid, SnmpValue]], port_names: Sequence[str]) -> Callable[[Oid], Evidence]:
    """Return the function of what the tables show of an interface beside its name and type."""
    lower: Counter[Oid] = Counter(
        index[:1]
        for index, status in texts[IF_STACK].items()
        if len(index) == 2 and all(index) and status == _ACTIVE  # 0 is below the lowest, and above the highest
    )
    aggregators = {
        (bundle,)
        for index, bundle in texts[ATTACHED].items()
        if isinstance(bundle, int) and bundle and index != (bundle,)
    }
    return lambda index: Evidence(
        text_of(texts[IF_DESCR].get(index)),
        index in aggregators,
        lower[index],
        _TRUTH.get(number_of(texts[IF_CONNECTOR].get(index)) or 0),
        tuple(port_names),
    )


def index_by_name(*columns: Mapping[Oid, SnmpValue]) -> dict[str, Oid]:
    """Return interfaces by canonical name: earlier columns take precedence, names of two interfaces are omitted."""
    found: dict[str, Oid] = {}
    for column in columns:
        named: dict[str, Oid | None] = {}
        for index, value in column.items():
            name = canonical(text_of(value))
            if name:
                named[name] = None if name in named else index
        found = {name: index for name, index in named.items() if index is not None} | found
    return found


def unique_labels(names: Mapping[Oid, str]) -> dict[Oid, str]:
    """Return a unique label for each interface: its name, with the interface index appended where two share it."""
    counts: dict[str, int] = {}
    for name in names.values():
        counts[name] = counts.get(name, 0) + 1
    found, taken = {}, {name for name, count in counts.items() if count == 1}
    for index, name in names.items():
        label = name
        if counts[name] > 1:
            label = f"{name}#{dotted(index)}"
            while label in taken:  # a switch may have a port of that very name
                label += "#"
            taken.add(label)
        found[index] = label
    return found
