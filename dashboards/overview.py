"""The overview dashboard: what is wrong, where and since when on one screen, and collapsed rows with the details.

Every panel must stay readable for thousands of ports: lines are drawn by rail, switch or job, and single ports appear
only where something is wrong. What many ports are read for is recorded by alerts/records.
"""

from alert_tables import firing, hidden, number_of_rows
from joins import (
    DISCARDS,
    FEC_LOST,
    FEC_LOST_RECENTLY,
    FLAPS,
    FLAPS_RECENTLY,
    FULL_WARNS,
    HELD_UP,
    IN_PAUSE,
    MISSING,
    MOST_DROPS,
    ON_HOST,
    OVER,
    PAUSE_SHARES,
    PAUSED_HOSTS,
    PAUSING_HOSTS,
    RAIL_STATES,
    RETRANSMITS,
    SLOW,
    STATES_OF_RAILS,
    UNEVEN_WARNS,
    UPLINK,
    highest_uplink,
    now_or_over,
)
from overview_fabric import jobs, switches
from overview_hosts import congestion, links_of_hosts, rails
from panels import (
    ANY,
    ANY_WARNS,
    EIGHTH,
    FAINT,
    FULL,
    HALF,
    SIXTH,
    Limits,
    Panel,
    Query,
    lines,
    meaning,
    number,
)
from reading import sources as source_table
from reading import ticks
from tables import Column, grid, table_of
from training_joins import BANDWIDTH_OF_ALL, LOW

LATE_RANKS = "host:fabric_nccl_straggler:count"
"""Recorded: the verdicts are those of collectors, and the hosts of ranks are exported by the hosts."""

_ALERTS = meaning({4: ("critical", "red"), 3: ("warning", "orange"), 2: ("pending", "text"), 1: ("consequence", FAINT)})
"""Worst alert of a host; that of one whose fault is a consequence of others is less than any cause."""

_ACTIVE = 'alert:fabric_active:since{alertname=~"Fabric.+", host!=""'

_ALERT = " or ".join(
    f"{value} * group by (host) ({_ACTIVE}, {which}}})"
    for value, which in (
        (4, 'role="cause", severity="critical"'),
        (3, 'role="cause"'),
        (2, 'role="pending"'),
        (1, 'role="consequence"'),
    )
)

_SINCE = f"1000 * min by (host) ({_ACTIVE}}})"
"""When the first alert of each host that is active began, in milliseconds."""


ROWS_IN_SIGHT = 6
"""Rows of the table of alerts that fit."""

_SILENT = "(1 - max by (switch) (fabric_switch_up{}))"
"""1 for each switch whose last poll failed, else 0."""


def now() -> list[Panel]:
    """Return the panels of the first screen."""
    return [
        *_counts(),
        firing("Alerts that fire or are pending", width=FULL, height=8),
        _hosts_with_faults(),
        *_trends(),
    ]


def _counts() -> list[Panel]:
    return [
        *(
            _tile(
                title,
                f"{kind} that fire, as the table below counts them: those of one name and job are one.",
                number_of_rows(f', severity="{severity}"'),
                limits,
                absent="no rules",
                link="fabric-overview",
            )
            for title, kind, severity, limits in (
                ("Critical alerts", "Critical alerts", "critical", ANY),
                ("Warnings", "Warnings", "warning", ANY_WARNS),
            )
        ),
        hidden(shown=ROWS_IN_SIGHT),
        _tile(
            "Exporters down",
            "Targets of Prometheus in jobs of fabric-exporter that do not respond.",
            "sum((up{} == bool 0) and on (job) count by (job)"
            " (fabric_exporter_build_info{} or last_over_time(fabric_exporter_build_info{}[1d:5m])))",
        ),
        _tile(
            "Sources failing",
            "Sources whose last read failed; their metrics are missing. The row Sources and sampling lists them.",
            "sum(instance:fabric_source_up:missing{})",
        ),
        _tile(
            "Switches silent",
            "Switches whose last poll failed, with the name of the one if it is one: their metrics are missing.",
            f"{_SILENT} == 1 and on () sum({_SILENT}) == 1"
            f' or on () label_replace(sum({_SILENT}) == 0, "switch", "none", "", "")'
            f' or on () label_replace(sum({_SILENT}), "switch", "several", "", "")',
            absent="no switches",
            link="fabric-switches",
            name="{{switch}}",
        ),
        _tile(
            "Jobs held up",
            "Training jobs that hang, wait for a straggler, or are bound by the network.",
            f"sum({HELD_UP})",
            absent="no jobs",
            link="fabric-training",
        ),
        _tile(
            "Job bandwidth, of expected",
            "Bus bandwidth between nodes of the job with the lowest, over the expected one: also of a job that is not"
            " held up. None of jobs that hang, or without enough data.",
            f"bottomk(1, {BANDWIDTH_OF_ALL})",
            LOW,
            unit="percentunit",
            absent="not known",
            link="fabric-training",
            decimals=0,
            name="{{train_job}}",
            width=SIXTH,
        ),
        _tile(
            "Ports not ready",
            "RDMA ports of hosts that are down or missing: by the number expected by configuration, else those that"
            " were up within a day.",
            f"sum({MISSING})",
            absent="no RDMA",
        ),
        _tile(
            "Ports slow",
            "Ports of hosts below their expected speed, or the speed of their hardware, if all are slow alike.",
            f"sum({SLOW})",
            absent="no ports",
        ),
        _tile(
            "Ports with errors",
            "Ports of hosts and of switches with errors on their link in the last 2 minutes: wrong FCS, symbol errors,"
            " FEC blocks that are lost.",
            "sum(host:fabric_nic_fcs_errors:count{} or max by (switch) (switch:fabric_switch_receive_errors:count{}))",
            absent="no ports",
        ),
        _tile(
            "Ports in pause",
            "Network devices that their switch paused, or that paused their switch, by PFC or 802.3x, for more than"
            " 10 % of the last 5 minutes.",
            f"sum({IN_PAUSE} > bool 0.1)",
        ),
        _tile(
            "Most drops",
            "Packets per second that a switch or a host drops without an error, over 2 minutes: that with most. A"
            " lossless fabric has none. Drops at a switch that neither pauses nor is paused: check that PFC is enabled"
            " there, for the priority of the job.",
            MOST_DROPS,
            DISCARDS,
            unit="pps",
            absent="not counted",
            decimals=0,
            name="{{place}}",
            width=SIXTH,
        ),
        *(
            _tile(
                title,
                text,
                highest_uplink(f"{record}{{}}"),
                limits,
                unit="percentunit",
                width=SIXTH,
                absent="no traffic on uplinks",
                link="fabric-switches",
                decimals=0,
                name=UPLINK,
            )
            for title, text, record, limits in (
                (
                    "Fullest uplink, of its speed",
                    "Utilization of the fullest uplink of all switches, over 5 minutes; with its neighbour by LLDP.",
                    "switch:fabric_uplink_utilization:max",
                    FULL_WARNS,
                ),
                (
                    "Uneven uplink, over mean",
                    "How far the busiest uplink of a switch is above the mean of all, at the worst switch.",
                    "switch:fabric_uplink_imbalance:max",
                    UNEVEN_WARNS,
                ),
            )
        ),
    ]


