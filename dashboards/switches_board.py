"""The dashboard of switches: which are silent, ports with faults, uplinks, congestion, errors and neighbours."""

from alert_tables import HIDDEN, firing, hidden
from joins import (
    FULL_WARNS,
    FULLNESS,
    MARKED,
    NOW,
    OVER,
    PHYSICAL,
    RECENTLY,
    UNEVEN_WARNS,
    UPLINK,
    higher,
    highest_uplink,
    now_or_over,
    union,
)
from panels import ANY, FULL, HALF, THIRD, WAYS, Limits, Panel, Query, lines, meaning, number, where
from switches_pauses import TO_HOSTS, hosts_that_pause, switches_that_pause
from tables import Column, info_table, table_of, top_list

ON = where('switch=~"$switch"')
"""Filters the selected switches."""

UPLINKS = where('switch=~"$switch", group="uplink"')
"""The same for metrics of port groups: uplinks."""

IN_GROUP = f"on (job, instance, switch, port) group_left () fabric_switch_group_info{UPLINKS}"
"""Filters the uplinks of a metric of ports."""

SPEED_TO_HOSTS = (
    f"(fabric_switch_link_speed_bytes_per_second{ON} and on (job, instance, switch, port) fabric_link_info{TO_HOSTS})"
)
SLOW_TO_HOSTS = (
    f"({SPEED_TO_HOSTS} < on (job, instance, switch) group_left ()"
    f" quantile by (job, instance, switch) (0.5, {SPEED_TO_HOSTS}))"
)
"""Speeds of ports to hosts that are slower than the middle one of their switch."""

SLOW_UPLINKS = (
    f"(fabric_switch_link_speed_bytes_per_second{ON}"
    f" and on (job, instance, switch, port) fabric_switch_link_degraded{ON} == 1)"
)
WENT_DOWN = f"((fabric_switch_link_up{ON} == 0 and max_over_time(fabric_switch_link_up{ON}[1h]) == 1) {PHYSICAL})"

RESTARTED = (
    f"(fabric_switch_uptime_seconds{ON} < 900"
    f" and on (job, instance, switch) (max_over_time(fabric_switch_uptime_seconds{ON}[1h]) > 1800 < 42940000))"
)
"""Uptimes of switches that restarted, by the limits of the alert FabricSwitchRestarted; after 497 days it wraps."""

SILENT_OR_RESTARTED_SINCE = (
    f"(max by (switch) (time() - {RESTARTED})"
    ' or min by (switch) (alert:fabric_active:since{alertname="FabricSwitchDown", switch=~"$switch"}))'
)
"""When each of them started, or when the alert about its polls began, which is pending from then on."""

ERRORS = ("receive_errors", "fcs_errors", "symbol_errors")
"""Counters of errors of the link; switches have different ones of them, and the highest of a port counts."""

LOSSES = Limits(0.01, 1)
"""Errors, blocks or packets per second that are lost."""

UNEVEN = Limits(0.1, 0.2)
"""How far the busiest uplink is above the mean; above the latter there is an alert."""


def now() -> list[Panel]:
    """Return the panels of the first screen."""
    which = (
        ', layer=~"switch|exporter|prometheus", switch=~"$switch|"',
        ', layer=~"rdma|nic|pci", switch=~"$switch", switch!=""',
    )
    alerts = firing(
        "Alerts of switches, of ports at them, and of exporters",
        *which,
        details=("host", "rail", "device", "switch", "port", "place"),
        width=FULL - HIDDEN,
        height=7,
    )
    rest = hidden(*which, shown=5, height=7)
    return [*_counts(), alerts, rest, _ports_with_faults(), hosts_that_pause(), _silent_or_restarted()]


