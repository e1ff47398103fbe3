"""The dashboard of one host: its ports, their traffic, pauses, congestion and hardware.

The instances of the dashboard are those of the host, so that queries need no join with its name. Lines are drawn by
port, and by device for the kernel's network devices.
"""

from host_hardware import errors, optics, pcie, settings
from joins import (
    DOWN,
    HIGHEST,
    MARKED,
    MISSING,
    PHYSICAL_STATES,
    PORT,
    PORT_INFO,
    RETRANSMITS,
    SWITCH_PORTS,
    WENT_DOWN,
    ticks_above,
)
from panels import (
    FULL,
    HALF,
    QUARTER,
    WAYS,
    Column,
    Limits,
    Panel,
    Query,
    heat_map,
    info_table,
    lines,
    meaning,
    number,
    table_of,
)

PORT_LABELS = ("rail", "device", "port", "netdev")

ANY = Limits(1, 1)
FULLNESS = Limits(0.8, 0.95)

LINK = meaning({1: ("up", "green"), 0: ("down", "red")})


def ports() -> list[Panel]:
    """Return panels of the host's health, and of its ports one by one."""
    return [
        number("Ports up", "RDMA ports with the link up.", "sum(fabric_rdma_link_up{})"),
        number(
            "Ports missing",
            "RDMA ports that the host should have by its configuration and that are missing, down or slow. If all"
            " are missing, check the driver and the kernel's log.",
            f"sum({MISSING})",
            ANY,
            absent="not configured",
        ),
        number(
            "Links degraded",
            "RDMA ports slower than expected. Compare their lanes with those of siblings, then check cable and"
            " transceivers.",
            "sum(fabric_rdma_link_degraded{})",
            ANY,
        ),
        number(
            "Links flapping",
            "RDMA ports whose link went down within the last hour. Reseat or replace the cable.",
            f"sum({WENT_DOWN})",
            ANY,
        ),
        number(
            "PCIe links degraded",
            "NICs whose PCIe link is slower than both of its ends support. Reseat the card or its riser.",
            "sum(fabric_pci_link_degraded{})",
            ANY,
        ),
        number(
            "Highest burst",
            "Highest utilization of a port over one tick of the sampler within the last minute.",
            f"max({HIGHEST})",
            FULLNESS,
            unit="percentunit",
        ),
        number(
            "Sources failing",
            "Sources whose last read failed; their metrics are missing. The row Settings and sources lists them.",
            "sum(1 - fabric_source_up{})",
            ANY,
        ),
        number(
            "Stragglers",
            "Ranks on this host that the others wait for. If no port has a fault, check GPU clocks, CPUs and input"
            " data.",
            "sum(fabric_nccl_rank_info{} * on (train_job, rank) group_left ()"
            ' max by (train_job, rank) (fabric_nccl_straggler{job=~".+", instance=~".+"}))',
            ANY,
        ),
        table_of(
            "RDMA ports",
            "Current state of each RDMA port. One that is slower than expected has fewer lanes, or a lower rate per"
            " lane, than its siblings.",
            [
                Column("Link", "short", _port("fabric_rdma_link_up{}"), LINK),
                Column("Physical state", "short", _port("fabric_rdma_port_physical_state{}"), PHYSICAL_STATES),
                Column("Speed", "bps", _port("8 * fabric_rdma_link_speed_bytes_per_second{}")),
                Column("Expected", "bps", _port("8 * fabric_rdma_link_expected_speed_bytes_per_second{}")),
                Column("Lanes", "none", _port("fabric_rdma_link_lanes{}")),
                Column("Transmit", "percentunit", _port("fabric_rdma_transmit_utilization_ratio{}")),
                Column("Receive", "percentunit", _port("fabric_rdma_receive_utilization_ratio{}")),
                Column("Went down, last hour", "none", _port("round(increase(fabric_rdma_link_down_total{}[1h]))")),
            ],
            labels=PORT_LABELS,
            width=FULL,
        ),
        info_table(
            "Switch ports",
            "The switch and port that each NIC is connected to, by the switches' LLDP; empty if they do not run it,"
            " or are not polled.",
            SWITCH_PORTS,
            labels=["device", "switch", "port", "mac"],
            width=FULL,
        ),
    ]


