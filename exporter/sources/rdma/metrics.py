"""The metrics of RDMA ports and devices, and where they come from: data."""

from types import MappingProxyType

from exporter.core import vocabulary
from exporter.core.vocabulary import (
    ENDINGS,
    counter,
    gauge,
    info,
    unknown,
)
from exporter.sources.rdma.counter_files import PMA, counter_alternatives, origins
from exporter.sources.rdma.drivers import DRIVERS

LABELS = ("device", "port")

_PORT_COUNTERS = MappingProxyType(
    origins(
        ways
        for declared in DRIVERS.values()
        for ways in counter_alternatives(declared.port_counters(virtual=False, iwarp=True), PMA)
    )
)
_DEVICE_COUNTERS = MappingProxyType(
    origins(ways for declared in DRIVERS.values() for ways in counter_alternatives(declared.device))
)

LINK = ("link_up", "link_speed_bytes_per_second", "link_lanes", "port_state", "port_physical_state")
"""Endings of the state of a port's link."""

_STANDARD_HELPS = MappingProxyType(
    {
        "receive_bytes_total": "Bytes received (IBTA PortCountersExtended PortRcvData).{note}",
        "transmit_bytes_total": "Bytes transmitted (IBTA PortCountersExtended PortXmitData).{note}",
        "receive_packets_total": "Packets received (IBTA PortCountersExtended PortRcvPkts).{note}",
        "transmit_packets_total": "Packets transmitted (IBTA PortCountersExtended PortXmitPkts).{note}",
        "receive_unicast_packets_total": "Unicast packets received (IBTA PortCountersExtended PortUnicastRcvPkts).",
        "transmit_unicast_packets_total": (
            "Unicast packets transmitted (IBTA PortCountersExtended PortUnicastXmitPkts)."
        ),
        "receive_multicast_packets_total": (
            "Multicast packets received (IBTA PortCountersExtended PortMulticastRcvPkts)."
        ),
        "transmit_multicast_packets_total": (
            "Multicast packets transmitted (IBTA PortCountersExtended PortMulticastXmitPkts)."
        ),
        "receive_errors_total": "Packets received with an error (IBTA PortCounters PortRcvErrors).",
        "receive_remote_physical_errors_total": (
            "Packets received with the EBP (end bad packet) delimiter, set by an earlier hop (IBTA PortCounters"
            " PortRcvRemotePhysicalErrors)."
        ),
        "receive_switch_relay_errors_total": (
            "Packets received that a switch could not forward (IBTA PortCounters PortRcvSwitchRelayErrors)."
        ),
        "receive_constraint_errors_total": (
            "Packets received and discarded by partition or raw packet filters (IBTA PortCounters"
            " PortRcvConstraintErrors)."
        ),
        "transmit_constraint_errors_total": (
            "Packets not transmitted because of partition or raw packet filters (IBTA PortCounters"
            " PortXmitConstraintErrors)."
        ),
        "transmit_discards_total": (
            "Outbound packets discarded because the port was down or congested (IBTA PortCounters PortXmitDiscards)."
        ),
        "transmit_wait_ticks_total": (
            "Ticks during which the port had data to transmit and transmitted none, because it had no flow control"
            " credits or did not win arbitration; the length of a tick depends on the device (IBTA PortCounters"
            " PortXmitWait)."
        ),
        "symbol_errors_total": "Symbol errors detected on one or more lanes (IBTA PortCounters SymbolErrorCounter).",
        "link_down_total": "Times the link went down (IBTA PortCounters LinkDownedCounter).",
        "link_error_recovery_total": (
            "Times the port completed the link error recovery process (IBTA PortCounters LinkErrorRecoveryCounter)."
        ),
        "local_link_integrity_errors_total": (
            "Times the local physical errors exceeded LocalPhyErrors (IBTA PortCounters LocalLinkIntegrityErrors)."
        ),
        "excessive_buffer_overrun_errors_total": (
            "Times that consecutive buffer overruns exceeded OverrunErrors (IBTA PortCounters"
            " ExcessiveBufferOverrunErrors)."
        ),
        "vl15_dropped_total": (
            "Subnet management packets (VL15) dropped for lack of buffers (IBTA PortCounters VL15Dropped)."
        ),
    }
)
"""HELP of the counters of the IBTA's performance management, with the name of the attribute."""

