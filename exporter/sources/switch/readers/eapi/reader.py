"""Reader of a switch by Arista's eAPI: counters in one request per poll, the other values once a minute.

Each port has the time at which the switch last read its counters from the chip; rates are computed over these times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from exporter.core.table import Value
from exporter.sources.switch.merge import (
    Family,
    PartialTable,
    PartialTableBuilder,
    Support,
    best_by_family,
)
from exporter.sources.switch.metrics import (
    LANES,
    MODULES,
    PORTS,
    PRIORITIES,
    QUEUES,
)
from exporter.sources.switch.options import Eapi, Target
from exporter.sources.switch.port_kinds import port_info
from exporter.sources.switch.queues import PortSums
from exporter.sources.switch.readers import api_reader
from exporter.sources.switch.readers.command_reader import LLDP, VERSION, CommandReader
from exporter.sources.switch.readers.eapi.clock import SwitchClock
from exporter.sources.switch.settings_rows import SettingsRows
from exporter.switch_api.eapi import parser
from exporter.switch_api.eapi.client import EapiClient
from exporter.switch_api.port import PerPort, PortState
from exporter.switch_api.transceiver import Transceiver

INTERFACES = "show interfaces"
PFC = "show priority-flow-control counters"
PFC_DETAIL = "show priority-flow-control counters detail"
ECN = "show qos interfaces ecn counters queue"
DROPS = "show interfaces counters queue detail"
HOSTNAME = "show hostname"
DROPS_VOQ = "show interfaces counters queue drops"
DROPS_TEXT = "show interfaces counters queue"
TRANSCEIVER_DOM = "show interfaces transceiver dom thresholds"
TRANSCEIVER = "show interfaces transceiver"

POLL_COMMANDS: Mapping[str, Callable[[object], PerPort[Any]]] = MappingProxyType(
    {
        INTERFACES: parser.parse_interfaces,
        PFC: parser.parse_pfc,
        PFC_DETAIL: parser.parse_pfc,
        ECN: parser.parse_ecn,
        DROPS: parser.parse_drops,
    }
)
"""Commands of each poll, the most important first, and their parsers."""

ALTERNATIVES = ((DROPS, DROPS_VOQ, DROPS_TEXT), (TRANSCEIVER_DOM, TRANSCEIVER))
"""Commands with the same values: each is run where the release does not support those before it. `DROPS_VOQ` is of
hardware with virtual output queues; the text has only sums of each port, and `TRANSCEIVER` only one lane of each."""

FAMILIES = MappingProxyType(
    {
        Family.PFC: (PFC_DETAIL, PFC),
        Family.ECN: (ECN,),
        Family.QUEUES: (DROPS, DROPS_VOQ, DROPS_TEXT),
        Family.OPTICS: (TRANSCEIVER_DOM, TRANSCEIVER),
    }
)
"""The commands that have a family."""


class EapiReader(CommandReader[EapiClient]):
    """Polls one switch.

    Args:
        target: The switch.
        options: Credentials and TLS settings.
        interval: Not used: each poll has one request.
    """

    protocol = "eapi"

    def __init__(self, target: Target, options: Eapi, interval: float) -> None:  # noqa: ARG002  # see above
        super().__init__(target, options, EapiClient, INTERFACES)
        self._modules: Mapping[str, Transceiver] = {}
        self._clock = SwitchClock()
        self._sums = PortSums()
        self._settings = SettingsRows()
        self._builders = {schema: PartialTableBuilder(schema) for schema in (PORTS, PRIORITIES, QUEUES, MODULES, LANES)}

    def _commands(self, is_slow_due: bool) -> Sequence[str]:
        commands = [*POLL_COMMANDS]
        if is_slow_due:
            commands += [VERSION, HOSTNAME]
            commands += [LLDP] if self._target.lldp else []
            commands += [TRANSCEIVER_DOM] if self._target.optics else []
        return commands

    async def _run(self, client: EapiClient, commands: Sequence[str], now: float) -> dict[str, object]:
        results = await super()._run(client, commands, now)
        for alternatives in ALTERNATIVES:
            for command, alternative in pairwise(alternatives if alternatives[0] in commands else ()):
                if command in results or self._support.get(command) is not Support.UNSUPPORTED:
                    break
                results |= await super()._run(client, [alternative], now)
        return results

    def _update_facts(self, results: Mapping[str, object]) -> None:
        device = self._device
        version = self._parse(results, VERSION, parser.parse_version)
        if version is not None:
            device = replace(
                device,
                model=version.model,
                version=version.release,
                uptime=version.uptime,
                chassis=version.mac or device.chassis,
            )
        name = self._parse(results, HOSTNAME, parser.parse_hostname) or device.name
        self._set_device(replace(device, name=name))
        self._set_neighbours(results, parser.parse_neighbours)
        for command in (TRANSCEIVER_DOM, TRANSCEIVER):
            modules = self._parse(results, command, parser.parse_modules)
            if modules is not None:
                self._modules = modules.ports

    def _parts(self, results: Mapping[str, object], now: float) -> list[PartialTable]:
        interfaces = self._parse(results, INTERFACES, parser.parse_interfaces)
        if interfaces is None:
            raise self._no_ports_error()
        ports: dict[str, PortState] = {
            name: port for name, port in interfaces.ports.items() if self._target.matches(name)
        }
        pfc_sums = self._parse_ports(results, PFC, parser.parse_pfc)
        pfc = self._parse_ports(results, PFC_DETAIL, parser.parse_pfc)
        marks = self._parse_ports(results, ECN, parser.parse_ecn)
        drops = self._parse_ports(results, DROPS, parser.parse_drops)
        drops = drops or self._parse_ports(results, DROPS_VOQ, parser.parse_drops)
        port_drops = self._parse_ports(results, DROPS_TEXT, parser.parse_drops_text)
        for name, port in ports.items():
            by_priority = {priority: frames for priority, frames in pfc.get(name, {}).items() if priority is not None}
            self._add_port(name, port, {} if by_priority else pfc_sums.get(name, {}), port_drops.get(name))
            for priority, (received, transmitted) in sorted(by_priority.items()):
                cells = {"receive_pfc_frames_total": received, "transmit_pfc_frames_total": transmitted}
                self._builders[PRIORITIES].row((name, str(priority)), cells)
            self._add_queues(name, marks.get(name, {}), drops.get(name, {}))
            if name in self._modules:
                api_reader.add_module_rows(self._builders[MODULES], self._builders[LANES], name, self._modules[name])
        times = self._clock.to_monotonic([port.refreshed for port in ports.values()], now)
        epochs = [self._restarts] * len(ports)
        built = [
            builder.part(now, times=times, epochs=epochs) if schema is PORTS else builder.part(now)
            for schema, builder in self._builders.items()
        ]
        parts = [part for part in built if part.keys]
        settings = self._settings.parts(now, {name: port.settings for name, port in ports.items()})
        return [*(self._sums.add_to(part, parts) if part.schema is PORTS else part for part in parts), *settings]

    def _parse_ports(
        self, results: Mapping[str, object], command: str, parse: Callable[[object], PerPort[Any]]
    ) -> Mapping[str, Any]:
        """Return what a command has of each port; empty where it has no result."""
        parsed: PerPort[Any] | None = self._parse(results, command, parse)
        return {} if parsed is None else parsed.ports

    def _add_port(
        self, name: str, port: PortState, pfc: Mapping[int | None, parser.PfcFrames], drops: int | None
    ) -> None:
        row: dict[str, Value | None] = {**port.counters, **api_reader.packet_sum_cells(port.counters)}
        received, transmitted = pfc.get(None, (None, None))
        row["receive_pfc_all_priorities_frames_total"] = received
        row["transmit_pfc_all_priorities_frames_total"] = transmitted
        row["congestion_discards_total"] = drops
        row |= api_reader.port_state_cells(port)
        row["info"] = port_info(self._target.name, name, "", port.description, port.if_type)
        self._builders[PORTS].row((name,), row)

    def _add_queues(self, name: str, marks: Mapping[str, int | None], drops: Mapping[str, int]) -> None:
        for queue in sorted({*(queue for queue, count in marks.items() if count is not None), *drops}, key=int):
            self._builders[QUEUES].row(
                (name, queue),
                {"queue_ecn_marked_packets_total": marks.get(queue), "queue_full_discards_total": drops.get(queue)},
            )

    def _families(self, parts: Sequence[PartialTable]) -> dict[Family, Support]:
        otherwise = best_by_family(
            (family, self._support.get(command, Support.FAILED))
            for family, commands in FAMILIES.items()
            if family is not Family.OPTICS or self._target.optics
            for command in commands
        )
        otherwise |= dict.fromkeys((Family.TRAFFIC, Family.ERRORS, Family.PAUSE), Support.NOT_COUNTED)
        found = api_reader.families(parts, otherwise)
        if self._target.lldp:
            found[Family.LLDP] = self._lldp_support()
        return found
