"""Panels about the exporter's own reading, which both boards have."""

from collections.abc import Sequence

from panels import HALF, THIRD, Column, Panel, Query, lines, listing, meaning


def sources(title: str, labels: Sequence[str], *, width: int = HALF) -> Panel:
    """List sources by how reading them goes."""
    state = meaning({1: ("good", "green"), 0: ("failing", "red")})
    return listing(
        title,
        "Each source; for switches the target is the name in the configuration. Of one that fails, the metrics are"
        " missing; the failures beside tell the reason.",
        [
            Column("State", "short", "fabric_source_up{}", state),
            Column("Last good read", "s", "time() - fabric_source_last_success_timestamp_seconds{}"),
            Column("Duration", "s", "fabric_source_read_duration_seconds{}"),
            Column("Rows", "none", "fabric_source_rows{}"),
        ],
        labels=labels,
        width=width,
    )


def ticks(*, width: int = THIRD) -> Panel:
    """Draw how much the burst sampler leaves out."""
    return lines(
        "Ticks left out",
        "Share of the burst sampler's ticks that were left out, by reason. Late or for the budget: make the tick"
        " longer; hung: a device does not answer.",
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
