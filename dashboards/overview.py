"""The overview dashboard: what is wrong, where and since when on one screen, and collapsed rows with the details.

Every panel must stay readable for thousands of ports: lines are drawn by rail, switch or job, and single ports appear
only where something is wrong. What many ports are read for is recorded by alerts/records.
"""

from alert_tables import firing
from joins import (
    HELD_UP,
    IN_PAUSE,
    MARKED,
    MISSING,
    ON_HOST,
    PAUSED,
    PAUSES,
    RAIL_STATES,
    RETRANSMITS,
    SLOW,
    STATES_OF_RAILS,
    WENT_DOWN,
)
from overview_fabric import jobs, switches
from overview_hosts import congestion, links_of_hosts, rails
from panels import ANY, ANY_WARNS, HALF, QUARTER, WAYS, Limits, Panel, Query, lines, number
from reading import sources as source_table
from reading import ticks
from tables import Column, grid, table_of

FEC = "increase(fabric_nic_fec_uncorrectable_blocks_total{}[10m])"
LATE_RANKS = "host:fabric_nccl_straggler:count"
"""Recorded: the verdicts are those of collectors, and the hosts of ranks are exported by the hosts."""


def now() -> list[Panel]:
    """Return the panels of the first screen."""
    return [*_counts(), firing("Firing alerts", width=14, height=9), _hosts_with_faults(), *_trends()]


def _counts() -> list[Panel]:
    return [
        number(
            "Critical alerts",
            "Critical alerts that are firing; the table below lists them.",
            _alerts("critical"),
            ANY,
            absent="no rules",
            filled=True,
            link="fabric-overview",
        ),
        number(
            "Warnings",
            "Warnings that are firing; the table below lists them.",
            _alerts("warning"),
            ANY_WARNS,
            absent="no rules",
            filled=True,
            link="fabric-overview",
        ),
        number(
            "Exporters down",
            "Targets of Prometheus in jobs of fabric-exporter that do not respond.",
            "sum((up{} == bool 0) and on (job) count by (job)"
            " (fabric_exporter_build_info{} or last_over_time(fabric_exporter_build_info{}[1d:5m])))",
            ANY,
            filled=True,
        ),
        number(
            "Switches silent",
            "Switches whose last poll failed: their metrics are missing.",
            "sum(1 - max by (switch) (fabric_switch_up{}))",
            ANY,
            absent="no switches",
            filled=True,
            link="fabric-switches",
        ),
        number(
            "Ports not ready",
            "RDMA ports of hosts that are down or missing: by the number expected by configuration, else those that"
            " were up within a day.",
            f"sum({MISSING})",
            ANY,
            absent="no RDMA",
            filled=True,
        ),
        number(
            "Ports slow",
            "Ports of hosts below their expected speed, or the speed of their hardware, if all are slow alike.",
            f"sum({SLOW})",
            ANY,
            absent="no ports",
            filled=True,
        ),
        number(
            "Ports in pause",
            "Network devices that their switch paused, or that paused their switch, by PFC or 802.3x, for more than"
            " 10 % of the last 5 minutes.",
            f"sum({IN_PAUSE} > bool 0.1)",
            ANY,
            filled=True,
        ),
        number(
            "Jobs held up",
            "Training jobs that hang, wait for a straggler, or are bound by the network.",
            f"sum({HELD_UP})",
            ANY,
            absent="no jobs",
            filled=True,
            link="fabric-training",
        ),
    ]


def _alerts(severity: str) -> str:
    """Return the query for the number of alerts that fire; 0 only where the rules are loaded, as records show."""
    firing = f'ALERTS{{alertstate="firing", alertname=~"Fabric.+", severity="{severity}"}}'
    return f"count({firing}) or 0 * count(instance:fabric_exporter_build_info:info{{}})"


def _hosts_with_faults() -> Panel:
    return table_of(
        "Hosts with faults",
        "RDMA ports that are down or missing, are slow, or went down in the last 10 minutes; PCIe links that are slow;"
        " share of the last 5 minutes in pause by the switch (paused), and of the switch by the host (pausing); packets"
        " retransmitted (retr.); FEC blocks lost in the last 10 minutes; ranks that their job waits for.",
        [
            _count("Down", f"({MISSING} > 0) * {ON_HOST}"),
            _count("Slow", f"({SLOW} > 0) * {ON_HOST}"),
            _count("Flaps", f"(sum by (job, instance) ({WENT_DOWN}) > 0) * {ON_HOST}"),
            _count("PCIe", f"(sum by (job, instance) (fabric_pci_link_degraded{{}}) > 0) * {ON_HOST}"),
            Column("Paused", "percentunit", f"{PAUSED} > 0.02", limits=Limits(0.02, 0.1), decimals=0),
            Column("Pausing", "percentunit", f"{PAUSES} > 0.02", limits=Limits(0.02, 0.1), decimals=0),
            Column(
                "Retr.",
                "percentunit",
                f"max by (job, instance) (fabric_rdma_retransmission_ratio{{}} > {RETRANSMITS.bad}) * {ON_HOST}",
                limits=RETRANSMITS,
                decimals=2,
            ),
            Column("FEC", expr=f"(sum by (job, instance) ({FEC}) >= 1) * {ON_HOST}", unit="short", limits=ANY),
            _count("Late", LATE_RANKS),
        ],
        labels=["host"],
        worst=("-host",),
        absent="no host with a fault",
        width=10,
        height=9,
        widths={"host": 90},
    )


