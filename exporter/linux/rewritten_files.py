"""Tracking of files that are rewritten as a whole: each version is read once.

A file that existed before the start is not read until it changes: it may be of a job that ended long ago. No clock is
used: a file that is only useful when complete is read when two consecutive polls find it unchanged.
"""

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from exporter.linux.untrusted_files import MAX_FILES, file_version, newest_regular_files, read_untrusted

POLL_BUDGET = 64 << 20
"""Bytes read per poll, and so per file; the remainder is read at the next poll."""


@dataclass(slots=True)
class _File:
    """A file: its version at the last poll, the version that was last read, and the number of the poll that read it."""

    version: tuple[int, ...]
    read_version: tuple[int, ...]
    last_poll: int = 0


class RewrittenScan(NamedTuple):
    """Paths to read, longest unread first; paths that no longer exist; and the number of files over the limit."""

    ready: list[str]
    gone: set[str]
    too_many: int


class RewrittenFiles:
    """Reports which files were rewritten since they were last read."""

    def __init__(self, *, settled: bool, max_files: int = MAX_FILES) -> None:
        """Create the tracker.

        Args:
            settled: Whether a file is only read once it no longer changes.
            max_files: Files that are tracked; of more, the most recently modified.
        """
        self.files: dict[str, _File] = {}
        self._settled = settled
        self._max_files = max_files
        self._polls = 0
        self._excluded_until = -1

    def update(self, found: Mapping[str, os.stat_result]) -> RewrittenScan:
        """Update the files that exist.

        Files of the first poll are older than the process. So are those that the limit may have excluded from the last
        poll and that have not changed since: they are not newer than the newest excluded file.

        Args:
            found: lstat of each file by path; anything but regular files is skipped.
        """
        paths, excluded = newest_regular_files(found, self._max_files)
        is_first, excluded_until = self._polls == 0, self._excluded_until
        self._polls += 1
        self._excluded_until = found[excluded[0]].st_mtime_ns if excluded else -1
        gone = self.files.keys() - set(paths)
        for path in gone:
            del self.files[path]
        changed = []
        for path in paths:
            version = file_version(found[path])
            one = self.files.get(path)
            if one is None:
                is_old = is_first or found[path].st_mtime_ns <= excluded_until
                one = self.files[path] = _File((), version if is_old else ())
            is_same, one.version = one.version == version, version
            if one.read_version != version and (is_same or not self._settled):
                changed.append(path)
        changed.sort(key=lambda path: (self.files[path].last_poll, path))
        return RewrittenScan(_within_budget(changed, found), gone, len(excluded))

    def read(self, path: str) -> bytes:
        """Read a file and mark this version as read.

        Raises:
            OSError: It cannot be read, or exceeds POLL_BUDGET (EFBIG).
        """
        one = self.files[path]
        one.read_version, one.last_poll = one.version, self._polls
        data, _ = read_untrusted(path, POLL_BUDGET)
        if len(data) > POLL_BUDGET:
            raise OSError(errno.EFBIG, f"more than {POLL_BUDGET} bytes")
        return data


def _within_budget(paths: list[str], found: Mapping[str, os.stat_result]) -> list[str]:
    """Return the files that POLL_BUDGET suffices for, and those that exceed it: reading them fails, which is reported.

    A file that does not fit now is further ahead at a later poll.
    """
    ready, left = [], POLL_BUDGET
    for path in paths:
        size = found[path].st_size
        if size <= left or size > POLL_BUDGET:
            ready.append(path)
            left -= size if size <= left else 0
    return ready
