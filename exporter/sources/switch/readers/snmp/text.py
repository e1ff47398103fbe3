"""What an agent sent, as text or number, whatever is wrong with it."""

from collections.abc import Mapping

from exporter.core.source import Failure
from exporter.snmp.ber import Oid, Typed
from exporter.snmp.ber import Value as Wire
from exporter.snmp.walk import WalkResult


def text_of(value: Wire | None) -> str:
    """Read a text, whatever its bytes; numbers and identifiers as they are written."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape").strip("\0 \t\r\n")
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return str(value)


def number_of(value: Wire | None) -> int | None:
    """Read a number; None for all else."""
    return value if isinstance(value, int) else None


def dotted(index: Oid) -> str:
    """Write an index or identifier with dots."""
    return ".".join(map(str, index))


def single(values: Mapping[Oid, Typed], oid: Oid) -> Wire | None:
    """Give one value of a get; None where the agent lacks it."""
    found = values.get(oid)
    return None if found is None else found[1]


def failures_of(result: WalkResult) -> list[Failure]:
    """Say what a walk could not read, by column."""
    return [Failure(dotted(one.oid), one.reason.value, str(one)) for one in result.problems]
