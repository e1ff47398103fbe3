"""mlx5: ConnectX and BlueField (Linux: mlx5/core/en_stats.c and its documentation)."""

from exporter.sources.common.driver_statistics import (
    MICROSECONDS,
    PERCENT,
    DriverNames,
    Statistic,
    both,
)

_FUNCTION = (
    # RDMA of this function only, without other functions of the same port.
    Statistic("rdma_receive_bytes_total", ("rx_vport_rdma_unicast_bytes", "rx_vport_rdma_multicast_bytes")),
    Statistic("rdma_transmit_bytes_total", ("tx_vport_rdma_unicast_bytes", "tx_vport_rdma_multicast_bytes")),
    Statistic("rdma_receive_packets_total", ("rx_vport_rdma_unicast_packets", "rx_vport_rdma_multicast_packets")),
    Statistic("rdma_transmit_packets_total", ("tx_vport_rdma_unicast_packets", "tx_vport_rdma_multicast_packets")),
    Statistic("out_of_buffer_total", ("rx_out_of_buffer",), 32),
    Statistic("device_out_of_buffer_total", ("dev_internal_queue_oob",), 32),
    Statistic("device_out_of_buffer_total", ("dev_out_of_buffer",), 32),  # the older name
    Statistic("steering_misses_total", ("rx_steer_missed_packets",)),
    Statistic("kernel_ecn_marked_packets_total", ("rx_ecn_mark",)),
)

_LINK = (
    Statistic("pcs_symbol_errors_total", ("rx_pcs_symbol_err_phy",)),
    Statistic("fec_corrected_errors_total", ("rx_corrected_bits_phy",)),
    Statistic("link_down_total", ("link_down_events_phy",), 32),
    Statistic("link_error_recovery_total", ("total_success_recovery_phy",), 32),
)

_PCI = (
    Statistic("pci_buffer_overflows_total", ("outbound_pci_buffer_overflow",)),
    # Without "_events": percent of the last second; with it: seconds of more than 30 %.
    Statistic("pci_read_stalled_ratio", ("outbound_pci_stalled_rd",), divisor=PERCENT),
    Statistic("pci_write_stalled_ratio", ("outbound_pci_stalled_wr",), divisor=PERCENT),
    Statistic("pci_read_stalled_seconds_total", ("outbound_pci_stalled_rd_events",)),
    Statistic("pci_write_stalled_seconds_total", ("outbound_pci_stalled_wr_events",)),
    Statistic("pci_receive_recoveries_total", ("rx_pci_signal_integrity",), 32),
    Statistic("pci_transmit_recoveries_total", ("tx_pci_signal_integrity",), 32),
)

_MODULE = (
    Statistic("module_unplugs_total", ("module_unplug",)),
    Statistic("module_bus_stuck_total", ("module_bus_stuck",)),
    Statistic("module_overheats_total", ("module_high_temp",)),
    Statistic("module_faults_total", ("module_bad_shorted",)),
)

MLX5 = DriverNames(
    port=(
        *both("bytes_total", "{way}_bytes_phy"),
        *both("packets_total", "{way}_packets_phy"),
        *both("discards_total", "{way}_discards_phy"),
        Statistic("transmit_errors_total", ("tx_errors_phy",)),
        *both("pause_frames_total", "{way}_pause_ctrl_phy"),
        *both("paused_seconds_total", "{way}_global_pause_duration", divisor=MICROSECONDS),
        Statistic("receive_pause_transitions_total", ("rx_global_pause_transition",)),
        Statistic("fcs_errors_total", ("rx_crc_errors_phy",)),
        Statistic("symbol_errors_total", ("rx_symbol_err_phy",)),
        *_LINK,
        *_FUNCTION,
        Statistic("receive_buffer_threshold_total", ("rx_buffer_passed_thres_phy",)),
        Statistic("transmit_pause_storm_warnings_total", ("tx_pause_storm_warning_events",)),
        Statistic("transmit_pause_storm_errors_total", ("tx_pause_storm_error_events",)),
        Statistic("receive_undersize_packets_total", ("rx_undersize_pkts_phy",)),
        Statistic("receive_oversize_packets_total", ("rx_oversize_pkts_phy",)),
        Statistic("receive_fragments_total", ("rx_fragments_phy",)),
        Statistic("receive_jabbers_total", ("rx_jabbers_phy",)),
        Statistic("receive_length_errors_total", ("rx_in_range_len_errors_phy", "rx_out_of_range_len_phy")),
        *_PCI,
        *_MODULE,
    ),
    priority=(
        *both("pfc_frames_total", "{way}_prio{p}_pause"),
        *both("pfc_paused_seconds_total", "{way}_prio{p}_pause_duration", divisor=MICROSECONDS),
        Statistic("receive_pfc_transitions_total", ("rx_prio{p}_pause_transition",)),
        *both("priority_bytes_total", "{way}_prio{p}_bytes"),
        *both("priority_packets_total", "{way}_prio{p}_packets"),
        Statistic("receive_priority_discards_total", ("rx_prio{p}_discards",)),
        Statistic("receive_priority_buffer_discards_total", ("rx_prio{p}_buf_discard",)),
        Statistic("receive_priority_congestion_discards_total", ("rx_prio{p}_cong_discard",)),
        Statistic("receive_priority_ecn_marked_packets_total", ("rx_prio{p}_marked",)),
    ),
)

MLX5_VIRTUAL = DriverNames(port=_FUNCTION, wire=False)
"""A function without access to the port's counters reports all of them as 0."""

MLX5_INFINIBAND = DriverNames(port=(*_LINK, *_PCI, *_MODULE), wire=False)
"""The counters of an InfiniBand port that its RDMA port does not have (mlx5/core/ipoib).

Counters of IEEE 802.3 and of priorities are those of Ethernet, and 0 on such a port.
"""
