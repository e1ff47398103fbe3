"""A switch by SNMP: inventory and counters apart.

Names, aliases and types of interfaces are read seldom, and anew when the switch restarted or shows an interface that
is not in the list; each poll asks for the counters alone, and only for those that the switch has.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import NamedTuple

from exporter.secret import SecretError, read_secret
from exporter.snmp.ber import Oid, Typed
from exporter.snmp.ber import Value as Wire
from exporter.snmp.client import SnmpClient
from exporter.snmp.errors import SnmpError, SnmpTimeout
from exporter.snmp.walk import WalkResult
from exporter.source import Failure, SourceError
from exporter.sources.switches.metrics import PORTS, PRIORITIES
from exporter.sources.switches.options import Snmp, Target
from exporter.sources.switches.parts import Device, Family, Harvest, Part, Support
from exporter.table import Column

INVENTORY_AGE = 300.0
"""Seconds after which names and aliases are read again."""

TICKS = 100
"""Ticks of sysUpTime in a second."""

WRAP = 2**32
"""Where sysUpTime starts anew without a restart, after 497 days."""

SYSTEM = (1, 3, 6, 1, 2, 1, 1)
DESCRIPTION, OBJECT_ID, UPTIME, NAME = (*SYSTEM, 1, 0), (*SYSTEM, 2, 0), (*SYSTEM, 3, 0), (*SYSTEM, 5, 0)

IF = (1, 3, 6, 1, 2, 1, 2, 2, 1)
IFX = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
IF_DESCR, IF_TYPE, IF_ADMIN, IF_OPER = (*IF, 2), (*IF, 3), (*IF, 7), (*IF, 8)
IF_NAME, IF_HIGH_SPEED, IF_ALIAS = (*IFX, 1), (*IFX, 15), (*IFX, 18)
INVENTORY = (IF_NAME, IF_DESCR, IF_TYPE, IF_ALIAS)


class CounterColumn(NamedTuple):
    """One column of counters: where it is, the ending of its metric, its width."""

    oid: Oid
    ending: str
    width: int = 64


IF_MIB: tuple[CounterColumn, ...] = (
    CounterColumn((*IFX, 6), "receive_bytes_total"),
    CounterColumn((*IFX, 7), "receive_unicast_packets_total"),
    CounterColumn((*IFX, 8), "receive_multicast_packets_total"),
    CounterColumn((*IFX, 9), "receive_broadcast_packets_total"),
    CounterColumn((*IFX, 10), "transmit_bytes_total"),
    CounterColumn((*IFX, 11), "transmit_unicast_packets_total"),
    CounterColumn((*IFX, 12), "transmit_multicast_packets_total"),
    CounterColumn((*IFX, 13), "transmit_broadcast_packets_total"),
    CounterColumn((*IF, 13), "receive_discards_total", 32),
    CounterColumn((*IF, 14), "receive_errors_total", 32),
    CounterColumn((*IF, 19), "transmit_discards_total", 32),
    CounterColumn((*IF, 20), "transmit_errors_total", 32),
)
"""IF-MIB (RFC 2863): the high-capacity columns, and the error columns, which have none and wrap at 2^32."""

CISCO_PFC = (1, 3, 6, 1, 4, 1, 9, 9, 813, 1, 2, 1)
PFC: tuple[CounterColumn, ...] = (
    CounterColumn((*CISCO_PFC, 2), "transmit_pfc_frames_total"),
    CounterColumn((*CISCO_PFC, 3), "receive_pfc_frames_total"),
)
"""CISCO-PFC-EXT-MIB, by interface and priority, which SONiC has too. Requests are frames sent, indications received.

