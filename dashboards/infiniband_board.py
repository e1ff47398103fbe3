"""The board of InfiniBand fabrics: links, errors, uplinks, what is congested, nodes and subnet managers.

What a node is called is told by one metric alone, so that each query is joined with it; that is how it is selected too.
"""

from joins import higher
from panels import HALF, THIRD, WAYS, Column, Limits, Panel, Query, facts, lines, listing, meaning, number, where, worst

ANY = Limits(1, 1)
"""For counts of what should not be."""

SELECTED = where('node_name=~"$node_name"')
NODE = f"on (job, instance, guid) group_left (node_name) fabric_ib_node_info{SELECTED}"
"""Names the node, and keeps those that are selected."""

UPLINK = where('group="uplink"')
IN_UPLINKS = f"on (job, instance, guid, port) group_left () fabric_ib_group_info{UPLINK}"

FULLNESS = Limits(0.6, 0.8)
"""Shares of its speed that an uplink uses; from the latter on there is an alert where others have room."""

UNEVEN = Limits(0.1, 0.2)
"""How far the busiest uplink is above the mean; from the latter on there is an alert where it is nearly full."""

ERRORS = {
    "Symbol errors": "symbol_errors",
    "Link recoveries": "link_error_recovery",
    "Links down": "link_down",
    "Packets received with errors": "receive_errors",
}


def now() -> list[Panel]:
    """Show whether all is well."""
    return [
        number("Switches", "Switches that answer.", "sum(fabric_ib_sweep_switches{})"),
        number("Adapters", "Adapters that answer.", "sum(fabric_ib_sweep_adapters{})"),
        number("Links", "Links between nodes that answer, each counted once.", "sum(fabric_ib_sweep_links{})"),
        number(
            "Nodes gone",
            "Nodes that answered within the last hour and are not reached any more.",
            f"sum((1 - fabric_ib_node_up{{}}) * {NODE})",
            ANY,
        ),
        number(
            "Ends of slow links",
            "Ports whose link is slower than both its ends can be. A link has two.",
            f"sum(fabric_ib_link_degraded{{}} * {NODE})",
            ANY,
        ),
        number(
            "Peers silent",
            "Ports whose link is up and whose peer does not say what it is.",
            "sum(fabric_ib_sweep_unanswered_links{})",
            ANY,
        ),
        number(
            "Masters",
            "Subnet managers that are master: one for each subnet.",
            "sum(fabric_ib_sm_state{} == bool 3)",
        ),
        number(
            "Counters at their end",
            "Counters that stand at their highest value and count no more. What happens there now is not seen.",
            f"sum(fabric_ib_saturated{{}} * {NODE})",
            ANY,
        ),
    ]


def links() -> list[Panel]:
    """Show which links are slow or have errors, and what is linked to what."""
    return [
        listing(
            "Slow links",
            "Share of the speed that both ends can do, of ports whose link is slower.",
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
        facts(
            "Links by port",
            "The other end of each link that is up, its width and generation. Without a name the peer does not say what"
            " it is.",
            "fabric_ib_link_info{} * " + NODE,
            labels=["node_name", "port", "peer", "peer_port", "width", "generation"],
        ),
        *(
            worst(
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
    """Show how full and even the uplinks are, and where packets wait."""
    return [
        lines(
            "Traffic by node",
            "Bytes that all ports of a node sent and received a second.",
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
            "Share of its speed that the busiest uplink of each switch uses, in its busier direction.",
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
        worst(
            "Ports that wait most",
            "Ticks a second in which a port had something to send and could not. How long a tick lasts is not told, so"
            " compare ports of one model alone.",
            "cps",
            Query(
                f"sum by (node_name, port) (rate(fabric_ib_transmit_wait_ticks_total{{}}[5m]) * {NODE})",
                "{{node_name}} {{port}}",
            ),
        ),
        worst(
            "Packets dropped by port",
            "Packets a second that a port dropped in place of sending them: they waited for too long, or the port was"
            " down.",
            "pps",
            Query(
                f"sum by (node_name, port) (rate(fabric_ib_transmit_discards_total{{}}[5m]) * {NODE})",
                "{{node_name}} {{port}}",
            ),
            Limits(1, 100),
        ),
        worst(
            "Busiest ports to send",
            "Share of its speed that a port uses to send.",
            "percentunit",
            Query(
                f"max by (node_name, port) (fabric_ib_transmit_utilization_ratio{{}} * {NODE})",
                "{{node_name}} {{port}}",
            ),
            Limits(0.8, 0.95),
        ),
    ]


def passes() -> list[Panel]:
    """Show how the fabric is read, and who manages it."""
    states = meaning(
        {0: ("not active", "orange"), 1: ("discovering", "orange"), 2: ("standby", "green"), 3: ("master", "green")}
    )
    return [
        listing(
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
            "Time of a pass",
            "Time that the last pass over the fabric took. Near its interval: ask with more in flight, or less often.",
            "s",
            [
                Query(
                    "max by (instance, local_port) (fabric_ib_sweep_duration_seconds{})", "{{instance}} {{local_port}}"
                )
            ],
        ),
        lines(
            "Datagrams",
            "Datagrams a second by what became of them. Those that time out are of nodes that do not answer.",
            "pps",
            [Query("sum by (outcome) (rate(fabric_ib_sweep_datagrams_total{}[$__rate_interval]))", "{{outcome}}")],
        ),
        facts(
            "Sweepers",
            "Who looks at which subnet; a holder is named where this exporter waits for another one.",
            "fabric_ib_sweep_info{}",
            labels=["instance", "local_port", "state", "holder", "subnet"],
        ),
        facts(
            "Nodes",
            "What each node is; a leaf has adapters, a spine leaves.",
            f"fabric_ib_node_info{SELECTED}",
            labels=["node_name", "guid", "node_kind", "role"],
        ),
    ]


def _of_uplinks(way: str) -> str:
    return f"max by (node_name) (fabric_ib_{way}_utilization_ratio{{}} * {IN_UPLINKS} * {NODE})"


ROWS = {"Fabric now": now, "Links and errors": links, "Traffic and congestion": traffic, "Passes and managers": passes}
