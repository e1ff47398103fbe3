"""The dashboard of InfiniBand fabrics: links, errors, uplinks, congestion, nodes and subnet managers.

One metric alone has the name of a node, so each query is joined with it, which also applies the selection.
"""

from joins import higher
from panels import (
    HALF,
    THIRD,
    WAYS,
    Column,
    Limits,
    Panel,
    Query,
    info_table,
    lines,
    meaning,
    number,
    table_of,
    top_list,
    where,
)

ANY = Limits(1, 1)
"""For counts that should be 0."""

SELECTED = where('node_name=~"$node_name"')
NODE = f"on (job, instance, guid) group_left (node_name) fabric_ib_node_info{SELECTED}"
"""Joins the name of the node, and filters the selected nodes."""

UPLINK = where('group="uplink"')
IN_UPLINKS = f"on (job, instance, guid, port) group_left () fabric_ib_group_info{UPLINK}"

FULLNESS = Limits(0.6, 0.8)
"""Utilization of an uplink; above the latter there is an alert if others have room."""

UNEVEN = Limits(0.1, 0.2)
"""How far the busiest uplink is above the mean; above the latter there is an alert if it is nearly full."""

ERRORS = {
    "Symbol errors": "symbol_errors",
    "Link recoveries": "link_error_recovery",
    "Links down": "link_down",
    "Packets received with errors": "receive_errors",
}


def now() -> list[Panel]:
    """Return panels of the fabric's health."""
    return [
        number("Switches", "Switches that respond.", "sum(fabric_ib_sweep_switches{})"),
        number("Adapters", "Adapters that respond.", "sum(fabric_ib_sweep_adapters{})"),
        number("Links", "Links between nodes that respond, each counted once.", "sum(fabric_ib_sweep_links{})"),
        number(
            "Nodes missing",
            "Nodes that responded within the last hour and cannot be reached any more.",
            f"sum((1 - fabric_ib_node_up{{}}) * {NODE})",
            ANY,
        ),
        number(
            "Ports with slow links",
            "Ports whose link is slower than both its ends support. A link has two ports.",
            f"sum(fabric_ib_link_degraded{{}} * {NODE})",
            ANY,
        ),
        number(
            "Unknown peers",
            "Ports whose link is up and whose peer does not respond.",
            "sum(fabric_ib_sweep_unanswered_links{})",
            ANY,
        ),
        number(
            "Masters",
            "Subnet managers that are master: one for each subnet.",
            "sum(fabric_ib_sm_state{} == bool 3)",
        ),
        number(
            "Saturated counters",
            "Counters that have reached their maximum and do not count further.",
            f"sum(fabric_ib_saturated{{}} * {NODE})",
            ANY,
        ),
    ]


def links() -> list[Panel]:
    """Return panels of slow links, errors, and peers."""
    return [
        table_of(
            "Slow links",
            "Share of the speed that both ends support, for ports whose link is slower.",
            [
                Column(
                    "Of its speed",
                    "percentunit",
                    "(fabric_ib_link_speed_bytes_per_second{}"
                    f" / fabric_ib_link_expected_speed_bytes_per_second{{}} < 1) * {NODE}",
                ),
            ],
            labels=["node_name", "port"],
        ),
        info_table(
            "Links by port",
            "The other end of each link that is up, its width and generation. A peer without a name does not respond.",
            "fabric_ib_link_info{} * " + NODE,
            labels=["node_name", "port", "peer", "peer_port", "width", "generation"],
        ),
        *(
            top_list(
                title,
                f"{title} in an hour, by the port that counts them.",
                "short",
                Query(
                    f"sum by (node_name, port) (increase(fabric_ib_{name}_total{{}}[1h]) * {NODE})",
                    "{{node_name}} {{port}}",
                ),
                width=HALF,
            )
            for title, name in ERRORS.items()
        ),
    ]


