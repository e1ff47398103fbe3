"""Reading of files that an operator names: regular files only, of bounded size."""

import errno
import os
import stat
from pathlib import Path


def read_regular(path: str | Path, limit: int) -> bytes:
    """Return the content of a regular file; a pipe, which would block for ever, or an endless device is rejected.

    Raises:
        OSError: From open and read, or the file is not a regular file or larger than `limit` bytes; see
            `strerror`.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "the name contains a NUL", str(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(descriptor, "rb") as file:  # noqa: PTH123  # a descriptor has no path
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes", str(path))
    return content
