"""Reader of a switch by NVUE, the REST API of Cumulus Linux.

One request returns all ports with their bytes and neighbours.  Counters by priority and queue take one request per
port: a few at a time, and those that do not fit into one poll are read at the next, so each row has its own time.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from exporter.core.source import Failure, SourceError
from exporter.sources.switch.merge import Family, PartialTable, Support, SwitchDevice, SwitchReading, best_support
from exporter.sources.switch.options import Nvue, Target
from exporter.sources.switch.readers import api_reader
from exporter.sources.switch.readers.api_reader import ApiReader
from exporter.sources.switch.readers.nvue.rows import NvueRows, QosReading
from exporter.sources.switch.round_robin import RoundRobin
from exporter.switch_api.errors import (
    CommandError,
    InvalidResponseError,
    ResponseTimeoutError,
    SwitchApiError,
    UnsupportedError,
)
from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.nvue.client import NvueClient
from exporter.switch_api.nvue.modules import parse_module
from exporter.switch_api.nvue.parser import (
    NvueQos,
    NvueSystem,
    parse_interfaces,
    parse_lldp,
    parse_qos,
    parse_system,
)
from exporter.switch_api.port import ShapeError

logger = logging.getLogger(__name__)

Parsed = TypeVar("Parsed")

POLL_SHARE = 0.8
"""Share of the interval that a poll may take."""

SLOW_INTERVAL_SECONDS = 300.0
"""Between two requests for data that changes rarely."""

READS_AFTER_LINK_DOWN = 2
"""QoS readings of a port after its link went down, before it is read at the slow interval: by then its rates are 0."""

MAX_LOGGED_CHARACTERS = 2000
"""Characters of a response of unknown structure that are logged."""

QOS_PATHS = ("counters/qos", "qos/counters")
"""Below a port: the path since release 5.5, and the one before."""

QOS, LLDP, OPTICS = "qos", "lldp", "optics"


class PortRequest(NamedTuple):
    """A request for one kind of data of one port."""

    kind: str
    port: str


class NvueReader(ApiReader[NvueClient]):
    """Polls one switch.

    Args:
        target: The switch.
        options: Credentials and TLS settings.
        interval: Seconds between polls.
    """

    protocol = "nvue"

    def __init__(self, target: Target, options: Nvue, interval: float) -> None:
        super().__init__(target, options, NvueClient)
        self._budget = interval * POLL_SHARE
        self._schedule: RoundRobin[PortRequest] = RoundRobin()
        self._rows = NvueRows(target)
        self._device = SwitchDevice()
        self._qos_path = ""
        self._unavailable: dict[PortRequest, Support] = {}
        self._neighbours: dict[str, list[LldpNeighbour]] = {}
        self._has_neighbours_in_interfaces = False
        self._failures: list[Failure] = []
        self._logged_paths: set[str] = set()
        self._reads_while_down: dict[str, int] = {}

    async def read(self) -> SwitchReading:
        """Poll once; a port or request that fails affects its own rows only.

        Raises:
            SourceError: The ports could not be read.
        """
        until = monotonic() + self._budget
        client = await self._open_client()
        self._failures = []
        try:
            await self._read_interfaces(client)
            await self._read_ports(client, until)
        except SwitchApiError as error:
            raise await self._failed(error) from None
        parts = self._rows.parts()
        return SwitchReading(self._device, parts, self._families(parts), self._all_neighbours(), self._failures)

    def invalidate_neighbours(self, port: str) -> None:
        """Read the neighbours of a port again at the next poll, or those of all ports."""
        for name in [port] if port in self._rows.ports else self._rows.ports:
            self._schedule.expedite(PortRequest(LLDP, name))

    async def _get(self, client: NvueClient, path: str, parse: Callable[[object], Parsed]) -> Parsed:
        """Return the parsed data at a path.

        Raises:
            SwitchApiError: The request failed, or the response has an unknown structure.
        """
        data = await client.get(path)
        try:
            return await asyncio.to_thread(parse, data) if path == "interface" else parse(data)
        except ShapeError as error:
            kind = path.partition("/")[2].partition("/")[2] or path  # the same for all ports
            if kind not in self._logged_paths:  # once, so that it can be reported
                self._logged_paths.add(kind)
                sample = client.redacted_excerpt(data, MAX_LOGGED_CHARACTERS)
                logger.warning("%s: %s: a response of unknown structure: %s", client.address, path, sample)
            raise InvalidResponseError(f"{client.address}: {path}: {error}") from None

    async def _read_interfaces(self, client: NvueClient) -> None:
        """Read the facts about the switch, and all its ports.

        Raises:
            SwitchApiError: The ports could not be read.
            SourceError: There are none.
        """
        try:
            self._set_system(await self._get(client, "system", parse_system))
        except (CommandError, InvalidResponseError) as error:
            self._add_failure("system", error)
        now = monotonic()
        interfaces = await self._get(client, "interface", parse_interfaces)
        self._failures += [
            Failure("interface", "malformed", f"{client.address}: {problem}") for problem in interfaces.problems
        ]
        if not interfaces.ports:
            raise SourceError("empty", f"{client.address}: the switch reports no front panel port (swp1 …)")
        self._rows.set_ports(interfaces.ports, now)
        self._has_neighbours_in_interfaces = any(port.neighbours is not None for port in interfaces.ports.values())
        ports = self._rows.ports
        self._neighbours = {name: found for name, found in self._neighbours.items() if name in ports}
        self._reads_while_down = {name: count for name, count in self._reads_while_down.items() if name in ports}

    def _set_system(self, system: NvueSystem) -> None:
        before = self._device.uptime
        if before is not None and system.uptime is not None and system.uptime < before:
            self._rows.epoch += 1
            self._rows.qos.clear()  # read before the restart
            self._reads_while_down.clear()
        self._device = SwitchDevice(name=system.name or self._device.name, version=system.version, uptime=system.uptime)

    async def _read_ports(self, client: NvueClient, until: float) -> None:
        """Send the requests that are due for single ports, until the time of the poll is over."""
        intervals = self._request_intervals()
        self._unavailable = {request: one for request, one in self._unavailable.items() if request in intervals}

        async def send(request: PortRequest) -> None:
            try:
                async with asyncio.timeout(max(0.1, until - monotonic())):
                    await self._read_port(client, request)
            except UnsupportedError:
                self._drop(request, Support.UNSUPPORTED)
            except TimeoutError:
                self._drop(request, Support.FAILED)
                text = f"{client.address}: {request.port}: {request.kind}: no response before the end of the poll"
                self._failures.append(Failure(request.port, "timeout", text))
            except (CommandError, InvalidResponseError, ResponseTimeoutError) as error:
                self._drop(request, Support.FAILED)
                self._add_failure(request.port, error)

        try:
            due = self._schedule.due(intervals)
            await self._schedule.run(due, send, until, at_once=NvueClient.connections)
        except SwitchApiError as error:  # of the switch as a whole; the ports that were read are returned
            failed = await self._failed(error)
            self._failures.append(Failure("", failed.reason, str(failed)))

    def _request_intervals(self) -> dict[PortRequest, float]:
        """Return the interval of each request; 0 at each poll, for QoS counters of ports with a link."""
        intervals: dict[PortRequest, float] = {}
        for name, port in self._rows.ports.items():
            request = PortRequest(QOS, name)
            self._reads_while_down[name] = 0 if port.up is not False else self._reads_while_down.get(name, 0)
            is_slow = (
                self._reads_while_down[name] >= READS_AFTER_LINK_DOWN
                or self._unavailable.get(request) is Support.UNSUPPORTED
            )
            intervals[request] = SLOW_INTERVAL_SECONDS if is_slow else 0.0
        needs_lldp_requests = self._target.lldp and not self._has_neighbours_in_interfaces
        for name, port in self._rows.ports.items():
            if needs_lldp_requests and port.up:
                intervals[PortRequest(LLDP, name)] = SLOW_INTERVAL_SECONDS
            if self._target.optics:
                intervals[PortRequest(OPTICS, name)] = SLOW_INTERVAL_SECONDS
        return intervals

    async def _read_port(self, client: NvueClient, request: PortRequest) -> None:
        """Send one request and store its result.

        Raises:
            SwitchApiError: It failed.
        """
        kind, port = request
        if kind == QOS:
            time = monotonic()
            qos = await self._read_qos(client, port)
            self._failures += [
                Failure(port, "malformed", f"{client.address}: {port}: {problem}") for problem in qos.problems
            ]
            self._rows.qos[port] = QosReading(qos, time, self._rows.epoch)
            if self._rows.ports[port].up is False:
                self._reads_while_down[port] = self._reads_while_down.get(port, 0) + 1
        elif kind == LLDP:
            neighbours = await self._get(client, f"interface/{port}/lldp", lambda data: parse_lldp(data, port))
            self._neighbours[port] = list(neighbours)
        else:
            self._rows.modules[port] = await self._get(client, f"interface/{port}/transceiver", parse_module)
        self._unavailable.pop(request, None)

    async def _read_qos(self, client: NvueClient, port: str) -> NvueQos:
        """Read the path that worked last, else the other one: an upgrade changes it."""
        first, second = sorted(QOS_PATHS, key=lambda path: path != self._qos_path)
        try:
            qos = await self._get(client, f"interface/{port}/{first}", parse_qos)
        except UnsupportedError:
            qos = await self._get(client, f"interface/{port}/{second}", parse_qos)
            first = second
        self._qos_path = first
        return qos

    def _drop(self, request: PortRequest, support: Support) -> None:
        """Drop the last result of a request that failed, since it may be outdated."""
        self._unavailable[request] = support
        results: Mapping[str, MutableMapping[str, Any]] = {
            QOS: self._rows.qos,
            LLDP: self._neighbours,
            OPTICS: self._rows.modules,
        }
        results[request.kind].pop(request.port, None)

    def _add_failure(self, device: str, error: SwitchApiError) -> None:
        self._failures.append(Failure(device, api_reader.reason_of(error), str(error)))

    def _all_neighbours(self) -> list[LldpNeighbour] | None:
        """Return all neighbours; None until the ports with a link were all read, where each needs a request."""
        if not self._target.lldp:
            return None
        ports = self._rows.ports
        if self._has_neighbours_in_interfaces:
            return [one for port in ports.values() for one in port.neighbours or ()]
        up = [name for name, port in ports.items() if port.up]
        if any(name not in self._neighbours and PortRequest(LLDP, name) not in self._unavailable for name in up):
            return None
        return [one for name in up for one in self._neighbours.get(name, ())]

    def _families(self, parts: Sequence[PartialTable]) -> dict[Family, Support]:
        """Return for each family whether it is counted; a family that was not requested yet is absent."""
        otherwise = dict.fromkeys((Family.TRAFFIC, Family.ERRORS), Support.UNSUPPORTED)
        readings = [reading.qos for reading in self._rows.qos.values()]
        absent = Support.UNSUPPORTED if readings else self._support_without_data(QOS)
        has_group = {
            Family.PFC: any(qos.priorities is not None for qos in readings),
            Family.ECN: any(qos.queues is not None for qos in readings),
            Family.QUEUES: any(qos.queues is not None for qos in readings),
            Family.BUFFERS: any(qos.groups is not None for qos in readings),
        }
        if absent is not None:
            otherwise |= {family: Support.NOT_COUNTED if has else absent for family, has in has_group.items()}
        if (optics := Support.NOT_COUNTED if self._rows.modules else self._support_without_data(OPTICS)) is not None:
            otherwise[Family.OPTICS] = optics
        found = api_reader.families(parts, otherwise)
        if self._target.lldp:
            has_neighbours = self._neighbours or self._has_neighbours_in_interfaces
            if (lldp := Support.COUNTED if has_neighbours else self._support_without_data(LLDP)) is not None:
                found[Family.LLDP] = lldp
        return found

    def _support_without_data(self, kind: str) -> Support | None:
        """Return why there is no data of a kind; None where it was not requested, or no request failed."""
        return best_support(support for request, support in self._unavailable.items() if request.kind == kind)
