"""Questions to one device: which may have no answer, and which need not be asked again yet."""

import errno
from collections.abc import Callable, Collection
from math import inf
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from exporter.core.source import Failure
from exporter.sources.common.failures import failure_of

SLOWLY = 60.0
"""Seconds after which what rarely changes is asked again, though nothing tells that it changed."""

REFUSED = frozenset({errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL})
"""Answers that say the device has no such thing, or not now; normal, and no failure."""

Answer = TypeVar("Answer")


class _Kept(NamedTuple):
    """An answer, None for none, until when it holds, and what it depends on."""

    answer: Any
    until: float
    of: object


_LACKS = _Kept(None, inf, None)


class Asking:
    """Asks one device, and remembers what it has not: EOPNOTSUPP is the answer for as long as the device lives.

    Attributes:
        failures: Those of this read.
        settled: The questions to which the device had an answer, or told that it has none, at any time.
    """

    def __init__(self, device: str) -> None:
        """Take the device's name."""
        self.failures: list[Failure] = []
        self.settled: set[str] = set()
        self._device = device
        self._kept: dict[str, _Kept] = {}
        self._failed: set[str] = set()
        self._gone = False

    def lacks(self, what: str) -> bool:
        """Tell whether the device said for good that it has no answer."""
        return self._kept.get(what) is _LACKS

    def begin(self) -> None:
        """Begin a read: what failed at the last one may be asked again."""
        self.failures = []
        self._failed.clear()
        self._gone = False

    def ask(
        self,
        what: str,
        call: Callable[[str], Answer],
        *,
        age: float = 0.0,
        of: object = None,
        refusals: Collection[int] = REFUSED,
    ) -> Answer | None:
        """Ask, or give what was answered; a failure is noted, and the question asked again at the next read.

        Args:
            what: The question, in words.
            call: Asks; takes the device's name.
            age: Seconds that an answer holds.
            of: What the answer depends on; it holds no longer when this is another.
            refusals: Errors that are no failure. But for EOPNOTSUPP the question rests after them like an answer to
                what rarely changes.
        """
        if self._gone or what in self._failed:
            return None
        kept, now = self._kept.get(what), monotonic()
        if kept is not None and now < kept.until and (kept is _LACKS or kept.of == of):
            return kept.answer  # type: ignore[no-any-return]  # the same question gave it
        try:
            answer = call(self._device)
        except OSError as error:
            self._kept.pop(what, None)
            if error.errno == errno.EOPNOTSUPP:
                self.settled.add(what)
                self._kept[what] = _LACKS
            elif error.errno in refusals:
                self.settled.add(what)
                self._kept[what] = _Kept(None, now + SLOWLY, of)
            else:
                self._failed.add(what)
                self._gone = error.errno == errno.ENODEV  # so all else would fail, which is no news
                self.failures.append(failure_of(self._device, error, f"{self._device}: {what}"))
            return None
        self.settled.add(what)
        if age:  # thousands of statistics are not kept for nothing
            self._kept[what] = _Kept(answer, now + age, of)
        else:
            self._kept.pop(what, None)
        return answer
