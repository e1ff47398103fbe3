"""What the readers share that run `show` commands, several in one request; a command that is not known rests.

Ports and what they count come at each poll; neighbours, and what the switch says of itself, by the minute.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, Protocol, TypeVar

from exporter.core.source import Failure, SourceError
from exporter.sources.switch.merge import (
    Family,
    Neighbour,
    PartialTable,
    Support,
    SwitchDevice,
    SwitchReading,
)
from exporter.sources.switch.options import Login, Target
from exporter.sources.switch.readers import rest_reader
from exporter.sources.switch.readers.rest_reader import RestReader, SwitchClient
from exporter.switch_api.http import CommandError, RestError, UnsupportedError

VERSION = "show version"
LLDP = "show lldp neighbors detail"

SLOW = 60.0
"""Seconds between two readings of neighbours, and of what the switch says of itself."""

REST = 3600.0
"""Seconds for which what the release does not know is left alone."""


class CommandClient(SwitchClient, Protocol):
    """A client that runs commands."""

    async def show(self, commands: Sequence[str]) -> list[object]:
        """Give the answer to each command, or its CommandError."""


Client = TypeVar("Client", bound=CommandClient)


class CommandReader(RestReader[Client], ABC):
    """Polls one switch.

    Args:
        target: The switch.
        options: How to log in.
        kind: Class of the client.
        interfaces: The command without whose answer there is nothing to show.
    """

    def __init__(self, target: Target, options: Login, kind: type[Client], interfaces: str) -> None:
        super().__init__(target, options, kind)
        self._interfaces = interfaces
        self._slow_at = float("-inf")
        self._rests: dict[str, float] = {}
        self._support: dict[str, Support] = {}
        self._device = SwitchDevice()
        self._restarts = 0
        self._neighbours: list[Neighbour] | None = None
        self._failures: list[Failure] = []

    async def read(self) -> SwitchReading:
        """Poll once; a command that fails costs its own columns.

        Raises:
            SourceError: The ports could not be read.
        """
        client = await self._opened()
        self._failures = []
        now = monotonic()
        slow = now - self._slow_at >= SLOW
        try:
            found = await self._ask(client, self._commands(slow), now)
            await self._ask_beside(client, now)
        except RestError as error:
            raise await self._failed(error) from None
        if slow:
            self._learn(found)
            self._slow_at = now
        parts = self._parts(found, now)
        uptime = self._device.uptime
        device = replace(self._device, uptime=None if uptime is None else uptime + now - self._slow_at)
        return SwitchReading(device, parts, self._families(parts), self._neighbours, self._failures)

    def invalidate_neighbours(self, port: str) -> None:  # noqa: ARG002  # all neighbours come in one answer
        """Ask for the neighbours anew at the next poll."""
        self._slow_at = float("-inf")

    @abstractmethod
    def _commands(self, slow: bool) -> Sequence[str]:
        """Give the commands of a poll, the most important first; `slow` ones are asked by the minute."""

    async def _ask_beside(self, client: Client, now: float) -> None:
        """Ask for what the switch has elsewhere.

        Raises:
            RestError: The switch does not answer.
        """

    @abstractmethod
    def _learn(self, found: Mapping[str, object]) -> None:
        """Take what changes seldom; what the switch fails to say is as it was."""

    @abstractmethod
    def _parts(self, found: Mapping[str, object], now: float) -> list[PartialTable]:
        """Make the rows.

        Raises:
            SourceError: There are no ports.
        """

    @abstractmethod
    def _families(self, parts: Sequence[PartialTable]) -> dict[Family, Support]:
        """Say what is counted, and why not where nothing is."""

    async def _ask(self, client: Client, commands: Sequence[str], now: float) -> dict[str, object]:
        """Run commands, but for those that rest; give the answers of those that have one."""
        asked = [command for command in commands if self._rests.get(command, 0.0) <= now]
        found: dict[str, object] = {}
        for command, answer in zip(asked, await client.show(asked), strict=True):
            if isinstance(answer, UnsupportedError) and command != self._interfaces:
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

    def _parsed(self, found: Mapping[str, object], command: str, parse: Callable[[object], Any]) -> Any:  # noqa: ANN401  # what it parses
        """Read the answer to a command; None where there is none, or it is of an unknown shape."""
        if command not in found:
            return None
        try:
            read = parse(found[command])
        except ValueError as error:
            self._support[command] = Support.FAILED
            self._failures.append(Failure(command, "malformed", f"{self._target.name}: {command}: {error}"))
            return None
        self._support[command] = Support.NOT_COUNTED  # unless something of it is a column
        for problem in getattr(read, "problems", ()):
            self._failures.append(Failure(command, "malformed", f"{self._target.name}: {command}: {problem}"))
        return read

    def _missing(self) -> SourceError:
        """Give the error of a poll that brought no ports."""
        for failure in self._failures:
            if failure.device == self._interfaces:
                return SourceError(failure.reason, failure.detail)
        return SourceError("empty", f"{self._target.name}: has no interface")

    def _learn_device(self, fresh: SwitchDevice) -> None:
        """Take what the switch says of itself; time that ran backwards is a restart."""
        before = self._device.uptime
        if before is not None and fresh.uptime is not None and fresh.uptime < before:
            self._restarts += 1
        self._device = fresh

    def _learn_neighbours(self, found: Mapping[str, object], parse: Callable[[object], Any]) -> None:
        heard = self._parsed(found, LLDP, parse)
        if heard is not None:
            self._neighbours = [rest_reader.neighbour(one) for one in heard]

    def _lldp(self) -> Support:
        return Support.COUNTED if self._neighbours else self._support.get(LLDP, Support.FAILED)
