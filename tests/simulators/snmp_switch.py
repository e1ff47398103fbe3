"""Simulated switch with an SNMP agent: ports with traffic, counters that wrap, and the MIBs of its vendor.

switch = SimulatedSwitch("leaf-01", ports=64, kind="arista")
address = "{}:{}".format(*await switch.agent.start())
switch.begin("pfc-storm")
switch.advance(15.0)
switch.truth()["Ethernet1/1"]["receive_pfc_frames_3"]
"""

from collections.abc import Mapping
from typing import Final

from exporter.simulator import lldp_rows
from exporter.simulator.lldp_rows import HOSTS, SWITCHES, Neighbour
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp.ber import (
    COUNTER32,
    COUNTER64,
    TIME_TICKS,
    Oid,
    Typed,
)
from tests.simulators import switch_rows
from tests.simulators.switch_kinds import (
    IFX,
    KINDS,
    STATES,
    TRAFFIC,
    SwitchKind,
    TableColumn,
)
from tests.simulators.switch_traffic import (
    FLAP_SECONDS,
    STORM,
    WAYS,
    Loads,
    SwitchPort,
)

FAULTS: Final[Mapping[str, str]] = {
    "dead": "the agent does not respond",
    "slow": "the agent delays each response",
    "looping": "the column of ifHCInOctets starts over at its end",
    "flapping-port": "the first port goes down and up",
    "pfc-storm": "the first port is paused most of the time",
    "uplink-imbalance": "the first uplink is full and the others are nearly idle",
    "degraded-port": "the first port runs at a quarter of its speed",
    "swapped-pfc": "the agent swaps PFC frames received and transmitted",
    "alternating-zeros": "every second refresh has zeros for the octets received",
}

SLOW_SECONDS: Final = 0.3
"""Delay of each response of a slow agent."""

BYTES_RECEIVED: Final = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 6)

INITIAL_COUNTERS: Final[Mapping[str, int]] = {
    "receive_errors": 2**32 - 600,
    "transmit_errors": 2**32 - 1000,
    "receive_discards": 2**32 - 300,
    "fcs_errors": 2**32 - 500,
}
"""Initial values of 32-bit counters, so that they wrap soon; not two at once, which would look like a restart."""

INITIAL_RECEIVE_BYTES: Final = 2**64 - 10**12
"""Initial value of the octets received at the first port."""

RENUMBER_OFFSET: Final = 1000
"""Offset of the interface indexes after a restart that renumbers."""

_UP, _DOWN = 1, 2
_WIDTHS = {COUNTER32: 2**32, COUNTER64: 2**64}
_SWAPPED = {"receive": "transmit", "transmit": "receive"}
_UNLOADED = 0.05
_FULL = 0.95


