"""Metrics of network devices (`fabric_nic_`): schemas and HELP texts."""

from collections.abc import Iterable
from types import MappingProxyType

from exporter.core import vocabulary
from exporter.core.vocabulary import (
    Ending,
    counter,
    gauge,
    info,
    unknown,
)
from exporter.sources.common.driver_statistics import Statistic
from exporter.sources.nic.drivers import DRIVERS
from exporter.sources.nic.origins import RATE_LIMIT, origins


def _both_directions(endings: dict[str, str]) -> dict[str, Ending]:
    """Declare counters for both directions; `{done}` in the help is received or transmitted."""
    return {
        f"{direction}_{ending}": counter(text.replace("{done}", done))
        for ending, text in endings.items()
        for direction, done in (("receive", "received"), ("transmit", "transmitted"))
    }


_SHARED_HELPS = MappingProxyType(
    {
        "receive_bytes_total": (
            "Bytes received by the port, RDMA included (IEEE 802.3 aOctetsReceivedOK or the driver's port counter)."
            " Where the label traffic of fabric_nic_info is kernel: rx_bytes of rtnl_link_stats64, without RDMA."
        ),
        "transmit_bytes_total": (
            "Bytes transmitted by the port, RDMA included (IEEE 802.3 aOctetsTransmittedOK or the driver's port"
            " counter). Where the label traffic of fabric_nic_info is kernel: tx_bytes of rtnl_link_stats64, without"
            " RDMA."
        ),
        "receive_packets_total": (
            "Packets received by the port, RDMA included (IEEE 802.3 aFramesReceivedOK or the driver's port counter)."
            " Where the label traffic of fabric_nic_info is kernel: rx_packets of rtnl_link_stats64, without RDMA."
        ),
        "transmit_packets_total": (
            "Packets transmitted by the port, RDMA included (IEEE 802.3 aFramesTransmittedOK or the driver's port"
            " counter). Where the label traffic of fabric_nic_info is kernel: tx_packets of rtnl_link_stats64, without"
            " RDMA."
        ),
        "receive_errors_total": "Packets received with an error (IF-MIB ifInErrors).",
        "transmit_errors_total": "Packets not transmitted because of an error (IF-MIB ifOutErrors).",
        "receive_discards_total": (
            "Packets received without an error but dropped, for example for lack of buffers (IF-MIB ifInDiscards)."
        ),
        "transmit_discards_total": "Packets without an error that were dropped on transmit (IF-MIB ifOutDiscards).",
        "receive_pause_frames_total": (
            "PAUSE frames received, by which the link partner pauses this port (IEEE 802.3"
            " aPAUSEMACCtrlFramesReceived)."
        ),
        "transmit_pause_frames_total": (
            "PAUSE frames transmitted, by which this port pauses the link partner (IEEE 802.3"
            " aPAUSEMACCtrlFramesTransmitted)."
        ),
        "receive_paused_seconds_total": "Time that received 802.3x pause frames stopped this port from transmitting.",
        "transmit_paused_seconds_total": (
            "Time that PAUSE frames transmitted stopped the link partner from transmitting (IEEE 802.3x)."
        ),
        "receive_pfc_frames_total": (
            "Priority flow control (PFC) frames received, by which the link partner pauses or resumes the priority on"
            " this port (IEEE 802.1Qbb ieee8021PfcIndications)."
        ),
        "transmit_pfc_frames_total": (
            "Priority flow control (PFC) frames transmitted, by which this port pauses or resumes the priority on the"
            " link partner (IEEE 802.1Qbb ieee8021PfcRequests)."
        ),
        "receive_pfc_paused_seconds_total": (
            "Time that received PFC frames stopped this port from transmitting the priority (IEEE 802.1Qbb)."
        ),
        "transmit_pfc_paused_seconds_total": (
            "Time that PFC frames transmitted stopped the link partner from transmitting the priority (IEEE 802.1Qbb)."
        ),
        "fcs_errors_total": "Frames received with a frame check sequence error (IEEE 802.3 aFrameCheckSequenceErrors).",
        "symbol_errors_total": "Symbol errors detected by the PCS on receive (IEEE 802.3 aSymbolErrorDuringCarrier).",
        "fec_corrected_blocks_total": "FEC blocks received with errors and corrected (IEEE 802.3 aFECCorrectedBlocks).",
        "fec_uncorrectable_blocks_total": (
            "FEC blocks received with errors that could not be corrected (IEEE 802.3 aFECUncorrectableBlocks). Each"
            " loses a frame or more."
        ),
        "out_of_buffer_total": "Packets received but dropped because the receive queue had no buffer.",
        "link_up": "Whether the link has a carrier and its operational state (RFC 2863) is up or unknown: 1, else 0.",
        "link_speed_bytes_per_second": (
            "Current speed of the link; absent while the link is down, or its speed is unknown or disproved by its"
            " traffic."
        ),
        "link_max_speed_bytes_per_second": "Speed of the fastest link mode that the device supports.",
        "link_down_total": "Times the physical link went down.",
        "mtu_bytes": "Maximum transmission unit (rtnetlink IFLA_MTU).",
    }
)

