"""What is exported of RDMA ports and devices, and where it comes from: data."""

from exporter.core import vocabulary
from exporter.core.vocabulary import (
    ENDINGS,
    counter,
    gauge,
    info,
    unknown,
)
from exporter.sources.rdma.drivers import DRIVERS
from exporter.sources.rdma.files import PMA, choices, origins

LABELS = ("device", "port")

_PORT_COUNTERS = origins(
    ways for names in DRIVERS.values() for ways in choices(names.of_port(virtual=False, iwarp=True), PMA)
)
_DEVICE_COUNTERS = origins(ways for names in DRIVERS.values() for ways in choices(names.device))

LINK = ("link_up", "link_speed_bytes_per_second", "link_lanes", "port_state", "port_physical_state")
"""What is told of a port's link."""

_COUNTERS = {
    "receive_oversized_discards_total": counter("Packets dropped because they were larger than the MTU."),
    "icrc_errors_total": counter("RoCE packets with a wrong invariant checksum: corrupted beyond the frame's own."),
    "out_of_sequence_total": counter("Packets that came with an unexpected sequence number: lost, or reordered."),
    "packet_sequence_errors_total": counter("Replies that told this sender of a sequence error."),
    "implied_nak_sequence_errors_total": counter("Replies that implied a gap in what this sender sent."),
    "local_ack_timeouts_total": counter("Acknowledgements that did not come in time: loss, or a dead peer."),
    "rnr_nak_retries_total": counter("Replies that the peer had posted no buffer."),
    "rnr_naks_sent_total": counter("Replies to peers that no buffer was posted here."),
    "retransmitted_bytes_total": counter("Bytes sent again."),
    "unresponsive_peers_total": counter("Times that a peer did not answer any more."),
    "impaired_connections_total": counter("Times that a connection to a peer got worse than it should be."),
    "duplicate_requests_total": counter("Requests that came again: the peer retransmitted."),
    "adaptive_retransmissions_total": counter("Adaptive retransmissions by this sender."),
    "adaptive_retransmission_timeouts_total": counter("Adaptive retransmissions of this sender that timed out."),
    "slow_restarts_total": counter("Slow restarts of this sender after it was idle."),
    "slow_restart_cnps_total": counter("Congestion notifications that a slow restart made."),
    "slow_restart_transitions_total": counter("Transitions of a connection into slow restart."),
}

_REQUESTS = {
    "receive_write_requests_total": counter("RDMA writes received."),
    "receive_read_requests_total": counter("RDMA reads received."),
    "receive_atomic_requests_total": counter("RDMA atomics received."),
    "receive_send_requests_total": counter("Sends received."),
    "transmit_write_requests_total": counter("RDMA writes to peers."),
    "transmit_read_requests_total": counter("RDMA reads from peers."),
    "transmit_atomic_requests_total": counter("RDMA atomics on peers."),
    "transmit_send_requests_total": counter("Sends to peers."),
    "receive_send_bytes_total": counter("Bytes received by sends of peers."),
    "transmit_send_bytes_total": counter("Bytes sent by sends."),
    "receive_read_bytes_total": counter("Bytes that this side read from peers."),
    "transmit_read_bytes_total": counter("Bytes that peers read from this side."),
    "receive_write_bytes_total": counter("Bytes that peers wrote here."),
    "transmit_write_bytes_total": counter("Bytes that this side wrote to peers."),
    "receive_dct_connects_total": counter("Connections to dynamically connected targets."),
    "requester_read_errors_total": counter("Reads of this side that completed with an error."),
    "requester_write_errors_total": counter("Writes of this side that completed with an error."),
    "requester_completion_errors_total": counter("Requests of this side that completed with an error."),
    "requester_flush_errors_total": counter("Requests of this side that were flushed; normal when a job ends."),
    "requester_remote_access_errors_total": counter("Requests of this side that the peer refused access."),
    "requester_remote_invalid_requests_total": counter("Requests of this side that the peer called invalid."),
    "requester_transport_retries_exceeded_total": counter("Requests given up after all transport retries."),
    "requester_rnr_retries_exceeded_total": counter("Requests given up because the peer never posted a buffer."),
    "responder_completion_errors_total": counter("Requests of peers that completed with an error here."),
    "responder_flush_errors_total": counter("Requests of peers that were flushed here; normal when a job ends."),
    "responder_local_length_errors_total": counter("Requests of peers with a wrong length."),
    "responder_remote_access_errors_total": counter("Requests of peers that were refused access here."),
}

