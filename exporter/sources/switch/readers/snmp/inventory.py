"""The interfaces of a switch by IF-MIB: names, aliases, types, and which of them are wanted.

A series goes by the name of its port, since indexes move at a restart, and descriptions with the firmware. What is
exported is decided by this list, which is walked: an interface that answers only when asked by its index is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.core.source import Failure, SourceError
from exporter.snmp.ber import Oid
from exporter.snmp.ber import Value as Wire
from exporter.snmp.client import SnmpClient
from exporter.sources.switch.options import Target
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.readers.snmp.text import (
    dotted,
    failures_of,
    number_of,
    text_of,
)

IF = (1, 3, 6, 1, 2, 1, 2, 2, 1)
IFX = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
IF_DESCR, IF_TYPE, IF_SPEED, IF_ADMIN, IF_OPER = (*IF, 2), (*IF, 3), (*IF, 5), (*IF, 7), (*IF, 8)
IF_NAME, IF_HIGH_SPEED, IF_ALIAS = (*IFX, 1), (*IFX, 15), (*IFX, 18)

COLUMNS = (IF_NAME, IF_DESCR, IF_TYPE, IF_ALIAS)

ETHERNET = frozenset({6, 62, 69, 117})
AGGREGATE = 161
"""Values of ifType: a port of Ethernet, in its newer and older spellings, and a bundle of ports (LAG)."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is known of the interfaces of a switch between two walks of the list.

    Attributes:
        ports: Index of the interface to the label of its port, for ports that are wanted.
        facts: Index to the values of the info's labels.
        unwanted: Indexes that have a name but are not exported.
        ethernet: Indexes of wanted ports of Ethernet.
        counting: Of these and wanted bundles, which all have counters.
        named: Names and descriptions in the one spelling that joins them, to their index; what two have is none.
        joined: The same with aliases too, which are whatever people write.
        texts: What was read, by column, for a later reading that misses some of it.
    """

    ports: Mapping[Oid, str]
    facts: Mapping[Oid, tuple[str, ...]]
    unwanted: frozenset[Oid]
    ethernet: frozenset[Oid]
    counting: frozenset[Oid]
    named: Mapping[str, Oid]
    joined: Mapping[str, Oid]
    texts: Mapping[Oid, Mapping[Oid, Wire]]


async def take(client: SnmpClient, target: Target, known: Inventory | None = None) -> tuple[Inventory, list[Failure]]:
    """Walk the list of interfaces.

    Args:
        client: Of the switch.
        target: Says which ports are wanted.
        known: The list as it was: what cannot be read this time is what it was, so that no label flickers.

    Raises:
        SourceError: There are none.
        SnmpError: The switch does not answer.
    """
    result = await client.walk(COLUMNS)
    if result.empty:
        raise SourceError("empty", f"{client.address}: answers, but has no interface to show; check its SNMP view")
    texts: dict[Oid, Mapping[Oid, Wire]] = {oid: column.rows for oid, column in result.columns.items()}
    if known is not None:
        texts |= {one.oid: {**known.texts[one.oid], **texts[one.oid]} for one in result.problems}
    return _made(target, texts), failures_of(result)


def _made(target: Target, texts: Mapping[Oid, Mapping[Oid, Wire]]) -> Inventory:
    names, descriptions, types, aliases = (texts[oid] for oid in COLUMNS)
    found: dict[Oid, str] = {}
    for index in sorted({*names, *descriptions}):
        found[index] = text_of(names.get(index)) or text_of(descriptions.get(index)) or dotted(index)
    ports = distinct(found)
    wanted = {index: port for index, port in ports.items() if target.matches(port)}
    facts = {
        index: (target.name, dotted(index), text_of(aliases.get(index)), text_of(types.get(index))) for index in wanted
    }
    ethernet = frozenset(index for index in wanted if number_of(types.get(index)) in ETHERNET)
    bundles = {index for index in wanted if number_of(types.get(index)) == AGGREGATE}
    return Inventory(
        wanted,
        facts,
        frozenset(ports.keys() - wanted.keys()),
        ethernet,
        ethernet | bundles,
        joinable(names, descriptions),
        joinable(names, descriptions, aliases),
        texts,
    )


def joinable(*columns: Mapping[Oid, Wire]) -> dict[str, Oid]:
    """Give the interface that a name means: what earlier columns say wins, a name of two interfaces means none."""
    found: dict[str, Oid] = {}
    for column in columns:
        named: dict[str, Oid | None] = {}
        for index, value in column.items():
            name = canonical(text_of(value))
            if name:
                named[name] = None if name in named else index
        found = {name: index for name, index in named.items() if index is not None} | found
    return found


def distinct(names: Mapping[Oid, str]) -> dict[Oid, str]:
    """Tell ports of one name apart by their interface index."""
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