_INFO = MappingProxyType(
    {
        "info": info(
            "Identity and location of the device. The label traffic is wire if bytes and packets are those of the"
            " port, kernel if they are those of the kernel's network stack, and empty if not known or of InfiniBand,"
            " whose bytes fabric_rdma has.",
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
            "Settings of the port: autonegotiation, duplex, active FEC, direction of 802.3x pause, priorities with PFC"
            " (IEEE 802.1Qbb), trust mode (DSCP or PCP), transmission selection of each traffic class (IEEE 802.1Qaz:"
            " percent of the link, or the algorithm) and traffic class of each priority. Labels are empty where not"
            " known.",
            "autoneg",
            "duplex",
            "fec",
            "pause",
            "pfc",
            "trust",
            "ets",
            "priority_classes",
        ),
        "link_down_reason_info": info(
            "Reason why the link is down (ethtool extended link state), where the driver reports one.", "reason"
        ),
    }
)

_KERNEL = MappingProxyType(
    {
        "kernel_receive_bytes_total": counter(
            "Bytes received by the kernel, without RDMA (rtnl_link_stats64 rx_bytes)."
        ),
        "kernel_transmit_bytes_total": counter(
            "Bytes transmitted by the kernel, without RDMA (rtnl_link_stats64 tx_bytes)."
        ),
        "kernel_receive_packets_total": counter(
            "Packets received by the kernel, without RDMA (rtnl_link_stats64 rx_packets)."
        ),
        "kernel_transmit_packets_total": counter(
            "Packets transmitted by the kernel, without RDMA (rtnl_link_stats64 tx_packets)."
        ),
        "kernel_ecn_marked_packets_total": counter(
            "Packets with ECN congestion experienced (CE) received by the kernel, without RDMA."
        ),
        "kernel_receive_errors_total": counter("Packets received with an error (rtnl_link_stats64 rx_errors)."),
        "kernel_transmit_errors_total": counter(
            "Packets not transmitted due to an error (rtnl_link_stats64 tx_errors)."
        ),
        "kernel_receive_discards_total": counter("Packets received but dropped (rtnl_link_stats64 rx_dropped)."),
        "kernel_transmit_discards_total": counter("Packets dropped on transmit (rtnl_link_stats64 tx_dropped)."),
    }
)

_PORT = MappingProxyType(
    {
        "carrier_changes_total": counter("Changes of the carrier, up and down (IFLA_CARRIER_CHANGES)."),
        "transmit_pause_storm_warnings_total": counter(
            "Long pauses transmitted: times this port paused the link partner for a long time."
        ),
        "transmit_pause_storm_errors_total": counter(
            "Pause storms transmitted: times this port paused the link partner for so long that the device disabled"
            " pause."
        ),
        "transmit_timeouts_total": counter("Timeouts of a transmit queue (the kernel's transmit watchdog)."),
        "pci_buffer_overflows_total": counter("Packets received but dropped because PCIe was slower than the link."),
        "receive_allowance_exceeded_total": counter(
            "Packets received that were queued or dropped because they exceeded the instance's bandwidth allowance."
        ),
        "transmit_allowance_exceeded_total": counter(
            "Packets to transmit that were queued or dropped because they exceeded the instance's bandwidth allowance."
        ),
        "packet_rate_allowance_exceeded_total": counter(
            "Packets queued or dropped because they exceeded the instance's packet rate allowance."
        ),
        "connection_allowance_exceeded_total": counter(
            "Packets dropped because they exceeded the instance's allowance of tracked connections."
        ),
        "link_local_allowance_exceeded_total": counter(
            "Packets dropped because they exceeded the instance's packet rate allowance to link-local services: DNS,"
            " NTP, metadata."
        ),
    }
)