def _counts() -> list[Panel]:
    return [
        number(
            "Switches silent",
            "Switches whose last poll failed. Their metrics are missing; the table below lists them.",
            f"sum(1 - max by (switch) (fabric_switch_up{ON}))",
            ANY,
            absent="no switches",
            filled=True,
        ),
        number(
            "Uplinks down",
            "Uplinks with the link down. Their traffic is on the others now.",
            f"sum(max by (switch, port) ((1 - fabric_switch_link_up{ON}) * {IN_GROUP}))",
            ANY,
            absent="no uplinks",
            filled=True,
        ),
        number(
            "Ports went down",
            "Ports with the link down that was up within the last hour.",
            f"count(max by (switch, port) ({WENT_DOWN})) or 0 * count(fabric_switch_link_up{ON} {PHYSICAL})",
            ANY,
            absent="no switches",
            filled=True,
        ),
        number(
            "Ports slow",
            "Uplinks slower than the fastest of their switch, and ports to hosts slower than the middle one. Check"
            " cables and transceivers.",
            f"count(max by (switch, port) ({SLOW_UPLINKS} or {SLOW_TO_HOSTS}))"
            f" or 0 * count(fabric_switch_link_up{ON} {PHYSICAL})",
            ANY,
            absent="no switches",
            filled=True,
        ),
        number(
            "Ports with errors",
            "Ports that received packets with errors, or FEC uncorrectable blocks, in the last 2 minutes.",
            f"sum(max by (switch) (switch:fabric_switch_receive_errors:count{ON}))",
            ANY,
            absent="no switches",
            filled=True,
        ),
        number(
            "Discards",
            "Packets per second dropped without an error, mostly for lack of buffers. A lossless fabric has none.",
            f"sum(max by (switch, port) ({_discards(NOW)}))",
            Limits(1, 100),
            unit="pps",
            absent="not counted",
            decimals=0,
            filled=True,
        ),
        number(
            "Fullest, of speed",
            "Utilization of the fullest uplink, in its busier direction, over 5 minutes; with the neighbour by LLDP.",
            highest_uplink(f"switch:fabric_uplink_utilization:max{ON}"),
            FULL_WARNS,
            unit="percentunit",
            absent="no traffic",
            decimals=0,
            filled=True,
            name=UPLINK,
        ),
        number(
            "Uplink over mean",
            "How far the busiest uplink of a switch is above the mean of all, at the worst switch and in the worse"
            " direction; with its neighbour by LLDP. Above 20 % FabricUplinkImbalance fires; FabricUplinkOverloaded if"
            " it delays a job.",
            highest_uplink(f"switch:fabric_uplink_imbalance:max{ON}"),
            UNEVEN_WARNS,
            unit="percentunit",
            absent="no traffic",
            decimals=0,
            filled=True,
            name=UPLINK,
        ),
    ]


def _silent_or_restarted() -> Panel:
    return table_of(
        "Silent or restarted switches",
        "Switches whose last poll failed, and those that started within 15 minutes and had been up for longer than half"
        " an hour, and since when; target is the name in the configuration.",
        [
            Column(
                "State",
                "short",
                f"fabric_switch_up{ON} == 0 or 0 * {RESTARTED} + 1",
                meaning({0: ("failing", "red"), 1: ("restarted", "orange")}),
                width=85,
            ),
            Column("Since", "dateTimeAsIsoNoDateIfToday", f"1000 * {SILENT_OR_RESTARTED_SINCE}", width=80),
        ],
        labels=["switch"],
        more=[(f"fabric_switch_up{ON} == 0", ("target",))],
        worst=("-State", "-switch"),
        absent="none of the polled switches",
        width=5,
        height=9,
    )


def _ports_with_faults() -> Panel:
    return table_of(
        "Ports with faults",
        "Ports that went down within an hour, are slow, or have errors, FEC uncorrectable blocks or discards (per"
        " second, over 2 minutes; over: there were some in the last 10); with the neighbour by LLDP. A port to a host"
        " is slow if it is slower than the middle one of its switch.",
        [
            Column("Down", "none", _with_peer(f"{WENT_DOWN} + 1"), limits=ANY, width=70),
            Column("Speed", "bps", _with_peer(f"8 * ({SLOW_UPLINKS} or {SLOW_TO_HOSTS})"), limits=ANY, width=75),
            *(
                Column(name, "short", _with_peer(now_or_over(of(NOW), of(RECENTLY))), OVER, LOSSES, width=width)
                for name, of, width in (
                    ("Errors/s", _errors, 95),
                    ("FEC/s", _fec_lost, 65),
                    ("Discards/s", _discards, 105),
                )
            ),
        ],
        labels=["switch", "port", "peer"],
        worst=("Down", "Errors/s", "Discards/s", "-switch"),
        absent="no port of a polled switch counts errors; those that hosts count are in the alerts",
        width=11,
        height=9,
        widths={"switch": 80, "port": 110, "peer": 85},
    )


