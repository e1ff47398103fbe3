"""What is right for each fault of the simulated fabric: its alerts, and the labels that name its target."""

from collections.abc import Mapping
from types import MappingProxyType

from exporter.simulator.fabric.collective_files import FIRST_PID
from exporter.simulator.fabric.fault_table import KINDS, Place
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
            "marks-ignored": "Congestion",
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

OF_THE_JOB = frozenset({"hanging-process", "hanging-link"})
"""Faults whose alert is about the job: the target is among the likely causes."""

CLUSTER = Topology(Shape())


class Target:
    """Where a fault is.

    Args:
        fault: Its name.
        target: Its target, as the simulator has it.
    """

    def __init__(self, fault: str, target: str) -> None:
        place = KINDS[fault].place
        device, _, other = target.partition("/")
        self.ends: frozenset[End] = frozenset()
        self.devices: frozenset[str] = frozenset()
        self.ranks: frozenset[str] = frozenset()
        if place in {Place.LINK, Place.ADAPTER} and other:
            is_rail = device in CLUSTER.hosts
            self.ends = frozenset(
                CLUSTER.access(CLUSTER.adapter(device, int(other))) if is_rail else CLUSTER.uplink(device, other)
            )
        elif place is Place.RANK:
            self.ranks = frozenset({_rank(int(target))})
        elif place is Place.HOST:
            first = CLUSTER.hosts.index(target) * CLUSTER.shape.rails
            self.ranks = frozenset(map(_rank, range(first, first + CLUSTER.shape.rails)))
        elif target:
            self.devices = frozenset({target})
            self.ends = frozenset(end for cable in CLUSTER.cables_of(target) for end in cable)
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

    def is_cause(self, name: str, port: str) -> bool:
        """Return whether a likely cause is at it."""
        if name in self.devices:
            return True
        return _adapter(name, port) in self.ends


def _rank(world: int) -> str:
    """Return the exported name of a rank, of which Inspector reports host and process."""
    return f"{CLUSTER.hosts[world // CLUSTER.shape.rails]}/{FIRST_PID + 1000 + world}"


def _ends_in(labels: Mapping[str, str]) -> list[End]:
    """Return the ports that labels name."""
    found = []
    if "switch" in labels:
        found.append(End(labels["switch"], labels.get("port", "")))
    if "host" in labels:
        rails = [labels["rail"]] if labels.get("rail", "").isdigit() else []
        found += [CLUSTER.adapter(labels["host"], int(rail)) for rail in rails]
        names = [labels.get("netdev", ""), *labels.get("devices", "").split(","), labels.get("device", "")]
        found += [_adapter(labels["host"], name) for name in names if name]
    return found


def _adapter(host: str, name: str) -> End:
    """Return the port of an adapter by the name of its network or RDMA device."""
    rail = name.removeprefix("mlx5_").partition(":")[0]
    return CLUSTER.adapter(host, int(rail)) if name.startswith("mlx5_") and rail.isdigit() else End(host, name)


def _host_of(ends: frozenset[End]) -> str:
    """Return the host of a link; empty for one between switches."""
    return next((end.device for end in ends if end.device in CLUSTER.hosts), "")
