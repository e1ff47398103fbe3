"""virtio (Linux: virtio_net.c)."""

from exporter.sources.statistics import DriverNames, Statistic

VIRTIO = DriverNames(
    port=(
        # Bytes and packets are the kernel's, which asks the same queues. Up to Linux 6.4 the names were rx_queue_#_…
        Statistic("receive_discards_total", ("rx#_drops", "rx_queue_#_drops")),
        Statistic("transmit_timeouts_total", ("tx#_tx_timeouts", "tx_queue_#_tx_timeouts")),
    ),
    wire=False,
)