def _busiest_uplinks() -> Panel:
    return lines(
        "Busiest uplink of a switch, of speed",
        "Utilization of the busiest uplink of each switch, in its busier direction, over 5 minutes. Far above that of"
        " all its uplinks: the switch distributes flows unevenly.",
        "percentunit",
        [Query(higher(*(_of_uplinks("max by (switch)", way) for way in WAYS)), "{{switch}}")],
        top=1,
        limits=FULLNESS,
        decimals=0,
        width=THIRD,
    )


def uplinks() -> list[Panel]:
    """Return panels of the utilization and balance of uplinks."""
    return [
        _busiest_uplinks(),
        lines(
            "Utilization of all uplinks, of speed",
            "Utilization of all uplinks of a switch together, in the busier direction. If all are full, jobs need more"
            " spine bandwidth, or another placement of ranks.",
            "percentunit",
            [Query(higher(*(f"fabric_switch_uplink_{way}_utilization_ratio{ON}" for way in WAYS)), "{{switch}}")],
            top=1,
            decimals=0,
        ),
        lines(
            "Imbalance of uplinks, over the mean",
            "How far the busiest uplink of a switch is above the mean of all, in the worse direction, over a minute."
            " Hashing is never even; few large flows are the worst.",
            "percentunit",
            [Query(higher(*(f"fabric_switch_{way}_imbalance_ratio{UPLINKS}" for way in WAYS)), "{{switch}}")],
            limits=UNEVEN,
            decimals=0,
        ),
        top_list(
            "Fullest uplinks",
            "Uplinks by their transmit utilization, with the neighbour by LLDP.",
            "percentunit",
            _of_uplinks("max by (switch, port, peer)", "transmit", _TO),
            FULLNESS,
            width=HALF,
            labels=["switch", "port", "peer"],
            when="of speed",
        ),
        table_of(
            "Leaves",
            "Speed of the ports to hosts over that of the uplinks, of those that are up; and uplinks that are up.",
            [
                Column("Oversubscription", "none", f"fabric_switch_oversubscription_ratio{ON}", decimals=2),
                Column("Uplinks up", "none", f"sum by (switch) (fabric_switch_link_up{ON} * {IN_GROUP})"),
            ],
            labels=["switch"],
            worst=("Oversubscription",),
            absent="no leaves",
            width=HALF,
        ),
    ]


def congestion() -> list[Panel]:
    """Return panels of pauses, ECN marks and drops."""
    return [
        switches_that_pause(),
        *(
            lines(
                f"PFC frames {verb} by priority",
                text,
                "pps",
                [Query(_by_priority(way), "priority {{priority}}")],
            )
            for way, verb, text in (
                (
                    "receive",
                    "received",
                    "Pause frames per second that pause a switch: the device behind one of its ports is overloaded.",
                ),
                (
                    "transmit",
                    "sent",
                    "Pause frames per second by which a switch pauses its peers: one of its own queues is full.",
                ),
            )
        ),
        top_list(
            "PFC frames received by port",
            "Pause frames per second that a port receives. The device behind the first port pauses the fabric: see"
            " the table of neighbours.",
            "pps",
            f"sum by (switch, port) (rate(fabric_switch_receive_pfc_frames_total{ON}[5m]) {PHYSICAL})",
            labels=["switch", "port"],
        ),
        top_list(
            "ECN-marked packets transmitted",
            "Share of transmitted packets with the ECN mark, for ports that count marks: the queue of that port is"
            " full.",
            "percentunit",
            f"max by (switch, port) (rate(fabric_switch_ecn_marked_packets_total{ON}[5m])"
            f" / rate(fabric_switch_transmit_packets_total{ON}[5m]) {PHYSICAL})",
            MARKED,
            labels=["switch", "port"],
            when="of packets",
        ),
        top_list(
            "Discards by port",
            "Packets per second dropped without an error, for lack of buffers, or because the link was down.",
            "pps",
            f"max by (switch, port) ({_discards('5m')})",
            Limits(1, 100),
            labels=["switch", "port"],
        ),
    ]


