"""The dashboard of one host: its ports, their traffic, pauses, congestion and hardware.

The instances of the dashboard are those of the host, so that queries need no join with its name. Lines are drawn by
port, and by device for the kernel's network devices.
"""

from alert_tables import FIRST_CAUSE, Alerts, firing
from host_hardware import errors, optics, pcie, settings
from joins import (
    DOWN,
    FEC_LOST,
    FEC_LOST_RECENTLY,
    FLAPPING,
    FLAPS,
    FLAPS_RECENTLY,
    GONE,
    MARKED,
    MISSING,
    OVER,
    PAUSE_SHARES,
    PAUSED,
    PAUSES,
    PHYSICAL_STATES,
    PORT,
    PORT_INFO,
    RETRANSMITS,
    SLOW,
    SWITCH_PORTS,
    now_or_over,
    ticks_above,
)
from panels import ANY, FULL, WAYS, Limits, Panel, Query, heat_map, lines, meaning, number, where
from tables import Column, info_table, table_of

_JOBS = 'host:fabric_nccl_job:info{host="$host"}'
"""The jobs that have ranks on the host."""

PORT_LABELS = ("rail", "device", "port", "netdev")

LINK = meaning({1: ("up", "green"), 0: ("down", "red"), -1: ("gone", "red")})


def ports() -> list[Panel]:
    """Return the panels of the first screen: the host's health, and its ports one by one."""
    return [
        *_counts(),
        firing(
            "Alerts of this host and its jobs",
            ', host="$host"',
            Alerts(', host="", train_job!=""', f" and on (train_job) {_JOBS}"),
            details=("rail", "device", "switch", "port", "rank", FIRST_CAUSE),
            width=FULL,
            height=6,
        ),
        _ports(),
    ]


def _counts() -> list[Panel]:
    return [
        number(
            "Ports not ready",
            "RDMA ports that are down or missing: by the number expected by configuration, else those that were up"
            " within a day. If all are missing, check the driver and the kernel's log.",
            f"sum({MISSING})",
            ANY,
            absent="no RDMA",
            filled=True,
        ),
        number(
            "Ports slow",
            "Ports slower than expected. Compare their lanes with those of siblings, then check cable and"
            " transceivers.",
            f"sum({SLOW})",
            ANY,
            absent="no ports",
            filled=True,
        ),
        number(
            "Links flapping",
            "RDMA ports whose link went down within the last 2 minutes, and more than once within 10. Reseat or replace"
            " the cable.",
            f"sum({FLAPPING})",
            ANY,
            absent="no RDMA",
            filled=True,
        ),
        number(
            "PCIe degraded",
            "NICs whose PCIe link is slower than both of its ends support. Reseat the card or its riser.",
            "sum(fabric_pci_link_degraded{})",
            ANY,
            filled=True,
        ),
        number(
            "Pausing, of time",
            "Share of the last 5 minutes that the most pausing port paused its switch (PFC, 802.3x): the host cannot"
            " receive as fast as packets arrive.",
            f"max({PAUSES})",
            PAUSE_SHARES,
            unit="percentunit",
            absent="not counted",
            decimals=0,
            filled=True,
        ),
        number(
            "FEC blocks lost",
            "Blocks of the last 2 minutes that forward error correction could not correct, all ports together.",
            f"round(sum({FEC_LOST}))",
            ANY,
            absent="not counted",
            filled=True,
        ),
        number(
            "Sources failing",
            "Sources whose last read failed; their metrics are missing. The row Settings and sources lists them.",
            "sum(1 - fabric_source_up{})",
            ANY,
            filled=True,
        ),
        number(
            "Ranks late",
            "Ranks on this host that the others wait for. If no port has a fault, check GPU clocks, CPUs and input"
            " data.",
            "sum(fabric_nccl_rank_info{} * on (train_job, rank) group_left ()"
            ' max by (train_job, rank) (fabric_nccl_straggler{job=~".+", instance=~".+"}))',
            ANY,
            absent="no job",
            filled=True,
            link="fabric-training",
        ),
    ]


