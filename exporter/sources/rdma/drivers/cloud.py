"""efa, mana and erdma: AWS, Azure, Alibaba (Linux: efa/efa_verbs.c, mana/counters.c, erdma/erdma_verbs.c)."""

from exporter.sources.common.driver_statistics import Statistic, both
from exporter.sources.rdma.counter_files import DriverCounters

_RESOURCES = ("alloc_pd_err", "create_qp_err", "reg_mr_err", "alloc_ucontext_err", "create_ah_err")

EFA = DriverCounters(
    port=(
        *both("bytes_total", "{way}_bytes"),
        *both("packets_total", "{way}_pkts"),
        Statistic("receive_discards_total", ("rx_drops",)),
        Statistic("transmit_send_requests_total", ("send_wrs",)),
        Statistic("transmit_send_bytes_total", ("send_bytes",)),
        Statistic("receive_send_requests_total", ("recv_wrs",)),
        Statistic("receive_send_bytes_total", ("recv_bytes",)),
        Statistic("transmit_read_requests_total", ("rdma_read_wrs",)),
        Statistic("receive_read_bytes_total", ("rdma_read_bytes",)),
        Statistic("transmit_read_bytes_total", ("rdma_read_resp_bytes",)),
        Statistic("requester_read_errors_total", ("rdma_read_wr_err",)),
        Statistic("transmit_write_requests_total", ("rdma_write_wrs",)),
        Statistic("transmit_write_bytes_total", ("rdma_write_bytes",)),
        Statistic("receive_write_bytes_total", ("rdma_write_recv_bytes",)),
        Statistic("requester_write_errors_total", ("rdma_write_wr_err",)),
        Statistic("retransmitted_packets_total", ("retrans_pkts",)),
        Statistic("retransmitted_bytes_total", ("retrans_bytes",)),
        Statistic("local_ack_timeouts_total", ("retrans_timeout_events",)),
        Statistic("unresponsive_peers_total", ("unresponsive_remote_events",)),
        Statistic("impaired_connections_total", ("impaired_remote_conn_events",)),
    ),
    device=(
        Statistic("commands_submitted_total", ("submitted_cmds",)),
        Statistic("commands_completed_total", ("completed_cmds",)),
        Statistic("command_errors_total", ("cmds_err",)),
        Statistic("commands_unanswered_total", ("no_completion_cmds",)),
        Statistic("keep_alives_received_total", ("keep_alive_rcvd",)),
        # Kinds of errors that an older driver does not count are left out of the sum, unlike the parts of a whole.
        Statistic("resource_errors_total", (*_RESOURCES, "create_cq_err", "mmap_err")),
        Statistic("resource_errors_total", (*_RESOURCES, "create_cq_err")),
        Statistic("resource_errors_total", _RESOURCES),
    ),
    device_names=("efa_*", "rdmap*"),
    unique_counters=frozenset({"rx_drops", "send_wrs"}),
)

MANA = DriverCounters(
    port=(
        *both("bytes_total", "{way}_bytes"),
        *both("packets_total", "{way}_packets"),
        Statistic("cnp_received_total", ("received_cnps",)),
        Statistic("local_ack_timeouts_total", ("requester_timeout",)),
        Statistic("packet_sequence_errors_total", ("requester_oos_nak",)),
        Statistic("implied_nak_sequence_errors_total", ("requester_implicit_nak",)),
        Statistic("rnr_nak_retries_total", ("requester_rnr_nak",)),
        Statistic("rnr_naks_sent_total", ("responder_rnr_nak",)),
        Statistic("out_of_sequence_total", ("responder_oos",)),
        Statistic("duplicate_requests_total", ("responder_dup_request",)),
        Statistic("receive_write_requests_total", ("rx_write_requests",)),
        Statistic("receive_read_requests_total", ("rx_read_requests",)),
        Statistic("receive_send_requests_total", ("rx_send_requests",)),
        Statistic("requester_remote_access_errors_total", ("nak_access_error",)),
        Statistic("requester_remote_invalid_requests_total", ("nak_inv_req",)),
        Statistic("requester_transport_retries_exceeded_total", ("requester_retries_exceeded",)),
        Statistic("requester_rnr_retries_exceeded_total", ("requester_rnr_nak_retries_exceeded",)),
        Statistic("responder_local_length_errors_total", ("responder_local_len_error",)),
        Statistic("responder_remote_access_errors_total", ("responder_rem_access_error",)),
    ),
    device=(
        Statistic("ecn_marked_packets_total", ("received_ecns",)),
        Statistic("cnp_sent_total", ("sent_cnps",)),
        Statistic("cnp_received_total", ("received_cnp_count",)),
    ),
    device_names=("mana_*",),
    unique_counters=frozenset({"requester_oos_nak", "received_cnps"}),
)

ERDMA = DriverCounters(
    port=(
        *both("bytes_total", "{way}_bytes_cnt"),
        *both("packets_total", "{way}_packets_cnt"),
        Statistic("receive_discards_total", ("rx_disable_drop_cnt", "rx_bps_limit_drop_cnt", "rx_pps_limit_drop_cnt")),
        Statistic("transmit_discards_total", ("tx_disable_drop_cnt", "tx_bps_limit_drop_cnt", "tx_pps_limit_drop_cnt")),
        # Alibaba's own driver.
        *both("bytes_total", "hw_{way}_bytes_cnt"),
        *both("packets_total", "hw_{way}_packets_cnt"),
        Statistic(
            "receive_discards_total",
            ("hw_rx_disable_drop_cnt", "hw_rx_bps_limit_drop_cnt", "hw_rx_pps_limit_drop_cnt"),
        ),
        Statistic("transmit_discards_total", ("hw_disable_drop_cnt", "hw_bps_limit_drop_cnt", "hw_pps_limit_drop_cnt")),
    ),
    device_names=("erdma_*",),
    unique_counters=frozenset({"hw_tx_reqs_cnt", "cmdq_submitted_cnt"}),
)
