"""Shares: how many of a RoCE port's packets were marked, slowed the sender down, or had to be sent again.

Over the last interval, a share is what some counters of a port rose by over what its count of packets rose by. Nothing
is said under a thousand packets, and for an interval in which a counter is missing or started anew. Nothing is said
either where more was counted than there were packets: then the counters are of different things, such as a whole port
and one function of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    Metric,
    Rows,
    Schema,
    Table,
)

LEAST_PACKETS = 1000
"""Packets that must have passed for a share of them to be worth a word."""

ENDS = frozenset({"cnp_handled_total", "cnp_received_total"})
"""What only ports at the ends of RoCE count; a switch, which marks what it sends on, has no such shares."""


class Way(NamedTuple):
    """One way to count: counters whose rises are added up, of which a port must have all that are not `also`."""

    counted: tuple[str, ...]
    also: tuple[str, ...] = ()


class Share(NamedTuple):
    """How one share is made.

    Attributes:
        ending: Of its metric.
        packets: The counter that it is a share of.
        ways: How it is counted; of several, the first counts whose counters a port has.
        detail: Whether it is exported only where the configuration keeps it.
    """

    ending: str
    packets: str
    ways: tuple[Way, ...]
    detail: bool = False


SHARES: tuple[Share, ...] = (
    Share("ecn_marked_ratio", "receive_packets_total", (Way(("ecn_marked_packets_total",)),)),
    Share("cnp_sent_ratio", "receive_packets_total", (Way(("cnp_sent_total",)),), detail=True),
    Share("cnp_handled_ratio", "transmit_packets_total", (Way(("cnp_handled_total",)), Way(("cnp_received_total",)))),
    Share(
        "retransmission_ratio",
        "transmit_packets_total",
        (
            Way(("retransmitted_packets_total",)),
            Way(
                ("packet_sequence_errors_total", "local_ack_timeouts_total"),
                also=("implied_nak_sequence_errors_total", "rnr_nak_retries_total", "adaptive_retransmissions_total"),
            ),
        ),
    ),
)


class Seen(NamedTuple):
    """What is remembered of a counter: its values at the last step, and the places of the rows that ever had one."""

    values: Sequence[float | None]
    had: frozenset[int]


@dataclass(frozen=True, slots=True)
class State:
    """What the counters were at the last step, in the order of its rows."""

    rows: Rows
    counters: Mapping[str, Seen] = field(default_factory=dict)
    resets: Sequence[float | None] | None = None


_plans: dict[Schema, tuple[Share, ...]] = {}


def _plan(schema: Schema) -> tuple[Share, ...]:
    """Find the shares whose counters a schema declares, in the ways that it has them."""
    made = _plans.get(schema)
    if made is None:
        found = []
        for share in () if ENDS.isdisjoint(schema.metrics) else SHARES:
            ways = tuple(way for way in share.ways if all(one in schema.metrics for one in way.counted))
            if ways and share.packets in schema.metrics:
                found.append(share._replace(ways=ways))
        made = _plans[schema] = tuple(found)
    return made


_made: dict[tuple[Schema, str], Metric] = {}


def _metric(schema: Schema, share: Share) -> Metric:
    """Give the one Metric object of a share."""
    made = _made.get((schema, share.ending))
    if made is None:
        detail = share.detail or share.ending in schema.details
        made = vocabulary.metric(schema.prefix, schema.labels, share.ending, detail=detail)
        _made[schema, share.ending] = made
    return made


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` adds to tables of a schema."""
    return [_metric(schema, share) for share in _plan(schema)]


def step(state: State | None, table: Table) -> tuple[State | None, Sequence[Table]]:
    """Add shares to a table of ports whose counters were extended to 64 bits; others pass."""
    plan = _plan(table.schema)
    if not plan:
        return state, (table,)
    before = _aligned(state, table)
    now = State(table.rows, _counters(plan, before, table), table.numbers(vocabulary.RESETS))
    rises = {ending: _rises(before.counters.get(ending), seen) for ending, seen in now.counters.items()}
    anew = _anew(before, now)
    columns = []
    for share in plan:
        ratios = [
            None if passed is None or passed < LEAST_PACKETS or new else _ratio(share.ways, passed, now, rises, place)
            for place, (passed, new) in enumerate(zip(rises[share.packets], anew, strict=True))
        ]
        if ratios.count(None) != len(ratios):
            columns.append(Column(_metric(table.schema, share), ratios))
    return now, (table.with_columns(columns) if columns else table,)


def _aligned(state: State | None, table: Table) -> State:
    """Bring the state into the order of the table's rows; rows that are gone are forgotten, new ones have nothing."""
    if state is None:
        return State(table.rows)
    if state.rows is table.rows:
        return state
    places = [state.rows.index.get(key) for key in table.rows.keys]
    counters = {
        ending: Seen(
            [None if place is None else seen.values[place] for place in places],
            frozenset(new for new, place in enumerate(places) if place in seen.had),
        )
        for ending, seen in state.counters.items()
    }
    resets = state.resets
    if resets is not None:
        resets = [None if place is None else resets[place] for place in places]
    return State(table.rows, counters, resets)


def _counters(plan: Sequence[Share], before: State, table: Table) -> dict[str, Seen]:
    """Take the values of all counters that shares are made of, and note which ports have them."""
    size = len(table.rows)
    endings = dict.fromkeys(
        ending for share in plan for way in share.ways for ending in (share.packets, *way.counted, *way.also)
    )
    found: dict[str, Seen] = {}
    for ending in endings:
        old = before.counters.get(ending) or Seen([None] * size, frozenset())
        values = table.numbers(ending)
        if values is None:
            found[ending] = Seen([None] * size, old.had)
        elif values is old.values or len(old.had) == size:
            found[ending] = Seen(values, old.had)
        else:
            found[ending] = Seen(values, old.had | {place for place, value in enumerate(values) if value is not None})
    return found


def _anew(before: State, now: State) -> list[bool]:
    """Tell which ports started anew."""
    if before.resets is None or now.resets is None:
        return [False] * len(now.rows)
    return [was != count for was, count in zip(before.resets, now.resets, strict=True)]


def _rises(before: Seen | None, now: Seen) -> list[float | None]:
    """Give what a counter of each port rose by; None where it is missing on either side, or fell."""
    if before is None:
        return [None] * len(now.values)
    return [
        None if last is None or value is None or value < last else value - last
        for last, value in zip(before.values, now.values, strict=True)
    ]


def _ratio(
    ways: Sequence[Way], packets: float, now: State, rises: Mapping[str, Sequence[float | None]], place: int
) -> float | None:
    """Give the share of one port, or None where it cannot be told."""
    counters = now.counters
    for way in ways:
        if all(place in counters[part].had for part in way.counted):
            parts = [*way.counted, *(part for part in way.also if place in counters[part].had)]
            found = [rise for part in parts if (rise := rises[part][place]) is not None]
            counted = sum(found)
            return counted / packets if len(found) == len(parts) and counted <= packets else None
    return None
