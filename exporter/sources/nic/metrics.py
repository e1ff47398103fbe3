"""What is exported of network devices, and where it comes from: data."""

from exporter.core import vocabulary
from exporter.core.vocabulary import (
    Ending,
    counter,
    gauge,
    info,
    unknown,
)
from exporter.sources.common.driver_statistics import Statistic
from exporter.sources.nic.drivers import DRIVERS, INFINIBAND

KERNEL = {
    "kernel_receive_bytes_total": "rx_bytes",
    "kernel_transmit_bytes_total": "tx_bytes",
    "kernel_receive_packets_total": "rx_packets",
    "kernel_transmit_packets_total": "tx_packets",
    "kernel_receive_errors_total": "rx_errors",
    "kernel_transmit_errors_total": "tx_errors",
    "kernel_receive_discards_total": "rx_dropped",
    "kernel_transmit_discards_total": "tx_dropped",
}
"""Statistics of the kernel (struct rtnl_link_stats64) that are exported as such."""

INSTEAD = {
    ending.removeprefix("kernel_"): name
    for ending, name in KERNEL.items()
    if ending.endswith(("_bytes_total", "_packets_total"))
}
"""What stands in for bytes and packets of a device whose driver does not count them."""

STANDARD = {
    "OctetsReceivedOK": "receive_bytes_total",
    "OctetsTransmittedOK": "transmit_bytes_total",
    "FramesReceivedOK": "receive_packets_total",
    "FramesTransmittedOK": "transmit_packets_total",
    "FrameCheckSequenceErrors": "fcs_errors_total",
    "SymbolErrorDuringCarrier": "symbol_errors_total",
    "AlignmentErrors": "alignment_errors_total",
    "undersize": "receive_undersize_packets_total",
    "oversize": "receive_oversize_packets_total",
    "fragments": "receive_fragments_total",
    "jabbers": "receive_jabbers_total",
}
"""Statistics that mean the same for all drivers, by the names of IEEE 802.3 and RFC 2819: for drivers not listed."""

SLOW = {
    "receive_pause_frames_total": "others: ethtool netlink PAUSE_GET",
    "transmit_pause_frames_total": "others: ethtool netlink PAUSE_GET",
    "fec_corrected_blocks_total": "ethtool netlink FEC_GET",
    "fec_uncorrectable_blocks_total": "ethtool netlink FEC_GET",
    "fec_corrected_errors_total": "others: ethtool netlink FEC_GET",
    "link_speed_bytes_per_second": "ethtool netlink LINKMODES_GET, else ETHTOOL_GLINKSETTINGS",
    "link_max_speed_bytes_per_second": "ethtool netlink LINKMODES_GET",
    "link_lanes": "ethtool netlink LINKMODES_GET",
    "link_down_reason_info": "ethtool netlink LINKSTATE_GET",
    "settings_info": "ethtool netlink LINKMODES_GET, FEC_GET, PAUSE_GET; rtnetlink DCB IEEE_GET",
    "raw": "ETHTOOL_GSTATS",
}

RATE_LIMIT = "transmit_rate_limit_bytes_per_second"


def _origins() -> dict[str, list[str]]:
    """List where each metric comes from, for the documentation."""
    found: dict[str, list[str]] = {ending: [f"rtnetlink {name}"] for ending, name in KERNEL.items()}
    for driver, names in (DRIVERS | INFINIBAND).items():
        for statistic in (*names.port, *names.priority):
            found.setdefault(statistic.ending, []).append(f"{driver}: {' + '.join(statistic.names)}")
    for name, ending in STANDARD.items():
        found.setdefault(ending, []).append(f"others: ethtool netlink STATS_GET {name}")
    for ending, text in SLOW.items():
        found.setdefault(ending, []).append(text)
    for ending, name in INSTEAD.items():
        found.setdefault(ending, []).append(f"others: rtnetlink {name}")
    found["link_down_total"] += [
        "others: ethtool netlink LINKSTATE_GET EXT_DOWN_CNT, else rtnetlink CARRIER_DOWN_COUNT"
    ]
    found |= {
        "link_up": ["rtnetlink IFLA_OPERSTATE"],
        "mtu_bytes": ["rtnetlink IFLA_MTU"],
        "carrier_changes_total": ["rtnetlink IFLA_CARRIER_CHANGES"],
        "transmit_queue_drops_total": ["rtnetlink GETQDISC drops"],
        "transmit_queue_overlimits_total": ["rtnetlink GETQDISC overlimits"],
        "transmit_queue_requeues_total": ["rtnetlink GETQDISC requeues"],
        "transmit_queue_backlog_bytes": ["rtnetlink GETQDISC backlog"],
        "transmit_queue_info": ["rtnetlink GETQDISC TCA_KIND"],
        RATE_LIMIT: ["tbf: rtnetlink GETQDISC rate", "htb: rtnetlink GETTCLASS ceil"],
        "info": ["rtnetlink", "ETHTOOL_GDRVINFO"],
    }
    return found


