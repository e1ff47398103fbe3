"""What is right for each fault of the simulated fabric: its alerts, and the labels that name its target."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from exporter.simulator.fabric.fault_table import KINDS, Place
from exporter.simulator.fabric.faults import Fault, ranks_of
from exporter.simulator.fabric.topology import End, Shape, Topology

ALERTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        fault: frozenset(f"Fabric{name}" for name in names.split())
        for fault, names in {
            "degraded-link": "LinkDegraded",
            "link-down": "LinkDown PortsMissing",
            "flapping-link": "LinkFlapping LinkDown",
            "dirty-optic": "OpticsReceivePowerLow LinkErrors",
            "symbol-errors": "LinkErrors",
            "missing-port": "PortsMissing",
            "slow-pcie": "PciDegraded",
            "pause-storm": "PauseStorm",
            "short-pauses": "PauseInTraffic PauseOutlier PauseShare",
            "marks-ignored": "CnpsIgnored Congestion",
            "gpudirect-off": "JobGpudirectOff PauseInTraffic PauseOutlier PauseShare",
            "rail-swapped": "RailMiscabled LinkMoved",
            "one-spine": "UplinkImbalance UplinkOverloaded",
            "spine-gone": "SwitchDown LinkDown",
            "oversubscribed-leaf": "Oversubscription LinkDegraded",
            "switch-silent": "SwitchDown",
            "switch-rebooted": "SwitchRestarted SwitchDown",
            "tcp": "JobOnTcp",
            "half-adapters": "JobAdaptersUnused",
            "no-pfc": "Retransmissions CongestionDiscards",
            "slower-job": "JobSlower",
            "late-rank": "Straggler",
            "late-host": "Straggler",
            "rotating-late-rank": "JobImbalanced",
            "hanging-process": "JobHang",
            "hanging-link": "JobHang",
            "poller-gone": "SourceStale",
            "broker-gone": "CollectorDisconnected",
        }.items()
    }
)
"""Alerts of each fault, any of which is right."""

CAUSES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "tcp": frozenset({"no_rdma", "tcp_only"}),
        "half-adapters": frozenset({"few_ports", "adapters_unused"}),
        "no-pfc": frozenset({"discards"}),
        "late-rank": frozenset({"compute"}),
        "late-host": frozenset({"compute"}),
        "rotating-late-rank": frozenset({"work"}),
        "hanging-process": frozenset({"process"}),
    }
)
"""Kinds of causes that are right wherever they are; of ranks, if no other rank is suspected."""

_LABEL = re.compile(r'(\w+)="([^"]*)"')

OF_THE_JOB = frozenset({"hanging-process", "hanging-link"})
"""Faults whose alert is about the job: the target is among the likely causes."""

CLUSTER = Topology(Shape())


class Sign(NamedTuple):
    """A metric whose value shows a fault; of some of its labels, as a pattern of the text between braces."""

    metric: str
    shows: Callable[[float], bool]
    labels: Mapping[str, str] = MappingProxyType({})


_DOWN = Sign("fabric_switch_up", lambda value: value == 0)
_HANG = Sign("fabric_nccl_verdict", lambda value: value == 1, {"verdict": "hang"})

SIGNS: Mapping[str, Sign] = MappingProxyType(
    {
        "tcp": Sign("fabric_job_rdma_ratio", lambda value: value < 0.1),
        "half-adapters": Sign("fabric_job_rdma_ports_used", lambda value: value < CLUSTER.shape.rails),
        "gpudirect-off": Sign("fabric_nccl_problem_processes", lambda value: value > 0, {"problem": "gdr_off"}),
        "slower-job": Sign("fabric_nccl_regression_ratio", lambda value: value > 1.15),
        "one-spine": Sign("fabric_switch_transmit_imbalance_ratio", lambda value: value > 0.2, {"group": "uplink"}),
        "oversubscribed-leaf": Sign("fabric_switch_oversubscription_ratio", lambda value: value > 1.05),
        "switch-silent": _DOWN,
        "switch-rebooted": _DOWN,
        "spine-gone": _DOWN,
        "hanging-process": _HANG,
        "hanging-link": _HANG,
        "rotating-late-rank": Sign("fabric_nccl_verdict", lambda value: value == 1, {"verdict": "imbalanced_work"}),
        "poller-gone": Sign("up", lambda value: value == 0),
        "broker-gone": Sign("fabric_collector_connected", lambda value: value == 0),
    }
)
"""The metric of the detector, for faults that have no state of a port."""


def samples(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield name, labels and value of the lines of a page."""
    for line in lines:
        series, _, value = line.rpartition(" ")
        name, _, text = series.partition("{")
        yield name, dict(_LABEL.findall(text)), float(value)


