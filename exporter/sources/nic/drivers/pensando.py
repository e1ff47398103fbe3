"""ionic: AMD Pensando, Pollara (Linux: pensando/ionic/ionic_stats.c)."""

from exporter.sources.common.driver_statistics import (
    MICROSECONDS,
    DriverNames,
    Statistic,
    both,
)

_FUNCTION = (
    Statistic("transmit_discards_total", ("hw_tx_dropped",)),
    # Empty receive queues; hw_rx_missed_errors are DMA errors of the device.
    Statistic("out_of_buffer_total", ("hw_rx_over_errors",)),
)

IONIC = DriverNames(
    port=(
        *both("bytes_total", "octets_{way}_ok"),
        *both("packets_total", "frames_{way}_ok"),
        Statistic("receive_discards_total", ("frames_rx_dropped",)),
        Statistic("receive_errors_total", ("frames_rx_bad_all",)),
        Statistic("transmit_errors_total", ("frames_tx_bad",)),
        *both("pause_frames_total", "frames_{way}_pause"),
        # Microseconds; there is no counter for transmitted pauses.
        Statistic("receive_paused_seconds_total", ("rx_pause_1us_count",), divisor=MICROSECONDS),
        Statistic("fcs_errors_total", ("frames_rx_bad_fcs",)),
        Statistic("receive_undersize_packets_total", ("frames_rx_undersized",)),
        Statistic("receive_oversize_packets_total", ("frames_rx_oversized",)),
        Statistic("receive_fragments_total", ("frames_rx_fragments",)),
        Statistic("receive_jabbers_total", ("frames_rx_jabber",)),
        Statistic("receive_length_errors_total", ("frames_rx_bad_length",)),
        *_FUNCTION,
    ),
    priority=(
        *both("pfc_frames_total", "frames_{way}_pripause"),
        *both("pfc_paused_seconds_total", "{way}_pripause_{p}_1us_count", divisor=MICROSECONDS),
        *both("priority_packets_total", "frames_{way}_pri_{p}"),
    ),
)

IONIC_VIRTUAL = DriverNames(
    port=(Statistic("receive_discards_total", ("hw_rx_dropped",)), *_FUNCTION),
    wire=False,
)
"""A virtual function has the counters of the whole port, which would be counted twice."""