class SimulatedSwitch:
    """One switch.

    Attributes:
        name: System name.
        ports: The ports; the last quarter are uplinks.
        agent: The SNMP agent, which has to be started.
        faults: Current faults; changed by `begin` and `end`.
        uptime: Seconds since the start.
        ifindex: Interface index of each port, by name.
    """

    def __init__(
        self,
        name: str,
        *,
        ports: int = 64,
        kind: str = "generic",
        speed: int = 400_000_000_000,
        seed: int = 1,
        refresh: float | None = None,
        apart: int = 0,
        community: str | bytes = "public",
    ) -> None:
        """Make a switch that has been up for a minute.

        Args:
            name: System name.
            ports: Number of ports.
            kind: Vendor, one of `switch_kinds.KINDS`.
            speed: Bits per second of each port.
            seed: Of random numbers, and of the addresses, which differ between switches.
            refresh: Seconds between refreshes of the agent's counters; None for always current.
            apart: Offset of the indexes of ifXTable from those of ifTable, which differ on some agents.
            community: Of the agent.

        Raises:
            KeyError: There is no such kind.
        """
        self.name = name
        self.faults: set[str] = set()
        self.uptime = 60.0
        self.agent = SnmpAgent(community=community)
        self._kind: SwitchKind = KINDS[kind]
        self._seed = seed
        self._refresh = refresh
        self._apart = apart
        self._refreshed_at = self.uptime
        self._refreshes = 0
        self._speed = speed
        self._shift = 0
        self.ports = [self._port(number, uplink=number > ports - ports // 4) for number in range(1, ports + 1)]
        self._loads = Loads(self.ports, seed)
        self._set_initial_counters()
        self.ifindex: dict[str, int] = {}
        self._shown: list[tuple[Oid, int, str | int, SwitchPort, int]] = []
        self._fill()

    def begin(self, fault: str) -> None:
        """Begin a fault. Raises ValueError for an unknown one."""
        if fault not in FAULTS:
            raise ValueError(f"{fault!r} is not a fault; the faults are {', '.join(FAULTS)}")
        self.faults.add(fault)
        self._set_agent_faults()

    def end(self, fault: str) -> None:
        """End a fault."""
        self.faults.discard(fault)
        self._set_agent_faults()

    def truth(self) -> dict[str, Mapping[str, int]]:
        """Return the counters of each port without wrapping, by name of the port; see `SwitchPort.counters`."""
        return {port.name: port.truth() for port in self.ports}

    def advance(self, seconds: float) -> None:
        """Simulate traffic, pauses, marks and losses; the agent has the new values at once, or at its next refresh."""
        self.uptime += seconds
        self._set_links()
        for port in self.ports:
            storm = STORM if "pfc-storm" in self.faults and port is self.ports[0] else 0.0
            port.carry(seconds, self._load(port), storm)
            port.count_errors(seconds)
        if self._refresh is None or self.uptime - self._refreshed_at >= self._refresh:
            self._refreshed_at = self.uptime
            self._refreshes += 1
            self.agent.set_many(self._counters())
        self.agent.set_many(self._states())

    def reboot(self, *, renumber: bool = False) -> None:
        """Restart: all counters are reset, and with `renumber` the interfaces get other indexes."""
        self.uptime = self._refreshed_at = 0.0
        self._shift += RENUMBER_OFFSET * renumber
        for port in self.ports:
            port.restart({})
        self._fill()

    def _port(self, number: int, *, uplink: bool) -> SwitchPort:
        name = self._kind.port.format(n=number, z=number - 1, lane=4 * (number - 1))
        return SwitchPort(name, number, uplink=uplink, alias=f"{self.name} port {number}", speed=self._speed)

    def _set_initial_counters(self) -> None:
        for port in self.ports:
            port.restart(
                {**INITIAL_COUNTERS, "receive_bytes": INITIAL_RECEIVE_BYTES}
                if port is self.ports[0]
                else INITIAL_COUNTERS
            )

    def _load(self, port: SwitchPort) -> dict[str, float]:
        if "uplink-imbalance" in self.faults and port.uplink:
            first = next(one for one in self.ports if one.uplink)
            return dict.fromkeys(WAYS, _FULL if port is first else _UNLOADED)
        return self._loads.of(port)

    def _set_links(self) -> None:
        first = self.ports[0]
        first.speed = self._speed // 4 if "degraded-port" in self.faults else self._speed
        up = not ("flapping-port" in self.faults and self.uptime // FLAP_SECONDS % 2)
        if up != first.up:
            first.up = up
            first.last_change = self.uptime

    def _set_agent_faults(self) -> None:
        faults = self.agent.faults
        faults.silent = "dead" in self.faults
        faults.delay = SLOW_SECONDS if "slow" in self.faults else 0.0
        if "looping" in self.faults:
            faults.loop.add(BYTES_RECEIVED)
        else:
            faults.loop.discard(BYTES_RECEIVED)

    # --- rows ----------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Set all rows of the agent."""
        first, step = self._kind.index
        self.ifindex = {port.name: first + step * (port.number - 1) + self._shift for port in self.ports}
        rows = switch_rows.system(self._kind, self.name, len(self.ports))
        rows |= lldp_rows.local_system(self.name, self._kind.description, lldp_rows.mac(0x02, self._seed))
        for port in self.ports:
            index = self.ifindex[port.name]
            local = index if self._kind.lldp_by_index else port.number
            rows |= switch_rows.interface(port, index, index + self._apart)
            rows |= lldp_rows.port(port.name, port.alias, local, self._neighbour(port))
            rows |= switch_rows.optics(self._kind, port, index)
        self._shown = self._places((*TRAFFIC, *self._kind.columns))
        self.agent.clear()
        self.agent.set_many(rows | self._states() | self._counters())

    def _neighbour(self, port: SwitchPort) -> Neighbour:
        """Return the spine at an uplink, the host at any other port; both are numbered from 1."""
        words = f"to {self.name} {port.name}"
        if not port.uplink:
            name, chassis = f"gpu-{port.number:03d}", lldp_rows.mac(0x0A, self._seed, port.number)
            identity, address = lldp_rows.mac(0x0E, self._seed, port.number), (10, self._seed % 256, 0, port.number)
            return Neighbour(name, "Simulated host", HOSTS, chassis, identity, words, address)
        rank = port.number - sum(not one.uplink for one in self.ports)
        chassis, address = lldp_rows.mac(0x06, rank), (10, 255, 0, rank)
        return Neighbour(
            f"spine-{rank:02d}", "Simulated spine", SWITCHES, chassis, f"Ethernet{self._seed}/1", words, address
        )

    def _places(self, columns: tuple[TableColumn, ...]) -> list[tuple[Oid, int, str | int, SwitchPort, int]]:
        """Return for each row of counters its OID, type, counter, port and divisor."""
        return [
            ((*column.oid, self._index(column.oid, port), *tail), column.tag, what, port, column.divisor)
            for column in columns
            for port in self.ports
            for tail, what in column.rows()
        ]

    def _states(self) -> dict[Oid, Typed]:
        """Return the rows that are always current."""
        rows: dict[Oid, Typed] = {switch_rows.UPTIME: Typed(TIME_TICKS, self._ticks(self.uptime))}
        for port in self.ports:
            speed = port.speed if port.up else 0
            values = {
                "speed": min(speed, 2**32 - 1),
                "admin_status": _UP,
                "oper_status": _UP if port.up else _DOWN,
                "last_change": self._ticks(port.last_change),
                "speed_mega": speed // 10**6,
            }
            rows |= {(*one.oid, self._index(one.oid, port)): Typed(one.tag, values[str(one.what)]) for one in STATES}
        return rows

    def _counters(self) -> dict[Oid, Typed]:
        """Return the rows that change at a refresh."""
        counted_at = self._ticks(self._refreshed_at)
        swapped = "swapped-pfc" in self.faults
        rows = {}
        for oid, tag, what, port, divisor in self._shown:
            if isinstance(what, int):
                value = what
            elif what == "counted_at":
                value = counted_at
            elif what in port.levels:
                value = port.levels[what]
            else:
                value = port.counters[_swap(what) if swapped and "_pfc_" in what else what] // divisor
            rows[oid] = Typed(tag, value % _WIDTHS.get(tag, 2**64))
        if "alternating-zeros" in self.faults and self._refreshes % 2:
            zeros = [self._index(BYTES_RECEIVED, port) for port in self.ports]
            rows |= {(*BYTES_RECEIVED, index): Typed(COUNTER64, 0) for index in zeros}
        return rows

    def _index(self, column: Oid, port: SwitchPort) -> int:
        """Return the index of a port in a column."""
        return self.ifindex[port.name] + (self._apart if column[: len(IFX)] == IFX else 0)

    @staticmethod
    def _ticks(seconds: float) -> int:
        return round(seconds * 100) % 2**32


def _swap(what: str) -> str:
    direction, _, rest = what.partition("_")
    return f"{_SWAPPED[direction]}_{rest}"
