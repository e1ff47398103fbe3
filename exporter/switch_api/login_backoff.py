"""Exponential backoff of failed log-ins, so that polling does not lock an account."""

import time
from collections.abc import Callable

from exporter.switch_api.errors import LoginBackoffError

MIN_BACKOFF_SECONDS = 60.0
MAX_BACKOFF_SECONDS = 3600.0
"""Seconds without a log-in after the first failure, doubled with each further one up to the maximum."""


class LoginBackoff:
    """Failed log-ins of one account at one switch.

    A log-in counts as failed from `begin` until `succeeded` is called: one that is cancelled, or gets no response,
    counts as well.
    """

    def __init__(self, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._failed = 0
        self._suspended_until = float("-inf")
        self._last_error = ""

    def begin(self) -> None:
        """Record that a password is about to be sent.

        Raises:
            LoginBackoffError: it is too early; nothing must be sent.
        """
        remaining = self._suspended_until - self._clock()
        if self._failed and remaining > 0:
            raise LoginBackoffError(
                f"{self._address}: log-in suspended for another {remaining:.0f} s after {self._failed} failed "
                f"(last error: {self._last_error}), so that the account is not locked",
                remaining,
            )
        backoff = min(MIN_BACKOFF_SECONDS * 2.0 ** min(self._failed, 10), MAX_BACKOFF_SECONDS)
        self._suspended_until = self._clock() + backoff
        self._failed += 1
        self._last_error = "no response"

    def not_sent(self) -> None:
        """Undo the last `begin`: there was no connection, so no password was sent."""
        self._failed = max(0, self._failed - 1)
        self._suspended_until = float("-inf")  # it had expired, or `begin` would have raised

    def failed(self, reason: str) -> None:
        """Record the error of the last log-in, without the address of the switch."""
        self._last_error = reason.removeprefix(f"{self._address}: ")

    def succeeded(self) -> None:
        """Record that the switch accepts the password: the next failure counts as the first."""
        self._failed = 0
