"""Panels of the pauses of switches (PFC), as shares of time: by hosts, and of other switches.

A switch that does not count the time in pause counts the frames. Each of them pauses for 65535 x 512 bits at most,
which are 4194240 bytes. Hosts count the time, and the switch port of each is known by its MAC address.
"""

from joins import PAUSE_SHARES, PAUSES, PHYSICAL
from panels import THIRD, Panel, where
from tables import Column, table_of

TO_HOSTS = where('switch=~"$switch", peer_mac!=""')
"""Filters the neighbours of the selected switches that are hosts."""

ON = where('switch=~"$switch"')

LONGEST_PAUSE = 4194240
"""Bytes that a port could send in the time for which one frame pauses it at most."""

_PEER = (
    "on (switch, port) group_left (peer) topk by (switch, port)"
    f" (1, max by (switch, port, peer) (last_over_time(fabric_link_info{TO_HOSTS}[1h])))"
)
"""Joins the host at a port, also at one that went down within an hour."""

_BY_HOSTS = (
    "max by (switch, port) (label_replace("
    f"max by (mac) ({PAUSES} * on (job, instance, device) group_left (mac) fabric_nic_info{{}})"
    " * on (mac) group_left (switch, switch_port)"
    ' topk by (mac) (1, switch_port:fabric_link_info:seen{job=~".+", instance=~".+", switch=~"$switch"} > bool 0),'
    ' "port", "$1", "switch_port", "(.+)"))'
)
"""Share of time that the host at each port paused it, by the counters of the host."""


def hosts_that_pause() -> Panel:
    """Return the table of hosts that pause a switch."""
    by_hosts = f"(max by (switch, port) ({_time('receive')}) or on (switch, port) {_BY_HOSTS})"
    most_by_hosts = f"(max by (switch, port) ({_at_most('receive')}) unless on (switch, port) {by_hosts})"
    return table_of(
        "Hosts that pause a switch (PFC)",
        "Share of the last 5 minutes that a host paused its switch port, from 1 % on: the host cannot receive as"
        " fast as packets arrive. By the time that the switch or the host counts; where neither does, by the"
        " frames, at most.",
        _shares(*(f"({one} > {PAUSE_SHARES.warning}) * {_PEER}" for one in (by_hosts, most_by_hosts))),
        labels=["peer", "switch", "port"],
        worst=("Of time", "Of time, at most", "-peer", "-port"),
        absent="none from 1 % of time on",
        width=8,
        height=9,
    )


def switches_that_pause() -> Panel:
    """Return the table of switches that pause other switches or hosts."""
    most_by_switches = f"({_at_most('transmit')} unless on (job, instance, switch, port) {_time('transmit')})"
    return table_of(
        "Switches that pause others (PFC)",
        "Share of the last 5 minutes that a switch paused the peer of one of its ports, from 1 % on: one of its own"
        " queues is full. By the time that it counts; where it does not, by the frames, at most.",
        _shares(
            *(f"max by (switch) ({one}) > {PAUSE_SHARES.warning}" for one in (_time("transmit"), most_by_switches))
        ),
        labels=["switch"],
        worst=("Of time", "Of time, at most", "-switch"),
        absent="none from 1 % of time on",
        width=THIRD,
    )


def _shares(counted: str, at_most: str) -> list[Column]:
    return [
        Column("Of time", "percentunit", counted, limits=PAUSE_SHARES, decimals=0, width=95),
        Column("Of time, at most", "percentunit", at_most, limits=PAUSE_SHARES, decimals=0, width=140),
    ]


def _time(way: str) -> str:
    """Return the query for the share of time that a port was paused, or paused its peer, as switches count it."""
    counted = f"rate(fabric_switch_{way}_pfc_paused_seconds_total{ON}[5m])"
    return f"max by (job, instance, switch, port) ({counted} {PHYSICAL})"


def _at_most(way: str) -> str:
    """Return the query for the same by the number of frames."""
    frames = f"max by (job, instance, switch, port) (rate(fabric_switch_{way}_pfc_frames_total{ON}[5m]) {PHYSICAL})"
    speed = f"on (job, instance, switch, port) (fabric_switch_link_speed_bytes_per_second{ON} > 0)"
    return f"clamp_max({frames} * {LONGEST_PAUSE} / {speed}, 1)"
