"""Network devices of clouds: virtio (Linux: virtio_net.c), ena (amazon), gve (google), mana (microsoft).

Their bytes and packets are the kernel's, which counts the same queues.
"""

from exporter.sources.common.driver_statistics import DriverNames, Statistic, both

VIRTIO = DriverNames(
    port=(
        # The totals, which older kernels lack.
        Statistic("receive_discards_total", ("rx_drops",)),
        Statistic("transmit_timeouts_total", ("tx_tx_timeouts",)),
        # Up to Linux 6.4 the names were rx_queue_#_…
        Statistic("receive_discards_total", ("rx#_drops", "rx_queue_#_drops")),
        Statistic("transmit_timeouts_total", ("tx#_tx_timeouts", "tx_queue_#_tx_timeouts")),
    ),
    wire=False,
)

ENA = DriverNames(
    port=(
        Statistic("transmit_timeouts_total", ("tx_timeout",)),
        # The only counters of loss: packets over the instance's allowance are queued or dropped outside of it.
        Statistic("receive_allowance_exceeded_total", ("bw_in_allowance_exceeded",)),
        Statistic("transmit_allowance_exceeded_total", ("bw_out_allowance_exceeded",)),
        Statistic("packet_rate_allowance_exceeded_total", ("pps_allowance_exceeded",)),
        Statistic("connection_allowance_exceeded_total", ("conntrack_allowance_exceeded",)),
        Statistic("link_local_allowance_exceeded_total", ("linklocal_allowance_exceeded",)),
        Statistic("connection_allowance_available", ("conntrack_allowance_available",)),
        *both("srd_packets_total", "ena_srd_{way}_pkts"),
        Statistic("transmit_srd_eligible_packets_total", ("ena_srd_eligible_tx_pkts",)),
    ),
    wire=False,
)

GVE = DriverNames(
    port=(
        *both("discards_total", "{way}_dropped"),
        Statistic("transmit_timeouts_total", ("tx_timeouts",)),
        Statistic("out_of_buffer_total", ("rx_no_buffers_posted[#]",)),
    ),
    wire=False,
)

MANA = DriverNames(port=(Statistic("out_of_buffer_total", ("hc_rx_discards_no_wqe",)),), wire=False)