_DETAILS = MappingProxyType(
    {
        "pcs_symbol_errors_total": counter(
            "Symbol errors of the PCS that FEC did not correct, or received without FEC."
        ),
        "fec_corrected_errors_total": counter("Bit errors that FEC corrected (ethtool corrected_bits)."),
        "link_error_recovery_total": counter("Successful recoveries of the link from an error."),
        "alignment_errors_total": counter(
            "Frames received with a frame check sequence error that do not end on an octet boundary (IEEE 802.3"
            " aAlignmentErrors)."
        ),
        "receive_undersize_packets_total": counter(
            "Frames received shorter than 64 octets, with a valid FCS (RMON etherStatsUndersizePkts)."
        ),
        "receive_oversize_packets_total": counter(
            "Frames received longer than the maximum, with a valid FCS (RMON etherStatsOversizePkts)."
        ),
        "receive_fragments_total": counter(
            "Frames received shorter than 64 octets, with an invalid FCS (RMON etherStatsFragments)."
        ),
        "receive_jabbers_total": counter(
            "Frames received longer than the maximum, with an invalid FCS (RMON etherStatsJabbers)."
        ),
        "receive_length_errors_total": counter(
            "Frames received whose length does not match their length field (IEEE 802.3 aInRangeLengthErrors,"
            " aOutOfRangeLengthField)."
        ),
        "illegal_bytes_total": counter("Bytes received with invalid coding."),
        "local_faults_total": counter("Local faults of the MAC: this port received no valid signal."),
        "remote_faults_total": counter(
            "Remote fault indications received: the link partner receives no valid signal from this port."
        ),
        "receive_buffer_threshold_total": counter("Times the port's receive buffer was more than 85 % full."),
        "device_out_of_buffer_total": counter("Packets received but dropped because an internal queue had no buffer."),
        "steering_misses_total": counter("Packets received but dropped because no flow steering rule matched."),
        "pci_read_stalled_ratio": gauge("Share of the last second in which PCIe reads waited for credits."),
        "pci_write_stalled_ratio": gauge("Share of the last second in which PCIe writes waited for credits."),
        "pci_read_stalled_seconds_total": counter(
            "Seconds with PCIe reads that waited for credits over 30 % of the time."
        ),
        "pci_write_stalled_seconds_total": counter(
            "Seconds with PCIe writes that waited for credits over 30 % of the time."
        ),
        "pci_receive_recoveries_total": counter(
            "Transitions of the PCIe link to recovery due to framing or CRC errors."
        ),
        "pci_transmit_recoveries_total": counter(
            "Transitions of the PCIe link to recovery that its other end initiated."
        ),
        "module_unplugs_total": counter("Times the optical module or cable was unplugged."),
        "module_bus_stuck_total": counter("Times the I2C bus of the optical module was stuck."),
        "module_overheats_total": counter("Times the optical module reported a high temperature."),
        "module_faults_total": counter("Times the optical module or cable was bad or shorted."),
        "connection_allowance_available": gauge(
            "Connections that can still be tracked within the instance's allowance."
        ),
        "transmit_srd_eligible_packets_total": counter("Packets transmitted that were eligible for ENA SRD."),
        "link_lanes": gauge("Number of lanes of the link."),
        **_both_directions(
            {
                "srd_packets_total": "Packets {done} by ENA SRD (Scalable Reliable Datagram).",
                "pause_transitions_total": "Changes from paused to not paused, by IEEE 802.3x PAUSE frames {done}.",
            }
        ),
        "rdma_receive_bytes_total": counter("Bytes of RDMA received by this function."),
        "rdma_transmit_bytes_total": counter("Bytes of RDMA transmitted by this function."),
        "rdma_receive_packets_total": counter("Packets of RDMA received by this function."),
        "rdma_transmit_packets_total": counter("Packets of RDMA transmitted by this function."),
    }
)
"""Metrics that are exported only where the configuration keeps them, as are some below and of the kernel's counters."""

