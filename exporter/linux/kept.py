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
"""Share of the descriptors of this process that kept files may take; scrapes, sockets and listings need the rest."""

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""Without O_NONBLOCK the opening of a FIFO that somebody left in the tree would never end."""


def open_kept(path: str | Path) -> int:
    """Open a file to be read with `os.pread(descriptor, …, 0)`.

    Raises:
        OSError: As open does; EMFILE once kept files have taken their share.
    """
    descriptor = os.open(path, _FLAGS)
    if descriptor >= SHARE * resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
        os.close(descriptor)
        raise OSError(errno.EMFILE, "too many files are open; raise the limit (ulimit -n, LimitNOFILE)", str(path))
    return descriptor


def close_kept(descriptor: int) -> None:
    """Close a descriptor; what is gone already does no harm."""
    with suppress(OSError):
        os.close(descriptor)


def read_once(path: str | Path) -> bytes | None:
    """Read a small file that is needed seldom; None where it cannot be read."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError:
        return None
    try:
        return os.pread(descriptor, SIZE, 0)
    except OSError:
        return None
    finally:
        close_kept(descriptor)


def read_text(path: str | Path) -> str:
    """Read a small file as text without its surrounding blanks; empty where it cannot be read."""
    return (read_once(path) or b"").strip(b" \t\r\n\0").decode("utf-8", "surrogateescape")
