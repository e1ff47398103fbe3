"""The board of one host: each of its ports, what it carries, what stops it, and what it is made of.

The board's instances are those of the host, so that queries need not be joined with its name. Lines are drawn by port,
and by device where the kernel's network devices are asked.
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
    SENT_AGAIN,
    SWITCH_PORTS,
    WENT_DOWN,
    above,
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
    facts,
    heat,
    lines,
    listing,
    meaning,
    number,
)

PORT_LABELS = ("rail", "device", "port", "netdev")

ANY = Limits(1, 1)
FULLNESS = Limits(0.8, 0.95)

LINK = meaning({1: ("up", "green"), 0: ("down", "red")})


def ports() -> list[Panel]:
    """Show whether all is well with the host, and its ports one by one."""
    return [
        number("Ports up", "RDMA ports that carry traffic.", "sum(fabric_rdma_link_up{})"),
        number(
            "Ports missing",
            "RDMA ports that the host should have by its configuration and that are gone, down or slow. Where all are"
            " gone, look at the driver and at the kernel's log.",
            f"sum({MISSING})",
            ANY,
            absent="not configured",
        ),
        number(
            "Links degraded",
            "RDMA ports slower than expected. Compare their lanes with those of siblings, then look at cable and"
            " transceivers.",
            "sum(fabric_rdma_link_degraded{})",
            ANY,
        ),
        number(
            "Links that flap",
            "RDMA ports whose link went down within the last hour. Reseat or change the cable.",
            f"sum({WENT_DOWN})",
            ANY,
        ),
        number(
            "PCIe links degraded",
            "NICs whose PCIe link is slower than both of its ends can do. Reseat the card or its riser.",
            "sum(fabric_pci_link_degraded{})",
            ANY,
        ),
        number(
            "Highest burst",
            "Highest share of its speed that a port used over a tick of the sampler within the last minute.",
            f"max({HIGHEST})",
            FULLNESS,
            unit="percentunit",
        ),
        number(
            "Sources failing",
            "Sources whose last read failed; their metrics are missing. The row Settings and sources tells which.",
            "sum(1 - fabric_source_up{})",
            ANY,
        ),
        number(
            "Stragglers",
            "Ranks on this host that the others keep waiting for. If no port has a fault, look at GPU clocks, CPUs and"
            " input data.",
            "sum(fabric_nccl_rank_info{} * on (train_job, rank) group_left ()"
            ' max by (train_job, rank) (fabric_nccl_straggler{job=~".+", instance=~".+"}))',
            ANY,
        ),
        listing(
            "RDMA ports",
            "Each RDMA port as it is now. One that is slower than expected has fewer lanes, or a lower rate on each,"
            " than its siblings.",
            [
                Column("Link", "short", _port("fabric_rdma_link_up{}"), LINK),
                Column("Physical state", "short", _port("fabric_rdma_port_physical_state{}"), PHYSICAL_STATES),
                Column("Speed", "bps", _port("8 * fabric_rdma_link_speed_bytes_per_second{}")),
                Column("Expected", "bps", _port("8 * fabric_rdma_link_expected_speed_bytes_per_second{}")),
                Column("Lanes", "none", _port("fabric_rdma_link_lanes{}")),
                Column("Sends", "percentunit", _port("fabric_rdma_transmit_utilization_ratio{}")),
                Column("Receives", "percentunit", _port("fabric_rdma_receive_utilization_ratio{}")),
                Column("Went down, last hour", "none", _port("round(increase(fabric_rdma_link_down_total{}[1h]))")),
            ],
            labels=PORT_LABELS,
            width=FULL,
        ),
        facts(
            "Switch ports",
            "The switch and the port behind each NIC, as the switches tell by LLDP; none where they do not, or are not"
            " polled.",
            SWITCH_PORTS,
            labels=["device", "switch", "port", "mac"],
            width=FULL,
        ),
    ]


def utilisation() -> list[Panel]:
    """Show what the ports carry, over the interval of reading and over the ticks of the burst sampler."""
    return [
        *(
            panel
            for way, verb in zip(WAYS, ("send", "receive"), strict=True)
            for panel in (
                lines(
                    f"Utilisation to {verb}",
                    f"Share of its speed that a port uses to {verb}, mean of each interval of reading. A rail apart"
                    " from the others: look at its link, and at which NICs the job uses.",
                    "percentunit",
                    [Query(_port(f"fabric_rdma_{way}_utilization_ratio{{}}"), PORT)],
                    top=1,
                    limits=FULLNESS,
                ),
                lines(
                    f"Highest burst to {verb}",
                    f"Highest share of its speed that a port used to {verb} over a tick within the last minute. Far"
                    " above the mean beside, traffic comes in bursts that fill queues.",
                    "percentunit",
                    [Query(_port(f"fabric_rdma_{way}_utilization_highest_ratio{{}}"), PORT)],
                    top=1,
                    limits=FULLNESS,
                ),
                lines(
                    f"Ticks over 95 % to {verb}",
                    f"Share of the sampler's ticks in which a port used more than 95 % of its speed to {verb}. Many,"
                    " with marks or pauses at the same time: the port is what holds the job up.",
                    "percentunit",
                    [Query(above(way, "0.95", "device, port, rail", f" * {PORT_INFO}"), PORT)],
                    top=1,
                ),
            )
        ),
        *(
            heat(
                f"Bursts to {verb}",
                f"Ticks a second of all ports by the share of their speed used to {verb}: each band ends at its label."
                " Colour at the top and at the bottom alike is a load that comes in bursts.",
                f"fabric_rdma_{way}_utilization_samples",
            )
            for way, verb in zip(WAYS, ("send", "receive"), strict=True)
        ),
        lines(
            "Imbalance of ports",
            "How far the busiest port is above the mean of its like, and the idlest below it. Over 20 % above, or 50 %"
            " below, something steers the traffic.",
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
            "What ports receive less what they send, as a share of both: 1 for a port that only receives, -1 for one"
            " that only sends. In collectives of all ranks both are alike.",
            "percentunit",
            [Query(_port("fabric_rdma_asymmetry_ratio{}"), PORT)],
            width=HALF,
            low=-1,
            top=1,
        ),
    ]


def links() -> list[Panel]:
    """Show what the links do: their speed, and when and why they go down."""
    return [
        lines(
            "Speed of links",
            "Speed of each RDMA port, and none while it is down. A step down is a link that trained anew: look at"
            " cable and transceivers.",
            "bps",
            [Query(_port("8 * fabric_rdma_link_speed_bytes_per_second{}"), PORT)],
        ),
        lines(
            "Links going down",
            "Times that the link of a port went down, a second. Reseat or change the cable; then the transceivers of"
            " both sides.",
            "cps",
            [
                Query(_port("rate(fabric_rdma_link_down_total{}[$__rate_interval])"), PORT),
                Query("rate(fabric_nic_link_down_total{}[$__rate_interval])", "{{device}}"),
            ],
        ),
        lines(
            "Recoveries of links",
            "Times a second that a port mended its link by itself, or gave up for errors of its own. Ports that do are"
            " the next to go down.",
            "cps",
            [
                Query(_port("rate(fabric_rdma_link_error_recovery_total{}[$__rate_interval])"), f"{PORT} recovered"),
                Query(
                    _port("rate(fabric_rdma_local_link_integrity_errors_total{}[$__rate_interval])"),
                    f"{PORT} too many errors",
                ),
            ],
        ),
        listing(
            "Network devices",
            "Each network device as it is now, those without RDMA included.",
            [
                Column("Link", "short", "fabric_nic_link_up{}", LINK),
                Column("Speed", "bps", "8 * fabric_nic_link_speed_bytes_per_second{}"),
                Column("Expected", "bps", "8 * fabric_nic_link_expected_speed_bytes_per_second{}"),
            ],
            labels=["device"],
        ),
        facts(
            "Why links are down",
            "What the driver says of links that are down. no_cable: nothing is plugged in; other words tell of the"
            " module, the training or the other side.",
            "fabric_nic_link_down_reason_info{}",
            labels=["device", "reason"],
            width=QUARTER,
        ),
        listing(
            "RDMA ports down",
            "How far the link of a port comes: without a signal it polls.",
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
    """Show who stops whom, by priority and by port."""
    return [
        lines(
            "Pauses by priority",
            "Share of the time that the most paused device was stopped, by priority: 'receive' by its switch,"
            " 'transmit' is this host that stopped its switch.",
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
            "Share of the time that a device was stopped by its switch, its most paused priority. The cause is"
            " elsewhere: look for the host that pauses its switch.",
            "percentunit",
            [Query(_paused("receive"), "{{device}}")],
            top=1,
            limits=Limits(0.1, 0.5),
        ),
        lines(
            "Pausing the switch",
            "Share of the time that a device stopped its switch, its most paused priority: this host cannot take what"
            " it is sent. Look at PCIe, memory and GPUs; over a half take it out of service.",
            "percentunit",
            [Query(_paused("transmit"), "{{device}}")],
            top=1,
            limits=Limits(0.1, 0.5),
        ),
        lines(
            "Pause frames by priority",
            "Priority flow control frames a second of all devices. Frames without paused time: the device does not"
            " count the time.",
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
            "Pause frames of 802.3x a second. In a network with priority flow control there should be none: see the"
            " settings.",
            "pps",
            [
                Query(f"rate(fabric_nic_{way}_pause_frames_total{{}}[$__rate_interval])", f"{{{{device}}}} {way}")
                for way in WAYS
            ],
        ),
        lines(
            "Pause storms",
            "Times a second that a device paused its switch for long, and for so long that it was stopped from it."
            " Take the host out of service.",
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
    """Show how the network tells the ports to slow down, and what has to be sent again."""
    return [
        lines(
            "Packets received with a mark",
            "Share of the packets received that came with the congestion mark (ECN CE). From 10 % on a queue on their"
            " way is full, most likely the one that leads to this port: look at how many send to it at once.",
            "percentunit",
            [Query(_port("fabric_rdma_ecn_marked_ratio{}"), PORT)],
            limits=MARKED,
        ),
        lines(
            "Packets sent that slowed the sender",
            "Share of the packets sent for which a notification made this sender slow down. Marks elsewhere without"
            " these: notifications get lost, or congestion control is off.",
            "percentunit",
            [Query(_port("fabric_rdma_cnp_handled_ratio{}"), PORT)],
        ),
        lines(
            "Share sent again",
            "Share of the packets that a port had to send again. From one in ten thousand on look at its own link,"
            " then at discards and errors of switches on the way.",
            "percentunit",
            [Query(_port("fabric_rdma_retransmission_ratio{}"), PORT)],
            limits=SENT_AGAIN,
        ),
        lines(
            "Notifications of congestion",
            "CNPs a second of all ports: sent for marked packets, and obeyed or ignored as a sender. Marks without"
            " CNPs sent: congestion control is off here.",
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
            "Why packets are sent again",
            "Events a second of all ports. Sequence errors: loss or reordering on the way. Timeouts: loss, or a dead"
            " peer. No buffer: the receiving program is too slow.",
            "cps",
            [
                Query(f"sum(rate(fabric_rdma_{what}_total{{}}[$__rate_interval]))", word)
                for what, word in (
                    ("packet_sequence_errors", "sequence errors told by peers"),
                    ("out_of_sequence", "out of sequence here"),
                    ("local_ack_timeouts", "not acknowledged in time"),
                    ("rnr_nak_retries", "no buffer at the peer"),
                    ("out_of_buffer", "no buffer here"),
                    ("adaptive_retransmissions", "adaptive"),
                )
            ],
        ),
        lines(
            "Requests that failed",
            "Requests a second that completed with an error, as one ends with every job; and those given up after all"
            " retries, which end a job: look at the link of the port and of its peer.",
            "cps",
            [
                Query(_port(f"rate(fabric_rdma_requester_{what}_total{{}}[$__rate_interval])"), f"{PORT} {word}")
                for what, word in (("completion_errors", "failed"), ("transport_retries_exceeded", "given up"))
            ],
        ),
    ]


def _port(expr: str) -> str:
    """Name the rail and the network device of RDMA ports."""
    return f"{expr} * {PORT_INFO}"


def _paused(way: str) -> str:
    """Ask for the share of the time that each device was paused: its most paused priority, or the whole port."""
    return (
        f"max by (device) (rate(fabric_nic_{way}_pfc_paused_seconds_total{{}}[$__rate_interval])"
        f" or rate(fabric_nic_{way}_paused_seconds_total{{}}[$__rate_interval]))"
    )


ROWS = {
    "Ports": ports,
    "Utilisation and bursts": utilisation,
    "Links": links,
    "Pauses": pauses,
    "Congestion and loss": congestion,
    "Errors": errors,
    "Optics": optics,
    "PCIe": pcie,
    "Settings and sources": settings,
}
