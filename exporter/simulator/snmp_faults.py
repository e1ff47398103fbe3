"""Faults of a simulated SNMP agent: the misbehaviour of real agents."""

from dataclasses import dataclass, field

from exporter.snmp.ber import Oid


@dataclass(slots=True)
class SnmpFaults:
    """The faults of an agent. All are off by default; each may be changed at any time.

    Attributes:
        silent: Send no response.
        delay: Seconds before each response.
        too_big_above: Respond tooBig, instead of a shorter response, to requests of more variables than this.
        silent_above: Send no response to requests of more variables than this.
        loop: Columns whose last row is followed by their first.
        gen_err: Columns that make any response they would be part of a genErr.
        gen_err_without_index: Leave the error index 0.
        silent_on: Columns to whose requests no response is sent, also if these contain others.
        truncate: Columns that walks leave after so many rows, although GET finds the rest.
        unsorted: Columns in which a walk gets each two neighbouring rows in the wrong order.
        wrong_id_first: Send each response with another request-id before the right one.
        junk_first: Send a malformed datagram before each response.
        drop_every: Send no response to every n-th request; 0 drops none.
        late: Respond to a request only when it is retried, and then with the first request-id.
        filter_duplicates: Respond to no request-id twice.
        other_port: Respond from another port.
    """

    silent: bool = False
    delay: float = 0.0
    too_big_above: int | None = None
    silent_above: int | None = None
    loop: set[Oid] = field(default_factory=set)
    gen_err: set[Oid] = field(default_factory=set)
    gen_err_without_index: bool = False
    silent_on: set[Oid] = field(default_factory=set)
    truncate: dict[Oid, int] = field(default_factory=dict)
    unsorted: set[Oid] = field(default_factory=set)
    wrong_id_first: bool = False
    junk_first: bool = False
    drop_every: int = 0
    late: bool = False
    filter_duplicates: bool = False
    other_port: bool = False


def next_unsorted(place: int | None, at: int, span: tuple[int, int]) -> int:
    """Return the place of the next row in a column with each two neighbours swapped.

    Args:
        place: Place of the requested row; None if there is no such row.
        at: Place of the next row in the right order.
        span: Places of the column's first row, and of the first one after the column.
    """
    first, end = span

    def swapped(step: int) -> int:
        """Return the place of the row at a step, which is also the step of the row at a place."""
        other = first + ((step - first) ^ 1)
        return other if other < end else step

    if place is not None and first <= place < end:
        step = swapped(place) + 1
        return swapped(step) if step < end else end
    return swapped(first) if at == first < end else at
