"""The overview dashboard: one screen of the most important panels, and collapsed rows with the details.

Every panel must stay readable for thousands of ports: lines are drawn by rail, priority, switch or job, and single
ports appear only in top lists.
"""

from joins import HOST_OF, MARKED, MISSING, NIC_INFO, PAUSED, PORT_INFO, RETRANSMITS, WENT_DOWN, ticks_above
from overview_fabric import collectives, switches
from overview_hosts import congestion, hardware, rails
from panels import HALF, QUARTER, WAYS, Column, Limits, Panel, Query, lines, number, table_of
from reading import sources as source_table
from reading import ticks

ANY = Limits(1, 1)
"""For counts that should be 0."""

READY = "fabric_rdma_link_up{} == 1 unless on (job, instance, device, port) fabric_rdma_link_degraded{} == 1"


def now() -> list[Panel]:
    """Return panels of the fabric's health."""
    return [*_counts(), *_trends(), _hosts_with_faults()]


def _counts() -> list[Panel]:
    return [
        number(
            "Exporters",
            "Exporters that respond to Prometheus. Fewer than hosts: some are not monitored.",
            "count(fabric_exporter_build_info{})",
        ),
        number(
            "Sources failing",
            "Sources whose last read failed: the ports of a host, or a switch. Their metrics are missing; the row"
            " Sources and sampling lists them.",
            "sum(1 - fabric_source_up{})",
            ANY,
        ),
        number("RDMA ports ready", "RDMA ports of hosts that are up and not slower than expected.", f"count({READY})"),
        number(
            "RDMA ports missing",
            "RDMA ports that hosts should have by their configuration and that are missing, down or slow. The table"
            " of hosts lists them.",
            f"sum({MISSING})",
            ANY,
            absent="not configured",
        ),
        number(
            "Links degraded",
            "RDMA ports below their expected speed. Check cables and transceivers.",
            "sum(fabric_rdma_link_degraded{})",
            ANY,
        ),
        number(
            "Links flapping",
            "RDMA ports whose link went down within the last hour, at least once. Reseat or replace the cable.",
            f"sum({WENT_DOWN})",
            ANY,
        ),
        number(
            "Ports paused",
            "Network devices that their switch paused for more than 10 % of the last 5 minutes. Look for the host or"
            " the uplink that is overloaded.",
            f"sum(max by (job, instance, device) ({PAUSED}) > bool 0.1)",
            ANY,
        ),
        number(
            "Stragglers",
            "Ranks that the other ranks of their job wait for. Check the ports of their hosts first.",
            "sum(max by (train_job, rank) (fabric_nccl_straggler{}))",
            ANY,
        ),
    ]


def _trends() -> list[Panel]:
    return [
        lines(
            "Busiest and idlest rail",
            "Mean utilization of the ports of a rail: the highest and the lowest of all rails. If they differ, the"
            " traffic is unbalanced: see the row Rails of hosts.",
            "percentunit",
            [
                Query(f"{pick}(avg by (rail) (fabric_rdma_{way}_utilization_ratio{{}} * {PORT_INFO}))", f"{word} {way}")
                for way in WAYS
                for pick, word in (("max", "busiest"), ("min", "idlest"))
            ],
            top=1,
        ),
        lines(
            "Bursts",
            "Share of the sampler's ticks in which RDMA ports used more than 80 or 95 % of their speed. Bursts with"
            " a low mean fill queues: compare with ECN marks and pauses.",
            "percentunit",
            [
                Query(ticks_above(way, share), f"over {float(share):.0%} {way}")
                for way in WAYS
                for share in ("0.8", "0.95")
            ],
            top=1,
        ),
        lines(
            "Pauses",
            "Share of time that the most paused port was paused: 'receive' by its switch, 'transmit' by a host that"
            " paused its switch. Start with the latter.",
            "percentunit",
            [Query(f"max(rate(fabric_nic_{way}_pfc_paused_seconds_total{{}}[$__rate_interval]))", way) for way in WAYS],
            top=1,
            limits=Limits(0.1, 0.5),
        ),
        lines(
            "ECN marks",
            "Share of received packets with the ECN mark, and of transmitted packets for which a CNP reduced the"
            " rate: the worst port. Check how many hosts send to it at the same time.",
            "percentunit",
            [
                Query("max(fabric_rdma_ecn_marked_ratio{} <= 1)", "marked"),
                Query("max(fabric_rdma_cnp_handled_ratio{} <= 1)", "CNPs handled"),
            ],
            width=QUARTER,
            limits=MARKED,
        ),
        lines(
            "Retransmissions",
            "Share of packets that ports retransmitted: the worst port, and the median of all. Check the link of the"
            " worst, then discards of switches.",
            "percentunit",
            [
                Query("max(fabric_rdma_retransmission_ratio{})", "worst port"),
                Query("quantile(0.5, fabric_rdma_retransmission_ratio{})", "median"),
            ],
            width=QUARTER,
            limits=RETRANSMITS,
        ),
    ]


def _hosts_with_faults() -> Panel:
    return table_of(
        "Hosts with faults",
        "Hosts with RDMA ports that are missing, slow or went down within the last hour, that were paused for more"
        " than 2 % of the last 5 minutes, or retransmitted more than one packet in ten thousand. The name links to"
        " the host.",
        [
            Column("Missing", "none", f"({MISSING} > 0) * {HOST_OF}"),
            Column("Slow", "none", f"(sum by (job, instance) (fabric_rdma_link_degraded{{}}) > 0) * {HOST_OF}"),
            Column("Went down", "none", f"(sum by (job, instance) ({WENT_DOWN}) > 0) * {HOST_OF}"),
            Column("Paused", "percentunit", f"{PAUSED} * {NIC_INFO} > 0.02"),
            Column(
                "Retransmitted",
                "percentunit",
                f"fabric_rdma_retransmission_ratio{{}} * {PORT_INFO} > {RETRANSMITS.bad}",
            ),
        ],
        labels=["host"],
    )


def sources() -> list[Panel]:
    """Return panels of the sources and the burst sampler."""
    return [
        source_table("Sources", ["instance", "source", "target"]),
        lines(
            "Failures",
            "Failures per second, by source and reason. A failure does not affect anything else.",
            "cps",
            [
                Query(
                    "sum by (source, reason) (rate(fabric_source_failures_total{}[$__rate_interval]))",
                    "{{source}}: {{reason}}",
                )
            ],
            width=HALF,
        ),
        lines(
            "Time to read",
            "The longest read of each kind of source, and the lag of the exporters' event loop. A lag of many"
            " milliseconds makes rates inaccurate: give the exporter more CPU.",
            "s",
            [
                Query("max by (source) (fabric_source_read_duration_seconds{})", "{{source}}"),
                Query("max(fabric_exporter_event_loop_lag_seconds{})", "lag"),
            ],
            width=HALF,
        ),
        ticks(width=HALF),
    ]


ROWS = {
    "The fabric now": now,
    "Sources and sampling": sources,
    "Rails of hosts": rails,
    "Hardware of hosts": hardware,
    "Pauses and congestion": congestion,
    "Switches": switches,
    "Collectives": collectives,
}
