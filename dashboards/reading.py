"""Panels about the exporter's own polls, shared by dashboards."""

from collections.abc import Sequence

from panels import HALF, THIRD, Panel, Query, lines, meaning
from tables import Column, table_of


def sources(title: str, labels: Sequence[str], *, width: int = HALF) -> Panel:
    """Return the table of sources and their state."""
    state = meaning({1: ("good", "green"), 0: ("failing", "red")})
    return table_of(
        title,
        "Each source, and when it was last read successfully; for switches the target is the name in the"
        " configuration. Metrics of a failing source are missing; the failures show the reason.",
        [
            Column("State", "short", "fabric_source_up{}", state),
            Column("Last read", "s", "time() - fabric_source_last_success_timestamp_seconds{}"),
            Column("Duration", "s", "fabric_source_read_duration_seconds{}"),
            Column("Rows", "none", "fabric_source_rows{}"),
        ],
        labels=labels,
        worst=("-State",),
        width=width,
    )


def ticks(*, width: int = THIRD) -> Panel:
    """Return the graph of the burst sampler's skipped ticks."""
    return lines(
        "Ticks skipped, of all ticks",
        "Share of the burst sampler's ticks that were skipped, by reason. late or budget: use a longer tick; hung: a"
        " device does not respond.",
        "percentunit",
        [
            Query(
                "sum by (reason) (rate(fabric_exporter_burst_ticks_skipped_total{}[$__rate_interval]))"
                " / on () group_left () sum(rate(fabric_exporter_burst_ticks_total{}[$__rate_interval]))",
                "{{reason}}",
            )
        ],
        width=width,
        top=1,
    )
