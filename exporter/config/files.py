"""Files that an operator names: read whole, and bounded, whatever they turn out to be."""

import errno
import os
import stat
from pathlib import Path


def read_regular(path: str | Path, limit: int) -> bytes:
    """Read a file that may turn out to be a pipe, which would block for ever, or a device without end.

    Raises:
        OSError: As open and read do, or it is no regular file, or larger than `limit` bytes; `strerror` says which.
        ValueError: The path holds a NUL.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(descriptor, "rb") as file:  # noqa: PTH123  # a descriptor has no path
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes", str(path))
    return content
