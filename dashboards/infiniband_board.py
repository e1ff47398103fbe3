"""The dashboard of InfiniBand fabrics: links, errors, uplinks, congestion, nodes and subnet managers.

One metric alone has the name of a node, so each query is joined with it, which also applies the selection.
"""

from alert_tables import firing
from joins import higher, union
from panels import ANY, FULL, THIRD, WAYS, Limits, Panel, Query, lines, meaning, number, where
from tables import Column, info_table, table_of, top_list

SELECTED = where('node_name=~"$node_name"')


def _node(*labels: str) -> str:
    """Return the join of labels of the node, which also filters the selected nodes."""
    return f"on (job, instance, guid) group_left ({', '.join(labels)}) fabric_ib_node_info{SELECTED}"


NODE = _node("node_name")

_SLOW = "fabric_ib_link_{}_bytes_per_second{{}} and on (job, instance, guid, port) fabric_ib_link_degraded{{}} == 1"
_PEER = (
    "on (job, instance, guid, port) group_left (peer, peer_port, width, generation)"
    " topk by (job, instance, guid, port) (1, fabric_ib_link_info{})"
)

UPLINK = where('group="uplink"')
IN_UPLINKS = f"on (job, instance, guid, port) group_left () fabric_ib_group_info{UPLINK}"

FULLNESS = Limits(0.6, 0.8)
"""Utilization of an uplink; above the latter there is an alert if others have room."""

UNEVEN = Limits(0.1, 0.2)
"""How far the busiest uplink is above the mean; above the latter there is an alert."""

ERRORS = {
    "Symbol errors": "symbol_errors",
    "Recoveries": "link_error_recovery",
    "Link downs": "link_down",
    "Receive errors": "receive_errors",
}
"""Columns of error counters, with their metrics."""

ABSENT = "no InfiniBand"


def now() -> list[Panel]:
    """Return the panels of the first screen."""
    alerts = firing(
        "Alerts of InfiniBand",
        ', layer="ib", place=~"$node_name|"',
        details=("host", "place", "port"),
        width=FULL,
        height=5,
        absent="no alert fires or is pending, or no subnet is swept",
    )
    return [*_counts(), alerts, *_faults()]


def _counts() -> list[Panel]:
    return [
        number(
            "Nodes missing",
            "Nodes that responded within the last hour and cannot be reached any more; the table below lists them.",
            f"sum((1 - fabric_ib_node_up{{}}) * {NODE})",
            ANY,
            absent=ABSENT,
            filled=True,
        ),
        number(
            "Slow links",
            "Links slower than both their ends support; the table below lists their ports.",
            f"ceil(sum(fabric_ib_link_degraded{{}} * {NODE}) / 2)",
            ANY,
            absent=ABSENT,
            filled=True,
        ),
        number(
            "Errors",
            "Ports that counted symbol errors, receive errors, link error recoveries or links down in the last hour.",
            f"count({_with_errors()}) or 0 * count(fabric_ib_node_up{{}})",
            ANY,
            absent=ABSENT,
            filled=True,
        ),
        number(
            "Unknown peers",
            "Ports whose link is up and whose peer does not respond.",
            "sum(fabric_ib_sweep_unanswered_links{})",
            ANY,
            absent=ABSENT,
            filled=True,
        ),
        number(
            "Master SMs",
            "Subnet managers that are master: one for each subnet. Without one no port becomes active.",
            "sum(fabric_ib_sm_state{} == bool 3) or 0 * count(fabric_ib_node_up{})",
            Limits(1, 1, below=True),
            absent=ABSENT,
            filled=True,
        ),
        number(
            "Saturated",
            "Counters that have reached their maximum and do not count further; the table below lists them.",
            f"sum(fabric_ib_saturated{{}} * {NODE}) or 0 * count(fabric_ib_node_up{{}})",
            ANY,
            absent=ABSENT,
            filled=True,
        ),
        number("Switches", "Switches that respond.", "sum(fabric_ib_sweep_switches{})", absent=ABSENT),
        number("Adapters", "Adapters that respond.", "sum(fabric_ib_sweep_adapters{})", absent=ABSENT),
    ]


def _with_errors() -> str:
    named = union("counter", {one: f"increase(fabric_ib_{one}_total{{}}[1h]) > 0" for one in ERRORS.values()})
    return f"max by (guid, port) (({named}) * {NODE})"


