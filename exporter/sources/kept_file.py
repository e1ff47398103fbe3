"""A file of a device that stays open from read to read, and is left alone for a while where it only ever refuses."""

import errno
import os
from dataclasses import dataclass

from exporter.linux.kept import COUNTER_SIZE, close_kept, open_kept

TRIES = 3
"""Times running that a file may answer EINVAL before it rests: each such read makes the kernel log a line."""

REST = 3600.0
"""Seconds that a file rests, unless its link comes up first."""


@dataclass(slots=True)
class KeptFile:
    """One file that holds one number or word, and how often running it answered EINVAL."""

    path: str
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
                self.descriptor = open_kept(self.path)
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
