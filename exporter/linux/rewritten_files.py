"""Tracking of files that are rewritten as a whole: each version is read once.

A file that existed before the start is not read until it changes: it may be of a job that ended long ago. No clock is
used: a file that is only useful when complete is read when two consecutive polls find it unchanged.
"""

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.linux.untrusted_files import file_version, read_untrusted

MAX_FILES = 4096
"""Files tracked; of more, the most recently modified."""

POLL_BUDGET = 64 << 20
"""Bytes read per poll, and so per file; the remainder is read at the next poll."""


@dataclass(slots=True)
class _File:
    """A file: its state at the last poll, and the state that was last read."""

    state: tuple[int, ...]
    read_state: tuple[int, ...]


class RewrittenFiles:
    """Reports which files were rewritten since they were last read."""

    def __init__(self, *, settled: bool) -> None:
        """Create the tracker; `settled` means that a file is only read once it no longer changes."""
        self.files: dict[str, _File] = {}
        self._settled = settled
        self._polls = 0

    def update(self, found: Mapping[str, os.stat_result]) -> tuple[list[str], set[str], int]:
        """Update the files that exist.

        Args:
            found: lstat of each file by path; anything but regular files is skipped.

        Returns:
            Paths to read at this poll, paths that no longer exist, and the number of files beyond MAX_FILES.
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
                one = self.files[path] = _File((), () if self._polls else state)
            same, one.state = one.state == state, state
            if one.read_state == state or (self._settled and not same):
                continue
            if size > POLL_BUDGET:
                ready.append(path)  # reading it fails, which is reported
            elif size <= left:
                left -= size
                ready.append(path)
        self._polls += 1
        return ready, gone, too_many

    def read(self, path: str) -> bytes:
        """Read a file and mark this version as read.

        Raises:
            OSError: It cannot be read, or exceeds POLL_BUDGET (EFBIG).
        """
        one = self.files[path]
        one.read_state = one.state
        data, _ = read_untrusted(path, POLL_BUDGET)
        if len(data) > POLL_BUDGET:
            raise OSError(errno.EFBIG, f"more than {POLL_BUDGET} bytes")
        return data
