"""Shared parts of queries: joins for the host, rail or job, common expressions, limits and value mappings.

In a query `{}` is replaced by the selection of jobs and instances.
"""

from panels import meaning, where

PORT_INFO = "on (job, instance, device, port) group_left (host, rail, netdev) fabric_rdma_info{}"
NIC_INFO = "on (job, instance, device) group_left (host) fabric_nic_info{}"
PCI_INFO = "on (job, instance, pci) group_left (host, devices, bridge) fabric_pci_info{}"
RANK_INFO = (
    "on (train_job, rank) group_left (host)"
    ' topk by (train_job, rank) (1, fabric_nccl_rank_info{job=~".+", instance=~".+"})'
)
"""Joins the host of a rank, which the exporter of that host has; other metrics of the rank may be a collector's, whose
instance is another one. A join that matches two series of one rank, as just after a restart on another host, fails."""

PORT = "rail {{rail}} {{device}}/{{port}}"
"""The legend of an RDMA port of one host."""

PHYSICAL_STATES = meaning(
    {
        1: ("sleep", "orange"),
        2: ("polling: no signal", "red"),
        3: ("disabled", "red"),
        4: ("training", "orange"),
        5: ("link up", "green"),
        6: ("error recovery", "orange"),
        7: ("test", "orange"),
    }
)


def higher(one: str, other: str) -> str:
    """Return the query for the higher of two series, or for the one that exists."""
    return f"({one} > {other} or {other} or {one})"


def ticks_above(way: str, share: str, by: str = "", join: str = "") -> str:
    """Return the query for the share of the burst sampler's ticks above a bucket's bound, by these labels."""
    samples, bound = f"fabric_rdma_{way}_utilization_samples", where(f'le="{share}"')
    return (
        f"1 - sum by ({by}) (rate({samples}_bucket{bound}[$__rate_interval]){join})"
        f" / sum by ({by}) (rate({samples}_count{{}}[$__rate_interval]){join})"
    )


def receive_power_to_low_alarm(against: str) -> str:
    """Return the query that compares the receive power of lanes with their laser on to the module's low alarm."""
    alarm = "fabric_nic_module_threshold_receive_power_watts" + where('level="low_alarm"')
    return (
        f"(fabric_nic_module_lane_receive_power_watts{{}} {against} on (job, instance, device) group_left () {alarm}"
        " and on (job, instance, device, lane) fabric_nic_module_lane_bias_amperes{} > 0)"
    )
