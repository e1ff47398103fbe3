"""The board of switches: their uplinks, what is congested, what is slow or down, and who is plugged in where."""

from joins import MARKED, higher
from panels import (
    FULL,
    HALF,
    THIRD,
    WAYS,
    Column,
    Limits,
    Panel,
    Query,
    facts,
    lines,
    listing,
    meaning,
    number,
    where,
    worst,
)

ANY = Limits(1, 1)
"""For counts of what should not be."""

ON = where('switch=~"$switch"')
"""The selection of this board: of all switches, or of some."""

UPLINKS = where('switch=~"$switch", group="uplink"')
"""The same of what is told of groups of ports: uplinks."""

IN_GROUP = f"on (job, instance, switch, port) group_left () fabric_switch_group_info{UPLINKS}"
"""Keeps the uplinks of what is true of ports."""

BUNDLES = where('switch=~"$switch", if_type="161"')
ONCE = f"unless on (job, instance, switch, port) fabric_switch_info{BUNDLES}"
"""Leaves bundles out of a sum over ports: they repeat what their members count."""

FULLNESS = Limits(0.6, 0.8)
"""Shares of its speed that an uplink uses; from the latter on there is an alert where others have room."""

UNEVEN = Limits(0.1, 0.2)
"""How far the busiest uplink is above the mean; from the latter on there is an alert where it is nearly full."""


def now() -> list[Panel]:
    """Show whether all is well."""
    return [
        number(
            "Switches silent",
            "Switches whose last poll failed. Their metrics are missing; the table of polls tells which.",
            f"sum(1 - fabric_switch_up{ON})",
            ANY,
        ),
        number(
            "Uplinks down",
            "Uplinks that carry no traffic. What they carried is on the others now.",
            f"sum((1 - fabric_switch_link_up{ON}) * {IN_GROUP})",
            ANY,
        ),
        number(
            "Links degraded",
            "Uplinks that are slower than the fastest of their switch. Look at cables and transceivers.",
            f"sum(fabric_switch_link_degraded{ON})",
            ANY,
        ),
        number(
            "Fullest uplink",
            "Share of its speed that the busiest uplink uses, in its busier direction.",
            higher(*(_of_uplinks("max", way) for way in WAYS)),
            FULLNESS,
            unit="percentunit",
        ),
        number(
            "Most uneven uplinks",
            "How far the busiest uplink of a switch is above the mean of all, at the worst switch. It hurts where that"
            " uplink is nearly full.",
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
            "Pause frames a second from hosts and other switches that cannot take more. Begin where they come from.",
            f"sum(rate(fabric_switch_receive_pfc_frames_total{ON}[5m]) {ONCE})",
            unit="pps",
        ),
        number(
            "Packets dropped",
            "Packets a second that had no error and were dropped, mostly for lack of room. A lossless fabric has none.",
            f"sum(rate(fabric_switch_transmit_discards_total{ON}[5m]) {ONCE})",
            Limits(1, 100),
            unit="pps",
        ),
    ]


