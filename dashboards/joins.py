"""What the boards share: joins that name a host, a rail or a job, what is asked often, its limits and its words.

In a query `{}` stands for the selection of jobs and instances.
"""

from panels import WAYS, Limits, meaning, where

PORT_INFO = "on (job, instance, device, port) group_left (host, rail, netdev) fabric_rdma_info{}"
NIC_INFO = "on (job, instance, device) group_left (host) fabric_nic_info{}"
PCI_INFO = "on (job, instance, pci) group_left (host, devices, bridge) fabric_pci_info{}"
RANK_INFO = (
    "on (train_job, rank) group_left (host)"
    ' topk by (train_job, rank) (1, fabric_nccl_rank_info{job=~".+", instance=~".+"})'
)
"""Names the host of a rank, which is told by the exporter of that host; what is said of the rank may be a collector's,
whose instance is another one. A join that finds two of one rank, as soon after a restart elsewhere, fails for all."""

PORT = "rail {{rail}} {{device}}/{{port}}"
"""The legend of an RDMA port of one host."""

HOST_OF = "on (job, instance) group_left (host) max by (job, instance, host) (fabric_rdma_info{} or fabric_nic_info{})"
"""Names the host of what has one series an exporter, also where all its RDMA ports are gone."""

SWITCH_PORTS = (
    'label_join(fabric_link_info{job=~"$job", instance=~".+", switch!="", peer_mac!=""}, "mac", "", "peer_mac")'
    " * on (mac) group_left (device) topk by (mac) (1, fabric_nic_info{})"
)
"""Names the switch and the port behind each NIC by the MAC address that the switch sees there. Whoever polls switches
is another exporter than that of the host, so that its instance is any. A bond has the address of one of its members,
and a join that finds two of one address fails for all."""

JOBS_OF = "max by (job, instance, train_job, host) (fabric_nccl_rank_info{}) * on (job, instance) group_left"
"""Carries what is true of a host to the jobs that run on it; what follows has one series an exporter."""

DEGRADED = "on (job, instance, device, port) fabric_rdma_link_degraded{} == 1"
DOWN = "on (job, instance, device, port) fabric_rdma_link_up{} == 0"
PCI_DEGRADED = "on (job, instance, pci) fabric_pci_link_degraded{} == 1"

PAUSED, PAUSES = (
    f"(rate(fabric_nic_{way}_pfc_paused_seconds_total{{}}[5m]) or rate(fabric_nic_{way}_paused_seconds_total{{}}[5m]))"
    for way in ("receive", "transmit")
)
"""Shares of the time that a port was stopped by the network, and that it stopped the network: by priority, or whole."""

MISSING = "clamp_min(fabric_rdma_ports_expected{} - fabric_rdma_ports_ready{}, 0)"
"""RDMA ports that a host lacks; spare ones of another host make up for none."""
WENT_DOWN = "(increase(fabric_rdma_link_down_total{}[1h]) > bool 0)"

MARKED = Limits(0.05, 0.1)
"""Shares of packets that came with the congestion mark; from the latter on there is an alert."""

SENT_AGAIN = Limits(0.00001, 0.0001)
"""Shares of packets that were sent again; from the latter on there is an alert."""

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
    """Ask for the higher of two values of the same thing, or for the one that there is."""
    return f"({one} > {other} or {other} or {one})"


HIGHEST = higher(*(f"fabric_rdma_{way}_utilization_highest_ratio{{}}" for way in WAYS))


def above(way: str, share: str, by: str = "", join: str = "") -> str:
    """Ask for the share of the burst sampler's ticks that were above a bucket's bound, by the labels named."""
    samples, bound = f"fabric_rdma_{way}_utilization_samples", where(f'le="{share}"')
    return (
        f"1 - sum by ({by}) (rate({samples}_bucket{bound}[$__rate_interval]){join})"
        f" / sum by ({by}) (rate({samples}_count{{}}[$__rate_interval]){join})"
    )


def light(against: str) -> str:
    """Ask for the light that comes in on lanes whose laser is on, set against the low alarm of their module."""
    alarm = "fabric_nic_module_threshold_receive_power_watts" + where('level="low_alarm"')
    return (
        f"(fabric_nic_module_lane_receive_power_watts{{}} {against} on (job, instance, device) group_left () {alarm}"
        " and on (job, instance, device, lane) fabric_nic_module_lane_bias_amperes{} > 0)"
    )
