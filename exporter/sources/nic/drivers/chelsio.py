"""cxgb4: Chelsio T4 to T6 (Linux: chelsio/cxgb4/cxgb4_ethtool.c).

After a heading, `-------Loopback-----------`, the statistics of the loopback follow, with names without rx_ or tx_.
"""

from exporter.sources.common.driver_statistics import DriverNames, Statistic, both

CXGB4 = DriverNames(
    port=(
        *both("bytes_total", "{way}_octets_ok"),
        *both("packets_total", "{way}_frames_ok"),
        Statistic("receive_discards_total", tuple(f"rx_bg{group}_frames_dropped" for group in range(4))),
        Statistic("transmit_discards_total", ("tx_frames_dropped",)),
        Statistic("transmit_errors_total", ("tx_error_frames",)),
        *both("pause_frames_total", "{way}_pause_frames"),
        Statistic("fcs_errors_total", ("rx_fcs_errors",)),
        Statistic("symbol_errors_total", ("rx_symbol_errors",)),
        Statistic("receive_oversize_packets_total", ("rx_frames_too_long",)),
        Statistic("receive_jabbers_total", ("rx_jabber_errors",)),
        Statistic("receive_length_errors_total", ("rx_length_errors",)),
    ),
    priority=both("pfc_frames_total", "{way}_ppp{p}_frames"),
)
