"""Network namespaces: their identity, and calls that a thread of its own makes in them.

setns(2) changes the namespace of one thread only. A thread that has entered another namespace is used for nothing else
and ends, so that no later call runs in the wrong one. A socket stays in the namespace that it was opened in.
"""

import ctypes
import os
import stat
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

CLONE_NEWNET = 0x40000000
"""Type of a network namespace in include/uapi/linux/sched.h."""

OWN = "/proc/self/ns/net"
"""The network namespace of this process."""

Result = TypeVar("Result")


class NamespaceKey(NamedTuple):
    """Device and inode of a namespace's file in nsfs: equal for all paths that lead to the namespace."""

    device: int
    inode: int


def namespace_key(path: str) -> NamespaceKey:
    """Return the identity of the file that a path leads to, which may not be a namespace.

    Raises:
        OSError: There is no such file, or it must not be seen.
    """
    found = os.stat(path)  # noqa: PTH116  # thousands of them
    return NamespaceKey(found.st_dev, found.st_ino if stat.S_ISREG(found.st_mode) else 0)


def in_namespaces(
    paths: Mapping[NamespaceKey, str], call: Callable[[], Result], name: str
) -> dict[NamespaceKey, Result | OSError]:
    """Make a call in each namespace, in a thread that ends thereafter; blocks.

    The files of the namespaces are open only while the thread is in them.

    Args:
        paths: A path that leads to each namespace. Another namespace that it leads to by now is not entered.
        call: Called once in each.
        name: Name of the thread.

    Returns:
        For each namespace what the call returned, or why it could not be made. After the first EPERM of setns, which
        needs CAP_SYS_ADMIN, no other is tried, and all the others have the same error.
    """
    results: dict[NamespaceKey, Result | OSError] = {}
    refused: list[PermissionError] = []

    def visit() -> None:
        for key, path in paths.items():
            try:
                if refused:
                    raise refused[0]
                _enter(path, key, refused)
                results[key] = call()
            except OSError as error:
                results[key] = error

    thread = threading.Thread(target=visit, name=name, daemon=True)
    thread.start()
    thread.join()
    return results


def _enter(path: str, key: NamespaceKey, refused: list[PermissionError]) -> None:
    """Move this thread into a namespace."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != key:
            raise FileNotFoundError(path)
        try:
            _setns(descriptor, path)
        except PermissionError as error:
            refused.append(error)
            raise
    finally:
        os.close(descriptor)


def _setns(descriptor: int, path: str) -> None:
    """Call setns(2); os.setns is new in Python 3.12."""
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
