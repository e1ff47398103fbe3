"""Shared parts of queries: joins for the host, rail or job, common expressions, limits and value mappings.

In a query `{}` is replaced by the selection of jobs and instances.
"""

from collections.abc import Mapping

from panels import FAINT, GREY, Limits, meaning, where

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

PORTS_OF_A_DAY = "(fabric_rdma_info{} or on (job, instance, device, port) last_over_time(fabric_rdma_info{}[1d]))"
"""RDMA ports that there are, or were within a day."""

GONE = (
    f"(0 * {PORTS_OF_A_DAY} - 1 unless on (job, instance, device, port) fabric_rdma_link_up{{}}"
    " and on (job, instance) host:fabric_rdma_ports_ready:missing{} > 0)"
)
"""-1 for each RDMA port that was there within a day and is not any more, on hosts where ports are missing."""

SWITCH_PORTS = (
    f"{PORTS_OF_A_DAY} * on (mac) group_left (switch, switch_port)"
    ' topk by (mac) (1, switch_port:fabric_link_info:seen{job=~".+", instance=~".+"})'
)
"""The switch and its port of each RDMA port, by the MAC address in LLDP, as recorded: the last one that was seen, since
a link that is down has no neighbour. Another exporter than the host's polls the switches, so any instance matches. A
bond has the address of one of its members, and a join that matches two series of one address fails."""

_NO_PORT = where('kind!="physical"')
PHYSICAL = f"unless on (job, instance, switch, port) fabric_switch_info{_NO_PORT}"
"""Keeps the ports of a metric of switches: bundles and sub-interfaces repeat the counters of their ports."""

SATURATED = (
    "((fabric_rdma_saturated{} or fabric_rdma_device_saturated{} or fabric_nic_saturated{}) == 1)"
    " * on (job, instance) group_left (host) host:fabric_rdma_info:info{}"
    f" or fabric_switch_saturated{{}} == 1 {PHYSICAL}"
)
"""Counters of hosts, with the host, and of switches that count no further."""

JOBS_OF = "max by (job, instance, train_job, host) (fabric_nccl_rank_info{}) * on (job, instance) group_left"
"""Joins a value of a host to the jobs that run on it; the right side has one series per exporter."""

DEGRADED = "on (job, instance, device, port) fabric_rdma_link_degraded{} == 1"
DOWN = "on (job, instance, device, port) fabric_rdma_link_up{} == 0"
PCI_DEGRADED = "on (job, instance, pci) fabric_pci_link_degraded{} == 1"

PAUSED, PAUSES = (f"device:fabric_nic_{way}_paused_seconds:rate{{}}" for way in ("receive", "transmit"))
"""Shares of the last 5 minutes that a device was paused, and that it paused its switch, recorded with host and rail."""

PAUSED_HOSTS, PAUSING_HOSTS = (f"host:fabric_nic_{way}_paused_seconds:max{{}}" for way in ("receive", "transmit"))
"""The same of the device of each host with the highest share, recorded."""

MISSING = "host:fabric_rdma_ports_ready:missing{}"
"""RDMA ports of each host that are down or missing, recorded; spare ports of another host do not compensate them."""

PAUSE_SHARES = Limits(0.01, 0.1)
"""Shares of time in pause: above the former there are alerts if other hosts do not pause, or if it is much of the time
with traffic; above the latter, always."""

IN_PAUSE = "device:fabric_nic_paused_seconds:max{}"
"""The higher of both, recorded."""

STATES_OF_RAILS = "rail:fabric_rdma_link_up:state{}"
"""The worst state of the ports of each rail, recorded."""

RAIL_STATES = meaning(
    {
        0: ("ready", "dark-green"),
        1: ("unused", GREY),
        2: ("pause", "orange"),
        3: ("slow", "dark-red"),
        4: ("down", "dark-red"),
        5: ("gone", "dark-red"),
    }
)

FULLNESS = Limits(0.6, 0.8)
"""Utilization of an uplink; above the latter there is an alert if others have room."""

FULL_WARNS = Limits(FULLNESS.bad, 1_000_000)
"""The same for a number: training fills uplinks. One that is full is an alert only while others have room."""