def is_shown(fault: str, target: str, pages: Mapping[str, Sequence[str] | None]) -> bool:
    """Return whether the metric of the fault's detector shows it at its target."""
    sign = SIGNS.get(fault)
    if sign is None:
        return False
    if sign.metric == "up":
        return None in pages.values()
    place = Target(fault, target)
    found = (one for lines in pages.values() for one in samples(line for line in lines or () if sign.metric in line))
    return any(
        name == sign.metric
        and sign.shows(value)
        and sign.labels.items() <= labels.items()
        and place.is_named_by(labels)
        for name, labels, value in found
    )


class Target:
    """Where a fault is.

    Args:
        fault: Its name.
        target: Its target, as the simulator has it.
    """

    def __init__(self, fault: str, target: str) -> None:
        place = KINDS[fault].place
        self._fault = fault
        device, _, other = target.partition("/")
        self.ends: frozenset[End] = frozenset()
        self.devices: frozenset[str] = frozenset()
        self.ranks: frozenset[str] = frozenset()
        if place in {Place.LINK, Place.ADAPTER} and other:
            is_rail = device in CLUSTER.hosts
            self.ends = frozenset(
                CLUSTER.access(CLUSTER.adapter(device, int(other))) if is_rail else CLUSTER.uplink(device, other)
            )
        elif place in {Place.RANK, Place.HOST}:
            self.ranks = frozenset(map(str, ranks_of(Fault(fault, target), CLUSTER)))
        elif target:
            self.devices = frozenset({target})
            self.ends = frozenset(end for cable in CLUSTER.cables_of(target) for end in cable)
        if fault == "one-spine":
            self.devices |= set(CLUSTER.leaves)  # the rules compare the uplinks of a leaf, and name the leaf
        self.is_of_job = fault in OF_THE_JOB or not target

    def is_named_by(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels of an alert name it: its device, one of its ports at either end, or its rank."""
        if self.is_of_job:
            return True
        if labels.get("rank") in self.ranks or {labels.get("host"), labels.get("switch")} & self.devices:
            return True
        is_of_host = not labels.keys() & {"device", "rail", "pci"}
        return bool(self.ends & set(_ends_in(labels))) or (
            is_of_host and _host_of(self.ends) == labels.get("host", "-")
        )

    def is_cause(self, kind: str, name: str, port: str, stragglers: Collection[str]) -> bool:
        """Return whether a likely cause is the fault.

        Args:
            kind: Kind of the cause.
            name: Host or switch; empty if it has no place.
            port: Port; empty if it is the whole host.
            stragglers: Ranks that are suspected.
        """
        if kind in CAUSES.get(self._fault, ()):
            return not self.ranks or (bool(stragglers) and self.ranks.issuperset(stragglers))
        if name in self.devices or (not port and name and name == _host_of(self.ends)):
            return True
        return bool(name) and (_adapter if name in CLUSTER.hosts else _port)(name, port) in self.ends


def _ends_in(labels: Mapping[str, str]) -> list[End]:
    """Return the ports that labels name."""
    found = []
    if "switch" in labels:
        found.append(_port(labels["switch"], labels.get("port", "")))
    if "host" in labels:
        rails = [labels["rail"]] if labels.get("rail", "").isdigit() else []
        found += [CLUSTER.adapter(labels["host"], int(rail)) for rail in rails]
        names = [labels.get("netdev", ""), *labels.get("devices", "").split(","), labels.get("device", "")]
        found += [_adapter(labels["host"], name) for name in names if name]
    return found


def _port(switch: str, name: str) -> End:
    """Return a port of a switch; the API of Onyx has short names."""
    return End(switch, name.replace("Eth1/", "Ethernet1/") if name.startswith("Eth1/") else name)


def _adapter(host: str, name: str) -> End:
    """Return the port of an adapter by the name of its network or RDMA device."""
    rail = name.removeprefix("mlx5_").partition(":")[0]
    return CLUSTER.adapter(host, int(rail)) if name.startswith("mlx5_") and rail.isdigit() else End(host, name)


def _host_of(ends: frozenset[End]) -> str:
    """Return the host of a link; empty for one between switches."""
    return next((end.device for end in ends if end.device in CLUSTER.hosts), "")
