"""Files that are written anew as a whole: each is given once for each time that it was.

Of a file that was there before the start nothing is news until it changes: it may be that of a job long dead. No
clock is asked: a file whose half is of no use is given when two looks in a row find it the same.
"""

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.linux.untrusted_files import file_version, open_untrusted

MAX_FILES = 4096
"""Files that are told apart; of more, those written last."""

POLL_BUDGET = 64 << 20
"""Bytes read at one poll, and so of one file; what is left waits for the next."""


@dataclass(slots=True)
class _File:
    """A file: its state at the last look, and that which was given last."""

    state: tuple[int, ...]
    given: tuple[int, ...]


class Dumps:
    """Tells which files were written anew."""

    def __init__(self, *, settled: bool) -> None:
        """Take whether files are of use only when they no longer change."""
        self.files: dict[str, _File] = {}
        self._settled = settled
        self._looks = 0

    def look(self, found: Mapping[str, os.stat_result]) -> tuple[list[str], set[str], int]:
        """Take note of the files there are now.

        Args:
            found: Path and state of each, from lstat; what is no regular file is passed over.

        Returns:
            Those to read at this poll, those that are gone, and how many were too many.
        """
        paths = [path for path, state in found.items() if stat.S_ISREG(state.st_mode)]
        too_many = max(0, len(paths) - MAX_FILES)
        if too_many:
            paths = sorted(paths, key=lambda path: found[path].st_mtime_ns, reverse=True)[:MAX_FILES]
        gone = self.files.keys() - set(paths)
        for path in gone:
            del self.files[path]
        ready, left = [], POLL_BUDGET
        for path in paths:
            state, size = file_version(found[path]), found[path].st_size
            one = self.files.get(path)
            if one is None:
                one = self.files[path] = _File((), () if self._looks else state)
            same, one.state = one.state == state, state
            if one.given == state or (self._settled and not same):
                continue
            if size > POLL_BUDGET:
                ready.append(path)  # its reading fails, and so that is told
            elif size <= left:
                left -= size
                ready.append(path)
        self._looks += 1
        return ready, gone, too_many

    def read(self, path: str) -> bytes:
        """Read a file; it is not given again until it changes.

        Raises:
            OSError: It cannot be read, or is larger than what is read at one poll (EFBIG).
        """
        one = self.files[path]
        one.given = one.state
        with open_untrusted(path) as (descriptor, state):
            if state.st_size > POLL_BUDGET:
                raise OSError(errno.EFBIG, f"{state.st_size} bytes; at most {POLL_BUDGET} are read")
            parts, left = [], POLL_BUDGET
            while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
                parts.append(part)
                left -= len(part)
            return b"".join(parts)