def traffic() -> list[Panel]:
    """Return panels of the utilization and balance of uplinks, and of congestion."""
    return [
        lines(
            "Traffic by node",
            "Bytes per second transmitted and received by all ports of a node.",
            "Bps",
            [
                Query(
                    f"sum by (node_name) (rate(fabric_ib_{way}_bytes_total{{}}[$__rate_interval]) * {NODE})",
                    f"{{{{node_name}}}} {way}",
                )
                for way in WAYS
            ],
        ),
        lines(
            "Busiest uplink of a switch",
            "Utilization of the busiest uplink of each switch, in its busier direction.",
            "percentunit",
            [Query(higher(*(_of_uplinks(way) for way in WAYS)), "{{node_name}}")],
            top=1,
            limits=FULLNESS,
        ),
        lines(
            "Imbalance of uplinks",
            "How far the busiest uplink of a switch is above the mean of all.",
            "percentunit",
            [
                Query(
                    f"sum by (node_name) (fabric_ib_{way}_imbalance_ratio{UPLINK} * {NODE})", f"{{{{node_name}}}} {way}"
                )
                for way in WAYS
            ],
            limits=UNEVEN,
        ),
        top_list(
            "Ports with most PortXmitWait",
            "Ticks per second in which a port had data to transmit and could not (PortXmitWait). The length of a"
            " tick is unknown, so compare only ports of one model.",
            "cps",
            Query(
                f"sum by (node_name, port) (rate(fabric_ib_transmit_wait_ticks_total{{}}[5m]) * {NODE})",
                "{{node_name}} {{port}}",
            ),
        ),
        top_list(
            "Packets dropped by port",
            "Packets per second that a port dropped instead of transmitting them: they waited too long, or the port"
            " was down.",
            "pps",
            Query(
                f"sum by (node_name, port) (rate(fabric_ib_transmit_discards_total{{}}[5m]) * {NODE})",
                "{{node_name}} {{port}}",
            ),
            Limits(1, 100),
        ),
        top_list(
            "Busiest ports, transmit",
            "Transmit utilization of a port.",
            "percentunit",
            Query(
                f"max by (node_name, port) (fabric_ib_transmit_utilization_ratio{{}} * {NODE})",
                "{{node_name}} {{port}}",
            ),
            Limits(0.8, 0.95),
        ),
    ]


def sweeps() -> list[Panel]:
    """Return panels of sweeps and subnet managers."""
    states = meaning(
        {0: ("not active", "orange"), 1: ("discovering", "orange"), 2: ("standby", "green"), 3: ("master", "green")}
    )
    return [
        table_of(
            "Subnet managers",
            "Each subnet manager, by the node that it runs on.",
            [
                Column("State", "short", f"fabric_ib_sm_state{{}} * {NODE}", states),
                Column("Priority", "none", f"fabric_ib_sm_priority{{}} * {NODE}"),
            ],
            labels=["node_name", "port"],
            width=THIRD,
        ),
        lines(
            "Duration of a sweep",
            "Duration of the last sweep of the fabric. If it is near the interval, allow more requests in flight, or"
            " sweep less often.",
            "s",
            [
                Query(
                    "max by (instance, local_port) (fabric_ib_sweep_duration_seconds{})", "{{instance}} {{local_port}}"
                )
            ],
        ),
        lines(
            "Datagrams",
            "Datagrams per second by outcome. Timeouts are of nodes that do not respond.",
            "pps",
            [Query("sum by (outcome) (rate(fabric_ib_sweep_datagrams_total{}[$__rate_interval]))", "{{outcome}}")],
        ),
        info_table(
            "Sweepers",
            "Which exporter sweeps which subnet; the holder is shown if this exporter waits for another one.",
            "fabric_ib_sweep_info{}",
            labels=["instance", "local_port", "state", "holder", "subnet"],
        ),
        info_table(
            "Nodes",
            "Attributes of each node; a leaf is connected to adapters, a spine to leaves.",
            f"fabric_ib_node_info{SELECTED}",
            labels=["node_name", "guid", "node_kind", "role"],
        ),
    ]


def _of_uplinks(way: str) -> str:
    return f"max by (node_name) (fabric_ib_{way}_utilization_ratio{{}} * {IN_UPLINKS} * {NODE})"


ROWS = {
    "Fabric now": now,
    "Links and errors": links,
    "Traffic and congestion": traffic,
    "Sweeps and subnet managers": sweeps,
}
