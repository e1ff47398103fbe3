"""mlx5: ConnectX and BlueField (Linux: mlx5/core/en_stats.c and its documentation)."""

from exporter.sources.statistics import MICROSECONDS, DriverNames, Statistic, both

MLX5 = DriverNames(
    port=(
        *both("bytes_total", "{way}_bytes_phy"),
        *both("packets_total", "{way}_packets_phy"),
        *both("discards_total", "{way}_discards_phy"),
        Statistic("transmit_errors_total", ("tx_errors_phy",)),
        *both("pause_frames_total", "{way}_pause_ctrl_phy"),
        *both("paused_seconds_total", "{way}_global_pause_duration", divisor=MICROSECONDS),
        Statistic("fcs_errors_total", ("rx_crc_errors_phy",)),
        Statistic("symbol_errors_total", ("rx_symbol_err_phy",)),
        Statistic("pcs_symbol_errors_total", ("rx_pcs_symbol_err_phy",)),
        Statistic("fec_corrected_errors_total", ("rx_corrected_bits_phy",)),
        Statistic("out_of_buffer_total", ("rx_out_of_buffer",), 32),
        Statistic("link_down_total", ("link_down_events_phy",), 32),
        Statistic("kernel_ecn_marked_packets_total", ("rx_ecn_mark",)),
        Statistic("receive_buffer_threshold_total", ("rx_buffer_passed_thres_phy",)),
        Statistic("transmit_pause_storm_warnings_total", ("tx_pause_storm_warning_events",)),
        Statistic("transmit_pause_storm_errors_total", ("tx_pause_storm_error_events",)),
        Statistic("pci_buffer_overflows_total", ("outbound_pci_buffer_overflow",)),
    ),
    priority=(
        *both("pfc_frames_total", "{way}_prio{p}_pause"),
        *both("pfc_paused_seconds_total", "{way}_prio{p}_pause_duration", divisor=MICROSECONDS),
        Statistic("receive_pfc_transitions_total", ("rx_prio{p}_pause_transition",)),
    ),
)

MLX5_VIRTUAL = DriverNames(
    port=tuple(one for one in MLX5.port if one.ending in {"out_of_buffer_total", "kernel_ecn_marked_packets_total"}),
    wire=False,
)
"""A function without the right to the port's counters shows all of them as 0, which they are not."""