_OPTIONAL = {
    "optional_ecn_marked_packets_total": counter(
        "RoCE packets received with the congestion mark, by an optional counter that somebody enabled."
    ),
    "optional_cnp_sent_total": counter(
        "Congestion notification packets sent, by an optional counter that somebody enabled."
    ),
    "receive_optional_bytes_total": counter("Bytes of RDMA received, by an optional counter that somebody enabled."),
    "transmit_optional_bytes_total": counter("Bytes of RDMA sent, by an optional counter that somebody enabled."),
    "receive_optional_packets_total": counter(
        "Packets of RDMA received, by an optional counter that somebody enabled."
    ),
    "transmit_optional_packets_total": counter("Packets of RDMA sent, by an optional counter that somebody enabled."),
}

_OWN = {
    "info": info(
        "What the port is and where it sits. An Ethernet port without a netdev has none in this network namespace: its"
        " network device may be in a pod.",
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
    "port_state": gauge("Logical state: 0 no change, 1 down, 2 init, 3 armed, 4 active, 5 active, deferred."),
    "port_physical_state": gauge(
        "Physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery, 7 test."
    ),
    "link_lanes": gauge("Lanes of the link as it is now; absent while it is down."),
}

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
"""What is exported only where the configuration keeps it."""

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
    note="On mlx5 these are of this function alone (no virtual functions), on Ethernet RDMA alone (no TCP/IP).",
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
"""Ports. Where RDMA netlink tells as much as the files of `hw_counters/`, it is asked in their place (STAT_GET)."""

DEVICE = vocabulary.schema(
    "fabric_rdma_device_",
    ("device",),
    [*(ending for ending in _DEVICE_COUNTERS if ending in ENDINGS), "resets_total"],
    {
        "commands_submitted_total": counter("Commands given to the device."),
        "commands_completed_total": counter("Commands that the device answered."),
        "command_errors_total": counter("Commands that the device refused."),
        "commands_unanswered_total": counter("Commands that the device never answered."),
        "keep_alives_received_total": counter("Signs of life of the device."),
        "resource_errors_total": counter(
            "Protection domains, queues, address handles, memory regions, contexts and mappings that could not be made,"
            " as far as the driver counts them."
        ),
        **{ending: declared for ending, declared in {**_COUNTERS, **_REQUESTS}.items() if ending in _DEVICE_COUNTERS},
    },
    origins=_DEVICE_COUNTERS,
    details=DETAILS,
)
"""Devices as a whole, of drivers that count for them."""

RAW = vocabulary.schema(
    "fabric_rdma_",
    (*LABELS, "name"),
    own={"raw": unknown("Value of a counter of the driver that has no metric here, under the driver's own name.")},
    origins={"raw": ["hw_counters/", "RDMA netlink STAT_GET"]},
)
"""Counters of ports under the names that drivers give them."""

QUEUE_PAIRS = vocabulary.schema(
    "fabric_rdma_",
    ("device", "command", "qp_type", "state"),
    own={
        "queue_pairs": gauge(
            "Queue pairs that there are, by the program that made them, or the module of the kernel; asked for once a"
            " minute."
        )
    },
    origins={"queue_pairs": ["RDMA netlink RES_QP_GET"]},
)
"""Queue pairs."""