def uplinks() -> list[Panel]:
    """Show how full and how even the uplinks of each switch are."""
    return [
        lines(
            "Uplinks of a switch as one",
            "Share of the speed of all its uplinks together that a switch uses. All full: jobs need more of the spine"
            " than was built, or ranks that are placed otherwise.",
            "percentunit",
            [Query(f"fabric_switch_uplink_{way}_utilization_ratio{ON}", f"{{{{switch}}}} {way}") for way in WAYS],
            top=1,
        ),
        lines(
            "Busiest uplink of a switch",
            "Share of its speed that the busiest uplink of each switch uses. Far above all as one: the switch spreads"
            " flows unevenly.",
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
        worst(
            "Fullest uplinks",
            "Uplinks by the share of their speed that they use to send.",
            "percentunit",
            Query(_of_uplinks("max by (switch, port)", "transmit"), "{{switch}} {{port}}"),
            FULLNESS,
        ),
        worst(
            "Idlest uplink against the mean",
            "By how much the idlest uplink of a switch is below the mean of all: 100 % is one that sends nothing.",
            "percentunit",
            Query(f"max by (switch) (fabric_switch_transmit_deficit_ratio{UPLINKS})", "{{switch}}"),
        ),
        listing(
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
    """Show what fills queues, and what comes of it."""
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
                    "Pause frames a second that stop a switch: what is behind one of its ports cannot take more.",
                ),
                (
                    "transmit",
                    "sent",
                    "Pause frames a second by which a switch stops its peers: one of its own queues is full.",
                ),
            )
        ),
        worst(
            "Ports paused most",
            "Pause frames a second that a port receives. Behind the first of them sits what stops the fabric: see who"
            " is plugged in there.",
            "pps",
            Query(
                f"sum by (switch, port) (rate(fabric_switch_receive_pfc_frames_total{ON}[5m]))", "{{switch}} {{port}}"
            ),
        ),
        worst(
            "Packets sent with a mark",
            "Share of the packets that a port sent with the congestion mark, of those that count marks: the queue that"
            " leads there is full.",
            "percentunit",
            Query(
                f"max by (switch, port) (rate(fabric_switch_ecn_marked_packets_total{ON}[5m])"
                f" / rate(fabric_switch_transmit_packets_total{ON}[5m]))",
                "{{switch}} {{port}}",
            ),
            MARKED,
        ),
        worst(
            "Packets dropped by port",
            "Packets a second that had no error and were dropped for want of room, or of a link.",
            "pps",
            Query(
                f"sum by (switch, port) (rate(fabric_switch_transmit_discards_total{ON}[5m])"
                f" + rate(fabric_switch_receive_discards_total{ON}[5m]))",
                "{{switch}} {{port}}",
            ),
            Limits(1, 100),
        ),
    ]


def links() -> list[Panel]:
    """Show which links are not as they should be, and who is at their other ends."""
    return [
        listing(
            "Ports that are slow or down",
            "Uplinks that are down or slower than the fastest of their switch, and how fast they are.",
            [
                Column("Down", "none", f"(1 - fabric_switch_link_up{ON}) * {IN_GROUP}"),
                Column("Degraded", "none", f"fabric_switch_link_degraded{ON}"),
                Column("Speed", "Bps", f"fabric_switch_link_speed_bytes_per_second{ON} * {IN_GROUP}"),
            ],
            labels=["switch", "port"],
        ),
        facts(
            "Who is plugged in",
            "The other end of each port, by LLDP: a switch by its label, or a host by its name. A MAC address is that"
            " of a NIC, as fabric_nic_info has it.",
            f"fabric_link_info{ON}",
            labels=["switch", "port", "peer", "peer_port", "peer_mac"],
        ),
    ]


def polls() -> list[Panel]:
    """Show how the switches are read."""
    state = meaning({1: ("good", "green"), 0: ("failing", "red")})
    return [
        listing(
            "Polls of switches",
            "Each switch; target is its name in the configuration. Of one that fails, the metrics are missing.",
            [
                Column("State", "short", f"fabric_switch_up{ON}", state),
                Column("Duration", "s", f"fabric_switch_poll_duration_seconds{ON}"),
                Column("Left out in an hour", "none", f"increase(fabric_switch_overruns_total{ON}[1h])"),
            ],
            labels=["switch", "target"],
        ),
        facts(
            "What a switch counts",
            "By family of metrics: counted; not counted, where a feature is switched off; unsupported; failed, where"
            " asking failed. What is not counted has no series, and no 0.",
            f"fabric_switch_family_info{ON}",
            labels=["switch", "family", "state"],
        ),
        facts(
            "Switches",
            "What each switch says of itself, and what it is in the fabric by the configuration or its neighbours.",
            f"fabric_switch_device_info{ON}",
            labels=["switch", "role", "model", "version", "description"],
            width=FULL,
        ),
    ]


def _of_uplinks(pick: str, way: str) -> str:
    return f"{pick} (fabric_switch_{way}_utilization_ratio{ON} * {IN_GROUP})"


def _by_priority(way: str) -> str:
    return f"sum by (switch, priority) (rate(fabric_switch_{way}_pfc_frames_total{ON}[$__rate_interval]) {ONCE})"


ROWS = {
    "Switches now": now,
    "Uplinks": uplinks,
    "Pauses, marks and drops": congestion,
    "Links": links,
    "Polls": polls,
}
