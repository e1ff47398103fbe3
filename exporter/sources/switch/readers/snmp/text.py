"""Conversion of SNMP values to texts and numbers, tolerant of invalid ones."""

from collections.abc import Mapping

from exporter.core.source import Failure
from exporter.snmp.ber import Oid, Typed
from exporter.snmp.ber import Value as SnmpValue
from exporter.snmp.walk import WalkResult


def text_of(value: SnmpValue | None) -> str:
    """Return a value as text; invalid UTF-8 is escaped, numbers and identifiers are formatted."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape").strip("\0 \t\r\n")
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return str(value)


def number_of(value: SnmpValue | None) -> int | None:
    """Return a number; None for all other values."""
    return value if isinstance(value, int) else None


def dotted(index: Oid) -> str:
    """Format an index or identifier with dots."""
    return ".".join(map(str, index))


def value_of(values: Mapping[Oid, Typed], oid: Oid) -> SnmpValue | None:
    """Return one value of a GET; None if the agent does not have it."""
    found = values.get(oid)
    return None if found is None else found[1]


def failures_of(result: WalkResult) -> list[Failure]:
    """Return the problems of a walk as failures, by column."""
    return [Failure(dotted(one.oid), one.reason.value, str(one)) for one in result.problems]
