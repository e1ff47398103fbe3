"""The targets of probes, and their state between probes."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic

from exporter.core.poller import Poller
from exporter.core.source import Reading, SourceError
from exporter.sources.switch.options import Target
from exporter.sources.switch.source import SwitchSource


@dataclass(frozen=True, slots=True)
class ResolvedTarget:
    """A target with the options to poll it.

    Attributes:
        target: The switch.
        addresses: All addresses of the name that was probed; empty for a configured switch.
    """

    target: Target
    addresses: tuple[str, ...] = ()


class RecordingSource:
    """A switch source that stores its last result for the report."""

    def __init__(self, source: SwitchSource) -> None:
        self.name, self.target, self.interval = source.name, source.target, source.interval
        self.changed: asyncio.Event | None = None
        self.settings: object = source.settings
        self.source = source
        self.last: Reading | SourceError | None = None

    async def applies(self) -> bool:
        """Return True: a probed switch is always polled."""
        return True

    async def read(self) -> Reading:
        """Read the switch, and store the result."""
        self.last = None
        try:
            self.last = await self.source.read()
        except SourceError as error:
            self.last = error
            raise
        return self.last

    async def close(self) -> None:
        """Close the switch source."""
        await self.source.close()


@dataclass(slots=True)
class CachedTarget:
    """The state of a target between its probes.

    Attributes:
        resolved: The target.
        limit: Time limit in seconds that the source was built for.
        source: Its source.
        poller: Its poller, which has the state for rates.
        used: Monotonic time of the last probe.
        running: The poll in progress.
    """

    resolved: ResolvedTarget
    limit: float
    source: RecordingSource
    poller: Poller
    used: float = field(default_factory=monotonic)
    running: asyncio.Task[None] | None = None
