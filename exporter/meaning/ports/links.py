"""Links: whether each is as fast as expected.

The expected speed of a link is the one that its source knows from both ends; else the configured one; else the highest
that the port's hardware supports; else the highest that at least two of its siblings have, whose traffic does not
exceed it. If the source of a table knows it for one link,
all rows of that table are compared with the source's value only. Only network devices that carry RDMA report the speed
of their hardware; RDMA ports are compared with the configuration or their siblings, and where all are equally slow, the
network devices show it. The uplinks of a switch are siblings. Its ports to hosts are not: a leaf may have fast ones for
GPUs beside slow ones for storage by design, and the host's end of such a link is checked on the host. A port without an
expected speed, and one that is down, is not rated. Lanes are not compared separately: a link that lost some is slower.
"""

from collections.abc import Sequence
from itertools import pairwise

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    Metric,
    Schema,
    Table,
)
from exporter.core.vocabulary import EXPECTED_SPEED
from exporter.meaning.ports.speeds import EXCESS

DEGRADED = "link_degraded"

MIXED_SPEED_KINDS = frozenset({"host"})
"""Kinds whose rows need not have the same speed."""

TOLERANCE = 0.99
"""Share of the expected speed that counts as reached: some agents round."""


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` adds to tables of a schema: those of them that the schema declares."""
    return [schema.metrics[ending] for ending in (EXPECTED_SPEED, DEGRADED) if ending in schema.metrics]


def step(expected: float | None, of_carriers: float | None, state: None, table: Table) -> tuple[None, Sequence[Table]]:
    """Add the expected speed and whether the link is degraded to tables whose schema has both.

    Args:
        expected: Configured speed in bytes per second, or None to use hardware and siblings.
        of_carriers: Configured speed of rows that report the speed of their hardware: network devices that carry RDMA.
        state: None; this step has no state.
        table: Any table.
    """
    speeds = table.numbers(vocabulary.SPEED)
    if speeds is None or EXPECTED_SPEED not in table.schema.metrics:
        return state, (table,)
    wanted = table.numbers(EXPECTED_SPEED)
    if wanted is None:
        wanted = [expected] * len(speeds) if expected is not None else _expected_speeds(table, speeds, of_carriers)
    degraded = [
        None if speed is None or want is None else int(speed < want * TOLERANCE)
        for speed, want in zip(speeds, wanted, strict=True)
    ]
    metrics = table.schema.metrics
    return state, (table.with_columns([Column(metrics[EXPECTED_SPEED], wanted), Column(metrics[DEGRADED], degraded)]),)


def _expected_speeds(table: Table, speeds: Sequence[float | None], of_carriers: float | None) -> list[float | None]:
    """Return the highest speed of the hardware of each row if known, else the highest among its siblings."""
    siblings = _highest_of_siblings(table, speeds)
    own = table.numbers(vocabulary.MAX_SPEED)
    if own is None:
        return siblings
    return [best if most is None else (of_carriers or most) for most, best in zip(own, siblings, strict=True)]


def _highest_of_siblings(table: Table, speeds: Sequence[float | None]) -> list[float | None]:
    """Return for each row the highest speed on which two rows of its kind agree; a row that exceeds its speed is none.

    One alone may state anything: it would make all honest ones degraded.
    """
    if table.kinds is None:
        return [None] * len(speeds)
    known: dict[str, list[float]] = {}
    for kind, speed, is_contradicted in zip(table.kinds, speeds, _contradicted(table, speeds), strict=True):
        if kind is not None and kind not in MIXED_SPEED_KINDS and speed is not None and not is_contradicted:
            known.setdefault(kind, []).append(speed)
    best = {kind: _highest_agreed(found) for kind, found in known.items()}
    return [None if kind is None else best.get(kind) for kind in table.kinds]


def _highest_agreed(speeds: Sequence[float]) -> float | None:
    """Return the highest speed that another one reaches too; None if there is none."""
    highest = sorted(speeds, reverse=True)
    return next((one for one, other in pairwise(highest) if other >= one * TOLERANCE), None)


def _contradicted(table: Table, speeds: Sequence[float | None]) -> Sequence[bool]:
    """Return for each row whether it carried more than its speed in the last interval, in either direction."""
    found = [False] * len(speeds)
    for ending in vocabulary.UTILIZATION:
        rates = table.numbers(ending)
        if rates is not None:
            found = [
                was or bool(rate and speed and rate > EXCESS * speed)
                for was, rate, speed in zip(found, rates, speeds, strict=True)
            ]
    return found
