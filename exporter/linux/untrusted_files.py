"""Files where others may write: whoever may has perhaps left a FIFO, a device, or a link to another's file there."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY


@contextmanager
def opened(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """Open a file to be read, and close it again. Blocks.

    Yields:
        Its descriptor and its state.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        yield descriptor, state
    finally:
        os.close(descriptor)


def stamp(state: os.stat_result) -> tuple[int, int, int, int]:
    """Give what changes when a file is written or replaced."""
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
