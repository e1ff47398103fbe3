"""The process of a daemon: event loop lag, descriptor limit, network namespace, and exit."""

import asyncio
import gc
import logging
import os
import resource
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

logger = logging.getLogger(__name__)

THREADS = "blocking"
"""Name of the threads that run single blocking calls, such as a name lookup or the read of a secret."""

THREADS_SECONDS = 0.5
"""Seconds that such calls have to return when the process ends."""

GARBAGE_THRESHOLD = 10_000
"""Objects that are made and not freed until the garbage collector looks for cycles; 700 by default in Python."""

WINDOW_SECONDS = 30.0
"""Window of the maximum lag; the current and the last one are reported."""


@dataclass(slots=True)
class LoopLag:
    """The maximum event loop lag in the current half minute and in the last.

    Attributes:
        maxima: Of the current and of the last window; None where nothing was measured.
        since: Monotonic time at which the current window began.
    """

    maxima: list[float | None] = field(default_factory=lambda: [None, None])
    since: float = field(default_factory=monotonic)

    def note(self, seconds: float) -> None:
        """Add a measurement."""
        self._advance()
        self.maxima[0] = max(self.maxima[0] or 0.0, seconds)

    def longest(self) -> float | None:
        """Return the maximum of the last minute; None where nothing was measured."""
        self._advance()
        return max((seconds for seconds in self.maxima if seconds is not None), default=None)

    def _advance(self) -> None:
        passed = monotonic() - self.since
        if passed >= WINDOW_SECONDS:
            self.maxima = [None, self.maxima[0] if passed < 2 * WINDOW_SECONDS else None]
            self.since = monotonic()


async def exit_despite_blocked_threads() -> None:
    """Exit the process if a blocking call does not return: Python would wait for its thread without a limit."""
    for _ in range(10):
        if not any(thread.name.startswith(THREADS) for thread in threading.enumerate()):
            return
        await asyncio.sleep(THREADS_SECONDS / 10)
    logger.warning("exiting despite a blocked call: a name server or a file system does not respond")
    logging.shutdown()
    os._exit(0)


def accept_hangups() -> None:
    """Receive SIGHUP from now on, and one that is pending since the start of the program (`exporter.__main__`)."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def spend_less_on_garbage() -> None:
    """Let the garbage collector run less often, and over fewer objects: it was a third of the CPU of decoding batches.

    Modules and declarations are never freed. Most objects of a batch or a table live until the next one, and are freed
    by their reference counts.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, *gc.get_threshold()[1:])


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit: counter files are kept open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def warn_of_own_namespace(procfs: Path) -> None:
    """Log a warning if this process is not in the host's network namespace: it would read a pod's network devices."""
    with suppress(OSError):
        if _network_devices(Path("/proc/self")) != _network_devices(procfs / "1"):
            logger.warning(
                "this process is not in the host's network namespace, so that it reads the network devices of its own;"
                " set hostNetwork"
            )


def _network_devices(process: Path) -> set[str]:
    """Return the network devices that a process sees. They identify its namespace, which only root may read.

    Raises:
        OSError: There is no such process.
    """
    lines = (process / "net" / "dev").read_text().splitlines()
    return {line.partition(":")[0].strip() for line in lines if ":" in line}