def links() -> list[Panel]:
    """Return panels of errors and light of ports, and of neighbours."""
    return [
        top_list(
            "FEC uncorrectable blocks",
            "Blocks per second that forward error correction could not correct, over 5 minutes; each is a packet lost.",
            "cps",
            f"max by (switch, port) {_fec_lost('5m')}",
            Limits(0.001, 1),
            labels=["switch", "port"],
        ),
        top_list(
            "Errors received (FCS, symbol)",
            "Packets with a wrong FCS or another error, or symbol errors, per second over 5 minutes.",
            "cps",
            f"max by (switch, port) ({_errors('5m')})",
            Limits(0.01, 1),
            labels=["switch", "port"],
        ),
        table_of(
            "Least light received",
            "The ports whose darkest lane receives the least light. Compare with the alarm limits of the module.",
            [
                Column(
                    "Received",
                    "watt",
                    "bottomk(20, min by (switch, port)"
                    f" (fabric_switch_module_lane_receive_power_watts{ON} {PHYSICAL}))",
                )
            ],
            labels=["switch", "port"],
            worst=("-Received",),
            absent="no switch reports light",
            width=THIRD,
        ),
        info_table(
            "Neighbours (LLDP)",
            "The other end of each port, by LLDP: a switch by its label, or a host by its name. A MAC address is"
            " that of a NIC, as in fabric_nic_info.",
            f"fabric_link_info{ON}",
            labels=["switch", "port", "peer", "peer_port", "peer_mac"],
            worst=("-switch", "-port"),
            absent="no LLDP",
            width=FULL,
            height=10,
        ),
    ]


def polls() -> list[Panel]:
    """Return panels of the polls of switches."""
    state = meaning({1: ("good", "green"), 0: ("failing", "red")})
    return [
        table_of(
            "Polls of switches",
            "Each switch; target is its name in the configuration. Metrics of a failing switch are missing.",
            [
                Column("State", "short", f"fabric_switch_up{ON}", state),
                Column("Duration", "s", f"fabric_switch_poll_duration_seconds{ON}"),
                Column("Skipped in an hour", "none", f"increase(fabric_switch_overruns_total{ON}[1h])", decimals=0),
            ],
            labels=["switch", "target"],
            worst=("-State",),
            absent="no switches",
            height=11,
        ),
        info_table(
            "Families of metrics",
            "State of each family of metrics: counted; not counted, if a feature is disabled; unsupported; failed,"
            " if the request failed. A family that is not counted has no series, and no 0.",
            f"fabric_switch_family_info{ON}",
            labels=["switch", "family", "state"],
            worst=("-switch", "-family"),
            absent="no switches",
            height=11,
        ),
        info_table(
            "Switches",
            "Identity of each switch, and its role in the fabric by the configuration or its neighbours.",
            f"fabric_switch_device_info{ON}",
            labels=["switch", "role", "model", "version", "description"],
            worst=("-switch",),
            absent="no switches",
            width=FULL,
            height=11,
        ),
    ]


def _counter(ending: str) -> str:
    return f"fabric_switch_{ending}_total{ON}"


def _errors(window: str) -> str:
    """Return the query for the errors per second of each port: the highest of the counters that it has."""
    named = union("counter", {one: f"rate({_counter(one)}[{window}])" for one in ERRORS})
    return f"max by (job, instance, switch, port) (({named}) {PHYSICAL})"


def _fec_lost(window: str) -> str:
    return f"(rate({_counter('fec_uncorrectable_blocks')}[{window}]) {PHYSICAL})"


def _discards(window: str) -> str:
    """Return the query for packets per second that each port discarded, in the directions that it counts."""
    named = union("direction", {way: f"rate({_counter(f'{way}_discards')}[{window}])" for way in WAYS})
    return f"sum by (job, instance, switch, port) (({named}) {PHYSICAL})"


def _neighbours(selector: str) -> str:
    """Return one neighbour of each port, also of one that went down within an hour."""
    return f"topk by (job, instance, switch, port) (1, last_over_time(fabric_link_info{selector}[1h]))"


def _with_peer(expr: str) -> str:
    """Return a query with the neighbour of the port where it is known."""
    ports = "on (job, instance, switch, port)"
    return f"({expr}) * {ports} group_left (peer) {_neighbours(ON)} or {ports} ({expr})"


def _of_uplinks(pick: str, way: str, more: str = "") -> str:
    return f"{pick} (avg_over_time(fabric_switch_{way}_utilization_ratio{ON}[5m]) * {IN_GROUP}{more})"


_TO = f" * on (job, instance, switch, port) group_left (peer) uplink:fabric_link:peer{ON}"
"""Joins the neighbour of an uplink."""


def _by_priority(way: str) -> str:
    return f"sum by (priority) (rate({_counter(f'{way}_pfc_frames')}[$__rate_interval]) {PHYSICAL})"


ROWS = {
    "Switches now": now,
    "Uplinks": uplinks,
    "Pauses, ECN marks and discards": congestion,
    "Links and neighbours": links,
    "Polls": polls,
}
