"""Which files an RDMA port has, what they mean, and how wide their counters are: data.

Words of four bytes become bytes. The widths of `counters/` are those of the PMA attributes behind them
(drivers/infiniband/core/sysfs.c), where counters under 64 bits stick at their top; those of `hw_counters/` are the
driver's.
"""

from collections.abc import Mapping
from typing import NamedTuple


class CounterFile(NamedTuple):
    """One file of a port: where it is, the ending of its metric, its width, and how it becomes a base unit."""

    path: str
    ending: str
    width: int = 64
    saturates: bool = False
    factor: int = 1


PMA: tuple[CounterFile, ...] = (
    CounterFile("counters/port_rcv_data", "receive_bytes_total", factor=4),
    CounterFile("counters/port_xmit_data", "transmit_bytes_total", factor=4),
    CounterFile("counters/port_rcv_packets", "receive_packets_total"),
    CounterFile("counters/port_xmit_packets", "transmit_packets_total"),
    CounterFile("counters/unicast_rcv_packets", "receive_unicast_packets_total"),
    CounterFile("counters/unicast_xmit_packets", "transmit_unicast_packets_total"),
    CounterFile("counters/multicast_rcv_packets", "receive_multicast_packets_total"),
    CounterFile("counters/multicast_xmit_packets", "transmit_multicast_packets_total"),
    CounterFile("counters/port_rcv_errors", "receive_errors_total", 16, saturates=True),
    CounterFile("counters/port_rcv_remote_physical_errors", "receive_remote_physical_errors_total", 16, saturates=True),
    CounterFile("counters/port_rcv_switch_relay_errors", "receive_switch_relay_errors_total", 16, saturates=True),
    CounterFile("counters/port_rcv_constraint_errors", "receive_constraint_errors_total", 8, saturates=True),
    CounterFile("counters/port_xmit_constraint_errors", "transmit_constraint_errors_total", 8, saturates=True),
    CounterFile("counters/port_xmit_discards", "transmit_discards_total", 16, saturates=True),
    CounterFile("counters/port_xmit_wait", "transmit_wait_ticks_total", 32, saturates=True),
    CounterFile("counters/symbol_error", "symbol_errors_total", 16, saturates=True),
    CounterFile("counters/link_downed", "link_down_total", 8, saturates=True),
    CounterFile("counters/link_error_recovery", "link_error_recovery_total", 8, saturates=True),
    CounterFile("counters/local_link_integrity_errors", "local_link_integrity_errors_total", 4, saturates=True),
    CounterFile("counters/excessive_buffer_overrun_errors", "excessive_buffer_overrun_errors_total", 4, saturates=True),
    CounterFile("counters/VL15_dropped", "vl15_dropped_total", 16, saturates=True),
)
"""The files of `counters/`, the same for every driver that has the folder."""

MLX5: tuple[CounterFile, ...] = (
    CounterFile("hw_counters/np_ecn_marked_roce_packets", "ecn_marked_packets_total"),
    CounterFile("hw_counters/np_cnp_sent", "cnp_sent_total"),
    CounterFile("hw_counters/rp_cnp_handled", "cnp_handled_total"),
    CounterFile("hw_counters/rp_cnp_ignored", "cnp_ignored_total"),
    CounterFile("hw_counters/rx_icrc_encapsulated", "icrc_errors_total"),
    CounterFile("hw_counters/out_of_buffer", "out_of_buffer_total", 32),
    CounterFile("hw_counters/out_of_sequence", "out_of_sequence_total", 32),
    CounterFile("hw_counters/packet_seq_err", "packet_sequence_errors_total", 32),
    CounterFile("hw_counters/implied_nak_seq_err", "implied_nak_sequence_errors_total", 32),
    CounterFile("hw_counters/local_ack_timeout_err", "local_ack_timeouts_total", 32),
    CounterFile("hw_counters/rnr_nak_retry_err", "rnr_nak_retries_total", 32),
    CounterFile("hw_counters/duplicate_request", "duplicate_requests_total", 32),
    CounterFile("hw_counters/rx_write_requests", "receive_write_requests_total", 32),
    CounterFile("hw_counters/rx_read_requests", "receive_read_requests_total", 32),
    CounterFile("hw_counters/rx_atomic_requests", "receive_atomic_requests_total", 32),
    CounterFile("hw_counters/rx_dct_connect", "receive_dct_connects_total", 32),
    CounterFile("hw_counters/roce_adp_retrans", "adaptive_retransmissions_total", 32),
    CounterFile("hw_counters/roce_adp_retrans_to", "adaptive_retransmission_timeouts_total", 32),
    CounterFile("hw_counters/roce_slow_restart", "slow_restarts_total", 32),
    CounterFile("hw_counters/roce_slow_restart_cnps", "slow_restart_cnps_total", 32),
    CounterFile("hw_counters/roce_slow_restart_trans", "slow_restart_transitions_total", 32),
    CounterFile("hw_counters/req_cqe_error", "requester_completion_errors_total", 32),
    CounterFile("hw_counters/req_cqe_flush_error", "requester_flush_errors_total", 32),
    CounterFile("hw_counters/req_remote_access_errors", "requester_remote_access_errors_total", 32),
    CounterFile("hw_counters/req_remote_invalid_request", "requester_remote_invalid_requests_total", 32),
    CounterFile("hw_counters/req_transport_retries_exceeded", "requester_transport_retries_exceeded_total", 32),
    CounterFile("hw_counters/req_rnr_retries_exceeded", "requester_rnr_retries_exceeded_total", 32),
    CounterFile("hw_counters/resp_cqe_error", "responder_completion_errors_total", 32),
    CounterFile("hw_counters/resp_cqe_flush_error", "responder_flush_errors_total", 32),
    CounterFile("hw_counters/resp_local_length_error", "responder_local_length_errors_total", 32),
    CounterFile("hw_counters/resp_remote_access_errors", "responder_remote_access_errors_total", 32),
)
"""The files of `hw_counters/` of mlx5 (drivers/infiniband/hw/mlx5/counters.c); its q-counters wrap at 32 bits."""

STATES = ("state", "phys_state", "rate")
"""The files that tell of a port's link."""

DRIVERS: Mapping[str, tuple[CounterFile, ...]] = {"mlx5_core": (*PMA, *MLX5)}
"""What there is to read for a driver; PMA alone for any other."""
