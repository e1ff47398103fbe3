"""Errors of SNMP, from a byte that does not decode to a target that does not respond."""


class SnmpError(Exception):
    """Base of all errors of this package; its text names the target, the request and the response."""


class DecodeError(SnmpError):
    """Malformed bytes; the text names the offset and what was found there."""


class SnmpTimeout(SnmpError):  # noqa: N818 - named like the timeouts of asyncio and the standard library
    """The target did not respond within the timeout."""


class SnmpUnreachable(SnmpError):  # noqa: N818 - as above
    """The network or the target's host reported an error (no route, port closed, unknown name)."""


class SnmpAuthenticationError(SnmpError):
    """The target rejects the v3 user: unknown name, wrong password or other algorithms."""