def _both_ways(endings: dict[str, str]) -> dict[str, Ending]:
    """Declare counters for both directions; `{did}` in the help follows it."""
    return {
        f"{way}_{ending}": counter(text.replace("{did}", did))
        for ending, text in endings.items()
        for way, did in (("receive", "received"), ("transmit", "transmitted"))
    }


_INFO = {
    "info": info(
        "What the device is and where it sits; traffic tells whose bytes are counted: the wire's or the kernel's; left"
        " out where that is not known, and of InfiniBand, whose bytes fabric_rdma has.",
        "host",
        "rail",
        "pci",
        "mac",
        "driver",
        "firmware",
        "phys_port_name",
        "traffic",
    ),
    "settings_info": info(
        "How the port is set up: whether it negotiates, the error correction in use, which way 802.3x pauses work,"
        " the priorities under flow control, what a packet's priority is read from, how each traffic class is"
        " scheduled (percent of the link, or the algorithm) and the class of each priority. Left out where not known.",
        "autoneg",
        "duplex",
        "fec",
        "pause",
        "pfc",
        "trust",
        "ets",
        "priority_classes",
    ),
    "link_down_reason_info": info("Why the link is down, where the driver knows.", "reason"),
}

_KERNEL = {
    "kernel_receive_bytes_total": counter("Bytes that the kernel received: no RDMA."),
    "kernel_transmit_bytes_total": counter("Bytes that the kernel sent: no RDMA."),
    "kernel_receive_packets_total": counter("Packets that the kernel received: no RDMA."),
    "kernel_transmit_packets_total": counter("Packets that the kernel sent: no RDMA."),
    "kernel_ecn_marked_packets_total": counter(
        "Packets that the kernel received with the congestion mark (ECN CE): TCP/IP, no RDMA."
    ),
    "kernel_receive_errors_total": counter("Packets that the kernel counts as received with an error."),
    "kernel_transmit_errors_total": counter("Packets that the kernel counts as not sent for an error."),
    "kernel_receive_discards_total": counter("Packets received that the kernel dropped."),
    "kernel_transmit_discards_total": counter("Packets to be sent that the kernel dropped."),
}

_PORT = {
    "carrier_changes_total": counter("Times the carrier came or went."),
    "transmit_pause_storm_warnings_total": counter("Times this port paused its peer for long."),
    "transmit_pause_storm_errors_total": counter(
        "Times this port paused its peer so long that it was stopped from it."
    ),
    "transmit_timeouts_total": counter("Times that a queue did not send in time."),
    "pci_buffer_overflows_total": counter("Packets dropped because PCIe was slower than the wire."),
    "receive_allowance_exceeded_total": counter("Packets beyond the bandwidth that the instance may receive."),
    "transmit_allowance_exceeded_total": counter("Packets beyond the bandwidth that the instance may send."),
    "packet_rate_allowance_exceeded_total": counter("Packets beyond the packets a second that the instance may have."),
    "connection_allowance_exceeded_total": counter("Packets beyond the connections that the instance may track."),
    "link_local_allowance_exceeded_total": counter(
        "Packets beyond what the instance may send to services at link-local addresses: DNS, time, metadata."
    ),
}

_FINE = {
    "pcs_symbol_errors_total": counter("Symbol errors that forward error correction did not mend."),
    "fec_corrected_errors_total": counter("Wrong bits that forward error correction mended."),
    "link_error_recovery_total": counter("Times the link recovered from an error by itself."),
    "alignment_errors_total": counter("Frames with a wrong checksum that do not end at a byte."),
    "receive_undersize_packets_total": counter("Frames received that were too short, with a right checksum."),
    "receive_oversize_packets_total": counter("Frames received that were too long, with a right checksum."),
    "receive_fragments_total": counter("Frames received that were too short, with a wrong checksum."),
    "receive_jabbers_total": counter("Frames received that were too long, with a wrong checksum."),
    "receive_length_errors_total": counter("Frames received whose length is not what it says."),
    "illegal_bytes_total": counter("Bytes received that no coding has."),
    "local_faults_total": counter("Times this port saw no good signal."),
    "remote_faults_total": counter("Times the peer told that it saw no good signal."),
    "receive_buffer_threshold_total": counter("Times the port's receive buffer was more than 85 % full."),
    "device_out_of_buffer_total": counter("Packets dropped because a queue of the device's own had no buffer."),
    "steering_misses_total": counter("Packets received that no rule gave a place to go."),
    "pci_read_stalled_ratio": gauge("Share of the last second in which reads over PCIe had to wait for credits."),
    "pci_write_stalled_ratio": gauge("Share of the last second in which writes over PCIe had to wait for credits."),
    "pci_read_stalled_seconds_total": counter("Seconds in which reads over PCIe waited more than 30 % of the time."),
    "pci_write_stalled_seconds_total": counter("Seconds in which writes over PCIe waited more than 30 % of the time."),
    "pci_receive_recoveries_total": counter("Times that errors received made the PCIe link recover."),
    "pci_transmit_recoveries_total": counter("Times that errors transmitted made the PCIe link recover."),
    "module_unplugs_total": counter("Times the module was pulled."),
    "module_bus_stuck_total": counter("Times the module's bus was stuck."),
    "module_overheats_total": counter("Times the module became too hot."),
    "module_faults_total": counter("Times the module or cable was bad or had a short."),
    "connection_allowance_available": gauge("Connections that the instance may still track."),
    "transmit_srd_eligible_packets_total": counter("Packets transmitted that could have gone by SRD."),
    "link_lanes": gauge("Lanes that the link runs on."),
    **_both_ways(
        {
            "srd_packets_total": "Packets {did} by SRD, over many paths.",
            "pause_transitions_total": "Times that 802.3x pauses {did} came to their end.",
        }
    ),
    "rdma_receive_bytes_total": counter("Bytes of RDMA that this function received."),
    "rdma_transmit_bytes_total": counter("Bytes of RDMA that this function sent."),
    "rdma_receive_packets_total": counter("Packets of RDMA that this function received."),
    "rdma_transmit_packets_total": counter("Packets of RDMA that this function sent."),
}
"""What is exported only where it is kept, as is the like of it below and in what the kernel counts."""

