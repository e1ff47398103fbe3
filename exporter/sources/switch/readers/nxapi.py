"""A switch by Cisco's NX-API: commands in one request a poll, and marks by queue from the object store beside it."""

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
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.queues import PortSums
from exporter.sources.switch.readers import rest_reader
from exporter.sources.switch.readers.command_reader import (
    LLDP,
    REST,
    VERSION,
    CommandReader,
)
from exporter.switch_api.http import RestError, UnsupportedError
from exporter.switch_api.nxapi import parser as nxapi_data
from exporter.switch_api.nxapi.client import CLASSES, NxapiClient
from exporter.switch_api.nxapi.parser import Version
from exporter.switch_api.port import Port, Read

INTERFACES = "show interface"
PFC = "show interface priority-flow-control"
(QUEUING,) = CLASSES

STORE = 20.0
"""Seconds that lie at least between two questions to the object store, which is no faster by itself."""

STORE_REST = 60.0
"""Seconds for which an object store that failed is left alone: ports do not wait for it at each poll."""


class NxapiReader(CommandReader[NxapiClient]):
    """Polls one switch."""

    protocol = "nxapi"

    def __init__(self, target: Target, options: Nxapi, interval: float) -> None:  # noqa: ARG002  # asked when told
        """Take the target, how to log in, and the seconds between polls."""
        super().__init__(target, options, NxapiClient, INTERFACES)
        self._store_at = self._store_due = float("-inf")
        self._queues = Read({})
        self._sums = PortSums()
        self._builders = {schema: PartialTableBuilder(schema) for schema in (PORTS, QUEUES)}
        self._marks = PartialTableBuilder(PORTS, "queues")

    def _commands(self, slow: bool) -> Sequence[str]:
        commands = [INTERFACES, PFC]
        if slow:
            commands += [VERSION, LLDP] if self._target.lldp else [VERSION]
        return commands

    async def _ask_beside(self, client: NxapiClient, now: float) -> None:
        """Ask the object store for the queues; without one, or where it fails, there are none."""
        if now < self._store_due or self._rests.get(QUEUING, 0.0) > now:
            return
        self._store_due = now + STORE_REST  # unless it answers
        self._queues = Read({})
        try:
            objects = await client.objects(QUEUING)
        except UnsupportedError:
            self._rests[QUEUING] = now + REST
            self._support[QUEUING] = Support.UNSUPPORTED
        except RestError as error:  # ports were had already
            self._support[QUEUING] = Support.FAILED
            self._failures.append(Failure(QUEUING, rest_reader.source_error(error).reason, str(error)))
        else:
            self._store_at, self._store_due = now, now + STORE
            self._support[QUEUING] = Support.NOT_COUNTED  # unless something of it is a column
            self._queues = nxapi_data.parse_queues(objects)

    def _learn(self, found: Mapping[str, object]) -> None:
        version: Version | None = self._parsed(found, VERSION, nxapi_data.parse_version)
        if version is not None:
            name = version.name or self._device.name
            self._learn_device(
                SwitchDevice(name=name, model=version.model, version=version.release, uptime=version.uptime)
            )
        self._learn_neighbours(found, nxapi_data.parse_neighbours)

    # --- rows ----------------------------------------------------------------------------------------------------

    def _parts(self, found: Mapping[str, object], now: float) -> list[PartialTable]:
        read = self._parsed(found, INTERFACES, nxapi_data.parse_interfaces)
        if read is None or not read.ports:
            raise self._missing()
        pfc = self._parsed(found, PFC, nxapi_data.parse_pfc) or Read({})
        totals = {canonical(name): pair for name, pair in pfc.ports.items()}
        queues = {canonical(name): counted for name, counted in self._queues.ports.items()}
        wanted: dict[str, Port] = {name: port for name, port in read.ports.items() if self._target.matches(name)}
        for name, port in wanted.items():
            received, sent = totals.get(canonical(name), (None, None))
            row: dict[str, Value | None] = dict(port.counters)
            row["receive_pfc_all_priorities_frames_total"] = received
            row["transmit_pfc_all_priorities_frames_total"] = sent
            row |= rest_reader.state(port)
            row["info"] = (self._target.name, "", port.description, port.kind)
            self._builders[PORTS].row((name,), row)
            counted = queues.get(canonical(name), {})
            for queue in sorted(counted, key=int):
                self._builders[QUEUES].row((name, queue), counted[queue])
        rows = self._builders[PORTS].part(now, epochs=[self._restarts] * len(wanted))
        of_queues = self._builders[QUEUES].part(self._store_at)
        if not of_queues.keys:
            return [rows]
        # The store was asked at another time than the ports, so sums of its queues are a part of their own.
        keys, columns = self._sums.columns(of_queues)
        for place, key in enumerate(keys):
            self._marks.row(key, {ending: column.values[place] for ending, column in columns.items()})
        return [rows, of_queues, self._marks.part(self._store_at)]

    def _families(self, parts: Sequence[PartialTable]) -> dict[Family, Support]:
        asked = {
            Family.ECN: self._support.get(QUEUING, Support.FAILED),
            Family.PFC: self._support.get(PFC, Support.FAILED),
            **dict.fromkeys((Family.TRAFFIC, Family.ERRORS, Family.PAUSE), Support.NOT_COUNTED),
        }
        if self._target.optics:
            asked[Family.OPTICS] = Support.UNSUPPORTED
        found = rest_reader.families(parts, asked)
        if self._target.lldp:
            found[Family.LLDP] = self._lldp()
        return found
