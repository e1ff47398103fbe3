"""Queue pairs of each program: counted once a minute, beside the polls, and only if the configuration enables it.

To list them costs a firmware command for each, which takes seconds on a busy node. A device that exceeds its deadline
is not queried again until its reply has arrived; meanwhile everything else is read at its interval.
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic

from exporter.core.blocking import BlockingCalls, Turns
from exporter.core.source import Failure
from exporter.core.table import Column, RowKeeper, Table
from exporter.linux.netlink.rdma import QueuePairs
from exporter.linux.rdma_reader import RdmaReader
from exporter.sources.common.failures import failure_of
from exporter.sources.rdma.metrics import QUEUE_PAIRS

INTERVAL_SECONDS = 60.0
"""Seconds between two dumps of a device."""

DEADLINE_SECONDS = 5.0
"""Seconds that the dump of one device may take."""

MAX_INTERVAL_SHARE = 0.5
"""Maximum share of the source's interval that one device may take: polls that wait for it have the rest."""

UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM})
"""Errors where queue pairs cannot be listed: no failure. After the first of them a device is not queried again."""

CALL = "/queue_pairs"
"""Suffix of the names of these calls; no device can have such a name."""


class QueuePairPoller:
    """Dumps the queue pairs of devices, and caches the results.

    Args:
        interval: Seconds between polls of the source.
        turns: The turns of the calls, those of the source.
        open_reader: Opens the reader: one of its own, since a dump can hang.
    """

    def __init__(self, interval: float, turns: Turns, open_reader: Callable[[], RdmaReader]) -> None:
        self._serial = BlockingCalls("rdma queue pairs", min(DEADLINE_SECONDS, MAX_INTERVAL_SHARE * interval), turns)
        self._reader = open_reader()
        self._task: asyncio.Task[None] | None = None
        self._started = float("-inf")
        self._queue_pairs: dict[str, list[QueuePairs]] = {}
        self._unsupported: dict[str, str] = {}  # GUIDs, by name, of devices without this dump
        self._failures: list[Failure] = []
        self._time = 0.0
        self._keeper = RowKeeper(QUEUE_PAIRS.labels)

    def poll(self, guids: Mapping[str, str]) -> None:
        """Start to dump the devices, given by name and GUID, in a task, unless one is running or none is due."""
        self._queue_pairs = {name: found for name, found in self._queue_pairs.items() if name in guids}
        self._unsupported = {name: guid for name, guid in self._unsupported.items() if guids.get(name) == guid}
        now = monotonic()
        if now - self._started >= INTERVAL_SECONDS and (self._task is None or self._task.done()):
            self._started = now
            devices = {name: guid for name, guid in guids.items() if name not in self._unsupported}
            self._task = asyncio.create_task(self._dump_all(devices), name="rdma queue pairs")

    def take_failures(self) -> list[Failure]:
        """Return the failures since the last call: each once, not at each poll until the next dump."""
        failures, self._failures = self._failures, []
        return failures

    def table(self) -> Table | None:
        """Return the table of the cached results; None if there are none."""
        counts: Counter[tuple[str, str, str, str]] = Counter()
        for name, found in self._queue_pairs.items():
            for group in found:
                counts[name, group.command, group.type, group.state] += group.count
        if not counts:
            return None
        column = Column(QUEUE_PAIRS.metrics["queue_pairs"], list(counts.values()))
        return Table(QUEUE_PAIRS, self._keeper.rows(list(counts)), {"queue_pairs": column}, self._time)

    def close(self) -> None:
        """Cancel the task; does not wait."""
        if self._task is not None:
            self._task.cancel()
        self._serial.close()
        self._reader.close()

    async def _dump_all(self, guids: Mapping[str, str]) -> None:
        """Dump one device after the other, so that calls of the source run in between."""
        for name, guid in guids.items():
            key = name + CALL
            result = (await self._serial.run([(key, partial(self._dump, name, guid))]))[key]
            self._time = monotonic()
            self._queue_pairs.pop(name, None)
            if not isinstance(result, Exception):
                self._queue_pairs[name] = result
            elif not isinstance(result, OSError) or result.errno not in UNSUPPORTED:
                self._failures.append(failure_of(name, result, "queue pairs"))
            elif result.errno == errno.EOPNOTSUPP:
                self._unsupported[name] = guid

    def _dump(self, name: str, guid: str) -> list[QueuePairs]:
        """Dump one device; runs in the thread. A device unknown to netlink has none, and the source reports why."""
        try:
            device = self._reader.device(name, guid)
        except OSError:
            return []
        return [] if device is None else self._reader.queue_pairs(device.index)
