"""A switch by Arista's eAPI: what it counts in one request a poll, the rest by the minute.

Ports say when the chip's counters were last fetched, by the switch's own clock; rates are over those times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from ssl import SSLContext
from time import monotonic
from typing import Any

from exporter.rest import eapi_data
from exporter.rest.eapi import EapiClient, UnsupportedError
from exporter.rest.eapi_data import Module, Port, Read, ShapeError
from exporter.rest.http import CommandError, RestError
from exporter.source import Failure, SourceError
from exporter.sources.switches import rest_reader
from exporter.sources.switches.metrics import LANES, MODULES, PORTS, PRIORITIES, QUEUES
from exporter.sources.switches.options import Eapi, Target
from exporter.sources.switches.parts import Device, Family, Harvest, Neighbour, Part, PartBuilder, Support
from exporter.sources.switches.queues import PortSums
from exporter.table import Value
from exporter.units import watts_of_dbm

INTERFACES = "show interfaces"
PFC = "show priority-flow-control counters"
PFC_DETAIL = "show priority-flow-control counters detail"
ECN = "show qos interfaces ecn counters queue"
DROPS = "show interfaces counters queue detail"
VERSION = "show version"
HOSTNAME = "show hostname"
LLDP = "show lldp neighbors detail"
MODULES_COMMAND = "show interfaces transceiver"

QUICK: Mapping[str, Callable[[object], Read]] = {
    INTERFACES: eapi_data.parse_interfaces,
    PFC: eapi_data.parse_pfc,
    PFC_DETAIL: eapi_data.parse_pfc,
    ECN: eapi_data.parse_ecn,
    DROPS: eapi_data.parse_drops,
}
"""Commands of each poll, the most important first, and what reads their answers."""

FAMILIES = {
    Family.PFC: (PFC_DETAIL, PFC),
    Family.ECN: (ECN,),
    Family.QUEUES: (DROPS,),
    Family.OPTICS: (MODULES_COMMAND,),
    Family.LLDP: (LLDP,),
}
"""By which commands a family is told."""

SLOW = 60.0
"""Seconds between two readings of neighbours, modules, and what the switch says of itself."""

REST = 3600.0
"""Seconds for which a command that the release does not know is left alone."""

SUMS = {
    f"{way}_packets_total": tuple(f"{way}_{cast}_packets_total" for cast in ("unicast", "multicast", "broadcast"))
    for way in ("receive", "transmit")
}


class SwitchClock:
    """Tells when, by our own clock, something was that the switch has a time of.

    Times of the switch are never in the future: the least that one of them lies behind ours is how far the clocks are
    apart. A clock that was set anew begins anew.
    """

    def __init__(self) -> None:
        self._apart: float | None = None
        self._newest = 0.0

    def ours(self, times: Sequence[float | None], now: float) -> list[float]:
        """Give our time of each of the switch's, that of the reading where it has none."""
        known = [time for time in times if time is not None]
        if not known:
            return [now] * len(times)
        newest = max(known)
        if newest < self._newest:
            self._apart = None
        self._newest = newest
        self._apart = now - newest if self._apart is None else min(self._apart, now - newest)
        return [now if time is None else time + self._apart for time in times]


