"""A snapshot of one switch by SNMP: the tables that matter for monitoring, for a bug report or a test.

The switch is only read. The snapshot is bounded: an agent that invents rows, or responds slowly, ends the current
section and not the snapshot.
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


class Section(NamedTuple):
    """A subtree or table to walk.

    Attributes:
        name: For progress and problems.
        root: A subtree; or, with columns, the entry of a table.
        columns: The highest column of the table. Each is walked by itself, so that a faulty one affects no other.
    """

    name: str
    root: Oid
    columns: int = 0

    def prefixes(self) -> list[Oid]:
        """Return the subtrees to walk together."""
        return [(*self.root, column) for column in range(1, self.columns + 1)] if self.columns else [self.root]


_LLDP, _LLDP_V2 = (1, 0, 8802, 1, 1, 2, 1), (1, 3, 111, 2, 802, 1, 1, 13, 1)

SECTIONS: Final = (
    Section("system", (*_MIB2, 1)),
    Section("number of interfaces", (*_MIB2, 2, 1)),
    Section("ifTable", (*_MIB2, 2, 2, 1), 22),
    Section("ifXTable", (*_MIB2, 31, 1, 1, 1), 19),
    Section("EtherLike errors", (*_MIB2, 10, 7, 2, 1), 21),
    Section("EtherLike pauses", (*_MIB2, 10, 7, 10, 1), 6),
    Section("EtherLike errors, 64 bits", (*_MIB2, 10, 7, 11, 1), 6),
    Section("LLDP, local", (*_LLDP, 3)),
    Section("LLDP, neighbours", (*_LLDP, 4, 1, 1), 12),
    Section("LLDP, addresses", (*_LLDP, 4, 2, 1), 5),
    Section("LLDP version 2, local", (*_LLDP_V2, 3)),
    Section("LLDP version 2, neighbours", (*_LLDP_V2, 4, 1, 1), 14),
    Section("LLDP version 2, addresses", (*_LLDP_V2, 4, 2, 1), 5),
    Section("PFC of IEEE", (1, 3, 111, 2, 802, 1, 1, 21, 1, 1, 1), 3),
    Section("ENTITY", (*_MIB2, 47, 1, 1, 1, 1), 18),
    Section("ENTITY, interfaces", (*_MIB2, 47, 1, 3, 2)),
    Section("ENTITY-SENSOR", (*_MIB2, 99, 1, 1, 1), 8),
    Section("PFC of Cisco", (*_ENTERPRISES, 9, 9, 813)),
    Section("queues of Cisco", (*_ENTERPRISES, 9, 9, 580)),
)
"""Sections read from any switch; SONiC uses the two of Cisco too."""

NET_SNMP: Final = 8072
"""Enterprise number of switches with the net-snmp agent; its tables contain nothing about the switch."""

_TIMEOUT, _RETRIES = 3.0, 2
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """Limits of a snapshot.

    Attributes:
        rows: Rows of each column of a table, and of each subtree that is walked as a whole.
        seconds: Time for each section.
        bytes: Size of all values together.
    """

    rows: int = 100_000
    seconds: float = 120.0
    bytes: int = 64 * 2**20


async def snapshot(
    address: str,
    credentials: Credentials | str | bytes,
    *,
    limits: SnapshotLimits = SnapshotLimits(),
    progress: Callable[[str], None] = lambda _line: None,
) -> Recording:
    """Read the sections of a switch unchanged; `exporter.snmp.anonymise` removes what identifies it.

    Args:
        address: See `exporter.snmp.client.parse_address`.
        credentials: Community or user; a string is a community of v2c.
        limits: Where to stop.
        progress: Called with one line for each section.

    Returns:
        The rows, and what is missing from them.

    Raises:
        SnmpError: The switch does not respond.
        ValueError: The address is invalid.
    """
    recording = Recording({})
    size, alive = 0, True
    async with SnmpClient(address, credentials, timeout=_TIMEOUT, retries=_RETRIES, deadline=limits.seconds) as client:
        for section in [*SECTIONS, *await _enterprise_sections(client)]:
            if not alive or size > limits.bytes:
                why = f"{size} bytes were read before" if alive else "the switch stopped responding"
                recording.problems.append(f"{section.name}: skipped, since {why}")
                continue
            try:
                result = await client.walk(section.prefixes(), max_rows=limits.rows)
            except SnmpTimeout as error:  # the other tables may still work
                recording.problems.append(f"{section.name}: {error}")
                progress(f"{section.name}: no response")
                alive = await _is_alive(client)
                continue
            added = _rows(result)
            recording.rows.update(added)
            recording.problems.extend(f"{section.name}: {problem}" for problem in result.problems)
            size += sum(_size(value) for value in added.values())
            progress(f"{section.name}: {len(added)} rows{f', {result.problems[0].detail}' if result.problems else ''}")
    return recording


async def _is_alive(client: SnmpClient) -> bool:
    """Return whether the switch still responds to a GET of its sysObjectID."""
    try:
        await client.get([OBJECT_ID])
    except SnmpTimeout:
        return False
    return True


async def _enterprise_sections(client: SnmpClient) -> list[Section]:
    """Return the enterprise subtree of the switch's vendor by its sysObjectID, if that names one."""
    result = await client.get([OBJECT_ID])
    value = result.values.get(OBJECT_ID)
    oid = value.value if value is not None else None
    if not isinstance(oid, tuple) or oid[:6] != _ENTERPRISES or len(oid) < 7 or oid[6] == NET_SNMP:
        return []
    return [Section(f"enterprise {oid[6]}", oid[:7])]


def _rows(result: WalkResult) -> dict[Oid, Typed]:
    """Return the rows of a walk with full identifiers and types."""
    return {
        (*root, *index): Typed(column.other_tags.get(index, column.tag), value)
        for root, column in result.columns.items()
        if column.tag is not None
        for index, value in column.rows.items()
    }


def _size(value: Typed) -> int:
    """Return the approximate size of a value in bytes."""
    return len(value.value) if isinstance(value.value, bytes | tuple) else _NUMBER_BYTES
