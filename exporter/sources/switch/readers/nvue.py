"""A switch by NVUE, the REST API of Cumulus Linux.

One request gives all ports with their bytes and neighbours.  What priorities and queues counted takes one request a
port: a few at a time, and those that do not fit into one poll at the next, so each row has its own time.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from exporter.core.source import Failure, SourceError
from exporter.sources.switch.merge import (
    Family,
    Neighbour,
    PartialTable,
    Support,
    SwitchDevice,
    SwitchReading,
)
from exporter.sources.switch.options import Nvue, Target
from exporter.sources.switch.readers import rest_reader
from exporter.sources.switch.readers.nvue_rows import Counted, NvueRows
from exporter.sources.switch.readers.rest_reader import RestReader
from exporter.sources.switch.round_robin import RoundRobin
from exporter.switch_api.http import (
    AnswerTimeoutError,
    CommandError,
    ReplyError,
    RestError,
    UnsupportedError,
)
from exporter.switch_api.nvue.client import NvueClient
from exporter.switch_api.nvue.modules import parse_module
from exporter.switch_api.nvue.parser import (
    NvueShapeError,
    Qos,
    System,
    parse_interfaces,
    parse_lldp,
    parse_qos,
    parse_system,
)

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

SHARE = 0.8
"""Of the interval, that a poll may take."""

SLOW = 300.0
"""Seconds between two times that something slow is asked for."""

STILL = 2
"""Times that a port is asked after its link went down, before it is asked seldom: by then its rates are 0."""

SAMPLE = 2000
"""Characters of an answer of unknown shape that are logged."""

QOS_PATHS = ("counters/qos", "qos/counters")
"""Below a port: where it is since 5.5, and where it was before."""

QOS, LLDP, OPTICS = "qos", "lldp", "optics"


class Job(NamedTuple):
    """What is asked of one port."""

    kind: str
    port: str


class NvueReader(RestReader[NvueClient]):
    """Polls one switch."""

    protocol = "nvue"

    def __init__(self, target: Target, options: Nvue, interval: float) -> None:
        """Take the target, how to log in, and the seconds between polls."""
        super().__init__(target, options, NvueClient)
        self._budget = interval * SHARE
        self._round_robin: RoundRobin[Job] = RoundRobin()
        self._rows = NvueRows(target)
        self._device = SwitchDevice()
        self._qos_path = ""
        self._without: dict[Job, Support] = {}
        self._heard: dict[str, list[Neighbour]] = {}
        self._tells_neighbours = False
        self._failures: list[Failure] = []
        self._shown: set[str] = set()
        self._down: dict[str, int] = {}

    async def read(self) -> SwitchReading:
        """Poll once; a port or request that fails costs its own rows.

        Raises:
            SourceError: The ports could not be read.
        """
        until = monotonic() + self._budget
        client = await self._opened()
        self._failures = []
        try:
            await self._ask_switch(client)
            await self._ask_ports(client, until)
        except RestError as error:
            raise await self._failed(error) from None
        parts = self._rows.parts()
        return SwitchReading(self._device, parts, self._families(parts), self._neighbours(), self._failures)

    def invalidate_neighbours(self, port: str) -> None:
        """Ask for the neighbours of a port anew at the next poll, or for those of all ports."""
        for name in [port] if port in self._rows.ports else self._rows.ports:
            self._round_robin.expedite(Job(LLDP, name))

    async def _ask(self, client: NvueClient, path: str, parse: Callable[[object], Answer]) -> Answer:
        """Ask for a path.

        Raises:
            RestError: It cannot be had, or is of an unknown shape.
        """
        data = await client.get(path)
        try:
            return await asyncio.to_thread(parse, data) if path == "interface" else parse(data)
        except NvueShapeError as error:
            kind = path.partition("/")[2].partition("/")[2] or path  # the same for all ports
            if kind not in self._shown:  # once, so that it can be reported
                self._shown.add(kind)
                sample = client.quoted(data, SAMPLE)
                logger.warning("%s: %s: an answer of unknown shape: %s", client.address, path, sample)
            raise ReplyError(f"{client.address}: {path}: {error}") from None

    async def _ask_switch(self, client: NvueClient) -> None:
        """Ask for the switch's own facts, and for its ports.

        Raises:
            RestError: It does not answer, or not with its ports.
            SourceError: It has none.
        """
        try:
            self._take_system(await self._ask(client, "system", parse_system))
        except (CommandError, ReplyError) as error:
            self._note("system", error)
        now = monotonic()
        read = await self._ask(client, "interface", parse_interfaces)
        self._failures += [Failure("interface", "malformed", f"{client.address}: {one}") for one in read.problems]
        if not read.ports:
            raise SourceError("empty", f"{client.address}: has no port of the front panel (swp1 …) to show")
        self._rows.take_ports(read.ports, now)
        self._tells_neighbours = any(port.neighbours is not None for port in read.ports.values())
        self._heard = {name: heard for name, heard in self._heard.items() if name in self._rows.ports}
        self._down = {name: times for name, times in self._down.items() if name in self._rows.ports}

    def _take_system(self, system: System) -> None:
        before = self._device.uptime
        if before is not None and system.uptime is not None and system.uptime < before:
            self._rows.epoch += 1
            self._rows.counted.clear()  # of before
            self._down.clear()
        self._device = SwitchDevice(name=system.name or self._device.name, version=system.version, uptime=system.uptime)

    async def _ask_ports(self, client: NvueClient, until: float) -> None:
        """Ask for what takes a request a port, as far as there is time."""
        paces = self._paces()
        self._without = {job: support for job, support in self._without.items() if job in paces}

        async def ask(job: Job) -> None:
            try:
                async with asyncio.timeout(max(0.1, until - monotonic())):
                    await self._ask_port(client, job)
            except UnsupportedError:
                self._lack(job, Support.UNSUPPORTED)
            except TimeoutError:
                self._lack(job, Support.FAILED)
                text = f"{client.address}: {job.port}: {job.kind}: not answered before the poll had to end"
                self._failures.append(Failure(job.port, "timeout", text))
            except (CommandError, ReplyError, AnswerTimeoutError) as error:
                self._lack(job, Support.FAILED)
                self._note(job.port, error)

        try:
            await self._round_robin.run(self._round_robin.due(paces), ask, until, at_once=NvueClient.connections)
        except RestError as error:  # it is of the switch; what it told of its ports is there
            failed = await self._failed(error)
            self._failures.append(Failure("", failed.reason, str(failed)))

    def _paces(self) -> dict[Job, float]:
        """Say what is asked of each port, and how often: what it counted at each poll, while its link is up."""
        paces: dict[Job, float] = {}
        for name, port in self._rows.ports.items():
            job = Job(QOS, name)
            self._down[name] = 0 if port.up is not False else self._down.get(name, 0)
            rests = self._down[name] >= STILL or self._without.get(job) is Support.UNSUPPORTED
            paces[job] = SLOW if rests else 0.0
        asks_neighbours = self._target.lldp and not self._tells_neighbours
        for name, port in self._rows.ports.items():
            if asks_neighbours and port.up:
                paces[Job(LLDP, name)] = SLOW
            if self._target.optics:
                paces[Job(OPTICS, name)] = SLOW
        return paces

    async def _ask_port(self, client: NvueClient, job: Job) -> None:
        """Ask one thing of one port, and keep the answer.

        Raises:
            RestError: It cannot be had.
        """
        kind, port = job
        if kind == QOS:
            time = monotonic()
            qos = await self._ask_qos(client, port)
            self._failures += [
                Failure(port, "malformed", f"{client.address}: {port}: {problem}") for problem in qos.problems
            ]
            self._rows.counted[port] = Counted(qos, time, self._rows.epoch)
            if self._rows.ports[port].up is False:
                self._down[port] = self._down.get(port, 0) + 1
        elif kind == LLDP:
            heard = await self._ask(client, f"interface/{port}/lldp", lambda data: parse_lldp(data, port))
            self._heard[port] = [rest_reader.neighbour(one) for one in heard]
        else:
            self._rows.modules[port] = await self._ask(client, f"interface/{port}/transceiver", parse_module)
        self._without.pop(job, None)

    async def _ask_qos(self, client: NvueClient, port: str) -> Qos:
        """Ask where the release has it; after an upgrade that is elsewhere."""
        first, second = sorted(QOS_PATHS, key=lambda path: path != self._qos_path)
        try:
            qos = await self._ask(client, f"interface/{port}/{first}", parse_qos)
        except UnsupportedError:
            qos = await self._ask(client, f"interface/{port}/{second}", parse_qos)
            first = second
        self._qos_path = first
        return qos

    def _lack(self, job: Job, support: Support) -> None:
        """Forget what a port told: it is not so any more, as far as is known."""
        self._without[job] = support
        known: Mapping[str, MutableMapping[str, Any]] = {
            QOS: self._rows.counted,
            LLDP: self._heard,
            OPTICS: self._rows.modules,
        }
        known[job.kind].pop(job.port, None)

    def _note(self, device: str, error: RestError) -> None:
        given = rest_reader.source_error(error)
        self._failures.append(Failure(device, given.reason, str(given)))

    def _neighbours(self) -> list[Neighbour] | None:
        """Give all neighbours; None until every port with a link was asked, where each has to be."""
        if not self._target.lldp:
            return None
        ports = self._rows.ports
        if self._tells_neighbours:
            return [rest_reader.neighbour(one) for port in ports.values() for one in port.neighbours or ()]
        up = [name for name, port in ports.items() if port.up]
        if any(name not in self._heard and Job(LLDP, name) not in self._without for name in up):
            return None
        return [one for name in up for one in self._heard.get(name, ())]

    def _families(self, parts: Sequence[PartialTable]) -> dict[Family, Support]:
        """Say what is counted; of a family that was never asked for, nothing."""
        otherwise = dict.fromkeys((Family.TRAFFIC, Family.ERRORS), Support.UNSUPPORTED)
        counted = [told.qos for told in self._rows.counted.values()]
        missing = self._missing(QOS)
        groups = {
            Family.PFC: any(qos.priorities is not None for qos in counted),
            Family.ECN: any(qos.queues is not None for qos in counted),
            Family.QUEUES: any(qos.queues is not None for qos in counted),
            Family.BUFFERS: any(qos.groups is not None for qos in counted),
        }
        if counted:
            missing = Support.UNSUPPORTED
        if missing is not None:
            otherwise |= {one: Support.NOT_COUNTED if known else missing for one, known in groups.items()}
        if (optics := Support.NOT_COUNTED if self._rows.modules else self._missing(OPTICS)) is not None:
            otherwise[Family.OPTICS] = optics
        found = rest_reader.families(parts, otherwise)
        if self._target.lldp:
            neighbours = self._heard or self._tells_neighbours
            if (lldp := Support.COUNTED if neighbours else self._missing(LLDP)) is not None:
                found[Family.LLDP] = lldp
        return found

    def _missing(self, kind: str) -> Support | None:
        """Say why there is nothing of a kind; None where it was not asked for, or not refused."""
        told = {support for job, support in self._without.items() if job.kind == kind}
        return next((one for one in (Support.FAILED, Support.UNSUPPORTED) if one in told), None)