def _count(name: str, expr: str) -> Column:
    """Return a column that should be empty."""
    return Column(name, "none", expr, limits=ANY, decimals=0)


def _trends() -> list[Panel]:
    return [
        lines(
            "Busiest and idlest rail",
            "Mean traffic of the ports of a rail: the highest and the lowest of all rails. If they differ, the traffic"
            " is unbalanced: see the row Rails.",
            "bps",
            [
                Query(f"8 * {pick}(avg by (rail) (port:fabric_rdma_{way}_bytes:rate{{}}))", f"{word} {way}")
                for way in WAYS
                for pick, word in (("max", "busiest"), ("min", "idlest"))
            ],
            width=QUARTER,
            height=7,
        ),
        lines(
            "Pauses (PFC, 802.3x)",
            "Share of time in pause of the port with the highest, over 5 minutes: paused by its switch, or pausing its"
            " switch. Start with a host that pauses.",
            "percentunit",
            [Query(f"max({PAUSED})", "paused by the switch"), Query(f"max({PAUSES})", "pausing the switch")],
            width=QUARTER,
            height=7,
            top=1,
            limits=Limits(0.1, 0.5),
            decimals=0,
        ),
        lines(
            "ECN marks and CNPs",
            "Share of received packets with the ECN mark, and of transmitted packets for which a CNP reduced the rate:"
            " the worst port. Check how many hosts send to it at the same time.",
            "percentunit",
            [
                Query("max(avg_over_time(fabric_rdma_ecn_marked_ratio{}[$__rate_interval]) <= 1)", "ECN-marked"),
                Query("max(avg_over_time(fabric_rdma_cnp_handled_ratio{}[$__rate_interval]) <= 1)", "CNPs handled"),
            ],
            width=QUARTER,
            height=7,
            limits=MARKED,
            decimals=1,
        ),
        lines(
            "Retransmissions",
            "Share of packets that ports retransmitted: the worst port, and the median of all. Check the link of the"
            " worst, then discards of switches.",
            "percentunit",
            [
                Query("max(avg_over_time(fabric_rdma_retransmission_ratio{}[$__rate_interval]))", "worst port"),
                Query("quantile(0.5, avg_over_time(fabric_rdma_retransmission_ratio{}[$__rate_interval]))", "median"),
            ],
            width=QUARTER,
            height=7,
            limits=RETRANSMITS,
            decimals=3,
        ),
    ]


def ports() -> list[Panel]:
    """Return the grid of hosts and rails, and what the first screen has no room for."""
    return [
        grid(
            "State of rails",
            "The worst state of the RDMA ports of each rail: ready, paused or pausing for more than 10 % of 5 minutes,"
            " slow, down, unused (no link for a day), or gone within the last hour. Recorded by the rules.",
            STATES_OF_RAILS,
            row="host",
            column="rail",
            meaning=RAIL_STATES,
            width=18,
            height=14,
        ),
        number(
            "InfiniBand faults",
            "Nodes that do not respond any more, ports with slow links, and subnets without a master subnet manager.",
            "0 * count(fabric_ib_node_up{}) + (sum(max by (guid, port) (fabric_ib_link_degraded{})) or vector(0))"
            " + sum(1 - max by (guid) (fabric_ib_node_up{}))"
            " + (count(count by (job, instance) (fabric_ib_node_up{}) unless on (job, instance)"
            " fabric_ib_sm_state{} == 3) or vector(0))",
            ANY,
            height=14,
            absent="no InfiniBand",
            link="fabric-infiniband",
        ),
        number(
            "Sources failing",
            "Sources whose last read failed; their metrics are missing. The row Sources and sampling lists them.",
            "sum(1 - fabric_source_up{})",
            ANY,
            height=14,
        ),
    ]


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
    "Ports by host and rail": ports,
    "Links and hardware": links_of_hosts,
    "Pauses and congestion": congestion,
    "Rails": rails,
    "Switches": switches,
    "Jobs": jobs,
    "Sources and sampling": sources,
}
