"""hns_roce: HiSilicon (Linux: drivers/infiniband/hw/hns/hns_roce_main.c)."""

from exporter.sources.common.driver_statistics import Statistic, both
from exporter.sources.rdma.counter_files import DriverCounters

HNS = DriverCounters(
    port=(
        *both("packets_total", "{way}_pkt"),
        *both("errors_total", "{way}_err_pkt"),
        Statistic("cnp_sent_total", ("tx_cnp_pkt",)),
        Statistic("cnp_received_total", ("rx_cnp_pkt",)),
    ),
    device_names=("hns_*",),
    unique_counters=frozenset({"rx_rc_pkt", "tx_cnp_pkt"}),
)
