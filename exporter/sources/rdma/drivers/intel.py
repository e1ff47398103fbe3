"""irdma and hfi1: Intel (Linux: drivers/infiniband/hw/irdma/verbs.c and hfi1/chip.c)."""

from exporter.sources.common.driver_statistics import Statistic
from exporter.sources.rdma.counter_files import DriverCounters

IRDMA = DriverCounters(
    port=(
        Statistic("receive_bytes_total", ("ip4InOctets", "ip6InOctets")),
        Statistic("transmit_bytes_total", ("ip4OutOctets", "ip6OutOctets")),
        Statistic("receive_packets_total", ("ip4InPkts", "ip6InPkts")),
        Statistic("transmit_packets_total", ("ip4OutPkts", "ip6OutPkts")),
        Statistic("receive_discards_total", ("ip4InDiscards", "ip6InDiscards")),
        Statistic("receive_multicast_packets_total", ("ip4InMcastPkts", "ip6InMcastPkts")),
        Statistic("transmit_multicast_packets_total", ("ip4OutMcastPkts", "ip6OutMcastPkts")),
        Statistic("ecn_marked_packets_total", ("RxECNMrkd",)),
        Statistic("cnp_sent_total", ("cnpSent",)),
        Statistic("cnp_handled_total", ("cnpHandled",)),
        Statistic("cnp_ignored_total", ("cnpIgnored",)),
        Statistic("receive_read_requests_total", ("iwInRdmaReads",)),
        Statistic("receive_read_requests_total", ("InRdmaReads",)),
        Statistic("receive_write_requests_total", ("iwInRdmaWrites",)),
        Statistic("receive_write_requests_total", ("InRdmaWrites",)),
        Statistic("receive_send_requests_total", ("iwInRdmaSends",)),
        Statistic("receive_send_requests_total", ("InRdmaSends",)),
        Statistic("transmit_read_requests_total", ("iwOutRdmaReads",)),
        Statistic("transmit_read_requests_total", ("OutRdmaReads",)),
        Statistic("transmit_write_requests_total", ("iwOutRdmaWrites",)),
        Statistic("transmit_write_requests_total", ("OutRdmaWrites",)),
        Statistic("transmit_send_requests_total", ("iwOutRdmaSends",)),
        Statistic("transmit_send_requests_total", ("OutRdmaSends",)),
        # The third generation, with spaces in its names.
        Statistic("rnr_naks_sent_total", ("RNR sent",)),
        Statistic("rnr_nak_retries_total", ("RNR received",)),
        Statistic("packet_sequence_errors_total", ("Nak Sequence Error",)),
        Statistic("implied_nak_sequence_errors_total", ("Nak Sequence Error Implied",)),
        Statistic("local_ack_timeouts_total", ("RTO",)),
        Statistic("out_of_sequence_total", ("Rcvd Out of order packets",)),
        Statistic("icrc_errors_total", ("CRC errors",)),
    ),
    # Retransmissions of TCP, which carries iWARP only: those of RoCE are not counted here.
    iwarp=(
        Statistic("retransmitted_packets_total", ("tcpRetransSegs",)),
        Statistic("retransmitted_packets_total", ("RetransSegs",)),
    ),
    device_names=("irdma*", "i40iw*"),
    unique_counters=frozenset({"ip4InOctets", "cnpHandled"}),
)

HFI1 = DriverCounters(
    port=(
        Statistic("retransmitted_packets_total", ("RcResend",)),
        Statistic("rnr_nak_retries_total", ("RnrNak",)),
        Statistic("local_ack_timeouts_total", ("RcTimeOut",)),
        Statistic("packet_sequence_errors_total", ("SeqNak",)),
        Statistic("out_of_sequence_total", ("RcSeqNak",)),
        Statistic("duplicate_requests_total", ("RcDupRew",)),  # sic
        Statistic("link_down_total", ("SwLinkDown,32",), 32),  # the width follows the comma
    ),
    device_names=("hfi1_*",),
)
"""Omni-Path: thousands of files per port, one for each virtual lane and processor."""
