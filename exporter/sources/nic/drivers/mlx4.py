"""mlx4: ConnectX-3 (Linux: mlx4/en_ethtool.c)."""

from exporter.sources.common.driver_statistics import DriverNames, Statistic, both

MLX4 = DriverNames(
    port=(
        # Bytes and packets are what the rings saw, which is the kernel's count; RDMA is in none of the totals.
        *both("pause_frames_total", "{way}_pause"),
        *both("pause_transitions_total", "{way}_pause_transition"),
        Statistic("fcs_errors_total", ("rx_crc_errors",)),
        Statistic("receive_jabbers_total", ("rx_jabbers",)),
        Statistic("receive_length_errors_total", ("rx_in_range_length_error", "rx_out_range_length_error")),
        Statistic("transmit_timeouts_total", ("tx_timeout",)),
    ),
    priority=(
        *both("pfc_frames_total", "{way}_pause_prio_{p}"),  # how long each lasted is told too, in what unit is not
        *both("pfc_transitions_total", "{way}_pause_transition_prio_{p}"),
        *both("priority_bytes_total", "{way}_prio_{p}_bytes"),
        *both("priority_packets_total", "{way}_prio_{p}_packets"),
    ),
    wire=False,
)
