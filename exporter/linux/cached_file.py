"""Small files that are read again and again, by descriptors that stay open.

On sysfs a `pread` at offset 0 of a kept descriptor calls the attribute's show function anew, at a twentieth of the
cost of opening, reading and closing. When the thing behind it goes, the descriptor answers ENODEV.
"""

import errno
import os
import resource
from contextlib import suppress
from pathlib import Path

SIZE = 4096
"""Bytes that are read of a file: a page, the most that sysfs gives."""

COUNTER_SIZE = 64
"""Bytes that are read of a file that holds one number or word; a smaller buffer is a cheaper read."""

SHARE = 0.75
"""Share of the descriptors of this process up to which files are kept; scrapes, sockets and listings need the rest."""

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""Without O_NONBLOCK the opening of a FIFO that somebody left in the tree would never end."""


def open_kept(path: str | Path, share: float = SHARE) -> int:
    """Open a file to be read with `os.pread(descriptor, …, 0)`.

    Args:
        path: The file.
        share: Share of the descriptors up to which it is kept: the lower, the more is left to others.

    Raises:
        OSError: As open does; EMFILE once so many are taken.
    """
    descriptor = os.open(path, _FLAGS)
    if descriptor >= share * resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
        os.close(descriptor)
        raise OSError(errno.EMFILE, "too many files are open; raise the limit (ulimit -n, LimitNOFILE)", str(path))
    return descriptor


def close_kept(descriptor: int) -> None:
    """Close a descriptor; what is gone already does no harm."""
    with suppress(OSError):
        os.close(descriptor)


def read_small(path: str | Path) -> bytes:
    """Read a small file that is needed seldom; it takes no part of what kept files may take.

    Raises:
        OSError: As open and read do.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        return os.pread(descriptor, SIZE, 0)
    finally:
        close_kept(descriptor)


def read_once(path: str | Path) -> bytes | None:
    """Read a small file that is needed seldom; None where it cannot be read."""
    try:
        return read_small(path)
    except OSError:
        return None


def read_text(path: str | Path) -> str:
    """Read a small file as text without its surrounding blanks; empty where it cannot be read."""
    return (read_once(path) or b"").strip(b" \t\r\n\0").decode("utf-8", "surrogateescape")
