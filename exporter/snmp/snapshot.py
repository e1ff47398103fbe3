"""A recording of one switch, for a report or a test: all that matters of what it says by SNMP, without whose it is.

It is only ever read from. The answer is bounded: an agent that invents rows, or sends them slowly, ends the part that
is asked for and not the whole.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from exporter.snmp.ber import Oid, Typed
from exporter.snmp.client import SnmpClient
from exporter.snmp.errors import SnmpTimeout
from exporter.snmp.recording import Recording
from exporter.snmp.security import Credentials
from exporter.snmp.walk import WalkResult

_MIB2 = (1, 3, 6, 1, 2, 1)
_ENTERPRISES = (1, 3, 6, 1, 4, 1)
OBJECT_ID: Final = (*_MIB2, 1, 2, 0)


class Part(NamedTuple):
    """Something to walk.

    Attributes:
        name: For people.
        root: A subtree; or, with columns, the entry of a table.
        columns: The highest column of the table. Each is walked by itself, so that a sick one costs no other.
    """

    name: str
    root: Oid
    columns: int = 0

    def prefixes(self) -> list[Oid]:
        """Give what to walk at the same time."""
        return [(*self.root, column) for column in range(1, self.columns + 1)] if self.columns else [self.root]


_LLDP, _LLDP_V2 = (1, 0, 8802, 1, 1, 2, 1), (1, 3, 111, 2, 802, 1, 1, 13, 1)

PARTS: Final = (
    Part("system", (*_MIB2, 1)),
    Part("number of interfaces", (*_MIB2, 2, 1)),
    Part("ifTable", (*_MIB2, 2, 2, 1), 22),
    Part("ifXTable", (*_MIB2, 31, 1, 1, 1), 19),
    Part("EtherLike errors", (*_MIB2, 10, 7, 2, 1), 21),
    Part("EtherLike pauses", (*_MIB2, 10, 7, 10, 1), 6),
    Part("EtherLike errors, 64 bits", (*_MIB2, 10, 7, 11, 1), 6),
    Part("LLDP, local", (*_LLDP, 3)),
    Part("LLDP, neighbours", (*_LLDP, 4, 1, 1), 12),
    Part("LLDP, addresses", (*_LLDP, 4, 2, 1), 5),
    Part("LLDP version 2, local", (*_LLDP_V2, 3)),
    Part("LLDP version 2, neighbours", (*_LLDP_V2, 4, 1, 1), 14),
    Part("LLDP version 2, addresses", (*_LLDP_V2, 4, 2, 1), 5),
    Part("PFC of IEEE", (1, 3, 111, 2, 802, 1, 1, 21, 1, 1, 1), 3),
    Part("ENTITY", (*_MIB2, 47, 1, 1, 1, 1), 18),
    Part("ENTITY, interfaces", (*_MIB2, 47, 1, 3, 2)),
    Part("ENTITY-SENSOR", (*_MIB2, 99, 1, 1, 1), 8),
    Part("PFC of Cisco", (*_ENTERPRISES, 9, 9, 813)),
    Part("queues of Cisco", (*_ENTERPRISES, 9, 9, 580)),
)
"""What is asked of any switch: the two of Cisco are what SONiC uses too."""

NET_SNMP: Final = 8072
"""Whose number switches with that agent have, although their own tables are elsewhere and these say nothing of them."""

_TIMEOUT, _RETRIES = 3.0, 2
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a snapshot stops.

    Attributes:
        rows: Of each column of a table, and of each subtree that is walked as a whole.
        seconds: For each part.
        bytes: Of all values together.
    """

    rows: int = 100_000
    seconds: float = 120.0
    bytes: int = 64 * 2**20


async def snapshot(
    address: str,
    credentials: Credentials | str | bytes,
    *,
    limit: Limit = Limit(),
    progress: Callable[[str], None] = lambda _line: None,
) -> Recording:
    """Read all that matters of a switch, as it is; see `exporter.snmp.anonymise` for what may be given to others.

    Args:
        address: See `exporter.snmp.client.parse_address`.
        credentials: What the switch is asked with; a text alone is a community of v2c.
        limit: Where to stop.
        progress: Takes a line for each part.

    Returns:
        The rows, and what is missing from them.

    Raises:
        SnmpError: The switch does not answer.
        ValueError: The address cannot be one.
    """
    recording = Recording({})
    size, alive = 0, True
    async with SnmpClient(address, credentials, timeout=_TIMEOUT, retries=_RETRIES, deadline=limit.seconds) as client:
        for part in [*PARTS, *await _own(client)]:
            if not alive or size > limit.bytes:
                why = f"{size} bytes were read before" if alive else "the switch does not answer any more"
                recording.problems.append(f"{part.name}: left out, as {why}")
                continue
            try:
                result = await client.walk(part.prefixes(), max_rows=limit.rows)
            except SnmpTimeout as error:  # one sick table is no reason to lose the others
                recording.problems.append(f"{part.name}: {error}")
                progress(f"{part.name}: no answer")
                alive = await _answers(client)
                continue
            added = _rows(result)
            recording.rows.update(added)
            recording.problems.extend(f"{part.name}: {problem}" for problem in result.problems)
            size += sum(_size(value) for value in added.values())
            progress(f"{part.name}: {len(added)} rows{f', {result.problems[0].detail}' if result.problems else ''}")
    return recording


async def _answers(client: SnmpClient) -> bool:
    """Tell whether the switch answers what it has answered before."""
    try:
        await client.get([OBJECT_ID])
    except SnmpTimeout:
        return False
    return True


async def _own(client: SnmpClient) -> list[Part]:
    """Give the subtree of the switch's maker, by its sysObjectID; none where that says nothing."""
    asked = await client.get([OBJECT_ID])
    value = asked.values.get(OBJECT_ID)
    oid = value.value if value is not None else None
    if not isinstance(oid, tuple) or oid[:6] != _ENTERPRISES or len(oid) < 7 or oid[6] == NET_SNMP:
        return []
    return [Part(f"enterprise {oid[6]}", oid[:7])]


def _rows(result: WalkResult) -> dict[Oid, Typed]:
    """Give the rows of a walk with their whole identifiers and types."""
    return {
        (*root, *index): Typed(column.odd.get(index, column.tag), value)
        for root, column in result.columns.items()
        if column.tag is not None
        for index, value in column.rows.items()
    }


def _size(value: Typed) -> int:
    """Give about how many bytes a value takes."""
    return len(value.value) if isinstance(value.value, bytes | tuple) else _NUMBER_BYTES