def _faults() -> list[Panel]:
    return [
        info_table(
            "Missing nodes",
            "Nodes that responded within the last hour and cannot be reached any more.",
            f"((fabric_ib_node_up{{}} == 0) + 1) * {_node('node_name', 'node_kind', 'host')}",
            labels=["node_name", "guid", "node_kind", "host"],
            absent="no node of the subnets that are swept is missing",
            height=6,
        ),
        table_of(
            "Ports with slow links",
            "Speed and expected speed of ports whose link is slower than both its ends support, and the other end.",
            [
                Column(name, "bps", f"8 * ({_SLOW.format(what)}) * {NODE} * {_PEER}")
                for name, what in (("Speed", "speed"), ("Expected", "expected_speed"))
            ],
            labels=["node_name", "port", "peer", "peer_port", "width", "generation"],
            worst=("-Speed",),
            absent="no link of the subnets that are swept is slow",
            height=6,
        ),
        table_of(
            "Ports with errors",
            "Errors of the last hour, by the port that counts them: SymbolErrorCounter, LinkErrorRecoveryCounter,"
            " LinkDownedCounter and PortRcvErrors.",
            [
                Column(
                    title,
                    "short",
                    f"(round(increase(fabric_ib_{name}_total{{}}[1h])) > 0) * {NODE}",
                    limits=Limits(1, 100),
                    decimals=0,
                )
                for title, name in ERRORS.items()
            ],
            labels=["node_name", "port"],
            worst=tuple(ERRORS),
            absent="no port of the subnets that are swept has errors",
            height=5,
        ),
        info_table(
            "Saturated counters",
            "Counters that have reached their maximum and do not count further, so that their rates are 0. Clear them.",
            f"(fabric_ib_saturated{{}} == 1) * {NODE}",
            labels=["node_name", "port", "counter"],
            absent="no counter of the subnets that are swept is saturated",
            height=5,
        ),
    ]


def links() -> list[Panel]:
    """Return the table of all links."""
    return [
        table_of(
            "Links by port",
            "The other end of each link that is up, its speed, width and generation. A peer without a name does not"
            " respond.",
            [
                Column(
                    "Speed",
                    "bps",
                    f"8 * fabric_ib_link_speed_bytes_per_second{{}} * {NODE} * {_PEER}",
                )
            ],
            labels=["node_name", "port", "peer", "peer_port", "width", "generation"],
            worst=("-Speed", "-node_name"),
            absent=ABSENT,
            width=FULL,
            height=10,
        ),
    ]


def traffic() -> list[Panel]:
    """Return panels of the utilization and balance of uplinks, and of congestion."""
    return [
        lines(
            "Traffic by role",
            "Bits per second transmitted by all ports of the nodes of a role: leaves, spines and adapters.",
            "bps",
            [
                Query(
                    "8 * sum by (role, node_kind) (rate(fabric_ib_transmit_bytes_total{}[$__rate_interval])"
                    f" * {_node('node_name', 'role', 'node_kind')})",
                    "{{node_kind}} {{role}}",
                )
            ],
        ),
        lines(
            "Busiest uplink of a switch, of its speed",
            "Utilization of the busiest uplink of each switch, in its busier direction.",
            "percentunit",
            [Query(higher(*(_of_uplinks(way) for way in WAYS)), "{{node_name}}")],
            top=1,
            limits=FULLNESS,
            decimals=0,
        ),
        lines(
            "Imbalance of uplinks, over the mean",
            "How far the busiest uplink of a switch is above the mean of all.",
            "percentunit",
            [Query(f"max by (node_name) (fabric_ib_transmit_imbalance_ratio{UPLINK} * {NODE})", "{{node_name}}")],
            limits=UNEVEN,
            decimals=0,
        ),
        top_list(
            "Congestion (PortXmitWait)",
            "Ticks per second in which a port had data to transmit and could not (PortXmitWait). The length of a"
            " tick is unknown, so compare only ports of one model.",
            "cps",
            f"sum by (node_name, port) (rate(fabric_ib_transmit_wait_ticks_total{{}}[5m]) * {NODE})",
            labels=["node_name", "port"],
        ),
        top_list(
            "Discards (PortXmitDiscards)",
            "Packets per second that a port dropped instead of transmitting them: they waited too long, or the port"
            " was down.",
            "pps",
            f"sum by (node_name, port) (rate(fabric_ib_transmit_discards_total{{}}[5m]) * {NODE})",
            Limits(1, 100),
            labels=["node_name", "port"],
        ),
        top_list(
            "Fullest ports, transmit",
            "Transmit utilization of a port.",
            "percentunit",
            f"max by (node_name, port) (avg_over_time(fabric_ib_transmit_utilization_ratio{{}}[5m]) * {NODE})",
            labels=["node_name", "port"],
            when="of speed",
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
            worst=("State", "Priority"),
            absent="no subnet manager reported",
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
            absent=ABSENT,
            widths={"local_port": 100, "state": 90, "subnet": 290},
        ),
        info_table(
            "Nodes",
            "Attributes of each node; a leaf is connected to adapters, a spine to leaves.",
            f"fabric_ib_node_info{SELECTED}",
            labels=["node_name", "guid", "node_kind", "role"],
            worst=("-node_name",),
            absent=ABSENT,
        ),
    ]


def _of_uplinks(way: str) -> str:
    return f"max by (node_name) (fabric_ib_{way}_utilization_ratio{{}} * {IN_UPLINKS} * {NODE})"


ROWS = {
    "Fabric now": now,
    "Links": links,
    "Traffic and congestion": traffic,
    "Sweeps and subnet managers": sweeps,
}
