"""rxe: SoftRoCE, RDMA in software over any network device (Linux: drivers/infiniband/sw/rxe/rxe_hw_counters.c)."""

from exporter.sources.common.driver_statistics import Statistic
from exporter.sources.rdma.counter_files import DriverCounters

RXE = DriverCounters(
    port=(
        Statistic("receive_packets_total", ("rcvd_pkts",)),
        Statistic("transmit_packets_total", ("sent_pkts",)),
        Statistic("transmit_errors_total", ("send_err",)),
        Statistic("link_down_total", ("link_downed",)),
        Statistic("out_of_sequence_total", ("out_of_seq_request",)),
        Statistic("packet_sequence_errors_total", ("rcvd_seq_err",)),
        Statistic("rnr_nak_retries_total", ("rcvd_rnr_err",)),
        Statistic("rnr_naks_sent_total", ("send_rnr_err",)),
        Statistic("duplicate_requests_total", ("duplicate_request",)),
        Statistic("receive_send_requests_total", ("rdma_recvs",)),
        Statistic("transmit_send_requests_total", ("rdma_sends",)),
        Statistic("requester_transport_retries_exceeded_total", ("retry_exceeded_err",)),
        Statistic("requester_rnr_retries_exceeded_total", ("retry_rnr_exceeded_err",)),
    ),
    device_names=("rxe*",),
    unique_counters=frozenset({"sent_pkts", "rcvd_pkts"}),
)
