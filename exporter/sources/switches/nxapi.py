"""A switch by Cisco's NX-API: commands in one request a poll, and marks by queue from the object store beside it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from ssl import SSLContext
from time import monotonic
from typing import Any

from exporter.rest import nxapi_data
from exporter.rest.http import CommandError, LoginError, ReplyError, RestError
from exporter.rest.nxapi import CLASSES, NxapiClient, UnsupportedError
from exporter.rest.nxapi_data import Port, Read, ShapeError, Version
from exporter.source import Failure, SourceError
from exporter.sources.switches import rest_reader
from exporter.sources.switches.metrics import PORTS, QUEUES
from exporter.sources.switches.names import canonical
from exporter.sources.switches.options import Nxapi, Target
from exporter.sources.switches.parts import Device, Family, Harvest, Neighbour, Part, PartBuilder, Support
from exporter.sources.switches.queues import PortSums
from exporter.table import Value

INTERFACES = "show interface"
PFC = "show interface priority-flow-control"
VERSION = "show version"
LLDP = "show lldp neighbors detail"
(QUEUING,) = CLASSES

SLOW = 60.0
"""Seconds between two readings of neighbours and of what the switch says of itself."""

STORE = 20.0
"""Seconds that lie at least between two questions to the object store, which is no faster by itself."""

REST = 3600.0
"""Seconds for which what the release does not know is left alone."""


class NxapiReader:
    """Polls one switch."""

    way = "nxapi"

    def __init__(self, target: Target, options: Nxapi, interval: float) -> None:  # noqa: ARG002  # asked when told
        """Take the target, how to log in, and the seconds between polls."""
        self._target = target
        self._options = options
        self._client: NxapiClient | None = None
        self._password = ""
        self._slow_at = self._store_at = float("-inf")
        self._rests: dict[str, float] = {}
        self._support: dict[str, Support] = {}
        self._device = Device()
        self._restarts = 0
        self._neighbours: list[Neighbour] | None = None
        self._queues = Read({})
        self._sums = PortSums()
        self._builders = {schema: PartBuilder(schema) for schema in (PORTS, QUEUES)}
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
        commands = [INTERFACES, PFC]
        if slow:
            commands += [VERSION, LLDP] if self._target.lldp else [VERSION]
        try:
            found = await self._ask(client, commands)
            if now - self._store_at >= STORE and self._rests.get(QUEUING, 0.0) <= now:
                await self._ask_store(client, now)
        except RestError as error:
            raise await self._failed(error) from None
        if slow:
            self._learn(found)
            self._slow_at = now
        ports = self._parsed(found, INTERFACES, nxapi_data.parse_interfaces)
        if ports is None or not ports.ports:
            first = self._failures[0] if self._failures else Failure("", "empty", f"{client.address}: has no interface")
            raise SourceError(first.reason, first.detail)
        parts = self._parts(ports.ports, self._parsed(found, PFC, nxapi_data.parse_pfc) or Read({}), now)
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

    async def _opened(self) -> NxapiClient:
        if self._client is None:
            fresh, self._password = await rest_reader.made(self._target, self._options, self._made)
            self._client = fresh
            return fresh
        return self._client

    def _made(self, address: str, password: str, tls: SSLContext | None) -> NxapiClient:
        given = self._options
        return NxapiClient(address, given.username, password, tls=tls, timeout=float(given.timeout))

    async def _failed(self, error: RestError) -> SourceError:
        given = rest_reader.source_error(error)
        if given.reason in ("login", "login_rest") and await rest_reader.is_changed(self._options, self._password):
            await self.close()
        return given

    # --- asking --------------------------------------------------------------------------------------------------

    async def _ask(self, client: NxapiClient, commands: Sequence[str]) -> dict[str, object]:
        """Run commands, but for those that rest; give the bodies of those that have one."""
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
            elif answer in (None, ""):
                self._support[command] = Support.NOT_COUNTED  # it printed nothing
                if command == LLDP:
                    self._neighbours = []
            else:
                found[command] = answer
        return found

    async def _ask_store(self, client: NxapiClient, now: float) -> None:
        """Ask the object store for the queues; without one, or where it fails, there are none."""
        self._queues = Read({})
        try:
            objects = await client.objects(QUEUING)
        except UnsupportedError:
            self._rests[QUEUING] = now + REST
            self._support[QUEUING] = Support.UNSUPPORTED
        except (LoginError, CommandError, ReplyError) as error:
            self._support[QUEUING] = Support.FAILED
            self._failures.append(Failure(QUEUING, rest_reader.source_error(error).reason, str(error)))
        else:
            self._store_at = now
            self._support[QUEUING] = Support.NOT_COUNTED  # unless something of it is a column
            self._queues = nxapi_data.parse_queues(objects)

    def _parsed(self, found: Mapping[str, object], command: str, parse: Callable[[object], Any]) -> Any:  # noqa: ANN401  # what it parses
        """Read the body of a command; None where there is none, or it is of an unknown shape."""
        if command not in found:
            return None
        try:
            read = parse(found[command])
        except ShapeError as error:
            self._support[command] = Support.FAILED
            self._failures.append(Failure(command, "malformed", f"{self._target.name}: {command}: {error}"))
            return None
        self._support[command] = Support.NOT_COUNTED
        for problem in getattr(read, "problems", ()):
            self._failures.append(Failure(command, "malformed", f"{self._target.name}: {command}: {problem}"))
        return read

    def _learn(self, found: Mapping[str, object]) -> None:
        """Take what changes seldom; what the switch fails to say is as it was."""
        version: Version | None = self._parsed(found, VERSION, nxapi_data.parse_version)
        if version is not None:
            before = self._device.uptime
            if before is not None and version.uptime is not None and version.uptime < before:
                self._restarts += 1
            self._device = Device(
                name=version.name or self._device.name,
                model=version.model,
                version=version.release,
                uptime=version.uptime,
            )
        heard = self._parsed(found, LLDP, nxapi_data.parse_neighbours)
        if heard is not None:
            self._neighbours = [rest_reader.neighbour(one) for one in heard]

    # --- rows ----------------------------------------------------------------------------------------------------

    def _parts(self, ports: Mapping[str, Port], pfc: Read, now: float) -> list[Part]:
        totals = {canonical(name): pair for name, pair in pfc.ports.items()}
        queues = {canonical(name): counted for name, counted in self._queues.ports.items()}
        wanted = {name: port for name, port in ports.items() if self._target.wants(name)}
        for name, port in wanted.items():
            received, sent = totals.get(canonical(name), (None, None))
            row: dict[str, Value | None] = dict(port.counters)
            row["receive_pfc_all_priorities_frames_total"] = received
            row["transmit_pfc_all_priorities_frames_total"] = sent
            row["link_up"] = None if port.up is None else int(port.up)
            row["admin_up"] = None if port.admin_up is None else int(port.admin_up)
            row["link_speed_bytes_per_second"] = port.speed / 8 if port.up and port.speed else None
            row["info"] = (self._target.name, "", port.description, port.kind)
            self._builders[PORTS].row((name,), row)
            counted = queues.get(canonical(name), {})
            for queue in sorted(counted, key=int):
                self._builders[QUEUES].row((name, queue), counted[queue])
        rows = self._builders[PORTS].part(now, epochs=[self._restarts] * len(wanted))
        of_queues = self._builders[QUEUES].part(now)
        parts = [rows, of_queues] if of_queues.keys else [rows]
        return [self._sums.added_to(rows, parts), *parts[1:]]

    def _families(self, parts: Sequence[Part]) -> dict[Family, Support]:
        """Say what is counted, and why not where nothing is."""
        asked = {
            Family.ECN: self._support.get(QUEUING, Support.FAILED),
            Family.PFC: self._support.get(PFC, Support.FAILED),
            **dict.fromkeys((Family.TRAFFIC, Family.ERRORS, Family.PAUSE), Support.NOT_COUNTED),
        }
        if self._target.optics:
            asked[Family.OPTICS] = Support.UNSUPPORTED
        found = rest_reader.families(parts, asked)
        if any("receive_pfc_all_priorities_frames_total" in part.columns for part in parts):
            found[Family.PFC] = Support.COUNTED
        if self._target.lldp:
            lldp = self._support.get(LLDP, Support.FAILED)
            found[Family.LLDP] = Support.COUNTED if self._neighbours else lldp
        return found