The sums by interface of the same MIB are left alone: SONiC's hold priority 3 only.
"""

SUMS: Mapping[str, tuple[str, ...]] = {
    f"{way}_packets_total": tuple(f"{way}_{cast}_packets_total" for cast in ("unicast", "multicast", "broadcast"))
    for way in ("receive", "transmit")
}

STATES = (IF_ADMIN, IF_OPER, IF_HIGH_SPEED)
UP, UNKNOWN = 1, 4

SHARE = 0.9
"""Of the interval, that an exchange may take: what it has to say of a silent switch must come before the next poll."""


@dataclass(slots=True)
class _Inventory:
    """What is known of a switch between its inventories.

    Attributes:
        ports: Interface index to the label of its port, for ports that are wanted.
        facts: Interface index to the values of the info's labels.
        unwanted: Indexes that have a name but are not exported.
        texts: What was read, by column, for a later reading that misses some of it.
        silent: Columns that the switch does not have.
    """

    ports: Mapping[Oid, str]
    facts: Mapping[Oid, tuple[str, ...]]
    unwanted: frozenset[Oid]
    texts: Mapping[Oid, Mapping[Oid, Wire]]
    silent: set[Oid] = field(default_factory=set)


class SnmpReader:
    """Polls one switch."""

    way = "snmp"

    def __init__(
        self,
        target: Target,
        options: Snmp,
        interval: float,
        counters: Sequence[CounterColumn] = IF_MIB,
        pfc: Sequence[CounterColumn] = PFC,
    ) -> None:
        """Take the target, the seconds between its polls, and the columns of counters by port and by priority."""
        self._target = target
        self._options = options
        self._deadline = interval * SHARE
        self._counters = counters
        self._pfc = pfc
        self._client: SnmpClient | None = None
        self._inventory: _Inventory | None = None
        self._inventory_time = 0.0
        self._nameless: frozenset[Oid] = frozenset()
        self._device = Device()
        self._name = ""
        self._uptime: int | None = None
        self._restarts = 0

    async def read(self) -> Harvest:
        """Poll once.

        Raises:
            SourceError: The switch does not answer, or has nothing to say.
        """
        try:
            client = await self._opened()
            system = await client.get([UPTIME, NAME, DESCRIPTION, OBJECT_ID])
            uptime = _ticks(system.values.get(UPTIME))
            self._note_uptime(uptime)
            failures = [Failure("system", one.reason.value, str(one)) for one in system.problems]
            stale = monotonic() - self._inventory_time >= INVENTORY_AGE
            if self._inventory is None or stale:
                description, object_id = (
                    _text(system.values[oid][1]) if oid in system.values else "" for oid in (DESCRIPTION, OBJECT_ID)
                )
                if NAME not in {one.oid for one in system.problems}:  # else it goes by the name that it had
                    self._name = _text(system.values[NAME][1]) if NAME in system.values else ""
                self._device = Device(self._name, description, object_id)
                failures += await self._take_inventory(client)
            parts = await self._poll(client, failures)
            families = {Family.TRAFFIC: Support.COUNTED}
            device = replace(self._device, uptime=None if uptime is None else uptime / TICKS)
            return Harvest(device, parts, families, None, failures)
        except SecretError as error:
            raise SourceError("credentials", str(error)) from None
        except SnmpTimeout as error:
            self._hang_up()  # the community may have changed: it is read anew
            raise SourceError(
                "timeout", f"{error}; check the address, the community and the switch's access list"
            ) from None
        except SnmpError as error:
            raise SourceError("unreachable", str(error)) from None
        except asyncio.CancelledError:
            self._hang_up()  # as it may have come of a switch that is silent
            raise

    def nudge(self, port: str) -> None:  # noqa: ARG002  # names and aliases are read all together
        """Read names and aliases anew at the next poll."""
        self._forget_inventory()

    def _forget_inventory(self) -> None:
        self._inventory_time = float("-inf")

    async def close(self) -> None:
        """Close the socket."""
        self._hang_up()

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    async def _opened(self) -> SnmpClient:
        """Make the client when there is none; its community is read then."""
        if self._client is None:
            given = self._options
            address = given.address or self._target.address
            community = await asyncio.to_thread(read_secret, given.community, given.community_file, given.community_env)
            self._client = SnmpClient(
                address,
                community,
                timeout=float(given.timeout),
                retries=given.retries,
                deadline=self._deadline,
            )
        return self._client

    def _note_uptime(self, uptime: int | None) -> None:
        """Recognise a restart: the time since the last one is shorter than it was, and did not just run over."""
        if uptime is None:
            return
        if self._uptime is not None and uptime < self._uptime and self._uptime < WRAP - 3600 * TICKS:
            self._restarts += 1
            self._inventory = None  # interface indexes may have moved
        self._uptime = uptime

    async def _take_inventory(self, client: SnmpClient) -> list[Failure]:
        """Read the names of all interfaces.

        Raises:
            SourceError: There are none.
        """
        result = await client.walk(INVENTORY)
        if result.empty:
            raise SourceError("empty", f"{client.address}: answers, but has no interface to show; check its SNMP view")
        texts: dict[Oid, Mapping[Oid, Wire]] = {oid: column.rows for oid, column in result.columns.items()}
        if self._inventory is not None:  # what could not be read this time is what it was: a label must not flicker
            known = self._inventory.texts
            texts |= {one.oid: {**known[one.oid], **texts[one.oid]} for one in result.problems}
        names, descriptions, types, aliases = (texts[oid] for oid in INVENTORY)
        found: dict[Oid, str] = {}
        for index in sorted({*names, *descriptions}):
            found[index] = _text(names.get(index)) or _text(descriptions.get(index)) or _number(index)
        ports = _distinct(found)
        wanted = {index: port for index, port in ports.items() if self._target.wants(port)}
        facts = {
            index: (self._target.name, _number(index), _text(aliases.get(index)), _text(types.get(index)))
            for index in wanted
        }
        self._inventory = _Inventory(wanted, facts, frozenset(ports.keys() - wanted.keys()), texts)
        self._inventory_time = monotonic()
        return _failures(result)

    async def _poll(self, client: SnmpClient, failures: list[Failure]) -> list[Part]:
        """Read counters and states, and make the parts."""
        inventory = self._inventory
        assert inventory is not None  # noqa: S101  # taken just before
        columns = (*STATES, *(one.oid for one in (*self._counters, *self._pfc)))
        wanted = [oid for oid in columns if oid not in inventory.silent]
        now = monotonic()
        result = await client.walk(wanted)
        failures += _failures(result)
        if result.empty:
            raise SourceError("empty", f"{client.address}: answers, but has no counters to show; check its SNMP view")
        troubled = {one.oid for one in result.problems}
        inventory.silent |= {
            oid for oid, column in result.columns.items() if column.complete and not column.rows and oid not in troubled
        }
        rows = {oid: column.rows for oid, column in result.columns.items()}
        seen = set().union(*(rows[oid] for oid in rows.keys() - {one.oid for one in self._pfc}))
        indexes = [index for index in inventory.ports if index in seen]
        nameless = frozenset(seen - inventory.ports.keys() - inventory.unwanted)
        if nameless - self._nameless:
            self._forget_inventory()  # there is an interface that is not in the list
        self._nameless = nameless
        return [self._ports(inventory, indexes, rows, now), *self._priorities(inventory, rows, now)]

    def _ports(
        self, inventory: _Inventory, indexes: Sequence[Oid], rows: Mapping[Oid, Mapping[Oid, Wire]], now: float
    ) -> Part:
        metrics = PORTS.metrics
        columns: dict[str, Column] = {}
        for one in self._counters:
            cells = rows.get(one.oid)
            if cells:
                values = [_count(cells.get(index)) for index in indexes]
                columns[one.ending] = Column(metrics[one.ending], values, one.width)
        for ending, parts in SUMS.items():
            if all(part in columns for part in parts):
                cast = zip(*(columns[part].values for part in parts), strict=True)
                columns[ending] = Column(metrics[ending], [None if None in row else sum(row) for row in cast])
        none: Mapping[Oid, Wire] = {}
        admin, oper, speeds = (rows.get(oid, none) for oid in STATES)
        ups = [_is_up(oper.get(index)) for index in indexes]
        columns["link_up"] = Column(metrics["link_up"], ups)
        columns["admin_up"] = Column(metrics["admin_up"], [_is_up(admin.get(index)) for index in indexes])
        columns["link_speed_bytes_per_second"] = Column(
            metrics["link_speed_bytes_per_second"],
            [_speed(speeds.get(index)) if up else None for index, up in zip(indexes, ups, strict=True)],
        )
        columns["info"] = Column(metrics["info"], [inventory.facts[index] for index in indexes])
        keys = [(inventory.ports[index],) for index in indexes]
        return Part(PORTS, keys, columns, now, epochs=[self._restarts] * len(indexes))

    def _priorities(self, inventory: _Inventory, rows: Mapping[Oid, Mapping[Oid, Wire]], now: float) -> list[Part]:
        """Make the part by port and priority; none where the switch has no such counters."""
        cells = {one: rows[one.oid] for one in self._pfc if rows.get(one.oid)}
        if not cells:
            return []
        ports = inventory.ports
        seen = set().union(*cells.values())
        indexes = sorted(index for index in seen if len(index) == 2 and index[:1] in ports)
        columns = {
            one.ending: Column(
                PRIORITIES.metrics[one.ending],
                [_count(found.get(index)) for index in indexes],
                one.width,
            )
            for one, found in cells.items()
        }
        keys = [(ports[index[:1]], str(index[1])) for index in indexes]
        epochs = [self._restarts] * len(indexes)
        return [Part(PRIORITIES, keys, columns, now, epochs=epochs)]


def _text(value: Wire | None) -> str:
    """Read a text that an agent sent, whatever its bytes; numbers and identifiers as they are written."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape").strip("\0 \t\r\n")
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return str(value)


