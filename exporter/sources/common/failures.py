"""Exceptions to failures of one device or file, with the same reasons in every source."""

import errno
from types import MappingProxyType

from exporter.core.blocking import HungError
from exporter.core.source import Failure

_NAMES = MappingProxyType({**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP", errno.EDEADLK: "EDEADLK"})
"""Names of errors. These two have aliases, and Python's table contains the ones that the kernel does not use."""


def failure_of(device: str, error: Exception, place: object = "") -> Failure:
    """Return the failure of an exception.

    Args:
        device: The device concerned, as in `Failure`.
        error: The exception.
        place: The file or device that was read, for the log; a HungError contains it already.

    Returns:
        A failure whose reason is `timeout` for a call that hangs, the name of the errno for an error of the system,
        `malformed` for a ValueError, and `internal` for anything else.
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
