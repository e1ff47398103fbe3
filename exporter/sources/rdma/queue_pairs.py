"""How many queue pairs each program has: asked for seldom, on the side, and only where the configuration wants it.

To list them costs the firmware a command for each, so that a busy node takes seconds. A device that takes longer than
its deadline is left alone until it has answered; meanwhile all else is read at its pace.
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic

from exporter.core.blocking import BlockingCalls
from exporter.core.source import Failure
from exporter.core.table import Column, RowKeeper, Table
from exporter.linux.netlink.rdma import QueuePairs
from exporter.linux.rdma_reader import RdmaReader
from exporter.sources.common.failures import failure_of
from exporter.sources.rdma.metrics import QUEUE_PAIRS

EVERY = 60.0
"""Seconds between two times that a device is asked."""

DEADLINE = 5.0
"""Seconds that one device may take."""

SHARE = 0.5
"""Share of the interval of reading that one device may take at most: what waits for it still has the rest."""

UNTOLD = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM})
"""What is answered where queue pairs cannot be told: no failure. After the first a device is not asked again."""

CALL = "/queue_pairs"
"""What the names of these calls have at their end; no device can be named so."""


class QueuePairsWatch:
    """Asks devices for their queue pairs, and keeps what they said."""

    def __init__(self, interval: float, place: Path, open_reader: Callable[[], RdmaReader]) -> None:
        """Take how to ask.

        Args:
            interval: Seconds between reads of the source.
            place: Where the calls go, as those of the source do.
            open_reader: Opens what is asked: one of its own, since a dump can hang.
        """
        self._serial = BlockingCalls("rdma queue pairs", min(DEADLINE, SHARE * interval), place)
        self._reader = open_reader()
        self._task: asyncio.Task[None] | None = None
        self._begun = float("-inf")
        self._found: dict[str, list[QueuePairs]] = {}
        self._lacks: dict[str, str] = {}  # GUIDs, by name, of devices that cannot tell
        self._failures: list[Failure] = []
        self._time = 0.0
        self._keeper = RowKeeper(QUEUE_PAIRS.labels)

    def begin(self, guids: Mapping[str, str]) -> None:
        """Ask the devices, by name and GUID, on the side, unless that is under way or not due."""
        self._found = {name: found for name, found in self._found.items() if name in guids}
        self._lacks = {name: guid for name, guid in self._lacks.items() if guids.get(name) == guid}
        now = monotonic()
        if now - self._begun >= EVERY and (self._task is None or self._task.done()):
            self._begun = now
            wanted = {name: guid for name, guid in guids.items() if name not in self._lacks}
            self._task = asyncio.create_task(self._ask_all(wanted), name="rdma queue pairs")

    def failures(self) -> list[Failure]:
        """Give what went wrong since this was asked last: each failure once, not for as long as it is the last word."""
        failures, self._failures = self._failures, []
        return failures

    def table(self) -> Table | None:
        """Make the table of what was told last; None where there is nothing."""
        counts: Counter[tuple[str, str, str, str]] = Counter()
        for name, found in self._found.items():
            for group in found:
                counts[name, group.command, group.type, group.state] += group.count
        if not counts:
            return None
        column = Column(QUEUE_PAIRS.metrics["queue_pairs"], list(counts.values()))
        return Table(QUEUE_PAIRS, self._keeper.rows(list(counts)), {"queue_pairs": column}, self._time)

    def close(self) -> None:
        """Stop asking; waits for nothing."""
        if self._task is not None:
            self._task.cancel()
        self._serial.close()
        self._reader.close()

    async def _ask_all(self, guids: Mapping[str, str]) -> None:
        """Ask one device after the other, so that others' calls come between them."""
        for name, guid in guids.items():
            key = name + CALL
            result = (await self._serial.run([(key, partial(self._ask, name, guid))]))[key]
            self._time = monotonic()
            self._found.pop(name, None)
            if not isinstance(result, Exception):
                self._found[name] = result
            elif not isinstance(result, OSError) or result.errno not in UNTOLD:
                self._failures.append(failure_of(name, result, "queue pairs"))
            elif result.errno == errno.EOPNOTSUPP:
                self._lacks[name] = guid

    def _ask(self, name: str, guid: str) -> list[QueuePairs]:
        """Ask one device; runs in the thread. One that netlink does not know has none, and the source says why."""
        try:
            device = self._reader.device(name, guid)
        except OSError:
            return []
        return [] if device is None else self._reader.queue_pairs(device.index)
