"""bnxt_re: Broadcom NetXtreme-E, Thor (Linux: drivers/infiniband/hw/bnxt_re/hw_counters.c; Broadcom's own driver).

Broadcom's own driver took over the names of mlx5. `active_*` and `watermark_*` stand among the counters and are none.
"""

from exporter.sources.rdma_files import RdmaNames
from exporter.sources.statistics import Statistic, both

BNXT = RdmaNames(
    port=(
        *both("bytes_total", "{way}_bytes"),
        *both("packets_total", "{way}_pkts"),
        *both("errors_total", "{way}_roce_errors"),
        *both("discards_total", "{way}_roce_discards"),
        Statistic("ecn_marked_packets_total", ("rx_ecn_marked_pkts",)),
        Statistic("ecn_marked_packets_total", ("np_ecn_marked_roce_packets",)),
        Statistic("cnp_sent_total", ("tx_cnp_pkts",)),
        Statistic("cnp_sent_total", ("np_cnp_sent",)),
        Statistic("cnp_received_total", ("rx_cnp_pkts",)),
        Statistic("cnp_handled_total", ("rp_cnp_handled",)),
        Statistic("cnp_ignored_total", ("rp_cnp_ignored",)),
        Statistic("retransmitted_packets_total", ("to_retransmits",)),
        Statistic("local_ack_timeouts_total", ("local_ack_timeout_err",)),
        Statistic("packet_sequence_errors_total", ("seq_err_naks_rcvd",)),
        Statistic("packet_sequence_errors_total", ("packet_seq_err",)),
        Statistic("implied_nak_sequence_errors_total", ("implied_nak_seq_err",)),
        Statistic("rnr_nak_retries_total", ("rnr_naks_rcvd",)),
        Statistic("rnr_nak_retries_total", ("rnr_nak_retry_err",)),
        Statistic("duplicate_requests_total", ("dup_req",)),
        Statistic("duplicate_requests_total", ("duplicate_request",)),
        Statistic("out_of_sequence_total", ("oos_drop_count",)),
        Statistic("out_of_sequence_total", ("out_of_sequence",)),
        Statistic("out_of_buffer_total", ("rx_out_of_buffer",)),
        Statistic("out_of_buffer_total", ("out_of_buffer",)),
        Statistic("requester_transport_retries_exceeded_total", ("max_retry_exceeded",)),
        Statistic("requester_remote_access_errors_total", ("remote_access_err",)),
        Statistic("requester_remote_invalid_requests_total", ("remote_invalid_req_err",)),
        Statistic("receive_write_requests_total", ("rx_write_req",)),
        Statistic("receive_read_requests_total", ("rx_read_req",)),
        Statistic("receive_atomic_requests_total", ("rx_atomic_req",)),
        Statistic("receive_send_requests_total", ("rx_send_req",)),
        Statistic("transmit_write_requests_total", ("tx_write_req",)),
        Statistic("transmit_read_requests_total", ("tx_read_req",)),
        Statistic("transmit_atomic_requests_total", ("tx_atomic_req",)),
        Statistic("transmit_send_requests_total", ("tx_send_req",)),
    ),
    devices=("bnxt_re*",),
    signs=frozenset({"active_qps", "rx_roce_discards"}),
)
