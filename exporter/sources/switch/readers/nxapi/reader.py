"""Reader of a switch by Cisco's NX-API: commands in one request per poll, and queues from the object store."""

from collections.abc import Mapping, Sequence

from exporter.core.source import Failure
from exporter.core.table import Value
from exporter.sources.switch.merge import (
    Family,
    PartialTable,
    PartialTableBuilder,
    Support,
    SwitchDevice,
)
from exporter.sources.switch.metrics import PORTS, QUEUES
from exporter.sources.switch.options import Nxapi, Target
from exporter.sources.switch.port_kinds import port_info
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.queues import PortSums
from exporter.sources.switch.readers import api_reader
from exporter.sources.switch.readers.command_reader import (
    LLDP,
    UNSUPPORTED_RETRY_SECONDS,
    VERSION,
    CommandReader,
)
from exporter.sources.switch.settings_rows import SettingsRows
from exporter.switch_api.errors import SwitchApiError, UnsupportedError
from exporter.switch_api.nxapi import parser
from exporter.switch_api.nxapi.client import CLASSES, NxapiClient
from exporter.switch_api.nxapi.parser import NxosVersion
from exporter.switch_api.port import PerPort, PortState

INTERFACES = "show interface"
PFC = "show interface priority-flow-control"
(QUEUING,) = CLASSES

STORE_INTERVAL_SECONDS = 20.0
"""At least, between two requests to the object store, which refreshes no faster."""

STORE_RETRY_SECONDS = 60.0
"""Until an object store that failed is requested again, so that ports do not wait for it at each poll."""


class NxapiReader(CommandReader[NxapiClient]):
    """Polls one switch.

    Args:
        target: The switch.
        options: Credentials and TLS settings.
        interval: Not used: each poll has one request, or two.
    """

    protocol = "nxapi"

    def __init__(self, target: Target, options: Nxapi, interval: float) -> None:  # noqa: ARG002  # see above
        super().__init__(target, options, NxapiClient, INTERFACES)
        self._store_read_at = self._store_due_at = float("-inf")
        self._queues: PerPort[dict[str, dict[str, int]]] = PerPort({})
        self._sums = PortSums()
        self._settings = SettingsRows()
        self._builders = {schema: PartialTableBuilder(schema) for schema in (PORTS, QUEUES)}
        self._queue_sums = PartialTableBuilder(PORTS, "queues")

    def _commands(self, is_slow_due: bool) -> Sequence[str]:
        commands = [INTERFACES, PFC]
        if is_slow_due:
            commands += [VERSION, LLDP] if self._target.lldp else [VERSION]
        return commands

    async def _read_additional(self, client: NxapiClient, now: float) -> None:
        """Read the queues from the object store; a failure does not affect the ports."""
        if now < self._store_due_at or self._retry_at.get(QUEUING, 0.0) > now:
            return
        self._store_due_at = now + STORE_RETRY_SECONDS  # unless it responds
        self._queues = PerPort({})
        try:
            objects = await client.objects(QUEUING)
        except UnsupportedError:
            self._retry_at[QUEUING] = now + UNSUPPORTED_RETRY_SECONDS
            self._support[QUEUING] = Support.UNSUPPORTED
        except SwitchApiError as error:  # the ports have been read already
            self._support[QUEUING] = Support.FAILED
            self._failures.append(Failure(QUEUING, api_reader.reason_of(error), str(error)))
        else:
            self._store_read_at, self._store_due_at = now, now + STORE_INTERVAL_SECONDS
            self._support[QUEUING] = Support.NOT_COUNTED  # unless one of its values becomes a column
            self._queues = parser.parse_queues(objects)

    def _update_facts(self, results: Mapping[str, object]) -> None:
        version: NxosVersion | None = self._parse(results, VERSION, parser.parse_version)
        if version is not None:
            name = version.name or self._device.name
            self._set_device(
                SwitchDevice(name=name, model=version.model, version=version.release, uptime=version.uptime)
            )
        self._set_neighbours(results, parser.parse_neighbours)

    def _parts(self, results: Mapping[str, object], now: float) -> list[PartialTable]:
        interfaces = self._parse(results, INTERFACES, parser.parse_interfaces)
        if interfaces is None or not interfaces.ports:
            raise self._no_ports_error()
        pfc = self._parse(results, PFC, parser.parse_pfc) or PerPort({})
        pfc_frames = {canonical(name): frames for name, frames in pfc.ports.items()}
        queues = {canonical(name): counters for name, counters in self._queues.ports.items()}
        ports: dict[str, PortState] = {
            name: port for name, port in interfaces.ports.items() if self._target.matches(name)
        }
        for name, port in ports.items():
            received, transmitted = pfc_frames.get(canonical(name), (None, None))
            row: dict[str, Value | None] = dict(port.counters)
            row["receive_pfc_all_priorities_frames_total"] = received
            row["transmit_pfc_all_priorities_frames_total"] = transmitted
            row |= api_reader.port_state_cells(port)
            row["info"] = port_info(self._target.name, name, "", port.description, port.if_type)
            self._builders[PORTS].row((name,), row)
            port_queues = queues.get(canonical(name), {})
            for queue in sorted(port_queues, key=int):
                self._builders[QUEUES].row((name, queue), port_queues[queue])
        port_part = self._builders[PORTS].part(now, epochs=[self._restarts] * len(ports))
        settings = self._settings.parts(now, {name: port.settings for name, port in ports.items()})
        queue_part = self._builders[QUEUES].part(self._store_read_at)
        if not queue_part.keys:
            return [port_part, *settings]
        # The object store is read at another time than the ports, so the sums of its queues are a separate part.
        keys, columns = self._sums.columns(queue_part)
        for index, key in enumerate(keys):
            self._queue_sums.row(key, {ending: column.values[index] for ending, column in columns.items()})
        return [port_part, queue_part, self._queue_sums.part(self._store_read_at), *settings]

    def _families(self, parts: Sequence[PartialTable]) -> dict[Family, Support]:
        otherwise = {
            Family.ECN: self._support.get(QUEUING, Support.FAILED),
            Family.PFC: self._support.get(PFC, Support.FAILED),
            **dict.fromkeys((Family.TRAFFIC, Family.ERRORS, Family.PAUSE), Support.NOT_COUNTED),
        }
        if self._target.optics:
            otherwise[Family.OPTICS] = Support.UNSUPPORTED
        found = api_reader.families(parts, otherwise)
        if self._target.lldp:
            found[Family.LLDP] = self._lldp_support()
        return found
