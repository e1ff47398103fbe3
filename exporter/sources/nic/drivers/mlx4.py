"""mlx4: ConnectX-3 (Linux: mlx4/en_ethtool.c)."""

from exporter.sources.common.driver_statistics import DriverNames, Statistic, both

MLX4 = DriverNames(
    port=(
        # Bytes and packets are those of the rings, as the kernel counts them; no total includes RDMA.
        *both("pause_frames_total", "{way}_pause"),
        *both("pause_transitions_total", "{way}_pause_transition"),
        Statistic("fcs_errors_total", ("rx_crc_errors",)),
        Statistic("receive_jabbers_total", ("rx_jabbers",)),
        Statistic("receive_length_errors_total", ("rx_in_range_length_error", "rx_out_range_length_error")),
        Statistic("transmit_timeouts_total", ("tx_timeout",)),
    ),
    priority=(
        *both("pfc_frames_total", "{way}_pause_prio_{p}"),  # the unit of the paused time is not documented
        *both("pfc_transitions_total", "{way}_pause_transition_prio_{p}"),
        *both("priority_bytes_total", "{way}_prio_{p}_bytes"),
        *both("priority_packets_total", "{way}_prio_{p}_packets"),
    ),
    wire=False,
)
