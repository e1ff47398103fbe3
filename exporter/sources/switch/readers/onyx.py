"""A switch by the JSON API of NVIDIA Onyx: `show` commands, one after the other.

A command takes a second and more.  Counters and states are asked for first, at each poll; what PFC counted by
priority, neighbours and the switch's own facts take turns in what is left of the interval.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TypeVar

from exporter.core.source import Failure, SourceError
from exporter.sources.switch.merge import (
    Family,
    Neighbour,
    PartialTable,
    Support,
    SwitchDevice,
    SwitchReading,
)
from exporter.sources.switch.options import Onyx, Target
from exporter.sources.switch.readers import rest_reader
from exporter.sources.switch.readers.onyx_rows import OnyxRows
from exporter.sources.switch.readers.rest_reader import RestReader
from exporter.sources.switch.round_robin import RoundRobin
from exporter.switch_api.http import CommandError, RestError
from exporter.switch_api.onyx.client import OnyxClient
from exporter.switch_api.onyx.facts import (
    parse_local,
    parse_lossless,
    parse_neighbours,
    parse_version,
)
from exporter.switch_api.onyx.parser import (
    OnyxShapeError,
    PerPort,
    parse_congestion_control,
    parse_counters,
    parse_description,
    parse_pfc,
)

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

SHARE = 0.85
"""Of the interval, that a poll may take."""

SLOW = 300.0
"""Seconds between two times that something slow is asked for."""

COUNTERS = "show interfaces ethernet counters"
DESCRIPTION = "show interfaces ethernet description"
CONGESTION = "show interfaces ethernet congestion-control"
PFC = "show interfaces ethernet counters pfc prio"
LOSSLESS = "show dcb priority-flow-control"
VERSION = "show version"
LOCAL = "show lldp local"
NEIGHBOURS = ("show lldp interfaces ethernet remote", "show lldp remote")
"""In the newer form, and in that of releases which do not know it."""

SAMPLE = 2000
"""Characters of an answer of unknown shape that are logged."""

FAMILIES = {
    COUNTERS: (Family.TRAFFIC, Family.ERRORS, Family.PAUSE),
    CONGESTION: (Family.ECN, Family.QUEUES),
}
"""What a command tells of."""

_UNKNOWN = re.compile(r"unrecogni[sz]ed|unknown|invalid|incomplete|not supported", re.IGNORECASE)


@dataclass(slots=True)
class Round:
    """The questions of one poll, and what went wrong with them.

    Attributes:
        client: Of the switch.
        until: Monotonic seconds at which the poll has to be over.
        shown: Commands of which an answer of unknown shape was logged, ever.
        failures: What went wrong with one command.
        without: What holds of commands that brought nothing.
    """

    client: OnyxClient
    until: float
    shown: set[str]
    failures: list[Failure] = field(default_factory=list)
    without: dict[str, Support] = field(default_factory=dict)

    async def ask(self, command: str, parse: Callable[[object], Answer], *, optional: bool = False) -> Answer | None:
        """Run one command; what goes wrong with it alone is noted, and gives None.

        Args:
            command: The command.
            parse: Makes values of its answer.
            optional: Whether it is no failure that a release does not know the command.

        Raises:
            SourceError: What goes wrong concerns the switch.
        """
        data: object = None
        try:
            async with asyncio.timeout(max(0.1, self.until - monotonic())):
                data = await self.client.show(command)
            answer = await asyncio.to_thread(parse, data)  # of megabytes, which must not hold up the other sources
        except OnyxShapeError as error:
            self._note(command, Support.FAILED, "malformed", f"{self.client.address}: {command}: {error}")
            self._show(command, data)
            return None
        except CommandError as error:
            unknown = _UNKNOWN.search(error.message) is not None
            support = Support.UNSUPPORTED if unknown else Support.FAILED
            self._note(command, support, "refused", "" if optional and unknown else str(error))
            return None
        except TimeoutError:
            raise SourceError("timeout", f"{self.client.address}: {command!r}: the interval is over") from None
        except RestError as error:
            self.without[command] = Support.FAILED
            raise rest_reader.source_error(error) from None
        self.without[command] = Support.NOT_COUNTED
        if isinstance(answer, PerPort):
            details = [f"{self.client.address}: {command}: {one}" for one in answer.problems]
            self.failures += [Failure(command, "malformed", detail) for detail in details]
        return answer

    def _note(self, command: str, support: Support, reason: str, detail: str) -> None:
        self.without[command] = support
        if detail:
            self.failures.append(Failure(command, reason, detail))

    def _show(self, command: str, data: object) -> None:
        """Log an answer of unknown shape, so that it can be reported."""
        if command not in self.shown:
            self.shown.add(command)
            sample = self.client.quoted(data, SAMPLE)
            logger.warning("%s: %s: an answer of unknown shape: %s", self.client.address, command, sample)


class OnyxReader(RestReader[OnyxClient]):
    """Polls one switch."""

    protocol = "onyx"

    def __init__(self, target: Target, options: Onyx, interval: float) -> None:
        """Take the target, how to log in, and the seconds between polls."""
        super().__init__(target, options, OnyxClient)
        self._budget = interval * SHARE
        self._round_robin: RoundRobin[str] = RoundRobin()
        self._rows = OnyxRows(target)
        self._device = SwitchDevice()
        self._lossless: frozenset[int] | None = None
        self._neighbours: list[Neighbour] | None = None
        self._neighbours_commands: tuple[str, ...] = NEIGHBOURS
        self._without: dict[str, Support] = {}
        self._shown: set[str] = set()

    async def read(self) -> SwitchReading:
        """Poll once; a command that fails costs its own columns.

        Raises:
            SourceError: Nothing could be read.
        """
        until = monotonic() + self._budget
        client = await self._opened()
        asked = Round(client, until, self._shown)
        self._rows.begin()
        try:
            await self._ask_ports(asked)
            await self._ask_others(asked)
        except SourceError as error:
            if error.reason in ("login", "login_rest"):
                await self._renew()
            if not self._rows:
                raise
            asked.failures.append(Failure("", error.reason, str(error)))
        self._without |= asked.without
        if not self._rows:
            first = asked.failures[0] if asked.failures else None
            detail = first.detail if first else f"{client.address}: has no Ethernet port to show"
            raise SourceError(first.reason if first else "empty", detail)
        parts = self._rows.parts()
        return SwitchReading(self._device, parts, self._families(parts), self._neighbours, asked.failures)

    def invalidate_neighbours(self, port: str) -> None:  # noqa: ARG002  # neighbours are asked for all together
        """Ask for neighbours anew at the next poll; the rest is asked for each time."""
        self._round_robin.expedite(NEIGHBOURS[0])

    async def _ask_ports(self, asked: Round) -> None:
        """Ask for what each poll needs."""
        rows = self._rows
        rows.time = monotonic()
        rows.counters = _ports(await asked.ask(COUNTERS, parse_counters))
        rows.states = _ports(await asked.ask(DESCRIPTION, parse_description))
        if not rows:
            return
        rows.congestion_time = monotonic()
        rows.congestion = _ports(await asked.ask(CONGESTION, parse_congestion_control))

    async def _ask_others(self, asked: Round) -> None:
        """Ask for what takes turns."""
        if not self._rows:
            return

        async def ask(command: str) -> None:
            await self._ask_other(asked, command)

        if LOSSLESS not in self._without:  # it tells what else to ask for
            await self._round_robin.run([LOSSLESS], ask, asked.until)
        await self._round_robin.run(self._round_robin.due(self._paces()), ask, asked.until)

    def _paces(self) -> dict[str, float]:
        """Say what takes turns, and how often: what PFC counts at each poll, of the priorities that pause."""
        paces = {LOCAL: SLOW, LOSSLESS: SLOW}  # first the switch's name, as it is a label
        for priority in range(8) if self._lossless is None else sorted(self._lossless):
            command = f"{PFC} {priority}"
            paces[command] = SLOW if self._without.get(command) is Support.UNSUPPORTED else 0.0
        paces[VERSION] = SLOW
        if self._target.lldp:
            paces[NEIGHBOURS[0]] = SLOW
        return paces

    async def _ask_other(self, asked: Round, command: str) -> None:
        if command == LOSSLESS:
            lossless = await asked.ask(command, parse_lossless, optional=True)
            self._lossless = self._lossless if lossless is None else lossless
            self._rows.keep(range(8) if self._lossless is None else self._lossless)
        elif command == VERSION:
            version = await asked.ask(command, parse_version, optional=True)
            if version is not None:
                self._device = replace(self._device, model=version.model, version=version.release)
        elif command == LOCAL:
            local = await asked.ask(command, parse_local, optional=True)
            if local is not None:
                self._device = replace(
                    self._device, name=local.name, description=local.description, chassis=local.chassis
                )
        elif command == NEIGHBOURS[0]:
            await self._ask_neighbours(asked)
        else:
            time = monotonic()
            counted = await asked.ask(command, parse_pfc, optional=True)
            self._rows.take_pfc(int(command.rpartition(" ")[2]), time, _ports(counted))

    async def _ask_neighbours(self, asked: Round) -> None:
        """Ask for neighbours in the form that the release knows, once that is known."""
        heard = None
        for command in self._neighbours_commands:
            heard = await asked.ask(command, parse_neighbours, optional=True)
            if asked.without[command] is not Support.UNSUPPORTED:
                self._neighbours_commands = (command,)
                break
        self._neighbours = None
        if heard is not None:
            wanted = [told for port, told in heard.ports.items() if self._target.matches(port)]
            self._neighbours = [rest_reader.neighbour(one) for told in wanted for one in told]

    def _families(self, parts: Sequence[PartialTable]) -> dict[Family, Support]:
        """Say what is counted; of a family that was never asked for, nothing."""
        without = {
            family: self._without[command]
            for command, told in FAMILIES.items()
            if command in self._without
            for family in told
        }
        pfc = {self._without[one] for one in self._paces() if one.startswith(PFC) and one in self._without}
        if self._lossless == frozenset():
            without[Family.PFC] = Support.NOT_COUNTED
        elif pfc:
            without[Family.PFC] = max(pfc, key=_WORST.index)
        found = rest_reader.families(parts, without)
        if (lldp := self._without.get(self._neighbours_commands[-1])) is not None:
            found[Family.LLDP] = lldp if self._neighbours is None else Support.COUNTED
        return found


_WORST = (Support.UNSUPPORTED, Support.NOT_COUNTED, Support.COUNTED, Support.FAILED)
"""What is said of several commands: the last of these that holds of one."""


def _ports(found: PerPort[Answer] | None) -> Mapping[str, Answer]:
    return {} if found is None else found.ports