class EapiReader:
    """Polls one switch."""

    way = "eapi"

    def __init__(self, target: Target, options: Eapi, interval: float) -> None:  # noqa: ARG002  # asked when told
        """Take the target, how to log in, and the seconds between polls."""
        self._target = target
        self._options = options
        self._client: EapiClient | None = None
        self._password = ""
        self._slow_at = float("-inf")
        self._rests: dict[str, float] = {}
        self._support: dict[str, Support] = {}
        self._device = Device()
        self._restarts = 0
        self._neighbours: list[Neighbour] | None = None
        self._modules: Mapping[str, Module] = {}
        self._clock = SwitchClock()
        self._sums = PortSums()
        self._builders = {schema: PartBuilder(schema) for schema in (PORTS, PRIORITIES, QUEUES, MODULES, LANES)}
        self._failures: list[Failure] = []

    async def read(self) -> Harvest:
        """Poll once; a command that fails costs its own columns.

        Raises:
            SourceError: The ports could not be read.
        """
        client = await self._opened()
        self._failures = []
        now = monotonic()
        slow = now - self._slow_at >= SLOW
        try:
            found = await self._ask(client, [*QUICK, *(self._slow() if slow else ())])
        except RestError as error:
            raise await self._failed(error) from None
        if slow:
            self._learn(found)
            self._slow_at = now
        ports = self._parsed(found, INTERFACES, eapi_data.parse_interfaces)
        if ports is None:
            first = self._failures[0] if self._failures else Failure("", "empty", f"{client.address}: has no interface")
            raise SourceError(first.reason, first.detail)
        parts = self._parts(ports.ports, found, now)
        uptime = self._device.uptime
        device = replace(self._device, uptime=None if uptime is None else uptime + now - self._slow_at)
        return Harvest(device, parts, self._families(parts), self._neighbours, self._failures)

    def nudge(self, port: str) -> None:  # noqa: ARG002  # all neighbours come in one answer
        """Ask for the neighbours anew at the next poll."""
        self._slow_at = float("-inf")

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def _opened(self) -> EapiClient:
        if self._client is None:
            fresh, self._password = await rest_reader.made(self._target, self._options, self._made)
            self._client = fresh
            return fresh
        return self._client

    def _made(self, address: str, password: str, tls: SSLContext | None) -> EapiClient:
        given = self._options
        return EapiClient(address, given.username, password, tls=tls, timeout=float(given.timeout))

    async def _failed(self, error: RestError) -> SourceError:
        given = rest_reader.source_error(error)
        if given.reason in ("login", "login_rest") and await rest_reader.is_changed(self._options, self._password):
            await self.close()
        return given

    # --- asking --------------------------------------------------------------------------------------------------

    def _slow(self) -> list[str]:
        commands = [VERSION, HOSTNAME]
        commands += [LLDP] if self._target.lldp else []
        return commands + ([MODULES_COMMAND] if self._target.optics else [])

    async def _ask(self, client: EapiClient, commands: Sequence[str]) -> dict[str, object]:
        """Run commands, but for those that rest; give the answers of those that have one."""
        now = monotonic()
        asked = [command for command in commands if self._rests.get(command, 0.0) <= now]
        found: dict[str, object] = {}
        for command, answer in zip(asked, await client.show(asked), strict=True):
            if isinstance(answer, UnsupportedError) and command != INTERFACES:
                self._rests[command] = now + REST
                self._support[command] = Support.UNSUPPORTED
            elif isinstance(answer, CommandError):
                self._support[command] = Support.FAILED
                self._failures.append(Failure(command, "refused", str(answer)))
            else:
                found[command] = answer
        return found

    def _parsed(self, found: Mapping[str, object], command: str, parse: Callable[[object], Any]) -> Any:  # noqa: ANN401  # what it parses
        """Read the answer to a command; None where there is none, or it is of an unknown shape."""
        if command not in found:
            return None
        try:
            read = parse(found[command])
        except ShapeError as error:
            self._support[command] = Support.FAILED
            self._failures.append(Failure(command, "malformed", f"{self._target.name}: {command}: {error}"))
            return None
        self._support[command] = Support.NOT_COUNTED  # unless something of it is a column
        for problem in getattr(read, "problems", ()):
            self._failures.append(Failure(command, "malformed", f"{self._target.name}: {command}: {problem}"))
        return read

    def _learn(self, found: Mapping[str, object]) -> None:
        """Take what changes seldom; what the switch fails to say is as it was."""
        version = self._parsed(found, VERSION, eapi_data.parse_version)
        if version is not None:
            model, release, uptime = version
            before = self._device.uptime
            if before is not None and uptime is not None and uptime < before:
                self._restarts += 1
            self._device = replace(self._device, model=model, version=release, uptime=uptime)
        self._device = replace(
            self._device, name=self._parsed(found, HOSTNAME, eapi_data.parse_hostname) or self._device.name
        )
        heard = self._parsed(found, LLDP, eapi_data.parse_neighbours)
        if heard is not None:
            self._neighbours = [rest_reader.neighbour(one) for one in heard]
        modules = self._parsed(found, MODULES_COMMAND, eapi_data.parse_modules)
        if modules is not None:
            self._modules = modules.ports

    # --- rows ----------------------------------------------------------------------------------------------------

    def _parts(self, ports: Mapping[str, Port], found: Mapping[str, object], now: float) -> list[Part]:
        wanted = {name: port for name, port in ports.items() if self._target.wants(name)}
        nothing = Read({})
        totals = (self._parsed(found, PFC, eapi_data.parse_pfc) or nothing).ports
        detail = (self._parsed(found, PFC_DETAIL, eapi_data.parse_pfc) or nothing).ports
        marks = (self._parsed(found, ECN, eapi_data.parse_ecn) or nothing).ports
        drops = (self._parsed(found, DROPS, eapi_data.parse_drops) or nothing).ports
        for name, port in wanted.items():
            by_priority = {one: pair for one, pair in detail.get(name, {}).items() if one is not None}
            self._add_port(name, port, {} if by_priority else totals.get(name, {}))
            for priority, (received, sent) in sorted(by_priority.items()):
                cells = {"receive_pfc_frames_total": received, "transmit_pfc_frames_total": sent}
                self._builders[PRIORITIES].row((name, str(priority)), cells)
            self._add_queues(name, marks.get(name, {}), drops.get(name, {}))
            if name in self._modules:
                self._add_module(name, self._modules[name])
        times = self._clock.ours([port.refreshed for port in wanted.values()], now)
        epochs = [self._restarts] * len(wanted)
        made = [
            builder.part(now, times=times, epochs=epochs) if schema is PORTS else builder.part(now)
            for schema, builder in self._builders.items()
        ]
        parts = [part for part in made if part.keys]
        return [self._sums.added_to(part, parts) if part.schema is PORTS else part for part in parts]

    def _add_port(self, name: str, port: Port, pfc: Mapping[int | None, tuple[int | None, int | None]]) -> None:
        row: dict[str, Value | None] = dict(port.counters)
        for ending, casts in SUMS.items():
            if all(cast in port.counters for cast in casts):
                row[ending] = sum(port.counters[cast] for cast in casts)
        received, sent = pfc.get(None, (None, None))
        row["receive_pfc_all_priorities_frames_total"] = received
        row["transmit_pfc_all_priorities_frames_total"] = sent
        row["link_up"] = None if port.up is None else int(port.up)
        row["admin_up"] = None if port.admin_up is None else int(port.admin_up)
        row["link_speed_bytes_per_second"] = port.speed / 8 if port.up and port.speed else None
        row["info"] = (self._target.name, "", port.description, port.kind)
        self._builders[PORTS].row((name,), row)

    def _add_queues(self, name: str, marks: Mapping[str, int | None], drops: Mapping[str, int]) -> None:
        for queue in sorted({*(queue for queue, count in marks.items() if count is not None), *drops}, key=int):
            self._builders[QUEUES].row(
                (name, queue),
                {"queue_ecn_marked_packets_total": marks.get(queue), "queue_full_discards_total": drops.get(queue)},
            )

    def _add_module(self, name: str, module: Module) -> None:
        self._builders[MODULES].row(
            (name,), {"module_temperature_celsius": module.temperature, "module_voltage_volts": module.voltage}
        )
        for lane in sorted({*module.receive_power, *module.transmit_power, *module.bias}, key=int):
            received, sent = module.receive_power.get(lane), module.transmit_power.get(lane)
            self._builders[LANES].row(
                (name, lane),
                {
                    "module_lane_receive_power_watts": None if received is None else watts_of_dbm(received),
                    "module_lane_transmit_power_watts": None if sent is None else watts_of_dbm(sent),
                    "module_lane_bias_amperes": module.bias.get(lane),
                },
            )

    def _families(self, parts: Sequence[Part]) -> dict[Family, Support]:
        """Say what is counted, and why not where nothing is."""
        asked = {
            family: min((self._support.get(one, Support.FAILED) for one in commands), key=_ORDER.index)
            for family, commands in FAMILIES.items()
            if family is not Family.OPTICS or self._target.optics
        }
        asked |= dict.fromkeys((Family.TRAFFIC, Family.ERRORS, Family.PAUSE), Support.NOT_COUNTED)
        lldp = asked.pop(Family.LLDP)
        found = rest_reader.families(parts, asked)
        if any("receive_pfc_all_priorities_frames_total" in part.columns for part in parts):
            found[Family.PFC] = Support.COUNTED
        if self._target.lldp:
            found[Family.LLDP] = Support.COUNTED if self._neighbours else lldp
        return found


_ORDER = (Support.COUNTED, Support.NOT_COUNTED, Support.FAILED, Support.UNSUPPORTED)
