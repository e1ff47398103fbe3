"""Changes of the mounts that this process sees, by poll(2) on /proc/self/mountinfo.

A network namespace with a name is a mount: `ip netns` and container runtimes mount its file in /run/netns, and unmount
it when it ends. So there is a notification at both, without any other interface.
"""

import os
import select
from contextlib import suppress

MOUNTS = "/proc/self/mountinfo"


class MountEvents:
    """A descriptor that is readable once after mounts changed.

    The file itself is always readable; what a change adds is EPOLLPRI. So an epoll descriptor that waits for that alone
    is what an event loop waits for.
    """

    def __init__(self, path: str = MOUNTS) -> None:
        """Begin to watch.

        Raises:
            OSError: The kernel cannot watch this file.
        """
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._epoll = select.epoll()
            self._epoll.register(self._file, select.EPOLLPRI)
        except BaseException:
            os.close(self._file)
            raise

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._epoll.fileno()

    def clear(self) -> None:
        """Take note of the changes so far."""
        with suppress(ValueError):
            self._epoll.poll(0)

    def close(self) -> None:
        """Stop watching; idempotent."""
        if not self._epoll.closed:
            self._epoll.close()
            os.close(self._file)
