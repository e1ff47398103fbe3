"""bnxt_re: Broadcom NetXtreme-E, Thor (Linux: drivers/infiniband/hw/bnxt_re/hw_counters.c; Broadcom's own driver).

Broadcom's own driver and newer kernels use the names of mlx5. Some versions list gauges (`active_*`, `watermark_*`)
among the counters.
"""

from exporter.sources.common.driver_statistics import Statistic, both
from exporter.sources.rdma.counter_files import DriverCounters

_TRAFFIC = (
    *both("bytes_total", "{way}_bytes"),
    *both("packets_total", "{way}_pkts"),
    *both("errors_total", "{way}_roce_errors"),
    *both("discards_total", "{way}_roce_discards"),
)

_ERRORS = (
    # One register under two names; neither counts retransmitted packets.
    Statistic("local_ack_timeouts_total", ("to_retransmits",)),
    Statistic("local_ack_timeouts_total", ("local_ack_timeout_err",)),
    Statistic("packet_sequence_errors_total", ("seq_err_naks_rcvd",)),
    Statistic("packet_sequence_errors_total", ("packet_seq_err",)),
    Statistic("implied_nak_sequence_errors_total", ("missing_resp",)),
    Statistic("implied_nak_sequence_errors_total", ("implied_nak_seq_err",)),
    Statistic("rnr_nak_retries_total", ("rnr_naks_rcvd",)),
    Statistic("rnr_nak_retries_total", ("rnr_nak_retry_err",)),
    Statistic("duplicate_requests_total", ("dup_req",)),
    Statistic("duplicate_requests_total", ("duplicate_request",)),
    Statistic("out_of_sequence_total", ("oos_drop_count",)),
    Statistic("out_of_sequence_total", ("out_of_sequence",)),
    Statistic("requester_completion_errors_total", ("req_cqe_error",)),
    Statistic("requester_transport_retries_exceeded_total", ("max_retry_exceeded",)),
    Statistic("requester_remote_access_errors_total", ("remote_access_err",)),
    Statistic("requester_remote_access_errors_total", ("req_remote_access_errors",)),
    Statistic("requester_remote_invalid_requests_total", ("remote_invalid_req_err",)),
    Statistic("requester_remote_invalid_requests_total", ("req_remote_invalid_request",)),
    Statistic("responder_completion_errors_total", ("resp_cqe_error",)),
    Statistic("responder_local_length_errors_total", ("res_length_mismatch",)),
    Statistic("responder_local_length_errors_total", ("resp_local_length_error",)),
    Statistic("responder_remote_access_errors_total", ("resp_remote_access_errors",)),
)
"""Connection errors, which the firmware counts for every function."""

_PHYSICAL_FUNCTION = (
    Statistic("ecn_marked_packets_total", ("rx_ecn_marked_pkts",)),
    Statistic("ecn_marked_packets_total", ("np_ecn_marked_roce_packets",)),
    Statistic("cnp_sent_total", ("tx_cnp_pkts",)),
    Statistic("cnp_sent_total", ("np_cnp_sent",)),
    Statistic("cnp_sent_total", ("np_cnp_pkts",)),
    Statistic("cnp_received_total", ("rx_cnp_pkts",)),
    Statistic("cnp_handled_total", ("rp_cnp_handled",)),
    Statistic("cnp_ignored_total", ("rp_cnp_ignored",)),
    Statistic("icrc_errors_total", ("rx_icrc_encapsulated",)),
    Statistic("out_of_buffer_total", ("rx_out_of_buffer",)),
    Statistic("out_of_buffer_total", ("out_of_buffer",)),
    Statistic("adaptive_retransmissions_total", ("roce_adp_retrans",)),
    Statistic("adaptive_retransmission_timeouts_total", ("roce_adp_retrans_to",)),
    Statistic("slow_restarts_total", ("roce_slow_restart",)),
    Statistic("slow_restart_cnps_total", ("roce_slow_restart_cnps",)),
    Statistic("slow_restart_transitions_total", ("roce_slow_restart_trans",)),
    Statistic("requester_flush_errors_total", ("req_cqe_flush_error",)),
    Statistic("responder_flush_errors_total", ("resp_cqe_flush_error",)),
    Statistic("receive_write_requests_total", ("rx_write_req",)),
    Statistic("receive_write_requests_total", ("rx_write_requests",)),
    Statistic("receive_read_requests_total", ("rx_read_req",)),
    Statistic("receive_read_requests_total", ("rx_read_requests",)),
    Statistic("receive_atomic_requests_total", ("rx_atomic_req",)),
    Statistic("receive_atomic_requests_total", ("rx_atomic_requests",)),
    Statistic("receive_send_requests_total", ("rx_send_req",)),
    Statistic("transmit_write_requests_total", ("tx_write_req",)),
    Statistic("transmit_read_requests_total", ("tx_read_req",)),
    Statistic("transmit_atomic_requests_total", ("tx_atomic_req",)),
    Statistic("transmit_send_requests_total", ("tx_send_req",)),
)
"""Counters that the driver reads for physical functions only; a virtual function lists them, and they stay 0."""

BNXT = DriverCounters(
    port=(*_TRAFFIC, *_ERRORS, *_PHYSICAL_FUNCTION),
    virtual=(*_TRAFFIC, *_ERRORS),
    device_names=("bnxt_re*",),
    unique_counters=frozenset({"rx_roce_discards", "max_retry_exceeded"}),
)
