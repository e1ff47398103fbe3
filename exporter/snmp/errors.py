"""What can go wrong with SNMP, from a byte that does not decode to a target that does not answer."""


class SnmpError(Exception):
    """Base of all errors of this package; its text names the target, what was asked and what came."""


class DecodeError(SnmpError):
    """Bytes that are not what they should be; the text names the offset and what stood there."""


class SnmpTimeout(SnmpError):  # noqa: N818 - the word says it; asyncio and the standard library name theirs alike
    """The target answered nothing within the time given."""


class SnmpUnreachable(SnmpError):  # noqa: N818 - as above
    """The network or the target's host said at once that nobody will answer (no route, port closed, unknown name)."""


class SnmpAuthenticationError(SnmpError):
    """The target does not know the user of v3, or its password or algorithms are others."""