def _ports() -> Panel:
    named = where('netdev!=""')
    by_netdev = (
        "on (job, instance, netdev) group_left (rail, device, port)"
        f" topk by (job, instance, netdev) (1, fabric_rdma_info{named})"
    )
    fec = now_or_over(f"round({FEC_LOST})", FEC_LOST_RECENTLY)
    return table_of(
        "RDMA ports (paused, pausing: of time; retrans.: of packets; transmit, receive: of speed)",
        "Each RDMA port, also one that is gone, and the switch port that it is, or was last, connected to by LLDP. One"
        " that is slower than expected has fewer lanes, or a lower rate per lane, than its siblings. Paused by its"
        " switch, and pausing it: shares of the last 5 minutes. Flaps and lost FEC blocks are those of the last 2"
        " minutes; over: there were some in the last 10. Utilization is the mean of 5 minutes. A"
        " link that is down has none of these shares.",
        [
            Column("Link", "short", f"{_port('fabric_rdma_link_up{}')} or {GONE}", LINK),
            Column("Speed", "bps", _port("8 * fabric_rdma_link_speed_bytes_per_second{}")),
            Column("Expected", "bps", _port("8 * fabric_rdma_link_expected_speed_bytes_per_second{}")),
            Column(
                "Of expected",
                "percentunit",
                _port("fabric_rdma_link_speed_bytes_per_second{} / fabric_rdma_link_expected_speed_bytes_per_second{}"),
                limits=Limits(1, 0.99, below=True),
                decimals=0,
                width=120,
            ),
            *(
                Column(
                    name,
                    "percentunit",
                    f'label_replace({share}, "netdev", "$1", "device", "(.+)") * {by_netdev} unless {DOWN}',
                    limits=PAUSE_SHARES,
                    decimals=0,
                )
                for name, share in (("Paused", PAUSED), ("Pausing", PAUSES))
            ),
            Column(
                "Retrans.",
                "percentunit",
                f"{_port('fabric_rdma_retransmission_ratio{}')} unless {DOWN}",
                limits=RETRANSMITS,
                decimals=3,
            ),
            Column(
                "FEC lost",
                "short",
                f'label_replace({fec}, "netdev", "$1", "device", "(.+)") * {by_netdev}',
                OVER,
                ANY,
                decimals=0,
            ),
            Column(
                "Flaps",
                "none",
                _port(now_or_over(f"round({FLAPS})", FLAPS_RECENTLY)),
                OVER,
                ANY,
            ),
            *(
                Column(
                    name,
                    "percentunit",
                    f"{_port(f'avg_over_time(fabric_rdma_{way}_utilization_ratio{{}}[5m])')} unless {DOWN}",
                    decimals=0,
                )
                for name, way in (("Transmit", "transmit"), ("Receive", "receive"))
            ),
        ],
        labels=PORT_LABELS,
        worst=("-Link", "-Of expected"),
        more=[(SWITCH_PORTS, ("switch", "switch_port"))],
        absent="no RDMA ports",
        width=FULL,
        height=10,
        widths={"rail": 50, "port": 50, "switch": 90, "switch_port": 110},
    )


def utilization() -> list[Panel]:
    """Return panels of utilization, over the poll interval and over the ticks of the burst sampler."""
    return [
        *(
            panel
            for way, verb in zip(WAYS, ("transmit", "receive"), strict=True)
            for panel in (
                lines(
                    f"Utilization, {verb}, of speed",
                    f"Utilization of a port ({verb}). For a rail that differs from the"
                    " others check its link, and which NICs the job uses.",
                    "percentunit",
                    [Query(_port(f"avg_over_time(fabric_rdma_{way}_utilization_ratio{{}}[$__rate_interval])"), PORT)],
                    top=1,
                    decimals=0,
                ),
                lines(
                    f"Highest burst, {verb}, of speed",
                    f"Highest utilization of a port ({verb}) over one tick within the last minute. Far above the"
                    " mean: bursts fill queues.",
                    "percentunit",
                    [Query(_port(f"fabric_rdma_{way}_utilization_highest_ratio{{}}"), PORT)],
                    top=1,
                    decimals=0,
                ),
                lines(
                    f"Ticks over 95 % of speed, {verb}, of all ticks",
                    f"Share of the sampler's ticks in which a port used more than 95 % of its speed ({verb}). Many,"
                    " with ECN marks or pauses at the same time: the port is the bottleneck of the job.",
                    "percentunit",
                    [Query(ticks_above(way, "0.95", "device, port, rail", f" * {PORT_INFO}"), PORT)],
                    top=1,
                ),
            )
        ),
        *(
            heat_map(
                f"Bursts, {verb}, of speed",
                f"Ticks per second of all ports by utilization ({verb}): the label is the upper bound of each band."
                " Colour both at the top and at the bottom means that the load is bursty.",
                f"fabric_rdma_{way}_utilization_samples",
            )
            for way, verb in zip(WAYS, ("transmit", "receive"), strict=True)
        ),
        lines(
            "Imbalance of ports, over the mean",
            "How far the busiest port is above the mean of its group, and the idlest below it. More than 20 % above,"
            " or 50 % below, is unbalanced traffic.",
            "percentunit",
            [
                Query(f"fabric_rdma_{way}_{what}_ratio{{}}", f"{word} {way}")
                for way in WAYS
                for what, word in (("imbalance", "busiest"), ("deficit", "idlest"))
            ],
            width=FULL,
            limits=Limits(0.2, 0.5),
            decimals=0,
        ),
    ]


