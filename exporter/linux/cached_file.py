"""Small files that are read at each poll through a descriptor that stays open: attributes of sysfs, and counters.

On sysfs a `pread` at offset 0 of an open descriptor calls the attribute's show function again, at a twentieth of the
cost of open, read and close. After its device is removed, the descriptor returns ENODEV.
"""

import errno
import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PAGE_SIZE = 4096
"""Bytes read of a file: a page, the maximum of a sysfs attribute."""

COUNTER_SIZE = 64
"""Bytes read of a file that contains one number or word; a smaller buffer makes the read cheaper."""

MAX_DIGITS = 20
"""Digits of 2^64 - 1; a longer number is not a counter."""

ABSENT = (1 << 64) - 1
"""Value that firmware returns for a counter it does not have; no counter of bytes or packets ever reaches it."""

DESCRIPTOR_SHARE = 0.75
"""Share of the process's descriptors up to which files stay open; scrapes, sockets and listings need the rest."""

COUNTERS_SHARE = 0.65
RAW_SHARE = 0.5
"""The same share for files of counters, and for counters exported under the driver's own names.

Both are lower than DESCRIPTOR_SHARE, so that thousands of counters, which a single pattern of `raw` can match, never
use up the descriptors of counters with a metric, or of the few files with link states, whichever is opened first.
"""

MAX_REFUSALS = 3
"""Consecutive reads that may fail with EINVAL before a file is suspended: the kernel logs a line for each."""

SUSPENSION_SECONDS = 3600.0
"""Seconds for which a file is suspended, unless its link comes up earlier."""

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""Without O_NONBLOCK, opening a FIFO that was left in the tree would block forever."""


def open_cached(path: str | Path, share: float = DESCRIPTOR_SHARE) -> int:
    """Open a file to be read with `os.pread(descriptor, …, 0)`.

    Args:
        path: The file.
        share: Share of the descriptors up to which it stays open; a lower one leaves more to other files.

    Raises:
        OSError: As `os.open` does; EMFILE when that share is in use.
    """
    descriptor = os.open(path, _FLAGS)
    if descriptor >= share * resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
        os.close(descriptor)
        raise OSError(errno.EMFILE, "too many files are open; raise the limit (ulimit -n, LimitNOFILE)", str(path))
    return descriptor


def close_cached(descriptor: int) -> None:
    """Close a descriptor; one that is invalid or closed already is ignored."""
    with suppress(OSError):
        os.close(descriptor)


def read_small(path: str | Path) -> bytes:
    """Read a small file that is read rarely; its descriptor does not count towards the shares of cached files.

    Raises:
        OSError: As `os.open` and `os.pread` do.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        return os.pread(descriptor, PAGE_SIZE, 0)
    finally:
        close_cached(descriptor)


def read_once(path: str | Path) -> bytes | None:
    """Read a small file that is read rarely; None if it cannot be read."""
    try:
        return read_small(path)
    except OSError:
        return None


def read_text(path: str | Path) -> str:
    """Read a small file as text without surrounding white space; empty if it cannot be read."""
    return (read_once(path) or b"").strip(b" \t\r\n\0").decode("utf-8", "surrogateescape")


@dataclass(slots=True)
class CachedFile:
    """One file with one number or word, kept open from read to read, and suspended after repeated EINVAL.

    Attributes:
        path: Its path.
        share: Share of the descriptors up to which it stays open.
        descriptor: Below 0 while it is not open.
        refusals: Consecutive reads that failed with EINVAL.
        suspended_until: Monotonic time before which it is not read.
    """

    path: str
    share: float = DESCRIPTOR_SHARE
    descriptor: int = -1
    refusals: int = 0
    suspended_until: float = 0.0

    def read(self, now: float) -> bytes:
        """Read the file, and open it if necessary; after ENODEV it is opened again at the next read.

        Raises:
            OSError: As `os.open` and `os.pread` do.
        """
        try:
            if self.descriptor < 0:
                self.descriptor = open_cached(self.path, self.share)
            text = os.pread(self.descriptor, COUNTER_SIZE, 0)
        except OSError as error:
            if error.errno == errno.ENODEV:
                self.close()
            self.refusals = self.refusals + 1 if error.errno == errno.EINVAL else 0
            if self.refusals >= MAX_REFUSALS:
                self.refusals, self.suspended_until = 0, now + SUSPENSION_SECONDS
            raise
        self.refusals = 0
        return text

    def is_suspended(self, now: float, *, link_came_up: bool) -> bool:
        """Return whether the file is not to be read now; a link that comes up ends the suspension."""
        if now < self.suspended_until and not link_came_up:
            return True
        self.suspended_until = 0.0
        return False

    def close(self) -> None:
        """Close the file."""
        close_cached(self.descriptor)
        self.descriptor = -1


def parse_counter(text: bytes) -> int | None:
    """Parse the text of a counter's file; None for a counter the device lacks: `N/A (no PMA)` and the like, or ABSENT.

    Raises:
        ValueError: It is neither.
    """
    digits = text.strip()
    if digits.isdigit() and len(digits) <= MAX_DIGITS and (value := int(digits)) < 1 << 64:
        return None if value == ABSENT else value
    if text.startswith(b"N/A"):
        return None
    raise ValueError(f"not a number: {text[:40]!r}")
