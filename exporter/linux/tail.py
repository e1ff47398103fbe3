"""Tails of growing log files: the complete lines that were appended since the last scan, as `tail -F` reads them.

No file stays open between scans, so thousands of old files cost no descriptors; a file that was replaced or truncated
is detected by its inode, its size and its first bytes. An incomplete last line is left in the file until its newline
was written, so nothing is buffered in memory. Everything is bounded: files, bytes per read, the length of a line, and
the backlog.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from exporter.linux.untrusted_files import MAX_FILES, file_version, newest_regular_files, open_untrusted

MAX_LINE = 1 << 20
"""Bytes of a line; a longer one is discarded and counted."""

FILE_BUDGET = 2 * MAX_LINE
"""Bytes read of one file per scan; more than a line, so that each scan makes progress."""

MAX_BACKLOG = 64 << 20
"""Bytes of a file that may be unread. Beyond that, reading skips to near its end, as old lines are of no use."""

START_WINDOW = 256 << 10
"""Bytes before the end at which reading starts in a file that is older than the process, or whose backlog is too large.
"""

HEAD_SIZE = 128
"""First bytes by which a file is recognised; lines that begin with a timestamp make them differ."""


@dataclass(slots=True)
class FollowedFile:
    """One file, and the position up to which it was read.

    Attributes:
        path: Its path.
        inode: Device and inode at the last read.
        offset: Where the next line begins.
        history_end: Lines that end at or before this offset were written before the start: history.
        head: Its first bytes, as many as there were.
        skipping: Whether the next bytes belong to a discarded line.
        read_version: Its version (inode, size, modification time) when it was last read to the end.
        last_scan: Number of the scan at which it was last read.
    """

    path: str
    inode: tuple[int, int]
    offset: int = 0
    history_end: int = 0
    head: bytes = b""
    skipping: bool = False
    read_version: tuple[object, ...] = ()
    last_scan: int = 0


class Line(NamedTuple):
    """One line without its newline, its offset in the file, and whether it was written before the start."""

    offset: int
    text: bytes
    history: bool


class Chunk(NamedTuple):
    """The result of one read.

    Attributes:
        lines: Complete, non-empty lines.
        read: Number of bytes read.
        too_long: Offsets of lines that were discarded for their length.
        skipped: Bytes that were skipped because the backlog was too large.
        restarted: Whether reading started from the beginning, since the file was replaced or truncated.
    """

    lines: list[Line]
    read: int = 0
    too_long: tuple[int, ...] = ()
    skipped: int = 0
    restarted: bool = False


class TailScan(NamedTuple):
    """The files to read, longest unread first; the files that were removed; and the number of files over the limit."""

    grown: list[FollowedFile]
    gone: list[FollowedFile]
    too_many: int


class Tail:
    """Follows files. Not thread-safe, but `read` may run concurrently for different files."""

    def __init__(self, max_files: int = MAX_FILES, first_bytes: int = 0) -> None:
        """Create the reader.

        Args:
            max_files: Files that are followed; of more, the most recently modified.
            first_bytes: Bytes at the beginning of a file older than the process that are read as history when it is
                first seen, beside its end. With 0, such a file is not opened before it grows.
        """
        self.files: dict[str, FollowedFile] = {}
        self._max_files = max_files
        self._first_bytes = first_bytes
        self._scans = 0
        self._overflowed = False

    def scan(self, found: Mapping[str, os.stat_result]) -> TailScan:
        """Update the set of followed files.

        Files of the first scan are older than the process: only lines appended later are not history. The same applies
        to files that the limit may have excluded from the last scan.

        Args:
            found: Path and lstat result of each file; anything but regular files is skipped.
        """
        paths, excluded = newest_regular_files(found, self._max_files)
        is_history = self._scans == 0 or self._overflowed
        self._scans += 1
        self._overflowed = bool(excluded)
        followed = set(paths)
        gone = [self.files.pop(path) for path in self.files.keys() - followed]
        grown = []
        for path in paths:
            state = found[path]
            file = self.files.get(path)
            if file is None:
                file = self.files[path] = FollowedFile(path, (state.st_dev, state.st_ino))
                if is_history:
                    _start_near_end(file, state.st_size)
                    file.history_end, file.read_version = state.st_size, file_version(state)
            if file.read_version != file_version(state):
                grown.append(file)
        grown.sort(key=lambda file: (file.last_scan, file.path))
        if self._first_bytes:
            new = {file.path for file in grown}
            grown += [file for path, file in self.files.items() if file.last_scan == 0 and path not in new]
        return TailScan(grown, gone, len(excluded))

    def read(self, file: FollowedFile, budget: int = FILE_BUDGET) -> Chunk:
        """Read at most `budget` bytes from the current offset; the rest is read at the next scan.

        Raises:
            OSError: The file cannot be opened or read, or is not a regular file.
        """
        with open_untrusted(file.path) as (descriptor, state):
            restarted = _check_replaced(file, state, os.pread(descriptor, HEAD_SIZE, 0))
            if file.offset == 0:
                # A writer without O_APPEND continues at its old offset after truncation: the file begins with a hole.
                file.offset = _first_data(descriptor, state.st_size)
            skipped = 0
            if state.st_size - file.offset > MAX_BACKLOG:
                before = file.offset
                _start_near_end(file, state.st_size)
                skipped = file.offset - before
            begin = file.offset
            first = os.pread(descriptor, min(self._first_bytes, begin), 0) if file.last_scan == 0 else b""
            data = os.pread(descriptor, max(0, budget - len(first)), begin)
        lines, too_long = _split_lines(file, data)
        if first:
            lines = [*_history(first), *lines]
        file.last_scan = self._scans
        file.read_version = file_version(state) if begin + len(data) >= state.st_size else ()
        return Chunk(lines, len(first) + len(data), tuple(too_long), skipped, restarted)


def _start_near_end(file: FollowedFile, size: int) -> None:
    """Continue at the first line that begins within START_WINDOW of the end of the file."""
    file.offset = max(0, size - START_WINDOW)
    file.skipping = file.offset > 0


def _check_replaced(file: FollowedFile, state: os.stat_result, head: bytes) -> bool:
    """Return whether the file was replaced or truncated since the last read, and record what it is now."""
    inode = (state.st_dev, state.st_ino)
    restarted = inode != file.inode or state.st_size < file.offset or not head.startswith(file.head)
    file.inode, file.head = inode, head
    if restarted:
        file.offset, file.history_end, file.skipping = 0, 0, False
    return restarted


def _first_data(descriptor: int, size: int) -> int:
    """Return the offset of the first data after a hole, or the size of a file without data."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:
        return size


def _history(first: bytes) -> list[Line]:
    """Split the beginning of a file into its complete lines."""
    return _split_lines(FollowedFile("", (0, 0), history_end=len(first)), first)[0]


def _split_lines(file: FollowedFile, data: bytes) -> tuple[list[Line], list[int]]:
    """Split data into complete lines, and advance the file's offset past the last of them."""
    lines: list[Line] = []
    too_long: list[int] = []
    offset = file.offset
    texts = data.split(b"\n")
    rest = texts.pop()
    for text in texts:
        end = offset + len(text) + 1
        if file.skipping:
            file.skipping = False
        elif len(text) > MAX_LINE:
            too_long.append(offset)
        elif text := text.strip(b"\0\r"):  # a hole reads as zeros
            lines.append(Line(offset, text, end <= file.history_end))
        offset = end
    if file.skipping or len(rest) > MAX_LINE:
        if not file.skipping:
            too_long.append(offset)
        file.skipping = True
        offset += len(rest)
    file.offset = offset
    return lines, too_long