def links() -> list[Panel]:
    """Return panels of links: their speed, and when and why they go down."""
    return [
        lines(
            "Speed of links",
            "Speed of each RDMA port, absent while it is down. A step down is a link that was trained again: check"
            " cable and transceivers.",
            "bps",
            [Query(_port("8 * fabric_rdma_link_speed_bytes_per_second{}"), PORT)],
        ),
        lines(
            "Links going down",
            "Times per second that the link of a port went down. Reseat or replace the cable; then the transceivers"
            " of both sides.",
            "cps",
            [
                Query(_port("rate(fabric_rdma_link_down_total{}[$__rate_interval])"), PORT),
            ],
            events=True,
        ),
        lines(
            "Link error recoveries",
            "Link error recoveries and local link integrity errors per second. Ports that have them are the next to"
            " go down.",
            "cps",
            [
                Query(_port("rate(fabric_rdma_link_error_recovery_total{}[$__rate_interval])"), f"{PORT} recovered"),
                Query(
                    _port("rate(fabric_rdma_local_link_integrity_errors_total{}[$__rate_interval])"),
                    f"{PORT} integrity errors",
                ),
            ],
            events=True,
        ),
        table_of(
            "Network devices",
            "Current state of each network device, including those without RDMA.",
            [
                Column("Link", "short", "fabric_nic_link_up{}", LINK),
                Column("Speed", "bps", "8 * fabric_nic_link_speed_bytes_per_second{}"),
                Column("Expected", "bps", "8 * fabric_nic_link_expected_speed_bytes_per_second{}"),
            ],
            labels=["device"],
            worst=("-Link", "-Speed"),
            width=10,
            height=11,
        ),
        table_of(
            "Ports that are down",
            "How far link training of an RDMA port gets: without a signal it is polling; and the driver's reason.",
            [
                Column(
                    "Physical state",
                    "short",
                    f"{_port('fabric_rdma_port_physical_state{}')} and {DOWN}",
                    PHYSICAL_STATES,
                )
            ],
            labels=PORT_LABELS,
            worst=("-rail",),
            absent="no port is down",
            width=8,
            height=11,
        ),
        info_table(
            "Why links are down",
            "The driver's reason why a link is down. no_cable: no cable is connected; other reasons concern the"
            " module, link training or the peer.",
            "fabric_nic_link_down_reason_info{}",
            labels=["device", "reason"],
            absent="no reason reported",
            width=6,
            height=11,
        ),
    ]


def pauses() -> list[Panel]:
    """Return panels of pauses, by priority and by port."""
    return [
        lines(
            "Pauses by priority (PFC), of time",
            "Share of time that the most paused device was paused by its switch, and paused its switch, by priority;"
            " priorities without pauses are not shown.",
            "percentunit",
            [
                Query(
                    f"max by (priority) (rate(fabric_nic_{way}_pfc_paused_seconds_total{{}}[$__rate_interval]) > 0)",
                    f"priority {{{{priority}}}} {verb}",
                )
                for way, verb in (("transmit", "pausing"), ("receive", "paused"))
            ],
            top=1,
            limits=PAUSE_SHARES,
        ),
        lines(
            "Paused by the switch (PFC, 802.3x), of time",
            "Share of time that a device was paused by its switch, for its most paused priority. The cause is"
            " elsewhere: look for the host that pauses its switch.",
            "percentunit",
            [Query(_paused("receive"), "{{device}}")],
            top=1,
            limits=PAUSE_SHARES,
        ),
        lines(
            "Pausing the switch (PFC, 802.3x), of time",
            "Share of time that a device paused its switch, for its most paused priority: this host cannot receive"
            " as fast as packets arrive. Check PCIe, memory and GPUs; above one half take it out of service.",
            "percentunit",
            [Query(_paused("transmit"), "{{device}}")],
            top=1,
            limits=PAUSE_SHARES,
        ),
        lines(
            "PFC frames by priority",
            "PFC frames per second of all devices. Frames without paused time: the device does not count the time.",
            "pps",
            [
                Query(
                    f"sum by (priority) (rate(fabric_nic_{way}_pfc_frames_total{{}}[$__rate_interval]))",
                    f"priority {{{{priority}}}} {way}",
                )
                for way in WAYS
            ],
        ),
        lines(
            "Pause frames (802.3x)",
            "Pause frames per second (802.3x). In a network with priority flow control there should be none: see the"
            " settings.",
            "pps",
            [
                Query(f"rate(fabric_nic_{way}_pause_frames_total{{}}[$__rate_interval])", f"{{{{device}}}} {way}")
                for way in WAYS
            ],
            events=True,
        ),
        lines(
            "Pause storms",
            "Times per second that a device paused its switch for long (warning), and so long that its watchdog"
            " disabled the pause (error). Take the host out of service.",
            "cps",
            [
                Query(
                    f"sum by (device) (rate(fabric_nic_transmit_pause_storm_{what}_total{{}}[$__rate_interval]))",
                    f"{{{{device}}}} {word}",
                )
                for what, word in (("warnings", "for long"), ("errors", "stopped"))
            ],
            events=True,
        ),
    ]


