"""One sweeper for a subnet: whoever comes second finds the first by name, and waits.

Processes of one host find each other by a socket with a name that is the subnet's; the kernel lets go of it whatever
becomes of the process. Those of several hosts do by a file that is locked, in a folder that all of them share.
"""

import contextlib
import errno
import fcntl
import os
import re
import socket
import struct
from pathlib import Path

_UNSAFE = re.compile(r"[^0-9A-Za-z._-]")

MAX_NAME = 200
"""Bytes of a holder's name that are read."""


class Lock:
    """The right to sweep one subnet, held or not."""

    def __init__(self, name: str, folder: Path | None) -> None:
        """Take where the right is to be had.

        Args:
            name: Name of this process, for those that wait.
            folder: Folder that all hosts which may sweep share; None for this host alone.
        """
        self._name = name
        self._folder = folder
        self._subnet: str | None = None
        self._held: tuple[socket.socket, int | None] | None = None

    def take(self, subnet: str) -> str:
        """Take the right to a subnet, or learn who has it. Blocks for a moment.

        Args:
            subnet: What tells it from others.

        Returns:
            Empty when it is held here; else the name of the holder.

        Raises:
            OSError: The folder cannot be used.
        """
        if self._held is not None and subnet == self._subnet:
            return ""
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        address = f"\0fabric-exporter/ib/{subnet}"
        try:
            ours.bind(address)
            ours.listen(1)
        except OSError:
            holder = _holder_here(address)
            if holder:
                ours.close()
                return holder
        file = None
        if self._folder is not None:
            try:
                file, holder = self._lock_file(self._folder / f"fabric-exporter-ib-{_UNSAFE.sub('_', subnet)}.lock")
            except OSError:
                ours.close()
                raise
            if file is None:
                ours.close()
                return holder
        self.release()
        self._subnet, self._held = subnet, (ours, file)
        return ""

    def release(self) -> None:
        """Let others sweep."""
        if self._held is not None:
            ours, file = self._held
            ours.close()
            if file is not None:
                os.close(file)
            self._held = None

    def _lock_file(self, path: Path) -> tuple[int | None, str]:
        """Lock a file and put our name in it; or give the name that is in it."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                holder = os.pread(file, MAX_NAME, 0).decode("utf-8", "replace").strip()
                os.close(file)
                return None, holder or "unknown"
            os.ftruncate(file, 0)
            os.pwrite(file, f"{self._name}\n".encode("utf-8", "surrogateescape")[:MAX_NAME], 0)
        except OSError:
            os.close(file)
            raise
        return file, ""


def _holder_here(address: str) -> str:
    """Name the process of this host that holds a socket; empty where it is of another user, who must not stop us."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as asked:
        asked.setblocking(False)
        asked.connect(address)
        pid, uid, _ = struct.unpack("iII", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return f"process {pid} of this host" if uid in {0, os.geteuid()} else ""
    return "another process of this host"