_DCQCN_HELPS = MappingProxyType(
    {
        "ecn_marked_packets_total": "RoCE packets received with ECN Congestion Experienced (DCQCN notification point).",
        "cnp_sent_total": "Congestion notification packets (CNP) sent (DCQCN notification point).",
        "cnp_received_total": (
            "Congestion notification packets (CNPs) received by this device, whether or not it reduced its rate."
        ),
        "cnp_handled_total": (
            "Congestion notification packets (CNP) received for which the DCQCN reaction point reduced its rate."
        ),
        "cnp_ignored_total": "Congestion notification packets (CNP) received that the DCQCN reaction point ignored.",
    }
)
"""HELP of the counters of DCQCN: the receiver is its notification point, the sender its reaction point."""

_TRANSPORT_HELPS = MappingProxyType(
    {
        "out_of_buffer_total": "Packets dropped because the queue pair had no receive buffer posted.",
        "retransmitted_packets_total": "Packets retransmitted, after loss of the packet or of its acknowledgement.",
        "receive_discards_total": "Packets received without an error and dropped.",
        "transmit_errors_total": "Packets that could not be transmitted because of an error.",
    }
)

_LINK_HELPS = MappingProxyType(
    {
        "link_up": "Whether the port's logical state is Active (1) or not (0).",
        "link_speed_bytes_per_second": (
            "Speed of the whole port in bytes per second; absent while the link is down, or its speed is unknown or"
            " disproved by its traffic."
        ),
    }
)

_COUNTERS = MappingProxyType(
    {
        "receive_oversized_discards_total": counter("Packets received that exceed the MTU, and dropped."),
        "icrc_errors_total": counter(
            "RoCE packets received with a wrong ICRC (invariant CRC): corrupted, with a correct frame check sequence."
        ),
        "out_of_sequence_total": counter(
            "Packets received by the responder with an unexpected PSN: loss, or reordering as by adaptive routing."
        ),
        "packet_sequence_errors_total": counter("NAK packets received by the requester for a PSN sequence error."),
        "implied_nak_sequence_errors_total": counter(
            "ACKs or read responses received by the requester that are an implied NAK for a PSN sequence error."
        ),
        "local_ack_timeouts_total": counter(
            "Local ACK timeouts of the requester: the packet or its ACK was lost, or the responder did not respond."
        ),
        "rnr_nak_retries_total": counter(
            "RNR NAKs received by the requester: the responder had no receive work request posted."
        ),
        "rnr_naks_sent_total": counter("RNR NAKs sent by the responder: no receive work request was posted."),
        "retransmitted_bytes_total": counter("Bytes retransmitted."),
        "unresponsive_peers_total": counter("Times a peer stopped responding."),
        "impaired_connections_total": counter("Times the path to a peer became impaired."),
        "duplicate_requests_total": counter(
            "Duplicate requests received by the responder: the requester retransmitted them."
        ),
        "adaptive_retransmissions_total": counter("Adaptive retransmissions for RoCE traffic."),
        "adaptive_retransmission_timeouts_total": counter("Timeouts of adaptive retransmission for RoCE traffic."),
        "slow_restarts_total": counter("Times that RoCE slow restart was used, after a connection was idle."),
        "slow_restart_cnps_total": counter("Congestion notification packets (CNP) generated by RoCE slow restart."),
        "slow_restart_transitions_total": counter("Times that a connection changed its state to RoCE slow restart."),
    }
)