_PRIORITY_FINE = {
    "receive_pfc_transitions_total": counter("Times the priority went from paused to running."),
    "transmit_pfc_transitions_total": counter("Times the priority of the peer went from paused to running."),
    **_both_ways(
        {
            "priority_bytes_total": "Bytes {did} with the priority: part of the port's bytes.",
            "priority_packets_total": "Packets {did} with the priority: part of the port's packets.",
        }
    ),
    "receive_priority_discards_total": counter("Packets of the priority dropped for lack of room."),
    "receive_priority_buffer_discards_total": counter(
        "Packets of the priority dropped for lack of this host's buffer."
    ),
    "receive_priority_congestion_discards_total": counter(
        "Packets of the priority dropped as this host was congested."
    ),
    "receive_priority_ecn_marked_packets_total": counter(
        "Packets of the priority that the device marked (ECN CE) as this host was congested."
    ),
}

_QUEUE = {
    "transmit_queue_drops_total": counter(
        "Packets that the kernel's queueing discipline dropped before they reached the port: no RDMA."
    ),
    "transmit_queue_overlimits_total": counter(
        "Times that the queueing discipline found a packet over its rate limit, which then had to wait: no RDMA."
    ),
    "transmit_queue_backlog_bytes": gauge("Bytes that wait in the kernel's queueing discipline: no RDMA."),
    "transmit_queue_requeues_total": counter(
        "Packets that the queueing discipline took back, as the port did not take them."
    ),
    "transmit_queue_info": info("Queueing discipline of the kernel at the device's root.", "kind"),
}

_STATISTICS: tuple[Statistic, ...] = tuple(one for names in DRIVERS.values() for one in names.port)
_PRIORITY: tuple[Statistic, ...] = tuple(one for names in DRIVERS.values() for one in names.priority)

SCHEMA = vocabulary.schema(
    "fabric_nic_",
    ("device",),
    [
        *dict.fromkeys(one.ending for one in _STATISTICS if one.ending in vocabulary.ENDINGS),
        "link_up",
        "link_speed_bytes_per_second",
        "link_max_speed_bytes_per_second",
        "link_expected_speed_bytes_per_second",
        "link_degraded",
        "mtu_bytes",
        "resets_total",
    ],
    {
        **_INFO,
        **_KERNEL,
        **_PORT,
        RATE_LIMIT: gauge(
            "Most that the kernel lets the port transmit, RDMA left alone: the rate of tbf, or the ceiling of the only"
            " class at the top of htb, which may let pass what belongs to no class; absent where there is no such"
            " limit."
        ),
        **_FINE,
    },
    note="On the wire with RDMA, headers and frame check where the driver counts those, else what the kernel saw.",
    origins=_origins(),
    details=[
        *_FINE,
        *(ending for ending in _KERNEL if not ending.endswith(("_bytes_total", "_discards_total"))),
        "link_max_speed_bytes_per_second",
    ],
)

PRIORITY = vocabulary.schema(
    "fabric_nic_",
    ("device", "priority"),
    [*dict.fromkeys(one.ending for one in _PRIORITY if one.ending in vocabulary.ENDINGS)],
    _PRIORITY_FINE,
    origins=_origins(),
    details=_PRIORITY_FINE,
)

QUEUE = vocabulary.schema(
    "fabric_nic_",
    ("device",),
    own=_QUEUE,
    origins=_origins(),
    details=["transmit_queue_requeues_total", "transmit_queue_info"],
)
"""A table of its own, as its counts start anew when the discipline is replaced, and those of the port do not."""

QUEUED = (*QUEUE.metrics.values(), SCHEMA.metrics[RATE_LIMIT])
"""The metrics for which it is asked how devices queue."""

RAW = vocabulary.schema(
    "fabric_nic_",
    ("device", "name"),
    own={
        "raw": unknown(
            "A statistic by the name its driver gives it, as it is: of names that the configuration asks for and that"
            " are no metric of their own."
        )
    },
    origins=_origins(),
)
