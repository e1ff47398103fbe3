"""A file of a device that stays open from read to read, and is left alone for a while where it only ever refuses."""

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from exporter.linux.cached_file import (
    COUNTER_SIZE,
    SHARE,
    close_kept,
    open_kept,
)

TRIES = 3
"""Times running that a file may answer EINVAL before it rests: each such read makes the kernel log a line."""

COUNTERS_SHARE = 0.65
RAW_SHARE = 0.5
"""Shares of the descriptors up to which counters are kept open, and those under drivers' own names.

Both are below that of all others, so that thousands of counters, which one pattern of `raw` can name, crowd out
neither what has a metric nor the few files that tell of links and bursts, whichever is opened first.
"""

REST = 3600.0
"""Seconds that a file rests, unless its link comes up first."""


@dataclass(slots=True)
class KeptFile:
    """One file that holds one number or word, and how often running it answered EINVAL.

    Attributes:
        path: Where it is.
        share: Share of the descriptors up to which it is kept open.
        descriptor: Below 0 while it is not open.
        refusals: How often running it answered EINVAL.
        rests_until: Monotonic time before which it is left alone.
    """

    path: str
    share: float = SHARE
    descriptor: int = -1
    refusals: int = 0
    rests_until: float = 0.0

    def read(self, now: float) -> bytes:
        """Read the file, opening it where it is not open; one whose device went is opened anew next time.

        Raises:
            OSError: As open and read do.
        """
        try:
            if self.descriptor < 0:
                self.descriptor = open_kept(self.path, self.share)
            text = os.pread(self.descriptor, COUNTER_SIZE, 0)
        except OSError as error:
            if error.errno == errno.ENODEV:
                self.close()
            self.refusals = self.refusals + 1 if error.errno == errno.EINVAL else 0
            if self.refusals >= TRIES:
                self.refusals, self.rests_until = 0, now + REST
            raise
        self.refusals = 0
        return text

    def rests(self, now: float, *, came_up: bool) -> bool:
        """Tell whether the file is to be left alone; its rest is over after a while, or when the link comes up."""
        if now < self.rests_until and not came_up:
            return True
        self.rests_until = 0.0
        return False

    def close(self) -> None:
        """Close the file."""
        close_kept(self.descriptor)
        self.descriptor = -1


class InUse:
    """What calls in threads use, so that a source that ends takes no file from under a call, and leaves none open.

    What no call uses is closed by the source; what a call uses, though it hung for hours, by that call at its end.
    """

    def __init__(self) -> None:
        """Start with nothing in use."""
        self._lock = threading.Lock()
        self._used: set[str] = set()
        self._has_ended = False

    @contextmanager
    def use(self, name: str, close: Callable[[str], None]) -> Iterator[None]:
        """Use something for as long as the context lasts; one call at a time.

        Args:
            name: Its name.
            close: Closes what has that name; called at the end if the source ended meanwhile.

        Raises:
            OSError: ECANCELED: it ended before.
        """
        with self._lock:
            if self._has_ended:
                raise OSError(errno.ECANCELED, "the source has ended", name)
            self._used.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._used.discard(name)
                has_ended = self._has_ended
            if has_ended:
                close(name)

    def end(self, names: Iterable[str]) -> list[str]:
        """End: nothing is used any more but what is in use; give those names that are not, to be closed."""
        with self._lock:
            self._has_ended = True
            return [name for name in names if name not in self._used]
