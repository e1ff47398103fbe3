"""The report of a probe: its course in words, as `/probe?debug=true` and `fabric-exporter probe` print it."""

from collections.abc import Iterator, Sequence

from exporter.core.source import Reading, SourceError
from exporter.sources.switch.metrics import FAMILIES
from exporter.sources.switch.options import Target

MAX_FAILURES = 200
"""Failures that a report lists; the others are only counted."""


def describe(target: Target, addresses: Sequence[str], result: Reading | SourceError | None) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        target: The switch.
        addresses: All addresses of the name that was probed; empty for a configured switch.
        result: What the switch returned; None where the probe ended before.
    """
    if addresses:
        yield f"{target.name} has the addresses {', '.join(addresses)}"
    profile = target.profile or "chosen by sysDescr and sysObjectID"
    yield f"polled {target.address} by {', '.join(target.protocols())}, profile {profile}"
    if isinstance(result, SourceError):
        yield f"{result.reason}: {result}"
    elif result is not None:
        yield from _describe_reading(result)


def _describe_reading(reading: Reading) -> Iterator[str]:
    """Yield the failures, the state of each family of counters, and the number of values of each column."""
    yield f"{len(reading.failures)} failures"
    for failure in reading.failures[:MAX_FAILURES]:
        yield f"  {failure.device or 'switch'}: {failure.reason}: {failure.detail}"
    for table in reading.tables:
        for column in table.columns.values() if table.schema is FAMILIES else ():
            for key, value in zip(table.rows.keys, column.values, strict=True):
                yield f"{key[-1]}: {', '.join(value) if isinstance(value, tuple) else value}"
    for table in reading.tables:
        way = f" by {table.part}" if table.part else ""
        rows = "1 row" if len(table.rows) == 1 else f"{len(table.rows)} rows"
        yield f"{rows} of {', '.join(table.schema.labels)}{way}"
        for ending, column in sorted(table.columns.items()):
            yield f"  {ending}: {sum(value is not None for value in column.values)}"
