"""Expected ports: whether a host has as many RDMA ports that can carry a job as the configuration expects.

A port is ready when it is up and not slower than expected. A single port that fails is visible in its own row; ports
that are gone have no row, and are therefore counted against the expected number.
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
        EXPECTED: gauge("RDMA ports that this host should have, from the configuration."),
        READY: gauge(
            "RDMA ports that are up and not slower than expected, of those that are read; absent if no number is"
            " configured."
        ),
    },
)


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that are made from tables of a schema: of ports whose number can be expected."""
    return list(SCHEMA.metrics.values()) if _has_ports(schema) else []


def _has_ports(schema: Schema) -> bool:
    return schema.prefix == SCHEMA.prefix and DEGRADED in schema.metrics


def step(state: None, table: Table) -> tuple[None, Sequence[Table]]:
    """Add a table with the number of ready ports to a table of ports; other tables pass unchanged.

    Args:
        state: None; this step has no state.
        table: Any table, after `links`.
    """
    if not _has_ports(table.schema):
        return state, (table,)
    none = [None] * len(table.rows)
    ups, degraded = table.values("link_up") or none, table.values(DEGRADED) or none
    ready = sum(up == 1 and slow != 1 for up, slow in zip(ups, degraded, strict=True))
    counted = Table(SCHEMA, _one_row(), {READY: Column(SCHEMA.metrics[READY], [ready])}, table.time, part=table.part)
    return state, (table, counted)


def summed(expected: int, tables: Sequence[Table], now: float) -> list[Table]:
    """Replace the tables that `step` made by one for the host.

    Args:
        expected: Number of ports that the host should have.
        tables: All fresh tables of the source; if there are none, no port is ready.
        now: Monotonic seconds.
    """
    others = [table for table in tables if table.schema is not SCHEMA]
    ready = sum(value for table in tables if table.schema is SCHEMA for value in table.numbers(READY) or () if value)
    values = {EXPECTED: expected, READY: ready}
    columns = {ending: Column(SCHEMA.metrics[ending], [value]) for ending, value in values.items()}
    return [*others, Table(SCHEMA, _one_row(), columns, now)]


def _one_row() -> Rows:
    """Return the rows of a table with one row, which has no labels."""
    return Rows((), [()], {})
