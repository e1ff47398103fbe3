"""ionic: AMD Pensando, Pollara. The firmware defines the names, misspellings included, and newer versions have more.

Newer firmware counts collectives separately (`…_ccl_cts_…`). Whether `…_ucast_…` includes them is not documented, so
they are part of no sum here, and not of the packets that ratios are computed from.
"""

from exporter.sources.common.driver_statistics import Statistic, both
from exporter.sources.rdma.counter_files import DriverCounters

IONIC = DriverCounters(
    port=(
        Statistic("receive_bytes_total", ("rx_rdma_ucast_bytes", "rx_rdma_mcast_bytes")),
        Statistic("transmit_bytes_total", ("tx_rdma_ucast_bytes", "tx_rdma_mcast_bytes")),
        Statistic("receive_packets_total", ("rx_rdma_ucast_pkts", "rx_rdma_mcast_pkts")),
        Statistic("transmit_packets_total", ("tx_rdma_ucast_pkts", "tx_rdma_mcast_pkts")),
        *both("unicast_packets_total", "{way}_rdma_ucast_pkts"),
        *both("multicast_packets_total", "{way}_rdma_mcast_pkts"),
        Statistic("receive_oversized_discards_total", ("rx_rdma_mtu_discard_pkts",)),
        Statistic("ecn_marked_packets_total", ("rx_rdma_ecn_pkts",)),
        Statistic("cnp_sent_total", ("tx_rdma_cnp_pkts",)),
        Statistic("cnp_received_total", ("rx_rdma_cnp_pkts",)),
        Statistic("retransmitted_packets_total", ("tx_rdma_retx_pkts",)),
        Statistic("retransmitted_bytes_total", ("tx_rdma_retx_bytes",)),
        Statistic("local_ack_timeouts_total", ("tx_rdma_ack_timeout",)),
        Statistic("packet_sequence_errors_total", ("req_rx_pkt_seq_err",)),
        Statistic("implied_nak_sequence_errors_total", ("req_rx_impl_nak_seq_err",)),
        Statistic("rnr_nak_retries_total", ("req_rx_rnr_retry_err",)),
        Statistic("duplicate_requests_total", ("resp_rx_dup_request",)),
        Statistic("out_of_buffer_total", ("resp_rx_outof_buf",)),
        Statistic("out_of_sequence_total", ("resp_rx_outouf_seq",)),
        Statistic("requester_completion_errors_total", ("req_rx_cqe_err",)),
        Statistic("requester_flush_errors_total", ("req_rx_cqe_flush",)),
        Statistic("requester_remote_access_errors_total", ("req_rx_rmt_acc_err",)),
        Statistic("requester_remote_invalid_requests_total", ("req_rx_rmt_req_err",)),
        Statistic("requester_transport_retries_exceeded_total", ("req_tx_retry_excd_err",)),
        Statistic("responder_completion_errors_total", ("resp_rx_cqe_err",)),
        Statistic("responder_flush_errors_total", ("resp_rx_cqe_flush",)),
        Statistic("responder_local_length_errors_total", ("resp_rx_loc_len_err",)),
        Statistic("responder_remote_access_errors_total", ("resp_tx_rmt_acc_err",)),
    ),
    device_names=("ionic_*",),
    unique_counters=frozenset({"tx_rdma_ucast_bytes", "resp_rx_outouf_seq"}),
)
