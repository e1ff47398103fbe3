"""A switch by Arista's eAPI: what it counts in one request a poll, the rest by the minute.

Ports say when the chip's counters were last fetched, by the switch's own clock; rates are over those times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from exporter.config.units import watts_of_dbm
from exporter.core.table import Value
from exporter.sources.switch.merge import (
    Family,
    PartialTable,
    PartialTableBuilder,
    Support,
    best_support,
)
from exporter.sources.switch.metrics import (
    LANES,
    MODULES,
    PORTS,
    PRIORITIES,
    QUEUES,
)
from exporter.sources.switch.options import Eapi, Target
from exporter.sources.switch.queues import PortSums
from exporter.sources.switch.readers import rest_reader
from exporter.sources.switch.readers.command_reader import LLDP, VERSION, CommandReader
from exporter.switch_api.eapi import parser as eapi_data
from exporter.switch_api.eapi.client import EapiClient
from exporter.switch_api.eapi.parser import Module
from exporter.switch_api.port import Port, Read

INTERFACES = "show interfaces"
PFC = "show priority-flow-control counters"
PFC_DETAIL = "show priority-flow-control counters detail"
ECN = "show qos interfaces ecn counters queue"
DROPS = "show interfaces counters queue detail"
HOSTNAME = "show hostname"
DROPS_VIRTUAL = "show interfaces counters queue drops"
DROPS_AS_TEXT = "show interfaces counters queue"
MODULES_COMMAND = "show interfaces transceiver dom thresholds"
MODULES_FLAT = "show interfaces transceiver"

QUICK: Mapping[str, Callable[[object], Read]] = {
    INTERFACES: eapi_data.parse_interfaces,
    PFC: eapi_data.parse_pfc,
    PFC_DETAIL: eapi_data.parse_pfc,
    ECN: eapi_data.parse_ecn,
    DROPS: eapi_data.parse_drops,
}
"""Commands of each poll, the most important first, and what reads their answers."""

INSTEAD = ((DROPS, DROPS_VIRTUAL, DROPS_AS_TEXT), (MODULES_COMMAND, MODULES_FLAT))
"""Commands that tell the same: one is asked for where the release does not know those before it. `DROPS_VIRTUAL` is of
hardware with virtual output queues; the text has sums of ports alone, and `MODULES_FLAT` one lane of each."""

FAMILIES = {
    Family.PFC: (PFC_DETAIL, PFC),
    Family.ECN: (ECN,),
    Family.QUEUES: (DROPS, DROPS_VIRTUAL, DROPS_AS_TEXT),
    Family.OPTICS: (MODULES_COMMAND, MODULES_FLAT),
}
"""By which commands a family is told."""

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


class EapiReader(CommandReader[EapiClient]):
    """Polls one switch."""

    protocol = "eapi"

    def __init__(self, target: Target, options: Eapi, interval: float) -> None:  # noqa: ARG002  # asked when told
        """Take the target, how to log in, and the seconds between polls."""
        super().__init__(target, options, EapiClient, INTERFACES)
        self._modules: Mapping[str, Module] = {}
        self._clock = SwitchClock()
        self._sums = PortSums()
        self._builders = {schema: PartialTableBuilder(schema) for schema in (PORTS, PRIORITIES, QUEUES, MODULES, LANES)}

    def _commands(self, slow: bool) -> Sequence[str]:
        commands = [*QUICK]
        if slow:
            commands += [VERSION, HOSTNAME]
            commands += [LLDP] if self._target.lldp else []
            commands += [MODULES_COMMAND] if self._target.optics else []
        return commands

    async def _ask(self, client: EapiClient, commands: Sequence[str], now: float) -> dict[str, object]:
        found = await super()._ask(client, commands, now)
        for ways in INSTEAD:
            for known, other in pairwise(ways if ways[0] in commands else ()):
                if known in found or self._support.get(known) is not Support.UNSUPPORTED:
                    break
                found |= await super()._ask(client, [other], now)
        return found

    def _learn(self, found: Mapping[str, object]) -> None:
        device = self._device
        version = self._parsed(found, VERSION, eapi_data.parse_version)
        if version is not None:
            device = replace(
                device,
                model=version.model,
                version=version.release,
                uptime=version.uptime,
                chassis=version.mac or device.chassis,
            )
        name = self._parsed(found, HOSTNAME, eapi_data.parse_hostname) or device.name
        self._learn_device(replace(device, name=name))
        self._learn_neighbours(found, eapi_data.parse_neighbours)
        for command in (MODULES_COMMAND, MODULES_FLAT):
            modules = self._parsed(found, command, eapi_data.parse_modules)
            if modules is not None:
                self._modules = modules.ports

    # --- rows ----------------------------------------------------------------------------------------------------

    def _parts(self, found: Mapping[str, object], now: float) -> list[PartialTable]:
        read = self._parsed(found, INTERFACES, eapi_data.parse_interfaces)
        if read is None:
            raise self._missing()
        wanted: dict[str, Port] = {name: port for name, port in read.ports.items() if self._target.matches(name)}
        nothing = Read({})
        totals = (self._parsed(found, PFC, eapi_data.parse_pfc) or nothing).ports
        detail = (self._parsed(found, PFC_DETAIL, eapi_data.parse_pfc) or nothing).ports
        marks = (self._parsed(found, ECN, eapi_data.parse_ecn) or nothing).ports
        by_queue = (self._parsed(found, command, eapi_data.parse_drops) for command in (DROPS, DROPS_VIRTUAL))
        drops = next((told for told in by_queue if told is not None), nothing).ports
        dropped = (self._parsed(found, DROPS_AS_TEXT, eapi_data.parse_drops_text) or nothing).ports
        for name, port in wanted.items():
            by_priority = {one: pair for one, pair in detail.get(name, {}).items() if one is not None}
            self._add_port(name, port, {} if by_priority else totals.get(name, {}), dropped.get(name))
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
        return [self._sums.add_to(part, parts) if part.schema is PORTS else part for part in parts]

    def _add_port(
        self, name: str, port: Port, pfc: Mapping[int | None, tuple[int | None, int | None]], dropped: int | None
    ) -> None:
        row: dict[str, Value | None] = dict(port.counters)
        for ending, casts in SUMS.items():
            if all(cast in port.counters for cast in casts):
                row[ending] = sum(port.counters[cast] for cast in casts)
        received, sent = pfc.get(None, (None, None))
        row["receive_pfc_all_priorities_frames_total"] = received
        row["transmit_pfc_all_priorities_frames_total"] = sent
        row["congestion_discards_total"] = dropped
        row |= rest_reader.state(port)
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

    def _families(self, parts: Sequence[PartialTable]) -> dict[Family, Support]:
        asked = {
            family: best_support(self._support.get(one, Support.FAILED) for one in commands)
            for family, commands in FAMILIES.items()
            if family is not Family.OPTICS or self._target.optics
        }
        asked |= dict.fromkeys((Family.TRAFFIC, Family.ERRORS, Family.PAUSE), Support.NOT_COUNTED)
        found = rest_reader.families(parts, asked)
        if self._target.lldp:
            found[Family.LLDP] = self._lldp()
        return found
