"""Growing files of lines, read a bit at a time: what came since the last look, in whole lines.

No file stays open between looks, so thousands of old files cost no descriptors; a file that was replaced or cut is
known by its inode, its size and its first bytes. What follows the last newline is left in the file until its newline
has come, so nothing is kept in memory. All is bounded: files, bytes a read, the length of a line, and how far reading
may lag behind.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from exporter.linux.untrusted_files import file_version, open_untrusted

MAX_FILES = 4096
"""Files that are followed; of more, those written last."""

MAX_LINE = 1 << 20
"""Bytes of a line; a longer one is skipped and counted."""

FILE_BUDGET = 2 * MAX_LINE
"""Bytes read of one file at one look; more than a line, so that each look gets on."""

MAX_BACKLOG = 64 << 20
"""Bytes that reading may lag behind the end of a file. Beyond, it goes on near the end: late news is no news."""

WINDOW = 256 << 10
"""Bytes before the end at which a file is taken up that was there before the start, or that lagged too far behind."""

HEAD = 128
"""First bytes by which a file is known again; lines that begin with a time make them differ."""


@dataclass(slots=True)
class Followed:
    """One file and how far it was read.

    Attributes:
        path: Where it is.
        inode: Device and inode it had.
        offset: Where the next line begins.
        fresh_from: Lines that end at this place or before it were there before the start: history.
        head: Its first bytes, as far as they were there.
        skipping: Whether the next bytes belong to a line that is given up.
        seen: Inode, size and time of change when it was last read to the end.
        served: Number of the look at which it was last read.
    """

    path: str
    inode: tuple[int, int]
    offset: int = 0
    fresh_from: int = 0
    head: bytes = b""
    skipping: bool = False
    seen: tuple[object, ...] = ()
    served: int = 0


class Line(NamedTuple):
    """One line without its end, the place in the file where it begins, and whether it is from before the start."""

    offset: int
    text: bytes
    history: bool


class Chunk(NamedTuple):
    """What one read gave.

    Attributes:
        lines: Whole lines, empty ones left out.
        read: Bytes that were read.
        too_long: Places of lines that were skipped for their length.
        skipped: Bytes that were passed over since reading lagged too far behind.
        restarted: Whether the file was begun anew: it was replaced, or cut.
    """

    lines: list[Line]
    read: int = 0
    too_long: tuple[int, ...] = ()
    skipped: int = 0
    restarted: bool = False


class Look(NamedTuple):
    """What there is to read, those first that waited longest; the files that are gone; and how many were too many."""

    grown: list[Followed]
    gone: list[Followed]
    too_many: int


class Tail:
    """Follows files. Not for several threads at once, but `read` may run for different files."""

    def __init__(self, max_files: int = MAX_FILES) -> None:
        """Take how many files are followed at most."""
        self.files: dict[str, Followed] = {}
        self._max_files = max_files
        self._looks = 0
        self._overflowed = False

    def look(self, found: Mapping[str, os.stat_result]) -> Look:
        """Take note of the files there are now.

        Those of the first look were there before the start: of them only what grows from now on is news. The same
        goes for files that may have been among the too many of the last look.

        Args:
            found: Path and state of each, from lstat; what is no regular file is passed over.
        """
        paths = [path for path, state in found.items() if stat.S_ISREG(state.st_mode)]
        too_many = max(0, len(paths) - self._max_files)
        if too_many:
            paths = sorted(paths, key=lambda path: found[path].st_mtime_ns, reverse=True)[: self._max_files]
        old = self._looks == 0 or self._overflowed
        self._looks += 1
        self._overflowed = too_many > 0
        kept = set(paths)
        gone = [self.files.pop(path) for path in self.files.keys() - kept]
        grown = []
        for path in paths:
            state = found[path]
            one = self.files.get(path)
            if one is None:
                one = self.files[path] = Followed(path, (state.st_dev, state.st_ino))
                if old:
                    _start_near_end(one, state.st_size)
                    one.fresh_from, one.seen = state.st_size, file_version(state)
            if one.seen != file_version(state):
                grown.append(one)
        grown.sort(key=lambda one: (one.served, one.path))
        return Look(grown, gone, too_many)

    def read(self, one: Followed, budget: int = FILE_BUDGET) -> Chunk:
        """Read on, at most `budget` bytes; what is left is read the next time.

        Raises:
            OSError: The file cannot be opened or read, or is not a regular file.
        """
        with open_untrusted(one.path) as (descriptor, state):
            restarted = _known_again(one, state, os.pread(descriptor, HEAD, 0))
            if one.offset == 0:
                # A writer that does not append goes on at its old place after a cut: a hole comes first.
                one.offset = _data_from(descriptor, state.st_size)
            skipped = 0
            if state.st_size - one.offset > MAX_BACKLOG:
                before = one.offset
                _start_near_end(one, state.st_size)
                skipped = one.offset - before
            begin = one.offset
            data = os.pread(descriptor, budget, begin)
        lines, too_long = _split(one, data)
        one.served = self._looks
        one.seen = file_version(state) if begin + len(data) >= state.st_size else ()
        return Chunk(lines, len(data), tuple(too_long), skipped, restarted)


def _start_near_end(one: Followed, size: int) -> None:
    """Set a file to be read from some way before its end, from the next line that begins there."""
    one.offset = max(0, size - WINDOW)
    one.skipping = one.offset > 0


def _known_again(one: Followed, state: os.stat_result, head: bytes) -> bool:
    """Compare a file with what it was and note what it is; True where it is to be read from its beginning."""
    inode = (state.st_dev, state.st_ino)
    restarted = inode != one.inode or state.st_size < one.offset or not head.startswith(one.head)
    one.inode, one.head = inode, head
    if restarted:
        one.offset, one.fresh_from, one.skipping = 0, 0, False
    return restarted


def _data_from(descriptor: int, size: int) -> int:
    """Give the place where a file's first data is, or its size where there is none."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:
        return size


def _split(one: Followed, data: bytes) -> tuple[list[Line], list[int]]:
    """Split what was read into whole lines, and move the file on behind the last of them."""
    lines: list[Line] = []
    too_long: list[int] = []
    place = one.offset
    texts = data.split(b"\n")
    rest = texts.pop()
    for text in texts:
        end = place + len(text) + 1
        if one.skipping:
            one.skipping = False
        elif len(text) > MAX_LINE:
            too_long.append(place)
        elif text := text.strip(b"\0\r"):  # a hole is read as zeros
            lines.append(Line(place, text, end <= one.fresh_from))
        place = end
    if one.skipping or len(rest) > MAX_LINE:
        if not one.skipping:
            too_long.append(place)
        one.skipping = True
        place += len(rest)
    one.offset = place
    return lines, too_long
