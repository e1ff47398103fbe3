"""Lock that lets one exporter sweep a subnet; others wait and export the name of the holder.

Between processes of one host the lock is an abstract Unix socket named after the subnet, which the kernel releases when
the process ends. Between hosts it is a locked file in a shared folder.
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

MAX_HOLDER_NAME = 200
"""Bytes of the holder's name that are written to and read from the file."""


class SubnetLock:
    """The lock of one subnet at a time."""

    def __init__(self, name: str, folder: Path | None) -> None:
        """Create a lock that is not held.

        Args:
            name: Name of this process, which others export while they wait.
            folder: Folder shared by all hosts that may sweep; None to lock within this host only.
        """
        self._name = name
        self._folder = folder
        self._subnet: str | None = None
        self._held: tuple[socket.socket, int | None] | None = None

    def acquire(self, subnet: str) -> str:
        """Acquire the lock of a subnet without waiting for it; releases the lock of another subnet.

        Args:
            subnet: Name of the subnet.

        Returns:
            Empty if the lock is held; else the name of its holder.

        Raises:
            OSError: The folder cannot be used.
        """
        if self._held is not None and subnet == self._subnet:
            return ""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        address = f"\0fabric-exporter/ib/{subnet}"
        try:
            listener.bind(address)
            listener.listen(1)
        except OSError:
            holder = _local_holder(address)
            if holder:
                listener.close()
                return holder
        file = None
        if self._folder is not None:
            try:
                file, holder = self._lock_file(self._folder / f"fabric-exporter-ib-{_UNSAFE.sub('_', subnet)}.lock")
            except OSError:
                listener.close()
                raise
            if file is None:
                listener.close()
                return holder
        self.release()
        self._subnet, self._held = subnet, (listener, file)
        return ""

    def release(self) -> None:
        """Release the lock if it is held."""
        if self._held is not None:
            listener, file = self._held
            listener.close()
            if file is not None:
                os.close(file)
            self._held = None

    def _lock_file(self, path: Path) -> tuple[int | None, str]:
        """Lock a file and write our name to it; where it is locked, return None and the name in it."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                holder = os.pread(file, MAX_HOLDER_NAME, 0).decode("utf-8", "replace").strip()
                os.close(file)
                return None, holder or "unknown"
            os.ftruncate(file, 0)
            os.pwrite(file, f"{self._name}\n".encode("utf-8", "surrogateescape")[:MAX_HOLDER_NAME], 0)
        except OSError:
            os.close(file)
            raise
        return file, ""


def _local_holder(address: str) -> str:
    """Name the local process that listens on a socket; empty for one of another user, which must not block us."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setblocking(False)
        probe.connect(address)
        pid, uid, _ = struct.unpack("iII", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return f"process {pid} of this host" if uid in {0, os.geteuid()} else ""
    return "another process of this host"
