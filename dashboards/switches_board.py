"""The dashboard of switches: uplinks, congestion, links that are slow or down, and neighbours."""

from joins import MARKED, PHYSICAL, higher
from panels import (
    FULL,
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

ON = where('switch=~"$switch"')
"""Filters the selected switches."""

UPLINKS = where('switch=~"$switch", group="uplink"')
"""The same for metrics of port groups: uplinks."""

IN_GROUP = f"on (job, instance, switch, port) group_left () fabric_switch_group_info{UPLINKS}"
"""Filters the uplinks of a metric of ports."""

FULLNESS = Limits(0.6, 0.8)
"""Utilization of an uplink; above the latter there is an alert if others have room."""

UNEVEN = Limits(0.1, 0.2)
"""How far the busiest uplink is above the mean; above the latter there is an alert if it is nearly full."""


def now() -> list[Panel]:
    """Return panels of the switches' health."""
    return [
        number(
            "Switches not responding",
            "Switches whose last poll failed. Their metrics are missing; the table of polls lists them.",
            f"sum(1 - fabric_switch_up{ON})",
            ANY,
        ),
        number(
            "Uplinks down",
            "Uplinks with the link down. Their traffic is on the others now.",
            f"sum((1 - fabric_switch_link_up{ON}) * {IN_GROUP})",
            ANY,
        ),
        number(
            "Links degraded",
            "Uplinks that are slower than the fastest of their switch. Check cables and transceivers.",
            f"sum(fabric_switch_link_degraded{ON})",
            ANY,
        ),
        number(
            "Fullest uplink",
            "Utilization of the busiest uplink, in its busier direction.",
            higher(*(_of_uplinks("max", way) for way in WAYS)),
            FULLNESS,
            unit="percentunit",
        ),
        number(
            "Most uneven uplinks",
            "How far the busiest uplink of a switch is above the mean of all, at the worst switch. It matters if"
            " that uplink is nearly full.",
            f"max(fabric_switch_transmit_imbalance_ratio{UPLINKS})",
            UNEVEN,
            unit="percentunit",
        ),
        number(
            "Oversubscription",
            "Speed of all ports to hosts over that of all uplinks, at the worst leaf. It rises when an uplink fails.",
            f"max(fabric_switch_oversubscription_ratio{ON})",
        ),
        number(
            "Pauses received",
            "Pause frames per second from hosts and other switches that are overloaded. Start at their senders.",
            f"sum(rate(fabric_switch_receive_pfc_frames_total{ON}[5m]) {PHYSICAL})",
            unit="pps",
        ),
        number(
            "Packets dropped",
            "Packets per second dropped without an error, mostly for lack of buffers. A lossless fabric has none.",
            f"sum(rate(fabric_switch_transmit_discards_total{ON}[5m]) {PHYSICAL})",
            Limits(1, 100),
            unit="pps",
        ),
    ]


def uplinks() -> list[Panel]:
    """Return panels of the utilization and balance of uplinks."""
    return [
        lines(
            "Utilization of all uplinks",
            "Utilization of all uplinks of a switch together. If all are full, jobs need more spine bandwidth, or"
            " another placement of ranks.",
            "percentunit",
            [Query(f"fabric_switch_uplink_{way}_utilization_ratio{ON}", f"{{{{switch}}}} {way}") for way in WAYS],
            top=1,
        ),
        lines(
            "Busiest uplink of a switch",
            "Utilization of the busiest uplink of each switch. Far above the utilization of all: the switch"
            " distributes flows unevenly.",
            "percentunit",
            [Query(_of_uplinks("max by (switch)", way), f"{{{{switch}}}} {way}") for way in WAYS],
            top=1,
            limits=FULLNESS,
        ),
        lines(
            "Imbalance of uplinks",
            "How far the busiest uplink of a switch is above the mean of all, over a minute. Hashing is never even;"
            " few large flows are the worst.",
            "percentunit",
            [Query(f"fabric_switch_{way}_imbalance_ratio{UPLINKS}", f"{{{{switch}}}} {way}") for way in WAYS],
            limits=UNEVEN,
        ),
        top_list(
            "Fullest uplinks",
            "Uplinks by their transmit utilization.",
            "percentunit",
            Query(_of_uplinks("max by (switch, port)", "transmit"), "{{switch}} {{port}}"),
            FULLNESS,
        ),
        top_list(
            "Idlest uplink against the mean",
            "By how much the idlest uplink of a switch is below the mean of all: 100 % is an uplink that transmits"
            " nothing.",
            "percentunit",
            Query(f"max by (switch) (fabric_switch_transmit_deficit_ratio{UPLINKS})", "{{switch}}"),
        ),
        table_of(
            "Leaves",
            "Speed of the ports to hosts over that of the uplinks, of those that are up; and uplinks that are up.",
            [
                Column("Oversubscription", "none", f"fabric_switch_oversubscription_ratio{ON}"),
                Column("Uplinks up", "none", f"sum by (switch) (fabric_switch_link_up{ON} * {IN_GROUP})"),
            ],
            labels=["switch"],
            width=THIRD,
        ),
    ]


def congestion() -> list[Panel]:
    """Return panels of pauses, ECN marks and drops."""
    return [
        *(
            lines(
                f"Pauses {verb} by priority",
                text,
                "pps",
                [Query(_by_priority(way), "{{switch}} priority {{priority}}")],
                width=HALF,
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
            "Ports paused most",
            "Pause frames per second that a port receives. The device behind the first port pauses the fabric: see"
            " the table of neighbours.",
            "pps",
            Query(
                f"sum by (switch, port) (rate(fabric_switch_receive_pfc_frames_total{ON}[5m]) {PHYSICAL})",
                "{{switch}} {{port}}",
            ),
        ),
        top_list(
            "ECN-marked packets transmitted",
            "Share of transmitted packets with the ECN mark, for ports that count marks: the queue of that port is"
            " full.",
            "percentunit",
            Query(
                f"max by (switch, port) (rate(fabric_switch_ecn_marked_packets_total{ON}[5m])"
                f" / rate(fabric_switch_transmit_packets_total{ON}[5m]) {PHYSICAL})",
                "{{switch}} {{port}}",
            ),
            MARKED,
        ),
        top_list(
            "Packets dropped by port",
            "Packets per second dropped without an error, for lack of buffers, or because the link was down.",
            "pps",
            Query(
                f"sum by (switch, port) (rate(fabric_switch_transmit_discards_total{ON}[5m])"
                f" + rate(fabric_switch_receive_discards_total{ON}[5m]) {PHYSICAL})",
                "{{switch}} {{port}}",
            ),
            Limits(1, 100),
        ),
    ]


def links() -> list[Panel]:
    """Return panels of links that are slow or down, and of neighbours."""
    return [
        table_of(
            "Ports that are slow or down",
            "Uplinks that are down or slower than the fastest of their switch, and how fast they are.",
            [
                Column("Down", "none", f"(1 - fabric_switch_link_up{ON}) * {IN_GROUP}"),
                Column("Degraded", "none", f"fabric_switch_link_degraded{ON}"),
                Column("Speed", "Bps", f"fabric_switch_link_speed_bytes_per_second{ON} * {IN_GROUP}"),
            ],
            labels=["switch", "port"],
        ),
        info_table(
            "Neighbours",
            "The other end of each port, by LLDP: a switch by its label, or a host by its name. A MAC address is"
            " that of a NIC, as in fabric_nic_info.",
            f"fabric_link_info{ON}",
            labels=["switch", "port", "peer", "peer_port", "peer_mac"],
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
                Column("Skipped in an hour", "none", f"increase(fabric_switch_overruns_total{ON}[1h])"),
            ],
            labels=["switch", "target"],
        ),
        info_table(
            "Families of metrics",
            "State of each family of metrics: counted; not counted, if a feature is disabled; unsupported; failed,"
            " if the request failed. A family that is not counted has no series, and no 0.",
            f"fabric_switch_family_info{ON}",
            labels=["switch", "family", "state"],
        ),
        info_table(
            "Switches",
            "Identity of each switch, and its role in the fabric by the configuration or its neighbours.",
            f"fabric_switch_device_info{ON}",
            labels=["switch", "role", "model", "version", "description"],
            width=FULL,
        ),
    ]


def _of_uplinks(pick: str, way: str) -> str:
    return f"{pick} (fabric_switch_{way}_utilization_ratio{ON} * {IN_GROUP})"


def _by_priority(way: str) -> str:
    return f"sum by (switch, priority) (rate(fabric_switch_{way}_pfc_frames_total{ON}[$__rate_interval]) {PHYSICAL})"


ROWS = {
    "Switches now": now,
    "Uplinks": uplinks,
    "Pauses, marks and drops": congestion,
    "Links": links,
    "Polls": polls,
}
