"""Queries to one network device, with a cache: of unsupported requests, and of answers that rarely change."""

import errno
from collections.abc import Callable, Collection
from math import inf
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from exporter.core.source import Failure
from exporter.sources.common.failures import failure_of

SETTINGS_MAX_AGE_SECONDS = 60.0
"""Age at which settings are read again without a link event."""

REFUSED_ERRNOS = frozenset({errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL})
"""Errors of requests that the device does not support, or not in its current state; they are not failures."""

Answer = TypeVar("Answer")


class _CachedAnswer(NamedTuple):
    """An answer (None if refused), the time until which it is valid, and the state of the link that it depends on."""

    answer: Any
    valid_until: float
    link_state: object


_UNSUPPORTED = _CachedAnswer(None, inf, None)


class DeviceQueries:
    """Sends queries to one device, and caches EOPNOTSUPP for the lifetime of the device.

    Attributes:
        failures: Those of the current read.
        answered: The queries that were ever answered or refused, but not failed.
    """

    def __init__(self, device: str) -> None:
        self.failures: list[Failure] = []
        self.answered: set[str] = set()
        self._device = self._kernel_name = device
        self._cache: dict[str, _CachedAnswer] = {}
        self._failed: set[str] = set()
        self._is_removed = False

    def is_unsupported(self, query: str) -> bool:
        """Return whether the device answered a query with EOPNOTSUPP."""
        return self._cache.get(query) is _UNSUPPORTED

    def start_read(self, kernel_name: str) -> None:
        """Clear the failures: queries that failed in the previous read may be sent again.

        Args:
            kernel_name: Name of the device in the namespace of the reader: that of a moved one is not its own.
        """
        self.failures = []
        self._kernel_name = kernel_name
        self._failed.clear()
        self._is_removed = False

    def query(
        self,
        query: str,
        call: Callable[[str], Answer],
        *,
        max_age: float = 0.0,
        link_state: object = None,
        refused_errnos: Collection[int] = REFUSED_ERRNOS,
    ) -> Answer | None:
        """Return the cached or a new answer; a failure is recorded, and the query sent again in the next read.

        Args:
            query: Name of the query.
            call: Sends it; called with the device's name in the namespace of the reader.
            max_age: Seconds for which an answer is valid; 0 for no cache.
            link_state: What the answer depends on; a cached answer is valid only while this is equal.
            refused_errnos: Errors that are not failures. Except for EOPNOTSUPP, the query is sent again after
                SETTINGS_MAX_AGE_SECONDS.
        """
        if self._is_removed or query in self._failed:
            return None
        cached, now = self._cache.get(query), monotonic()
        if (
            cached is not None
            and now < cached.valid_until
            and (cached is _UNSUPPORTED or cached.link_state == link_state)
        ):
            return cached.answer  # type: ignore[no-any-return]  # from the same query
        try:
            answer = call(self._kernel_name)
        except OSError as error:
            self._cache.pop(query, None)
            if error.errno == errno.EOPNOTSUPP:
                self.answered.add(query)
                self._cache[query] = _UNSUPPORTED
            elif error.errno in refused_errnos:
                self.answered.add(query)
                self._cache[query] = _CachedAnswer(None, now + SETTINGS_MAX_AGE_SECONDS, link_state)
            else:
                self._failed.add(query)
                self._is_removed = error.errno == errno.ENODEV  # all other queries would fail too
                self.failures.append(failure_of(self._device, error, f"{self._device}: {query}"))
            return None
        self.answered.add(query)
        if max_age:  # the thousands of statistics, read each time, take no memory
            self._cache[query] = _CachedAnswer(answer, now + max_age, link_state)
        else:
            self._cache.pop(query, None)
        return answer
