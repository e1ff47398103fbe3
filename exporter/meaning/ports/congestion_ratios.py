"""Congestion ratios: shares of a RoCE port's packets that were ECN-marked, caused CNPs, or were retransmitted.

A ratio is the increase of some counters of a port over the increase of its packets, over the last poll interval. It is
absent below 1,000 packets, and if a counter is missing or was reset. It is also absent if more was counted than there
were packets: then the counters cover different things, such as a whole port and one function of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    Metric,
    Rows,
    Schema,
    Table,
)

MIN_PACKETS = 1000
"""Packets in an interval below which there is no ratio."""

ENDPOINT_COUNTERS = frozenset({"cnp_handled_total", "cnp_received_total"})
"""Counters that only endpoints of RoCE have; a switch, which marks packets that it forwards, has no such ratios."""


class Numerator(NamedTuple):
    """One numerator to count: counters whose increases are added up.

    Attributes:
        counted: Counters that the port must have.
        optional: Counters that are added if the port has them.
    """

    counted: tuple[str, ...]
    optional: tuple[str, ...] = ()


class Ratio(NamedTuple):
    """Definition of one ratio.

    Attributes:
        ending: Ending of its metric.
        packets: Ending of the counter that is the denominator.
        numerators: Ways to count the numerator; the first of which the port has the counters is used.
        detail: Whether it is exported only if the configuration lists it under `keep`.
    """

    ending: str
    packets: str
    numerators: tuple[Numerator, ...]
    detail: bool = False


RATIOS: tuple[Ratio, ...] = (
    Ratio("ecn_marked_ratio", "receive_packets_total", (Numerator(("ecn_marked_packets_total",)),)),
    Ratio("cnp_sent_ratio", "receive_packets_total", (Numerator(("cnp_sent_total",)),), detail=True),
    Ratio(
        "cnp_handled_ratio",
        "transmit_packets_total",
        (Numerator(("cnp_handled_total",)), Numerator(("cnp_received_total",))),
    ),
    Ratio(
        "retransmission_ratio",
        "transmit_packets_total",
        (
            Numerator(("retransmitted_packets_total",)),
            Numerator(
                ("packet_sequence_errors_total", "local_ack_timeouts_total"),
                optional=(
                    "implied_nak_sequence_errors_total",
                    "rnr_nak_retries_total",
                    "adaptive_retransmissions_total",
                ),
            ),
        ),
    ),
)


class CounterValues(NamedTuple):
    """State of a counter: its values at the last step, and the rows that have had a value."""

    values: Sequence[float | None]
    had: frozenset[int]


@dataclass(frozen=True, slots=True)
class RatioState:
    """State of the counters at the last step, in the order of `rows`."""

    rows: Rows
    counters: Mapping[str, CounterValues] = field(default_factory=dict)
    resets: Sequence[float | None] | None = None


@lru_cache(maxsize=1024)
def _ratios_of(schema: Schema) -> tuple[Ratio, ...]:
    """Return the ratios that a schema allows, with the numerators whose counters it declares."""
    found = []
    for ratio in () if ENDPOINT_COUNTERS.isdisjoint(schema.metrics) else RATIOS:
        numerators = tuple(one for one in ratio.numerators if schema.metrics.keys() >= {*one.counted})
        if numerators and ratio.packets in schema.metrics:
            found.append(ratio._replace(numerators=numerators))
    return tuple(found)


@lru_cache(maxsize=1024)
def _metric(schema: Schema, ratio: Ratio) -> Metric:
    """Return the Metric of a ratio: one object, as metrics are compared by identity."""
    detail = ratio.detail or ratio.ending in schema.details
    return vocabulary.metric(schema.prefix, schema.labels, ratio.ending, detail=detail)


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` adds to tables of a schema."""
    return [_metric(schema, ratio) for ratio in _ratios_of(schema)]


def step(state: RatioState | None, table: Table) -> tuple[RatioState | None, Sequence[Table]]:
    """Add ratios to a table of ports whose counters are extended to 64 bits; other tables pass unchanged."""
    plan = _ratios_of(table.schema)
    if not plan:
        return state, (table,)
    before = _aligned(state, table)
    now = RatioState(table.rows, _counters(plan, before, table), table.numbers(vocabulary.RESETS))
    increases = {ending: _increases(before.counters.get(ending), seen) for ending, seen in now.counters.items()}
    resets = _was_reset(before, now)
    columns = []
    for ratio in plan:
        values = [
            None
            if passed is None or passed < MIN_PACKETS or was_reset
            else _ratio(ratio.numerators, passed, now, increases, row)
            for row, (passed, was_reset) in enumerate(zip(increases[ratio.packets], resets, strict=True))
        ]
        if values.count(None) != len(values):
            columns.append(Column(_metric(table.schema, ratio), values))
    return now, (table.with_columns(columns) if columns else table,)


def _aligned(state: RatioState | None, table: Table) -> RatioState:
    """Return the state in the order of the table's rows: rows that are gone are dropped, new ones start empty."""
    if state is None:
        return RatioState(table.rows)
    if state.rows is table.rows:
        return state
    places = [state.rows.index.get(key) for key in table.rows.keys]
    counters = {
        ending: CounterValues(
            [None if place is None else seen.values[place] for place in places],
            frozenset(new for new, place in enumerate(places) if place in seen.had),
        )
        for ending, seen in state.counters.items()
    }
    resets = state.resets
    if resets is not None:
        resets = [None if place is None else resets[place] for place in places]
    return RatioState(table.rows, counters, resets)


def _counters(plan: Sequence[Ratio], before: RatioState, table: Table) -> dict[str, CounterValues]:
    """Return the values of all counters that ratios use, and record which ports have them."""
    size = len(table.rows)
    endings = dict.fromkeys(
        ending for ratio in plan for one in ratio.numerators for ending in (ratio.packets, *one.counted, *one.optional)
    )
    found: dict[str, CounterValues] = {}
    for ending in endings:
        old = before.counters.get(ending) or CounterValues([None] * size, frozenset())
        values = table.numbers(ending)
        if values is None:
            found[ending] = CounterValues([None] * size, old.had)
        elif values is old.values or len(old.had) == size:
            found[ending] = CounterValues(values, old.had)
        else:
            have = {row for row, value in enumerate(values) if value is not None}
            found[ending] = CounterValues(values, old.had | have)
    return found


def _was_reset(before: RatioState, now: RatioState) -> list[bool]:
    """Return for each row whether its counters were reset."""
    if before.resets is None or now.resets is None:
        return [False] * len(now.rows)
    return [was != count for was, count in zip(before.resets, now.resets, strict=True)]


def _increases(before: CounterValues | None, now: CounterValues) -> list[float | None]:
    """Return the increase of a counter for each row; None if a value is missing on either side, or fell."""
    if before is None:
        return [None] * len(now.values)
    return [
        None if last is None or value is None or value < last else value - last
        for last, value in zip(before.values, now.values, strict=True)
    ]


def _ratio(
    numerators: Sequence[Numerator],
    packets: float,
    now: RatioState,
    increases: Mapping[str, Sequence[float | None]],
    place: int,
) -> float | None:
    """Return the ratio of one row, or None."""
    counters = now.counters
    for numerator in numerators:
        if all(place in counters[part].had for part in numerator.counted):
            parts = [*numerator.counted, *(part for part in numerator.optional if place in counters[part].had)]
            found = [increase for part in parts if (increase := increases[part][place]) is not None]
            counted = sum(found)
            return counted / packets if len(found) == len(parts) and counted <= packets else None
    return None
