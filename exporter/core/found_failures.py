"""Failures that a step of meaning finds, such as a value that others contradict: a table from the step to the poller.

The table has an internal schema, so that later steps pass it unchanged and it is never exported; the poller counts and
logs its rows beside the failures of the source.
"""

from collections.abc import Sequence

from exporter.core import vocabulary
from exporter.core.source import Failure
from exporter.core.table import Column, Rows, Table
from exporter.core.vocabulary import info

_DETAIL = "failure_info"

SCHEMA = vocabulary.schema(
    "fabric_source_",
    ("device", "reason"),
    own={_DETAIL: info("What a step of meaning found wrong.", "detail")},
    internal=True,
)


def failure_table(failures: Sequence[Failure], time: float) -> Table:
    """Return the table of failures, of which there is one for each device and reason."""
    rows = Rows(SCHEMA.labels, [(one.device, one.reason) for one in failures], {})
    column = Column(SCHEMA.metrics[_DETAIL], [(one.detail,) for one in failures])
    return Table(SCHEMA, rows, {_DETAIL: column}, time)


def failures_in(table: Table) -> list[Failure]:
    """Return the failures of a table of SCHEMA."""
    return [
        Failure(device, reason, str(detail[0]))
        for (device, reason), detail in zip(table.rows.keys, table.values(_DETAIL) or (), strict=True)
        if isinstance(detail, tuple)
    ]
