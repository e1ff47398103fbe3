"""The overview: one screenful of what matters, and rows behind it that open by a click.

Every panel must stay readable for thousands of ports: lines are drawn by rail, priority, switch or job, and single
ports appear only where they are the worst few.
"""

from joins import HOST_OF, MARKED, MISSING, NIC_INFO, PAUSED, PORT_INFO, SENT_AGAIN, WENT_DOWN, above
from overview_fabric import collectives, switches
from overview_hosts import congestion, hardware, rails
from panels import HALF, QUARTER, WAYS, Column, Limits, Panel, Query, lines, listing, number
from reading import sources as source_table
from reading import ticks

ANY = Limits(1, 1)
"""For counts of what should not be."""

READY = "fabric_rdma_link_up{} == 1 unless on (job, instance, device, port) fabric_rdma_link_degraded{} == 1"


def now() -> list[Panel]:
    """Show whether all is well, and where it is not."""
    return [*_counts(), *_trends(), _troubled()]


def _counts() -> list[Panel]:
    return [
        number(
            "Exporters",
            "Exporters that answer Prometheus. Fewer than hosts: some are not watched.",
            "count(fabric_exporter_build_info{})",
        ),
        number(
            "Sources failing",
            "Sources whose last read failed: the ports of a host, or a switch. Their metrics are missing; the row"
            " Sources tells which.",
            "sum(1 - fabric_source_up{})",
            ANY,
        ),
        number("RDMA ports ready", "RDMA ports of hosts that are up and not slower than expected.", f"count({READY})"),
        number(
            "RDMA ports missing",
            "RDMA ports that hosts should have by their configuration and that are gone, down or slow. See which hosts"
            " are in trouble.",
            f"sum({MISSING})",
            ANY,
            absent="not configured",
        ),
        number(
            "Links degraded",
            "RDMA ports that run below the speed expected of them. Look at cables and transceivers.",
            "sum(fabric_rdma_link_degraded{})",
            ANY,
        ),
        number(
            "Links that flap",
            "RDMA ports whose link went down within the last hour, once or more often. Reseat or change the cable.",
            f"sum({WENT_DOWN})",
            ANY,
        ),
        number(
            "Ports paused",
            "Network devices that their switch stopped for more than 10 % of the last 5 minutes. Look for the host or"
            " the uplink that cannot take more.",
            f"sum(max by (job, instance, device) ({PAUSED}) > bool 0.1)",
            ANY,
        ),
        number(
            "Stragglers",
            "Ranks that the others of their job keep waiting for. Look at their host's ports first.",
            "sum(max by (train_job, rank) (fabric_nccl_straggler{}))",
            ANY,
        ),
    ]


def _trends() -> list[Panel]:
    return [
        lines(
            "Busiest and idlest rail",
            "Mean share of their speed that the ports of a rail use: the highest and the lowest of all rails. Where"
            " they part, something steers the traffic: see the row Rails of hosts.",
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
            "Share of the sampler's ticks in which RDMA ports used more of their speed than 80 or 95 %. Bursts with a"
            " low mean fill queues: compare with marks and pauses.",
            "percentunit",
            [Query(above(way, share), f"over {float(share):.0%} {way}") for way in WAYS for share in ("0.8", "0.95")],
            top=1,
        ),
        lines(
            "Pauses",
            "Share of the time that the most paused port was stopped: 'receive' by its switch, 'transmit' is a host"
            " that stopped its switch. Begin with the latter.",
            "percentunit",
            [Query(f"max(rate(fabric_nic_{way}_pfc_paused_seconds_total{{}}[$__rate_interval]))", way) for way in WAYS],
            top=1,
            limits=Limits(0.1, 0.5),
        ),
        lines(
            "Congestion marks",
            "Share of the packets that ports received with the congestion mark, and of those sent for which they were"
            " told to slow down: the worst port. Look at how many send to it at once.",
            "percentunit",
            [
                Query("max(fabric_rdma_ecn_marked_ratio{} <= 1)", "marked"),
                Query("max(fabric_rdma_cnp_handled_ratio{} <= 1)", "slowed down"),
            ],
            width=QUARTER,
            limits=MARKED,
        ),
        lines(
            "Packets sent again",
            "Share of the packets that ports had to send again: the worst port, and the median of all. Look at the"
            " link of the worst, then at discards of switches.",
            "percentunit",
            [
                Query("max(fabric_rdma_retransmission_ratio{})", "worst port"),
                Query("quantile(0.5, fabric_rdma_retransmission_ratio{})", "median"),
            ],
            width=QUARTER,
            limits=SENT_AGAIN,
        ),
    ]


def _troubled() -> Panel:
    return listing(
        "Hosts in trouble",
        "Hosts with RDMA ports that are missing, slow or went down within the last hour, that were paused for more"
        " than 2 % of the last 5 minutes, or send again more than one packet in ten thousand. The name leads to the"
        " host.",
        [
            Column("Missing", "none", f"({MISSING} > 0) * {HOST_OF}"),
            Column("Slow", "none", f"(sum by (job, instance) (fabric_rdma_link_degraded{{}}) > 0) * {HOST_OF}"),
            Column("Went down", "none", f"(sum by (job, instance) ({WENT_DOWN}) > 0) * {HOST_OF}"),
            Column("Paused", "percentunit", f"{PAUSED} * {NIC_INFO} > 0.02"),
            Column(
                "Sent again", "percentunit", f"fabric_rdma_retransmission_ratio{{}} * {PORT_INFO} > {SENT_AGAIN.bad}"
            ),
        ],
        labels=["host"],
    )


def sources() -> list[Panel]:
    """Show whether all that should be measured is."""
    return [
        source_table("Sources", ["instance", "source", "target"]),
        lines(
            "Failures",
            "What could not be read, by source and reason, a second. Nothing else is lost by a failure.",
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
            "The longest read of each kind of source, and how late the exporters were to what was due. Lateness of many"
            " milliseconds makes rates coarse: give the exporter more CPU.",
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
