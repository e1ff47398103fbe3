"""Which resources the calls of a source in threads are using, so that its end closes no file under a running call."""

import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class InUse:
    """Names of the resources that calls are using.

    At the end the source closes what no call uses; what a call uses, even one that hangs for hours, is closed by that
    call when it returns.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: set[str] = set()
        self._has_ended = False

    @contextmanager
    def use(self, name: str, close: Callable[[str], None]) -> Iterator[None]:
        """Mark a resource as used while the context lasts; one call at a time.

        Args:
            name: Name of the resource.
            close: Closes the resource of that name; called on exit if the source ended meanwhile.

        Raises:
            OSError: ECANCELED: the source has ended already.
        """
        with self._lock:
            if self._has_ended:
                raise OSError(errno.ECANCELED, "the source has ended", name)
            self._used.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._used.discard(name)
                has_ended = self._has_ended
            if has_ended:
                close(name)

    def end(self, names: Iterable[str]) -> list[str]:
        """Refuse further use, and return those names that no call uses, for the caller to close."""
        with self._lock:
            self._has_ended = True
            return [name for name in names if name not in self._used]