_REQUESTS = MappingProxyType(
    {
        "receive_write_requests_total": counter("RDMA WRITE requests received."),
        "receive_read_requests_total": counter("RDMA READ requests received."),
        "receive_atomic_requests_total": counter("Atomic requests received."),
        "receive_send_requests_total": counter("SEND requests received."),
        "transmit_write_requests_total": counter("RDMA WRITE requests sent."),
        "transmit_read_requests_total": counter("RDMA READ requests sent."),
        "transmit_atomic_requests_total": counter("Atomic requests sent."),
        "transmit_send_requests_total": counter("SEND requests sent."),
        "receive_send_bytes_total": counter("Bytes received by SEND requests of peers."),
        "transmit_send_bytes_total": counter("Bytes transmitted by SEND requests."),
        "receive_read_bytes_total": counter("Bytes received in responses to RDMA READ requests of this side."),
        "transmit_read_bytes_total": counter("Bytes transmitted in responses to RDMA READ requests of peers."),
        "receive_write_bytes_total": counter("Bytes received by RDMA WRITE requests of peers."),
        "transmit_write_bytes_total": counter("Bytes transmitted by RDMA WRITE requests."),
        "receive_dct_connects_total": counter(
            "Connection requests received for dynamically connected transport (DCT)."
        ),
        "requester_read_errors_total": counter("RDMA READ requests that completed with an error."),
        "requester_write_errors_total": counter("RDMA WRITE requests that completed with an error."),
        "requester_completion_errors_total": counter("Completions with an error at the requester."),
        "requester_flush_errors_total": counter(
            "Completions with a flush error at the requester; normal when a job ends."
        ),
        "requester_remote_access_errors_total": counter(
            "Remote access errors at the requester: the peer denied access."
        ),
        "requester_remote_invalid_requests_total": counter(
            "Remote invalid request errors at the requester: the peer rejected the request."
        ),
        "requester_transport_retries_exceeded_total": counter(
            "Transport retry counter exceeded errors at the requester: the peer did not acknowledge any retry."
        ),
        "requester_rnr_retries_exceeded_total": counter(
            "RNR retry counter exceeded errors at the requester: the peer posted no receive buffer."
        ),
        "responder_completion_errors_total": counter("Completions with an error at the responder."),
        "responder_flush_errors_total": counter(
            "Completions with a flush error at the responder; normal when a job ends."
        ),
        "responder_local_length_errors_total": counter("Local length errors at the responder."),
        "responder_remote_access_errors_total": counter(
            "Remote access errors at the responder: the access of a peer was denied."
        ),
    }
)

_OPTIONAL = MappingProxyType(
    {
        "optional_ecn_marked_packets_total": counter(
            "RoCE packets received with ECN Congestion Experienced, by an optional counter, which has to be enabled."
        ),
        "optional_cnp_sent_total": counter(
            "Congestion notification packets (CNP) sent, by an optional counter, which has to be enabled."
        ),
        "receive_optional_bytes_total": counter(
            "Bytes of RDMA traffic received, by an optional counter, which has to be enabled."
        ),
        "transmit_optional_bytes_total": counter(
            "Bytes of RDMA traffic transmitted, by an optional counter, which has to be enabled."
        ),
        "receive_optional_packets_total": counter(
            "Packets of RDMA traffic received, by an optional counter, which has to be enabled."
        ),
        "transmit_optional_packets_total": counter(
            "Packets of RDMA traffic transmitted, by an optional counter, which has to be enabled."
        ),
    }
)
"""Counters that are off by default (`rdma statistic set link … optional-counters …`), and in netlink only."""

_OWN = MappingProxyType(
    {
        "info": info(
            "Attributes of the port. An Ethernet port without a netdev has none in this network namespace: its network"
            " device may be in a pod.",
            "host",
            "rail",
            "pci",
            "netdev",
            "mac",
            "node_guid",
            "link_layer",
            "driver",
            "hca_type",
            "board_id",
            "firmware",
        ),
        "port_state": gauge(
            "Logical state of the port (IBTA PortInfo PortState): 0 no change, 1 down, 2 init, 3 armed, 4 active, 5"
            " active, deferred."
        ),
        "port_physical_state": gauge(
            "Physical state of the port (IBTA PortInfo PortPhysicalState): 1 sleep, 2 polling, 3 disabled, 4 training,"
            " 5 link up, 6 error recovery, 7 test."
        ),
        "link_lanes": gauge("Lanes of the link, its active width; absent while the link is down."),
    }
)

DETAILS = frozenset(
    {
        "receive_unicast_packets_total",
        "transmit_unicast_packets_total",
        "receive_multicast_packets_total",
        "transmit_multicast_packets_total",
        "receive_switch_relay_errors_total",
        "receive_constraint_errors_total",
        "transmit_constraint_errors_total",
        "vl15_dropped_total",
        "rnr_naks_sent_total",
        "slow_restarts_total",
        "slow_restart_cnps_total",
        "slow_restart_transitions_total",
        "requester_flush_errors_total",
        "requester_remote_access_errors_total",
        "requester_remote_invalid_requests_total",
        "requester_rnr_retries_exceeded_total",
        "responder_flush_errors_total",
        "responder_local_length_errors_total",
        "responder_remote_access_errors_total",
        "receive_send_requests_total",
        "transmit_write_requests_total",
        "transmit_read_requests_total",
        "transmit_atomic_requests_total",
        "transmit_send_requests_total",
        "receive_send_bytes_total",
        "transmit_send_bytes_total",
        "receive_read_bytes_total",
        "transmit_read_bytes_total",
        "receive_write_bytes_total",
        "transmit_write_bytes_total",
        "receive_dct_connects_total",
        "commands_submitted_total",
        "commands_completed_total",
        "keep_alives_received_total",
    }
)
"""Endings that are exported only if the configuration keeps them."""

