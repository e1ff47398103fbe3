"""hns_roce: HiSilicon (Linux: drivers/infiniband/hw/hns/hns_roce_main.c)."""

from exporter.sources.common.driver_statistics import Statistic, both
from exporter.sources.rdma.files import RdmaNames

HNS = RdmaNames(
    port=(
        *both("packets_total", "{way}_pkt"),
        *both("errors_total", "{way}_err_pkt"),
        Statistic("cnp_sent_total", ("tx_cnp_pkt",)),
        Statistic("cnp_received_total", ("rx_cnp_pkt",)),
    ),
    devices=("hns_*",),
    signs=frozenset({"rx_rc_pkt", "tx_cnp_pkt"}),
)
