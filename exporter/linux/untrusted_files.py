"""Files in folders that other users may write to: a path may be a FIFO, a device, or a link to another user's file."""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

MAX_FILES = 4096
"""Files of one kind that are followed; of more, the most recently modified."""

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY


@contextmanager
def open_untrusted(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file for reading while the context lasts, without following a link. Blocks.

    Yields:
        Its descriptor and its status.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        yield descriptor, status
    finally:
        os.close(descriptor)


def read_untrusted(path: str, limit: int) -> tuple[bytes, os.stat_result]:
    """Read the first bytes of a file. Blocks.

    Returns:
        Its content, one byte more than `limit` if it is larger, and its status.

    Raises:
        OSError: The file cannot be opened or read, or is not a regular file.
    """
    with open_untrusted(path) as (descriptor, status), open(descriptor, "rb", closefd=False) as file:
        return file.read(limit + 1), status


class NewestFiles(NamedTuple):
    """Paths of the selected files, and of those beyond the limit, the most recently modified first."""

    selected: list[str]
    excluded: list[str]


def newest_regular_files(found: Mapping[str, os.stat_result], limit: int) -> NewestFiles:
    """Select regular files, of too many the most recently modified.

    Args:
        found: lstat of each file by path.
        limit: Number of files.
    """
    paths = [path for path, status in found.items() if stat.S_ISREG(status.st_mode)]
    if len(paths) <= limit:
        return NewestFiles(paths, [])
    paths.sort(key=lambda path: found[path].st_mtime_ns, reverse=True)
    return NewestFiles(paths[:limit], paths[limit:])


def file_version(status: os.stat_result) -> tuple[int, int, int, int]:
    """Return a tuple that changes when the file is written or replaced."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