def _number(index: Oid) -> str:
    return ".".join(map(str, index))


def _distinct(names: Mapping[Oid, str]) -> dict[Oid, str]:
    """Tell ports of one name apart by their interface index."""
    counts: dict[str, int] = {}
    for name in names.values():
        counts[name] = counts.get(name, 0) + 1
    found, taken = {}, {name for name, count in counts.items() if count == 1}
    for index, name in names.items():
        label = name
        if counts[name] > 1:
            label = f"{name}#{_number(index)}"
            while label in taken:  # a switch may have a port of that very name
                label += "#"
            taken.add(label)
        found[index] = label
    return found


def _ticks(found: Typed | None) -> int | None:
    return found[1] if found is not None and isinstance(found[1], int) else None


def _count(value: Wire | None) -> int | None:
    """Read a counter; some agents send them as signed numbers, and below zero is none."""
    return value if isinstance(value, int) and value >= 0 else None


def _is_up(value: Wire | None) -> int | None:
    return int(value == UP) if isinstance(value, int) and value != UNKNOWN else None


def _speed(value: Wire | None) -> float | None:
    """Read ifHighSpeed, in Mb/s; virtual ports have 0, which is no speed."""
    return value * 1e6 / 8 if isinstance(value, int) and value > 0 else None


def _failures(result: WalkResult) -> list[Failure]:
    return [Failure(_number(one.oid), one.reason.value, str(one)) for one in result.problems]
