"""The process that a daemon is: how late its loop is, its descriptors, its namespace, and how it ends."""

import asyncio
import logging
import os
import resource
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

logger = logging.getLogger(__name__)

THREADS = "blocking"
"""Name of the threads for single blocking calls: the look-up of a name, the file of a secret."""

THREADS_GRACE = 0.5
"""Seconds that such calls have to come back at the end."""


@dataclass(slots=True)
class Lag:
    """How late the event loop was to ticks, by the half minute: the worst of this one and of the last."""

    worst: list[float | None] = field(default_factory=lambda: [None, None])
    turned: float = field(default_factory=monotonic)

    def note(self, late: float) -> None:
        """Take one measurement."""
        self._turn()
        self.worst[0] = max(self.worst[0] or 0.0, late)

    def longest(self) -> float | None:
        """Give the longest of the last minute; None where nothing was due in it."""
        self._turn()
        return max((late for late in self.worst if late is not None), default=None)

    def _turn(self) -> None:
        passed = monotonic() - self.turned
        if passed >= 30:
            self.worst = [None, self.worst[0] if passed < 60 else None]
            self.turned = monotonic()


async def leave_what_hangs() -> None:
    """End the process when a thread does not come back: Python would wait for it for ever, and so would SIGTERM."""
    for _ in range(10):
        if not any(thread.name.startswith(THREADS) for thread in threading.enumerate()):
            return
        await asyncio.sleep(THREADS_GRACE / 10)
    logger.warning("stopped without waiting for a call that hangs: a name server or a file that does not answer")
    logging.shutdown()
    os._exit(0)


def raise_descriptor_limit() -> None:
    """Take as many descriptors as we may have: counter files stay open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def warn_of_own_namespace(procfs: Path) -> None:
    """Say it when this process is not in the host's network namespace: it would see a pod's ports, not the host's."""
    with suppress(OSError):
        if _namespace(Path("/proc/self")) != _namespace(procfs / "1"):
            logger.warning(
                "this process is not in the host's network namespace: NICs seen are those of its own; set hostNetwork"
            )


def _namespace(process: Path) -> object:
    """Tell a process's network namespace by the names of its devices: those anybody may read, the namespace root alone.

    Raises:
        OSError: There is no such process.
    """
    lines = (process / "net" / "dev").read_text().splitlines()
    return {line.partition(":")[0].strip() for line in lines if ":" in line}