def utilization() -> list[Panel]:
    """Return panels of utilization, over the poll interval and over the ticks of the burst sampler."""
    return [
        *(
            panel
            for way, verb in zip(WAYS, ("transmit", "receive"), strict=True)
            for panel in (
                lines(
                    f"Utilization, {verb}",
                    f"Utilization of a port ({verb}), mean of each poll interval. For a rail that differs from the"
                    " others check its link, and which NICs the job uses.",
                    "percentunit",
                    [Query(_port(f"fabric_rdma_{way}_utilization_ratio{{}}"), PORT)],
                    top=1,
                    limits=FULLNESS,
                ),
                lines(
                    f"Highest burst, {verb}",
                    f"Highest utilization of a port ({verb}) over one tick within the last minute. Far above the"
                    " mean: bursts fill queues.",
                    "percentunit",
                    [Query(_port(f"fabric_rdma_{way}_utilization_highest_ratio{{}}"), PORT)],
                    top=1,
                    limits=FULLNESS,
                ),
                lines(
                    f"Ticks over 95 %, {verb}",
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
                f"Bursts, {verb}",
                f"Ticks per second of all ports by utilization ({verb}): the label is the upper bound of each band."
                " Colour both at the top and at the bottom means that the load is bursty.",
                f"fabric_rdma_{way}_utilization_samples",
            )
            for way, verb in zip(WAYS, ("transmit", "receive"), strict=True)
        ),
        lines(
            "Imbalance of ports",
            "How far the busiest port is above the mean of its group, and the idlest below it. More than 20 % above,"
            " or 50 % below, is unbalanced traffic.",
            "percentunit",
            [
                Query(f"fabric_rdma_{way}_{what}_ratio{{}}", f"{{{{group}}}} {word} {way}")
                for way in WAYS
                for what, word in (("imbalance", "busiest"), ("deficit", "idlest"))
            ],
            width=HALF,
            limits=Limits(0.2, 0.5),
        ),
        lines(
            "Asymmetry of ports",
            "Bytes received minus bytes transmitted, as a share of both: 1 for a port that only receives, -1 for one"
            " that only transmits. In collectives of all ranks both are similar.",
            "percentunit",
            [Query(_port("fabric_rdma_asymmetry_ratio{}"), PORT)],
            width=HALF,
            low=-1,
            top=1,
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
                Query("rate(fabric_nic_link_down_total{}[$__rate_interval])", "{{device}}"),
            ],
        ),
        lines(
            "Recoveries of links",
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
        ),
        info_table(
            "Why links are down",
            "The driver's reason why a link is down. no_cable: no cable is connected; other reasons concern the"
            " module, link training or the peer.",
            "fabric_nic_link_down_reason_info{}",
            labels=["device", "reason"],
            width=QUARTER,
        ),
        table_of(
            "RDMA ports down",
            "How far link training of a port gets: without a signal it is polling.",
            [
                Column(
                    "Physical state",
                    "short",
                    f"{_port('fabric_rdma_port_physical_state{}')} and {DOWN}",
                    PHYSICAL_STATES,
                )
            ],
            labels=PORT_LABELS,
            width=QUARTER,
        ),
    ]


def pauses() -> list[Panel]:
    """Return panels of pauses, by priority and by port."""
    return [
        lines(
            "Pauses by priority",
            "Share of time that the most paused device was paused, by priority: 'receive' by its switch, 'transmit'"
            " by this host, which paused its switch.",
            "percentunit",
            [
                Query(
                    f"max by (priority) (rate(fabric_nic_{way}_pfc_paused_seconds_total{{}}[$__rate_interval]))",
                    f"priority {{{{priority}}}} {way}",
                )
                for way in WAYS
            ],
            top=1,
            limits=Limits(0.1, 0.5),
        ),
        lines(
            "Paused by the switch",
            "Share of time that a device was paused by its switch, for its most paused priority. The cause is"
            " elsewhere: look for the host that pauses its switch.",
            "percentunit",
            [Query(_paused("receive"), "{{device}}")],
            top=1,
            limits=Limits(0.1, 0.5),
        ),
        lines(
            "Pausing the switch",
            "Share of time that a device paused its switch, for its most paused priority: this host cannot receive"
            " as fast as packets arrive. Check PCIe, memory and GPUs; above one half take it out of service.",
            "percentunit",
            [Query(_paused("transmit"), "{{device}}")],
            top=1,
            limits=Limits(0.1, 0.5),
        ),
        lines(
            "Pause frames by priority",
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
            "Pause frames of whole ports",
            "Pause frames per second (802.3x). In a network with priority flow control there should be none: see the"
            " settings.",
            "pps",
            [
                Query(f"rate(fabric_nic_{way}_pause_frames_total{{}}[$__rate_interval])", f"{{{{device}}}} {way}")
                for way in WAYS
            ],
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
        ),
    ]


def congestion() -> list[Panel]:
    """Return panels of ECN marks, congestion notifications and retransmissions."""
    return [
        lines(
            "ECN-marked packets received",
            "Share of received packets with ECN Congestion Experienced. From 10 % a queue on their path is full,"
            " most likely the one that leads to this port: check how many hosts send to it at the same time.",
            "percentunit",
            [Query(_port("fabric_rdma_ecn_marked_ratio{}"), PORT)],
            limits=MARKED,
        ),
        lines(
            "CNPs handled",
            "CNPs for which this reaction point reduced its rate, as a share of packets transmitted. ECN marks"
            " elsewhere without these: CNPs get lost, or congestion control is off.",
            "percentunit",
            [Query(_port("fabric_rdma_cnp_handled_ratio{}"), PORT)],
        ),
        lines(
            "Share retransmitted",
            "Share of packets that a port retransmitted. From one in ten thousand check its own link, then discards"
            " and errors of switches on the path.",
            "percentunit",
            [Query(_port("fabric_rdma_retransmission_ratio{}"), PORT)],
            limits=RETRANSMITS,
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
    "Utilization and bursts": utilization,
    "Links": links,
    "Pauses": pauses,
    "Congestion and loss": congestion,
    "Errors": errors,
    "Optics": optics,
    "PCIe": pcie,
    "Settings and sources": settings,
}