_PRIORITY_DETAILS = MappingProxyType(
    {
        "receive_pfc_transitions_total": counter(
            "Changes of the priority on this port from paused to not paused, by PFC frames received."
        ),
        "transmit_pfc_transitions_total": counter(
            "Changes of the priority on the link partner from paused to not paused, by PFC frames transmitted."
        ),
        **_both_directions(
            {
                "priority_bytes_total": "Bytes {done} with the priority; a part of the port's bytes.",
                "priority_packets_total": "Packets {done} with the priority; a part of the port's packets.",
            }
        ),
        "receive_priority_discards_total": counter("Packets of the priority dropped on receive for lack of buffers."),
        "receive_priority_buffer_discards_total": counter(
            "Packets of the priority dropped on receive for lack of buffers of this host."
        ),
        "receive_priority_congestion_discards_total": counter(
            "Packets of the priority dropped on receive because of congestion of this host."
        ),
        "receive_priority_ecn_marked_packets_total": counter(
            "Packets of the priority received that the device marked with ECN CE because of congestion of this host."
        ),
    }
)

_QUEUE = MappingProxyType(
    {
        "transmit_queue_drops_total": counter("Packets dropped by the root queueing discipline, without RDMA."),
        "transmit_queue_overlimits_total": counter(
            "Times the root queueing discipline delayed a packet that exceeded its rate limit, without RDMA."
        ),
        "transmit_queue_backlog_bytes": gauge("Bytes in the root queueing discipline, without RDMA."),
        "transmit_queue_requeues_total": counter(
            "Packets put back into the root queueing discipline because the device was busy."
        ),
        "transmit_queue_info": info("The root queueing discipline of the device.", "kind"),
    }
)

_STATISTICS: tuple[Statistic, ...] = tuple(one for names in DRIVERS.values() for one in names.port)
_PRIORITY: tuple[Statistic, ...] = tuple(one for names in DRIVERS.values() for one in names.priority)

_PORT_ENDINGS = (
    *dict.fromkeys(one.ending for one in _STATISTICS if one.ending in vocabulary.ENDINGS),
    "link_up",
    "link_speed_bytes_per_second",
    "link_max_speed_bytes_per_second",
    "link_expected_speed_bytes_per_second",
    "link_degraded",
    "mtu_bytes",
    "resets_total",
)
_PRIORITY_ENDINGS = (*dict.fromkeys(one.ending for one in _PRIORITY if one.ending in vocabulary.ENDINGS),)


def _helps(endings: Iterable[str]) -> dict[str, str]:
    return {ending: _SHARED_HELPS[ending] for ending in endings if ending in _SHARED_HELPS}


SCHEMA = vocabulary.schema(
    "fabric_nic_",
    ("device",),
    _PORT_ENDINGS,
    {
        **_INFO,
        **_KERNEL,
        **_PORT,
        RATE_LIMIT: gauge(
            "Rate limit of the kernel's queueing discipline, without RDMA: the rate of tbf, or the ceiling of the only"
            " root class of htb, which unclassified packets may bypass; absent where there is none."
        ),
        **_DETAILS,
    },
    helps=_helps(_PORT_ENDINGS),
    origins=origins(),
    details=[
        *_DETAILS,
        *(ending for ending in _KERNEL if not ending.endswith(("_bytes_total", "_discards_total"))),
        "link_max_speed_bytes_per_second",
    ],
)

PRIORITY = vocabulary.schema(
    "fabric_nic_",
    ("device", "priority"),
    _PRIORITY_ENDINGS,
    _PRIORITY_DETAILS,
    helps=_helps(_PRIORITY_ENDINGS),
    origins=origins(),
    details=_PRIORITY_DETAILS,
)

QUEUE = vocabulary.schema(
    "fabric_nic_",
    ("device",),
    own=_QUEUE,
    origins=origins(),
    details=["transmit_queue_overlimits_total", "transmit_queue_requeues_total", "transmit_queue_info"],
)
"""A table of its own: its counters start from 0 when the queueing discipline is replaced, those of the port do not."""

QUEUEING_METRICS = (*QUEUE.metrics.values(), SCHEMA.metrics[RATE_LIMIT])
"""The metrics for which queueing disciplines are read."""

RAW = vocabulary.schema(
    "fabric_nic_",
    ("device", "name"),
    own={
        "raw": unknown(
            "Driver statistic by the driver's own name, unconverted: those that match sources.nic.raw and have no other"
            " metric."
        )
    },
    origins=origins(),
)
