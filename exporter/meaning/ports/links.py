"""Links: is each as fast as it should be.

What is expected of a link is what its source knows of both its ends, else what the configuration says, else the most
that its own hardware can do, else the best speed among its siblings. A table whose source knows it of one link is
measured by that alone. Only network devices that carry RDMA tell of their
hardware, so that RDMA ports are measured against the configuration or their siblings: where all are slow alike, the
verdict is the network devices'. The uplinks of a switch are siblings. Its ports to hosts are not: a leaf may have fast
ones for GPUs beside slow ones for storage by design, and the host's own end of such a link tells. A port of which none
of these is known, and one that is down, get no verdict. Lanes are not judged apart: a link that lost some is slower.
"""

from collections.abc import Sequence

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    Metric,
    Schema,
    Table,
)
from exporter.core.vocabulary import EXPECTED_SPEED

DEGRADED = "link_degraded"

UNLIKE = frozenset({"host"})
"""Kinds whose rows need not be of one speed."""

TOLERANCE = 0.99
"""Share of the expected speed that still counts as all of it: some agents round."""


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` adds to tables of a schema: those that the schema declares."""
    return [schema.metrics[ending] for ending in (EXPECTED_SPEED, DEGRADED) if ending in schema.metrics]


def step(expected: float | None, of_carriers: float | None, state: None, table: Table) -> tuple[None, Sequence[Table]]:
    """Add the expected speed and the verdict to tables whose schema has them.

    Args:
        expected: Bytes per second from the configuration, or None to ask the hardware and the siblings.
        of_carriers: The same of rows that tell what their hardware can do: network devices that carry RDMA.
        state: None; links need no memory.
        table: Any table.
    """
    speeds = table.numbers(vocabulary.SPEED)
    if speeds is None or EXPECTED_SPEED not in table.schema.metrics:
        return state, (table,)
    wanted = table.numbers(EXPECTED_SPEED)
    if wanted is None:
        wanted = [expected] * len(speeds) if expected is not None else _possible(table, speeds, of_carriers)
    degraded = [
        None if speed is None or want is None else int(speed < want * TOLERANCE)
        for speed, want in zip(speeds, wanted, strict=True)
    ]
    metrics = table.schema.metrics
    return state, (table.with_columns([Column(metrics[EXPECTED_SPEED], wanted), Column(metrics[DEGRADED], degraded)]),)


def _possible(table: Table, speeds: Sequence[float | None], of_carriers: float | None) -> list[float | None]:
    """Give each row the most that its hardware can do, where that is known, else the best of its siblings."""
    siblings = _best_of_siblings(table, speeds)
    own = table.numbers(vocabulary.MAX_SPEED)
    if own is None:
        return siblings
    return [best if most is None else (of_carriers or most) for most, best in zip(own, siblings, strict=True)]


def _best_of_siblings(table: Table, speeds: Sequence[float | None]) -> list[float | None]:
    """Give each row the highest speed among the rows of its kind, where it has siblings whose speed is known."""
    if table.kinds is None:
        return [None] * len(speeds)
    known: dict[str, list[float]] = {}
    for kind, speed in zip(table.kinds, speeds, strict=True):
        if kind is not None and kind not in UNLIKE and speed is not None:
            known.setdefault(kind, []).append(speed)
    best = {kind: max(found) for kind, found in known.items() if len(found) > 1}
    return [None if kind is None else best.get(kind) for kind in table.kinds]
