"""Expectations: are there as many ports that can carry a job as the host should have.

A port is ready when it is up and not slower than expected: by the configuration, else by its siblings. A lone port
that fails shows in its own row; ports that are gone, or all of them at once, leave no row to look at, so that they are
counted against what the configuration says.
"""

from collections.abc import Sequence

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    Metric,
    Rows,
    Schema,
    Table,
)
from exporter.core.vocabulary import gauge
from exporter.meaning.ports.links import DEGRADED

EXPECTED, READY = "ports_expected", "ports_ready"

SCHEMA = vocabulary.schema(
    "fabric_rdma_",
    (),
    own={
        EXPECTED: gauge("Ports that this host should have, from the configuration."),
        READY: gauge(
            "Ports that are up and not slower than expected, of those that are read; absent where no number is"
            " expected."
        ),
    },
)

_ROW = Rows((), [()], {})


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that are made of tables of a schema: of ports whose number can be expected."""
    return list(SCHEMA.metrics.values()) if _is_of_ports(schema) else []


def _is_of_ports(schema: Schema) -> bool:
    return schema.prefix == SCHEMA.prefix and DEGRADED in schema.metrics


def step(state: None, table: Table) -> tuple[None, Sequence[Table]]:
    """Add a table that counts the ready ports of a table of ports; others pass.

    Args:
        state: None; expectations need no memory.
        table: Any table, after the verdicts on its links.
    """
    if not _is_of_ports(table.schema):
        return state, (table,)
    none = [None] * len(table.rows)
    ups, degraded = table.values("link_up") or none, table.values(DEGRADED) or none
    ready = sum(up == 1 and slow != 1 for up, slow in zip(ups, degraded, strict=True))
    counted = Table(SCHEMA, _ROW, {READY: Column(SCHEMA.metrics[READY], [ready])}, table.time, part=table.part)
    return state, (table, counted)


def summed(expected: int, tables: Sequence[Table], now: float) -> list[Table]:
    """Put the one table of a host in the place of those that `step` made of its ports.

    Args:
        expected: Ports that the host should have.
        tables: All fresh tables of the source; none where it has nothing, and then none is ready.
        now: Monotonic seconds.
    """
    others = [table for table in tables if table.schema is not SCHEMA]
    ready = sum(value for table in tables if table.schema is SCHEMA for value in table.numbers(READY) or () if value)
    values = {EXPECTED: expected, READY: ready}
    columns = {ending: Column(SCHEMA.metrics[ending], [value]) for ending, value in values.items()}
    return [*others, Table(SCHEMA, _ROW, columns, now)]
