"""Errors of clients of switch APIs. None contains a password.

Each text starts with the address of the switch, except those of `sonic_db`, to which the reader adds it.
"""


class SwitchApiError(Exception):
    """A request to one switch failed; the text names the switch, its response, and often the remedy."""


class TransportError(SwitchApiError):
    """No connection, no TLS session, or the connection was closed."""


class NotConnectedError(TransportError):
    """The connection failed before any request was sent."""


class ResponseTimeoutError(TransportError):
    """No complete response within the timeout of one request."""


class InvalidResponseError(SwitchApiError):
    """The response is too large, not JSON, or not what the API specifies."""


class RefusedError(SwitchApiError):
    """The switch understood the request and refused it."""


class CommandError(RefusedError):
    """The switch refused one command or path; others may succeed.

    Attributes:
        command: the command or path as it was sent.
        message: the error message of the switch.
    """

    def __init__(self, address: str, command: str, message: str) -> None:
        super().__init__(f"{address}: {command!r} failed: {message}")
        self.command = command
        self.message = message


class UnsupportedError(CommandError):
    """The switch does not support the command or path, does not support it in this form, or has no data for it."""


class LoginError(SwitchApiError):
    """The switch rejected the credentials, or returned no usable session."""


class LoginBackoffError(LoginError):
    """No request was sent: the last log-in failed a short while ago, and another one may lock the account.

    Attributes:
        retry_after: seconds until the next log-in is tried.
    """

    def __init__(self, text: str, retry_after: float) -> None:
        super().__init__(text)
        self.retry_after = retry_after
