"""mlx5: ConnectX and BlueField (Linux: drivers/infiniband/hw/mlx5/counters.c); its q-counters wrap at 32 bits."""

from exporter.sources.common.driver_statistics import Statistic, both
from exporter.sources.rdma.counter_files import DriverCounters

MLX5 = DriverCounters(
    port=(
        Statistic("ecn_marked_packets_total", ("np_ecn_marked_roce_packets",)),
        Statistic("cnp_sent_total", ("np_cnp_sent",)),
        Statistic("cnp_handled_total", ("rp_cnp_handled",)),
        Statistic("cnp_ignored_total", ("rp_cnp_ignored",)),
        Statistic("icrc_errors_total", ("rx_icrc_encapsulated",)),
        Statistic("out_of_buffer_total", ("out_of_buffer",), 32),
        Statistic("out_of_sequence_total", ("out_of_sequence",), 32),
        Statistic("packet_sequence_errors_total", ("packet_seq_err",), 32),
        Statistic("implied_nak_sequence_errors_total", ("implied_nak_seq_err",), 32),
        Statistic("local_ack_timeouts_total", ("local_ack_timeout_err",), 32),
        Statistic("rnr_nak_retries_total", ("rnr_nak_retry_err",), 32),
        Statistic("duplicate_requests_total", ("duplicate_request",), 32),
        Statistic("receive_write_requests_total", ("rx_write_requests",), 32),
        Statistic("receive_read_requests_total", ("rx_read_requests",), 32),
        Statistic("receive_atomic_requests_total", ("rx_atomic_requests",), 32),
        Statistic("receive_dct_connects_total", ("rx_dct_connect",), 32),
        Statistic("adaptive_retransmissions_total", ("roce_adp_retrans",), 32),
        Statistic("adaptive_retransmission_timeouts_total", ("roce_adp_retrans_to",), 32),
        Statistic("slow_restarts_total", ("roce_slow_restart",), 32),
        Statistic("slow_restart_cnps_total", ("roce_slow_restart_cnps",), 32),
        Statistic("slow_restart_transitions_total", ("roce_slow_restart_trans",), 32),
        Statistic("requester_completion_errors_total", ("req_cqe_error",), 32),
        Statistic("requester_flush_errors_total", ("req_cqe_flush_error",), 32),
        Statistic("requester_remote_access_errors_total", ("req_remote_access_errors",), 32),
        Statistic("requester_remote_invalid_requests_total", ("req_remote_invalid_request",), 32),
        Statistic("requester_transport_retries_exceeded_total", ("req_transport_retries_exceeded",), 32),
        Statistic("requester_rnr_retries_exceeded_total", ("req_rnr_retries_exceeded",), 32),
        Statistic("responder_completion_errors_total", ("resp_cqe_error",), 32),
        Statistic("responder_flush_errors_total", ("resp_cqe_flush_error",), 32),
        Statistic("responder_local_length_errors_total", ("resp_local_length_error",), 32),
        Statistic("responder_remote_access_errors_total", ("resp_remote_access_errors",), 32),
        # Optional counters, which have to be enabled and are in netlink only. The first has no equivalent above.
        Statistic("cnp_received_total", ("cc_rx_cnp_pkts",)),
        Statistic("optional_ecn_marked_packets_total", ("cc_rx_ce_pkts",)),
        Statistic("optional_cnp_sent_total", ("cc_tx_cnp_pkts",)),
        *both("optional_bytes_total", "rdma_{way}_bytes"),
        *both("optional_packets_total", "rdma_{way}_packets"),
    ),
    device_names=("mlx5_*",),
    hca_types=("MT41*",),
)
