"""Base of the readers that run `show` commands, several in one request; unsupported commands are retried hourly.

Ports and their counters are read at each poll; neighbours and facts about the switch once a minute.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, Protocol, TypeVar

from exporter.core.source import Failure, SourceError
from exporter.sources.switch.in_thread import in_thread
from exporter.sources.switch.merge import Family, PartialTable, Support, SwitchDevice, SwitchReading
from exporter.sources.switch.options import Login, Target
from exporter.sources.switch.readers.api_reader import ApiReader, SwitchClient
from exporter.switch_api.errors import CommandError, SwitchApiError, UnsupportedError
from exporter.switch_api.neighbour import LldpNeighbour

VERSION = "show version"
LLDP = "show lldp neighbors detail"

SLOW_INTERVAL_SECONDS = 60.0
"""Between two readings of neighbours and of facts about the switch."""

UNSUPPORTED_RETRY_SECONDS = 3600.0
"""Until a command that the release does not support is tried again."""


class CommandClient(SwitchClient, Protocol):
    """A client that runs commands."""

    async def show(self, commands: Sequence[str]) -> list[object]:
        """Return the result of each command, or its CommandError."""


Client = TypeVar("Client", bound=CommandClient)


class CommandReader(ApiReader[Client], ABC):
    """Polls one switch.

    Args:
        target: The switch.
        options: Credentials and TLS settings.
        kind: Class of the client.
        interfaces: The command that reads the ports; a poll without its result fails.
    """

    def __init__(self, target: Target, options: Login, kind: type[Client], interfaces: str) -> None:
        super().__init__(target, options, kind)
        self._interfaces = interfaces
        self._slow_at = float("-inf")
        self._retry_at: dict[str, float] = {}
        self._support: dict[str, Support] = {}
        self._device = SwitchDevice()
        self._restarts = 0
        self._neighbours: list[LldpNeighbour] | None = None
        self._failures: list[Failure] = []

    async def read(self) -> SwitchReading:
        """Poll once; a command that fails affects its own columns only.

        Raises:
            SourceError: The ports could not be read.
        """
        client = await self._open_client()
        self._failures = []
        now = monotonic()
        is_slow_due = now - self._slow_at >= SLOW_INTERVAL_SECONDS
        try:
            results = await self._run(client, self._commands(is_slow_due), now)
            await self._read_additional(client, now)
        except SwitchApiError as error:
            raise await self._failed(error) from None
        parts = await in_thread(self._digest, results, now, is_slow_due)
        uptime = self._device.uptime
        device = replace(self._device, uptime=None if uptime is None else uptime + now - self._slow_at)
        return SwitchReading(device, parts, self._families(parts), self._neighbours, self._failures)

    def invalidate_neighbours(self, port: str) -> None:  # noqa: ARG002  # one command has the neighbours of all ports
        """Read the neighbours again at the next poll."""
        self._slow_at = float("-inf")

    def _digest(self, results: Mapping[str, object], now: float, is_slow_due: bool) -> list[PartialTable]:
        """Parse all results, which may be megabytes, and return the rows."""
        if is_slow_due:
            self._update_facts(results)
            self._slow_at = now
        return self._parts(results, now)

    @abstractmethod
    def _commands(self, is_slow_due: bool) -> Sequence[str]:
        """Return the commands of a poll, the most important first; with those run once a minute where they are due."""

    async def _read_additional(self, client: Client, now: float) -> None:
        """Read what the switch does not have as commands.

        Raises:
            SwitchApiError: The switch does not respond.
        """

    @abstractmethod
    def _update_facts(self, results: Mapping[str, object]) -> None:
        """Parse the results of the commands run once a minute; without a result, the last value is kept."""

    @abstractmethod
    def _parts(self, results: Mapping[str, object], now: float) -> list[PartialTable]:
        """Return the rows.

        Raises:
            SourceError: There are no ports.
        """

    @abstractmethod
    def _families(self, parts: Sequence[PartialTable]) -> dict[Family, Support]:
        """Return for each family whether it is counted, and why not."""

    async def _run(self, client: Client, commands: Sequence[str], now: float) -> dict[str, object]:
        """Run commands, except those known to be unsupported; return the results of those that have one."""
        due = [command for command in commands if self._retry_at.get(command, 0.0) <= now]
        results: dict[str, object] = {}
        for command, result in zip(due, await client.show(due), strict=True):
            if isinstance(result, UnsupportedError) and command != self._interfaces:
                self._retry_at[command] = now + UNSUPPORTED_RETRY_SECONDS
                self._support[command] = Support.UNSUPPORTED
            elif isinstance(result, CommandError):
                self._support[command] = Support.FAILED
                self._failures.append(Failure(command, "refused", str(result)))
            elif result in (None, ""):
                self._support[command] = Support.NOT_COUNTED  # the command has no output
                if command == LLDP:
                    self._neighbours = []
            else:
                results[command] = result
        return results

    def _parse(self, results: Mapping[str, object], command: str, parse: Callable[[object], Any]) -> Any:  # noqa: ANN401  # what it parses
        """Parse the result of a command; None where there is none, or it has an unknown structure."""
        if command not in results:
            return None
        try:
            parsed = parse(results[command])
        except ValueError as error:
            self._support[command] = Support.FAILED
            self._failures.append(Failure(command, "malformed", f"{self._target.name}: {command}: {error}"))
            return None
        self._support[command] = Support.NOT_COUNTED  # unless one of its values becomes a column
        for problem in getattr(parsed, "problems", ()):
            self._failures.append(Failure(command, "malformed", f"{self._target.name}: {command}: {problem}"))
        return parsed

    def _no_ports_error(self) -> SourceError:
        """Return the error of a poll without ports."""
        for failure in self._failures:
            if failure.device == self._interfaces:
                return SourceError(failure.reason, failure.detail)
        return SourceError("empty", f"{self._target.name}: the switch reports no interface")

    def _set_device(self, device: SwitchDevice) -> None:
        """Set the facts about the switch; an uptime that decreased is a restart."""
        before = self._device.uptime
        if before is not None and device.uptime is not None and device.uptime < before:
            self._restarts += 1
        self._device = device

    def _set_neighbours(self, results: Mapping[str, object], parse: Callable[[object], Any]) -> None:
        neighbours = self._parse(results, LLDP, parse)
        if neighbours is not None:
            self._neighbours = list(neighbours)

    def _lldp_support(self) -> Support:
        return Support.COUNTED if self._neighbours else self._support.get(LLDP, Support.FAILED)