UNEVEN_WARNS = Limits(0.2, 1_000_000)
"""How far the busiest uplink is above the mean: from the alert on a warning, as this alone delays no job."""

UPLINK = "{{switch}} {{port}} to {{peer}}"
"""Text that names an uplink and its neighbour."""

_HOLDING_UP = where('verdict=~"hang|straggler|network_bound"')
HELD_UP = f"max by (train_job) (fabric_nccl_verdict{_HOLDING_UP})"
"""1 for each job that hangs, waits for a straggler or is bound by the network, else 0."""

ON_HOST = "on (job, instance) group_left (host) host:fabric_rdma_info:info{}"
"""Joins the recorded host to a metric with one series per exporter."""

DISCARDS = Limits(1, 100)
"""Packets per second that are dropped without an error."""

_DROPS = (
    'max by (place) (label_replace(switch:fabric_switch_transmit_discards:rate{}, "place", "$1", "switch", "(.+)") or'
    f' label_replace(host:fabric_nic_receive_discards:rate{{}} * {ON_HOST}, "place", "$1", "host", "(.+)"))'
)
_WITHOUT_PAUSES = 'label_replace(switch:fabric_switch_receive_pfc_frames:rate{} == 0, "place", "$1", "switch", "(.+)")'
_ON_TCP = 'alert:fabric_active:since{alertname="FabricJobOnTcp"}'
_MANY = f"({_DROPS} >= {DISCARDS.warning})"
_WITHOUT_PFC = f"{_MANY} and on (place) {_WITHOUT_PAUSES} unless on () {_ON_TCP}"
MOST_DROPS = (
    f'label_join(label_replace(topk(1, {_WITHOUT_PFC}), "hint", ": PFC off?", "", "")'
    f' or on () topk(1, {_MANY}) or on () label_replace(max({_DROPS}), "place", "no place", "", ""),'
    ' "place", "", "place", "hint")'
)
"""Packets per second that the switch or the host with most of them drops: first a switch at which nothing pauses.

TCP has no PFC, and drops are how it finds its rate."""

SLOW = "host:fabric_rdma_link_degraded:max{}"
"""Slow ports of each host, recorded."""

NOW, RECENTLY = "2m", "10m"
"""What counts as now: two scrapes of the longest interval; and for how long afterwards it is shown that it was."""

OVER = meaning({-1: ("ended", FAINT)})
"""The meaning of values of `now_or_over`."""

FLAPS, FLAPS_RECENTLY = (f"increase(fabric_rdma_link_down_total{{}}[{window}])" for window in (NOW, RECENTLY))
"""How often the link of a port went down."""

FEC_LOST, FEC_LOST_RECENTLY = (
    f"increase(fabric_nic_fec_uncorrectable_blocks_total{{}}[{window}])" for window in (NOW, RECENTLY)
)
"""Blocks of a device that forward error correction could not correct."""

FLAPPING = f"(({FLAPS} > bool 0) * (round({FLAPS_RECENTLY}) > bool 1))"
"""1 for each port whose link went down now, and not for the first time of late: one that is unplugged does not flap."""

MARKED = Limits(0.05, 0.1)
"""Shares of packets with the ECN mark; above the latter there is an alert."""

RETRANSMITS = Limits(0.00001, 0.0001)
"""Shares of packets retransmitted; above the latter there is an alert."""

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


def highest_uplink(record: str) -> str:
    """Return the query for the highest of the recorded values of uplinks, with the labels of `UPLINK`."""
    return f'label_replace(topk(1, max by (switch, port, peer) ({record})), "peer", "unknown", "peer", "")'


def now_or_over(now: str, recently: str) -> str:
    """Return the query for a number of now if it is above 0, else -1 if that of the last minutes is."""
    return f"({now} > 0 or 0 * ({recently} > 0) - 1)"


def union(label: str, exprs: Mapping[str, str]) -> str:
    """Return the query for all series of several queries, which a label distinguishes, by its value."""
    return " or ".join(f'label_replace({expr}, "{label}", "{value}", "", "")' for value, expr in exprs.items())


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
