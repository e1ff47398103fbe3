"""ice: Intel E800 (Linux: ice/ice_ethtool.c)."""

from exporter.sources.statistics import DriverNames, Statistic, both

ICE = DriverNames(
    port=(
        *both("bytes_total", "{way}_bytes.nic"),
        Statistic("receive_packets_total", ("rx_unicast.nic", "rx_multicast.nic", "rx_broadcast.nic")),
        Statistic("transmit_packets_total", ("tx_unicast.nic", "tx_multicast.nic", "tx_broadcast.nic")),
        Statistic("receive_discards_total", ("rx_dropped.nic",)),
        Statistic("transmit_discards_total", ("tx_dropped_link_down.nic",)),
        Statistic("transmit_errors_total", ("tx_errors.nic",)),
        Statistic("receive_pause_frames_total", ("link_xoff_rx.nic",)),
        Statistic("transmit_pause_frames_total", ("link_xoff_tx.nic",)),
        Statistic("fcs_errors_total", ("rx_crc_errors.nic",)),
    ),
    priority=both("pfc_frames_total", "{way}_priority_{p}_xoff.nic"),
)
