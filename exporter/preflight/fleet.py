"""Hosts of one class compared with each other: what more than half of them have, and who has something else."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

MIN_HOSTS = 3
"""Hosts that have a property, below which there is no majority."""


class Sample(NamedTuple):
    """A sample of a host's metrics."""

    name: str
    labels: Mapping[str, str]
    value: float


class Place(NamedTuple):
    """Where a host has a property: a rail, a device, its class, a job, or the host itself (`""`)."""

    kind: str
    name: str

    def __str__(self) -> str:
        return " ".join(filter(None, self))


class Property(NamedTuple):
    """A property of a host, by its place and its name."""

    place: Place
    name: str


class Odd(NamedTuple):
    """A host that differs: its value, the usual one, and how many of how many hosts have that."""

    host: str
    what: Property
    value: str
    usual: str
    number: int
    of: int


LABELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "fabric_rdma_info": ("link_layer", "driver", "hca_type", "firmware"),
        "fabric_nic_info": ("driver", "firmware"),
        "fabric_nic_settings_info": ("autoneg", "fec", "pause", "pfc", "trust", "ets", "priority_classes"),
    }
)
"""Labels that should be equal, by metric."""

VALUES: Mapping[str, str] = MappingProxyType(
    {
        "fabric_rdma_link_speed_bytes_per_second": "link speed",
        "fabric_nic_mtu_bytes": "MTU",
        "fabric_nic_link_speed_bytes_per_second": "link speed",
        "fabric_pci_link_lanes": "PCIe lanes",
    }
)
"""Properties that are the value of a metric."""

COUNTS: Mapping[str, str] = MappingProxyType(
    {"fabric_rdma_info": "number of RDMA ports", "fabric_nic_info": "number of network ports"}
)
"""Properties that are the number of series of a metric."""

SETTINGS = frozenset(
    {"kernel", "NVIDIA driver", "NUMA balancing", "CPU governor", "IOMMU", "GPUs"}
    | {"ECN", "variables of NCCL", "locked memory"}
)
"""Settings of the source `hostcheck` that no other metric has; of several values of a host all are compared."""


def properties_of(samples: Iterable[Sample]) -> Mapping[Property, str]:
    """Return the properties of one host; what a host does not report is absent."""
    found: dict[Property, str] = {}
    counted: Counter[str] = Counter()
    for one in samples:
        counted[one.name] += one.name in COUNTS
        place = _place(one.labels)
        for label in LABELS.get(one.name, ()):
            if value := one.labels.get(label, ""):
                found[Property(place, label.replace("_", " "))] = value
        if one.name == "fabric_check_setting_info" and one.labels.get("setting") in SETTINGS:
            what = Property(Place("", one.labels.get("class", "")), one.labels["setting"])
            found[what] = ", ".join(sorted({*filter(None, [found.get(what)]), one.labels.get("value", "")}))
        if one.name in VALUES:
            found[Property(place, VALUES[one.name])] = f"{one.value:g}"
    for name, number in counted.items():
        if number:
            found[Property(Place("", ""), COUNTS[name])] = str(number)
    return found


def _place(labels: Mapping[str, str]) -> Place:
    """Rails are compared where ports have one, since names of devices differ; else names of devices or functions."""
    kind = next((kind for kind in ("rail", "device", "pci") if labels.get(kind)), "")
    return Place(kind, labels.get(kind, ""))


def odd_ones(hosts: Mapping[str, Mapping[Property, str]]) -> Iterator[Odd]:
    """Yield what differs from the value of more than half of at least three hosts that have the property.

    A host without a property is not odd: missing is not different.
    """
    values: dict[Property, dict[str, str]] = defaultdict(dict)
    for host, properties in sorted(hosts.items()):
        for what, value in properties.items():
            values[what][host] = value
    for what, by_host in sorted(values.items()):
        usual, number = Counter(by_host.values()).most_common(1)[0]
        if len(by_host) >= MIN_HOSTS and 2 * number > len(by_host):
            yield from (
                Odd(host, what, value, usual, number, len(by_host)) for host, value in by_host.items() if value != usual
            )
