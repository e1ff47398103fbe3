"""Stated speeds of sampled ports that their traffic disproves: the same rule as in `speeds`, for tables of samples.

Samples are shares of the link speed, which are not known while it is not believed: they are removed before `bursts`
counts them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from exporter.core.table import Column, LabelValues, Metric, Samples, Schema, Table
from exporter.core.vocabulary import SAMPLES
from exporter.meaning.ports.speeds import Doubt, limit_of, next_doubt


class SampledRow(NamedTuple):
    """Last sample of a row, and the doubt about its link speed."""

    last: tuple[float, ...] = ()
    doubt: Doubt | None = None


SampledState: TypeAlias = Mapping[LabelValues, SampledRow]


def outputs(schema: Schema) -> list[Metric]:  # noqa: ARG001  # the signature of all steps
    """Return no metrics: samples are only removed."""
    return []


def step(state: SampledState | None, table: Table) -> tuple[SampledState | None, Sequence[Table]]:
    """Remove the samples of rows whose link speed is not believed; other tables pass unchanged."""
    samples = table.values(SAMPLES)
    if samples is None:
        return state, (table,)
    old: SampledState = {} if state is None else state
    rows = {
        key: _advanced(old.get(key, SampledRow()), one.taken if isinstance(one, Samples) else ())
        for key, one in zip(table.rows.keys, samples, strict=True)
    }
    if not any(_is_disproved(row) for row in rows.values()):
        return rows, (table,)
    kept = [None if _is_disproved(row) else one for row, one in zip(rows.values(), samples, strict=True)]
    return rows, (table.with_columns([Column(table.schema.metrics[SAMPLES], kept)]),)


def _is_disproved(row: SampledRow) -> bool:
    too_fast = bool(row.last) and row.last[-1] > limit_of(1)
    return too_fast or (row.doubt is not None and row.doubt.disproves)


def _advanced(row: SampledRow, taken: Sequence[tuple[float, ...]]) -> SampledRow:
    """Return the row after the samples of one interval, judged by their mean traffic."""
    if not taken:
        return row
    (then, *old, old_speed), (now, *new, speed) = row.last or taken[0], taken[-1]
    moved = [after - before for after, before in zip(new, old, strict=True)]
    is_measured = now > then and speed == old_speed and min(moved) >= 0
    rate = max(moved) / (now - then) if is_measured else None
    return SampledRow(taken[-1], next_doubt(row.doubt, speed, rate, limit_of(1), now))