SCHEMA = vocabulary.schema(
    "fabric_rdma_",
    LABELS,
    [
        *(ending for ending in _PORT_COUNTERS if ending in ENDINGS),
        "link_up",
        "link_speed_bytes_per_second",
        "link_expected_speed_bytes_per_second",
        "link_degraded",
        "resets_total",
    ],
    {**_OWN, **_COUNTERS, **_REQUESTS, **_OPTIONAL},
    note="On mlx5 of this function only, without virtual functions; on Ethernet of RDMA only, without TCP/IP.",
    helps={**_STANDARD_HELPS, **_DCQCN_HELPS, **_TRANSPORT_HELPS, **_LINK_HELPS},
    origins={
        **_PORT_COUNTERS,
        "link_up": ["state"],
        "port_state": ["state"],
        "port_physical_state": ["phys_state"],
        "link_speed_bytes_per_second": ["rate"],
        "link_lanes": ["rate"],
        "info": [
            "node_guid, hca_type, board_id, fw_ver, link_layer, device",
            "RDMA netlink PORT_GET, else device/net and gid_attrs/ndevs",
        ],
    },
    details=DETAILS,
)
"""Ports. If RDMA netlink returns as many counters as `hw_counters/` has files, it is read instead (STAT_GET)."""

DEVICE = vocabulary.schema(
    "fabric_rdma_device_",
    ("device",),
    [*(ending for ending in _DEVICE_COUNTERS if ending in ENDINGS), "resets_total"],
    {
        "commands_submitted_total": counter("Admin commands submitted to the device."),
        "commands_completed_total": counter("Admin commands completed by the device."),
        "command_errors_total": counter("Admin commands that failed."),
        "commands_unanswered_total": counter("Admin commands without a completion."),
        "keep_alives_received_total": counter("Keep-alive events received from the device."),
        "resource_errors_total": counter(
            "Failed creations of protection domains, queue pairs, completion queues, address handles, memory regions,"
            " contexts and mappings, as far as the driver counts them."
        ),
        **{ending: declared for ending, declared in {**_COUNTERS, **_REQUESTS}.items() if ending in _DEVICE_COUNTERS},
    },
    helps={ending: text for ending, text in _DCQCN_HELPS.items() if ending in _DEVICE_COUNTERS},
    origins=_DEVICE_COUNTERS,
    details=DETAILS,
)
"""Devices as a whole, for drivers with counters per device."""

RAW = vocabulary.schema(
    "fabric_rdma_",
    (*LABELS, "name"),
    own={"raw": unknown("Value of a driver's counter without a metric, under the driver's own name.")},
    origins={"raw": ["hw_counters/", "RDMA netlink STAT_GET"]},
)
"""Counters of ports under the drivers' own names."""

CHARACTER_DEVICES = vocabulary.schema(
    "fabric_rdma_",
    (*LABELS, "kind"),
    own={
        "character_device_missing": gauge(
            "1 for a character device that the kernel has not created, absent otherwise: uverbs, by which programs open"
            " the RDMA device; umad of an InfiniBand port, for management datagrams; rdma_cm of the host, for"
            " connections by IP address. With --path.dev also 1 for one whose node is missing in the host's /dev, then"
            " for issm too, which subnet managers open."
        )
    },
    origins={"character_device_missing": ["/sys/class/infiniband_verbs, infiniband_mad, misc", "/dev/infiniband"]},
)
"""Missing character devices of ports; uverbs is one of a device, and counts for each of its ports."""

QUEUE_PAIRS = vocabulary.schema(
    "fabric_rdma_",
    ("device", "command", "qp_type", "state"),
    own={
        "queue_pairs": gauge(
            "Queue pairs, by the program or kernel module that created them, type and state; read once a minute."
        )
    },
    origins={"queue_pairs": ["RDMA netlink RES_QP_GET"]},
)
"""Queue pairs."""