def congestion() -> list[Panel]:
    """Return panels of ECN marks, congestion notifications and retransmissions."""
    return [
        lines(
            "ECN-marked, of packets received",
            "Share of received packets with ECN Congestion Experienced. From 10 % a queue on their path is full,"
            " most likely the one that leads to this port: check how many hosts send to it at the same time.",
            "percentunit",
            [Query(_port("fabric_rdma_ecn_marked_ratio{}"), PORT)],
            limits=MARKED,
        ),
        lines(
            "CNPs handled, of packets transmitted",
            "CNPs for which this reaction point reduced its rate, as a share of packets transmitted. ECN marks"
            " elsewhere without these: CNPs get lost, or congestion control is off.",
            "percentunit",
            [Query(_port("fabric_rdma_cnp_handled_ratio{}"), PORT)],
        ),
        lines(
            "Retransmissions, of packets",
            "Share of packets that a port retransmitted. From one in ten thousand check its own link, then discards"
            " and errors of switches on the path.",
            "percentunit",
            [Query(_port("fabric_rdma_retransmission_ratio{}"), PORT)],
            limits=RETRANSMITS,
            decimals=3,
        ),
        lines(
            "Congestion notifications",
            "ECN-marked packets and CNPs per second of all ports: CNPs sent as a notification point, handled or"
            " ignored as a reaction point. Marks without CNPs sent: congestion control is off here.",
            "pps",
            [
                Query(f"sum(rate(fabric_rdma_{what}_total{{}}[$__rate_interval]))", word)
                for what, word in (
                    ("ecn_marked_packets", "marked"),
                    ("cnp_sent", "CNPs sent"),
                    ("cnp_handled", "CNPs handled"),
                    ("cnp_ignored", "CNPs ignored"),
                )
            ],
        ),
        lines(
            "Reasons of retransmissions",
            "Events per second of all ports. Sequence errors: loss or reordering on the path. ACK timeouts: loss, or"
            " a peer that does not respond. RNR and out of buffer: the receiving program is too slow.",
            "cps",
            [
                Query(f"sum(rate(fabric_rdma_{what}_total{{}}[$__rate_interval]))", word)
                for what, word in (
                    ("packet_sequence_errors", "sequence error NAKs"),
                    ("out_of_sequence", "out of sequence"),
                    ("local_ack_timeouts", "local ACK timeouts"),
                    ("rnr_nak_retries", "RNR NAKs received"),
                    ("out_of_buffer", "out of buffer"),
                    ("adaptive_retransmissions", "adaptive"),
                )
            ],
            events=True,
        ),
        lines(
            "Failed requests",
            "Requests per second that completed with an error, as some do at the end of every job; and those that"
            " exceeded the transport retries, which end a job: check the link of the port and of its peer.",
            "cps",
            [
                Query(_port(f"rate(fabric_rdma_requester_{what}_total{{}}[$__rate_interval])"), f"{PORT} {word}")
                for what, word in (("completion_errors", "failed"), ("transport_retries_exceeded", "retries exceeded"))
            ],
            events=True,
        ),
    ]


def _port(expr: str) -> str:
    """Join the rail and the network device of RDMA ports."""
    return f"{expr} * {PORT_INFO}"


def _paused(way: str) -> str:
    """Return the query for the share of time that a device was paused: its most paused priority, or the whole port."""
    return (
        f"max by (device) (rate(fabric_nic_{way}_pfc_paused_seconds_total{{}}[$__rate_interval])"
        f" or rate(fabric_nic_{way}_paused_seconds_total{{}}[$__rate_interval]))"
    )


ROWS = {
    "Ports": ports,
    "Links": links,
    "Pauses": pauses,
    "Errors": errors,
    "Congestion and loss": congestion,
    "Utilization and bursts": utilization,
    "Optics": optics,
    "PCIe": pcie,
    "Settings and sources": settings,
}