def _tile(
    title: str,
    description: str,
    query: str,
    limits: Limits = ANY,
    *,
    width: int = EIGHTH,
    absent: str = "no data",
    unit: str = "short",
    link: str = "",
    decimals: int | None = None,
    name: str = "",
) -> Panel:
    """Return a number of the first screen; one with a name is wider."""
    return number(
        title,
        description,
        query,
        limits,
        unit=unit,
        width=width,
        height=3,
        absent=absent,
        filled=True,
        link=link,
        decimals=decimals,
        name=name,
    )


def _hosts_with_faults() -> Panel:
    return table_of(
        "Hosts with faults (paused, pausing: of time; retr.: of packets)",
        "The worst alert of each host, causes before consequences of other faults, and when the first one began; RDMA"
        " ports that are down or missing, are slow, or went down in the last 2 minutes (ended: in the last 10); PCIe"
        " links that are slow; share of the last 5 minutes in pause by the switch (paused), and of the switch by the"
        " host (pausing); retransmitted packets (retr.); lost FEC blocks, as flaps; ranks that the job waits for.",
        [
            Column("Alert", "short", _ALERT, _ALERTS, width=100),
            Column("Since", "dateTimeAsIsoNoDateIfToday", _SINCE, width=80),
            _count("Down", f"({MISSING} > 0) * {ON_HOST}"),
            _count("Slow", f"({SLOW} > 0) * {ON_HOST}"),
            _recent("Flaps", f"{FLAPS} > bool 0", f"{FLAPS_RECENTLY} > bool 0"),
            _count("PCIe", f"(host:fabric_pci_link_degraded:count{{}} > 0) * {ON_HOST}"),
            *(
                Column(
                    name, "percentunit", f"{share} > {PAUSE_SHARES.warning}", limits=PAUSE_SHARES, decimals=0, width=85
                )
                for name, share in (("Paused", PAUSED_HOSTS), ("Pausing", PAUSING_HOSTS))
            ),
            Column(
                "Retr.",
                "percentunit",
                f"max by (job, instance) (fabric_rdma_retransmission_ratio{{}} > {RETRANSMITS.bad}) * {ON_HOST}",
                limits=RETRANSMITS,
                decimals=2,
            ),
            _recent("FEC", f"round({FEC_LOST})", f"round({FEC_LOST_RECENTLY})"),
            _count("Late", LATE_RANKS),
        ],
        labels=["host"],
        worst=("Alert", "Pausing", "-host"),
        absent="no host with a fault",
        width=14,
        height=6,
        widths={"host": 90},
    )


def _count(name: str, expr: str) -> Column:
    """Return a column that should be empty."""
    return Column(name, "none", expr, limits=ANY, decimals=0)


def _recent(name: str, now: str, recently: str) -> Column:
    """Return a column of what should be 0, and is grey if it is over."""
    both = now_or_over(*(f"sum by (job, instance) ({one})" for one in (now, recently)))
    return Column(name, "short", f"{both} * {ON_HOST}", OVER, ANY, decimals=0)


def _trends() -> list[Panel]:
    return [
        lines(
            "Pauses (PFC, 802.3x), of time",
            "Share of time in pause of the port with the highest, over 5 minutes: paused by its switch, or pausing its"
            " switch. Start with a host that pauses.",
            "percentunit",
            [Query(f"max({PAUSED_HOSTS})", "paused"), Query(f"max({PAUSING_HOSTS})", "pausing")],
            width=5,
            height=6,
            top=1,
            limits=PAUSE_SHARES,
            decimals=0,
        ),
        lines(
            "Retransmissions, of packets",
            "Share of packets that ports retransmitted: the worst port, and the median of all. Check the link of the"
            " worst, then discards of switches.",
            "percentunit",
            [
                Query("max(avg_over_time(fabric_rdma_retransmission_ratio{}[$__rate_interval]))", "worst port"),
                Query("quantile(0.5, avg_over_time(fabric_rdma_retransmission_ratio{}[$__rate_interval]))", "median"),
            ],
            width=5,
            height=6,
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
            width=21,
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
