"""Reader of a switch by the JSON API of NVIDIA Onyx: `show` commands, one after the other.

A command takes a second or more.  Counters and port states are read first, at each poll; PFC counters by priority,
neighbours and facts about the switch are read in turn in the remaining time of the poll.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from types import MappingProxyType
from typing import TypeVar

from exporter.core.source import Failure, SourceError
from exporter.sources.switch.merge import Family, PartialTable, Support, SwitchDevice, SwitchReading, best_support
from exporter.sources.switch.options import Onyx, Target
from exporter.sources.switch.readers import api_reader
from exporter.sources.switch.readers.api_reader import ApiReader
from exporter.sources.switch.readers.onyx.rows import OnyxRows
from exporter.sources.switch.round_robin import RoundRobin
from exporter.switch_api.errors import CommandError, SwitchApiError
from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.onyx.client import OnyxClient
from exporter.switch_api.onyx.facts import (
    parse_flow_control,
    parse_local,
    parse_neighbours,
    parse_version,
)
from exporter.switch_api.onyx.parser import (
    parse_congestion_control,
    parse_counters,
    parse_description,
    parse_pfc,
)
from exporter.switch_api.port import PerPort, ShapeError

logger = logging.getLogger(__name__)

Parsed = TypeVar("Parsed")

POLL_SHARE = 0.85
"""Share of the interval that a poll may take."""

SLOW_INTERVAL_SECONDS = 300.0
"""Between two runs of a command whose output changes rarely."""

COUNTERS = "show interfaces ethernet counters"
DESCRIPTION = "show interfaces ethernet description"
CONGESTION = "show interfaces ethernet congestion-control"
PFC = "show interfaces ethernet counters pfc prio"
LOSSLESS = "show dcb priority-flow-control"
VERSION = "show version"
LOCAL = "show lldp local"
NEIGHBOURS = ("show lldp interfaces ethernet remote", "show lldp remote")
"""The newer command, and that of releases which do not support it."""

MAX_LOGGED_CHARACTERS = 2000
"""Characters of a response of unknown structure that are logged."""

FAMILIES = MappingProxyType(
    {
        COUNTERS: (Family.TRAFFIC, Family.ERRORS, Family.PAUSE),
        CONGESTION: (Family.ECN, Family.QUEUES),
    }
)
"""The families that a command has."""

_UNSUPPORTED = re.compile(r"unrecogni[sz]ed|unknown|invalid|incomplete|not supported", re.IGNORECASE)


@dataclass(slots=True)
class OnyxPoll:
    """The commands of one poll, and their failures.

    Attributes:
        client: Of the switch.
        until: Monotonic seconds at which the poll has to be over.
        logged: Commands of which a response of unknown structure has been logged, also by earlier polls.
        failures: Failures of single commands.
        support: Support of each command that was run.
    """

    client: OnyxClient
    until: float
    logged: set[str]
    failures: list[Failure] = field(default_factory=list)
    support: dict[str, Support] = field(default_factory=dict)

    async def run(self, command: str, parse: Callable[[object], Parsed], *, optional: bool = False) -> Parsed | None:
        """Run one command; a failure of it alone is recorded, and None is returned.

        Args:
            command: The command.
            parse: Parser of its data.
            optional: Whether a release that does not support the command is not a failure.

        Raises:
            SourceError: The switch as a whole failed.
        """
        data: object = None
        try:
            async with asyncio.timeout(max(0.1, self.until - monotonic())):
                data = await self.client.show(command)
            parsed = await asyncio.to_thread(parse, data)  # megabytes, which must not block the event loop
        except ShapeError as error:
            self._add_failure(command, Support.FAILED, "malformed", f"{self.client.address}: {command}: {error}")
            self._log_data(command, data)
            return None
        except CommandError as error:
            is_unsupported = _UNSUPPORTED.search(error.message) is not None
            support = Support.UNSUPPORTED if is_unsupported else Support.FAILED
            self._add_failure(command, support, "refused", "" if optional and is_unsupported else str(error))
            return None
        except TimeoutError:
            raise SourceError("timeout", f"{self.client.address}: {command!r}: the interval is over") from None
        except SwitchApiError as error:
            self.support[command] = Support.FAILED
            raise api_reader.to_source_error(error) from None
        self.support[command] = Support.NOT_COUNTED
        if isinstance(parsed, PerPort):
            details = [f"{self.client.address}: {command}: {problem}" for problem in parsed.problems]
            self.failures += [Failure(command, "malformed", detail) for detail in details]
        return parsed

    def _add_failure(self, command: str, support: Support, reason: str, detail: str) -> None:
        self.support[command] = support
        if detail:
            self.failures.append(Failure(command, reason, detail))

    def _log_data(self, command: str, data: object) -> None:
        """Log data of unknown structure once, so that it can be reported."""
        if command not in self.logged:
            self.logged.add(command)
            sample = self.client.redacted_excerpt(data, MAX_LOGGED_CHARACTERS)
            logger.warning("%s: %s: a response of unknown structure: %s", self.client.address, command, sample)


class OnyxReader(ApiReader[OnyxClient]):
    """Polls one switch.

    Args:
        target: The switch.
        options: Credentials and TLS settings.
        interval: Seconds between polls.
    """

    protocol = "onyx"

    def __init__(self, target: Target, options: Onyx, interval: float) -> None:
        super().__init__(target, options, OnyxClient)
        self._budget = interval * POLL_SHARE
        self._schedule: RoundRobin[str] = RoundRobin()
        self._rows = OnyxRows(target)
        self._device = SwitchDevice()
        self._version_time = 0.0
        self._has_responded = True
        self._lossless: frozenset[int] | None = None
        self._neighbours: list[LldpNeighbour] | None = None
        self._neighbours_commands: tuple[str, ...] = NEIGHBOURS
        self._support: dict[str, Support] = {}
        self._logged: set[str] = set()

    async def read(self) -> SwitchReading:
        """Poll once; a command that fails affects its own columns only.

        Raises:
            SourceError: Nothing could be read.
        """
        until = monotonic() + self._budget
        if not self._has_responded:
            self._schedule.expedite(VERSION)  # for the uptime: a switch that restarts does not respond
        self._has_responded = False
        client = await self._open_client()
        poll = OnyxPoll(client, until, self._logged)
        self._rows.start_poll()
        try:
            await self._read_ports(poll)
            await self._run_scheduled(poll)
        except SourceError as error:
            if error.reason in ("login", "login_backoff"):
                await self._close_if_password_changed()
            if not self._rows.has_ports:
                raise
            poll.failures.append(Failure("", error.reason, str(error)))
        self._support |= poll.support
        if not self._rows.has_ports:
            first = poll.failures[0] if poll.failures else None
            detail = first.detail if first else f"{client.address}: the switch reports no Ethernet port"
            raise SourceError(first.reason if first else "empty", detail)
        self._has_responded = True
        parts = self._rows.parts()
        return SwitchReading(self._aged_device(), parts, self._families(parts), self._neighbours, poll.failures)

    def invalidate_neighbours(self, port: str) -> None:  # noqa: ARG002  # one command has the neighbours of all ports
        """Read the neighbours again at the next poll."""
        self._schedule.expedite(NEIGHBOURS[0])

    def _aged_device(self) -> SwitchDevice:
        """Return the facts about the switch, with its uptime as of now."""
        uptime = self._device.uptime
        return replace(self._device, uptime=None if uptime is None else uptime + monotonic() - self._version_time)

    async def _read_ports(self, poll: OnyxPoll) -> None:
        """Run the commands of each poll."""
        rows = self._rows
        rows.time = monotonic()
        rows.counters = _ports(await poll.run(COUNTERS, parse_counters))
        rows.states = _ports(await poll.run(DESCRIPTION, parse_description))
        if not rows.has_ports:
            return
        rows.congestion_time = monotonic()
        rows.congestion = _ports(await poll.run(CONGESTION, parse_congestion_control))

    async def _run_scheduled(self, poll: OnyxPoll) -> None:
        """Run the other commands in turn, until the time of the poll is over."""
        if not self._rows.has_ports:
            return

        async def run(command: str) -> None:
            await self._run_other(poll, command)

        if LOSSLESS not in self._support:  # its result determines which other commands are run
            await self._schedule.run([LOSSLESS], run, poll.until)
        await self._schedule.run(self._schedule.due(self._intervals()), run, poll.until)

    def _intervals(self) -> dict[str, float]:
        """Return the interval of each command; 0 at each poll, for PFC counters of lossless priorities."""
        intervals = {LOCAL: SLOW_INTERVAL_SECONDS, LOSSLESS: SLOW_INTERVAL_SECONDS}  # LOCAL first: the name is a label
        for priority in range(8) if self._lossless is None else sorted(self._lossless):
            command = f"{PFC} {priority}"
            is_slow = self._support.get(command) is Support.UNSUPPORTED
            intervals[command] = SLOW_INTERVAL_SECONDS if is_slow else 0.0
        intervals[VERSION] = SLOW_INTERVAL_SECONDS
        if self._target.lldp:
            intervals[NEIGHBOURS[0]] = SLOW_INTERVAL_SECONDS
        return intervals

    async def _run_other(self, poll: OnyxPoll, command: str) -> None:
        if command == LOSSLESS:
            read_at = monotonic()
            found = await poll.run(command, parse_flow_control, optional=True)
            if found is not None:
                self._lossless = found.lossless
                self._rows.set_flow_control(found, read_at)
            self._rows.retain_priorities(range(8) if self._lossless is None else self._lossless)
        elif command == VERSION:
            read_at = monotonic()
            version = await poll.run(command, parse_version, optional=True)
            if version is not None:
                self._version_time = read_at
                self._device = replace(
                    self._device, model=version.model, version=version.release, uptime=version.uptime
                )
        elif command == LOCAL:
            local = await poll.run(command, parse_local, optional=True)
            if local is not None:
                self._device = replace(
                    self._device, name=local.name, description=local.description, chassis=local.chassis
                )
        elif command == NEIGHBOURS[0]:
            await self._read_neighbours(poll)
        else:
            time = monotonic()
            pfc = await poll.run(command, parse_pfc, optional=True)
            self._rows.set_pfc(int(command.rpartition(" ")[2]), time, _ports(pfc))

    async def _read_neighbours(self, poll: OnyxPoll) -> None:
        """Run the command for neighbours that the release supports, once that is known."""
        neighbours = None
        for command in self._neighbours_commands:
            neighbours = await poll.run(command, parse_neighbours, optional=True)
            if poll.support[command] is not Support.UNSUPPORTED:
                self._neighbours_commands = (command,)
                break
        self._neighbours = None
        if neighbours is not None:
            selected = [found for port, found in neighbours.ports.items() if self._target.matches(port)]
            self._neighbours = [one for found in selected for one in found]

    def _families(self, parts: Sequence[PartialTable]) -> dict[Family, Support]:
        """Return for each family whether it is counted; a family whose commands were not run yet is absent."""
        otherwise = {
            family: self._support[command]
            for command, families in FAMILIES.items()
            if command in self._support
            for family in families
        }
        pfc = best_support(
            self._support[one] for one in self._intervals() if one.startswith(PFC) and one in self._support
        )
        if self._lossless == frozenset():
            otherwise[Family.PFC] = Support.NOT_COUNTED
        elif pfc is not None:
            otherwise[Family.PFC] = pfc
        found = api_reader.families(parts, otherwise)
        if (lldp := self._support.get(self._neighbours_commands[-1])) is not None:
            found[Family.LLDP] = lldp if self._neighbours is None else Support.COUNTED
        return found


def _ports(parsed: PerPort[Parsed] | None) -> Mapping[str, Parsed]:
    return {} if parsed is None else parsed.ports
