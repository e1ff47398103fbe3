"""What goes wrong with one device or file, in the words of all sources."""

import errno

from exporter.core.blocking import HungError
from exporter.core.source import Failure

_NAMES = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP", errno.EDEADLK: "EDEADLK"}
"""Names of errors. Of these two, each of which has another, Python gives the name that the kernel does not use."""


def failure_of(device: str, error: Exception, place: object = "") -> Failure:
    """Say what went wrong.

    Args:
        device: What it concerns, as `Failure` has it.
        error: What was raised.
        place: The file or device that was asked, for the log; a call that hung names it itself.

    Returns:
        A failure whose reason is `timeout` for a call that hangs, the name of the errno of what the system refused,
        `malformed` for what made no sense, and `internal` for anything else.
    """
    if isinstance(error, HungError):
        return Failure(device, "timeout", str(error))
    detail = str(error)
    if isinstance(error, OSError) and error.errno is not None:
        reason, detail = _NAMES.get(error.errno, "oserror").lower(), error.strerror or detail
    elif isinstance(error, ValueError):
        reason = "malformed"
    else:
        reason, detail = "internal", f"{type(error).__name__}: {detail}"
    return Failure(device, reason, f"{place}: {detail}" if place else detail)
