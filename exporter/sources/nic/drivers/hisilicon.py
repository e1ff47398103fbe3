"""hns3: HiSilicon, Kunpeng (Linux: hisilicon/hns3/hns3pf/hclge_main.c).

The unit of paused time (`xoff_time`) is not documented, so it is not read.
"""

from exporter.sources.common.driver_statistics import DriverNames, Statistic, both

HNS3 = DriverNames(
    port=(
        *both("bytes_total", "mac_{way}_total_oct_num"),
        *both("packets_total", "mac_{way}_total_pkt_num"),
        *both("pause_frames_total", "mac_{way}_mac_pause_num"),
        Statistic("fcs_errors_total", ("mac_rx_fcs_err_pkt_num",)),
        Statistic("receive_undersize_packets_total", ("mac_rx_undersize_pkt_num",)),
        Statistic("receive_oversize_packets_total", ("mac_rx_oversize_pkt_num",)),
        Statistic("receive_fragments_total", ("mac_rx_fragment_pkt_num",)),
        Statistic("receive_jabbers_total", ("mac_rx_jabber_pkt_num",)),
    ),
    priority=both("pfc_frames_total", "mac_{way}_pfc_pri{p}_pkt_num"),
)
