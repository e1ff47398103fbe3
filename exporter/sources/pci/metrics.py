"""Metrics of PCI functions (`fabric_pci_`): schemas, HELP texts, and the sysfs files that they are read from."""

from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

from exporter.core import vocabulary
from exporter.core.vocabulary import counter, gauge, info
from exporter.linux.pci import parse_link_lanes, parse_link_speed


class LinkProperty(NamedTuple):
    """Speed or width of a PCIe link: the endings of its metrics, and its sysfs files.

    Attributes:
        current: Ending of the current value (Link Status register, LnkSta).
        maximum: Ending of the maximum of the function (Link Capabilities register, LnkCap).
        bridge_maximum: Ending of the maximum of the upstream bridge.
        file: `current_<file>` and `max_<file>`.
        parse: Parser of either file.
    """

    current: str
    maximum: str
    bridge_maximum: str
    file: str
    parse: Callable[[bytes], float | None]


LINK_PROPERTIES = (
    LinkProperty(
        "link_speed_transfers_per_second",
        "link_max_speed_transfers_per_second",
        "bridge_max_speed_transfers_per_second",
        "link_speed",
        parse_link_speed,
    ),
    LinkProperty("link_lanes", "link_max_lanes", "bridge_max_lanes", "link_width", parse_link_lanes),
)

AER_FILES = MappingProxyType(
    {"correctable": "aer_dev_correctable", "nonfatal": "aer_dev_nonfatal", "fatal": "aer_dev_fatal"}
)
"""By severity of the PCIe Advanced Error Reporting (AER) capability."""

SCHEMA = vocabulary.schema(
    "fabric_pci_",
    ("pci",),
    own={
        "info": info(
            "Identity and location of the PCI function: its network and RDMA devices, its NUMA node, its upstream"
            " bridge, and the GPUs that share most of the bridges above it. Labels are empty where not known.",
            "host",
            "devices",
            "numa_node",
            "nearest_gpu",
            "bridge",
            "driver",
        ),
        "link_speed_transfers_per_second": gauge("Current PCIe link speed, in transfers per second per lane (LnkSta)."),
        "link_lanes": gauge("Current PCIe link width, in lanes (LnkSta)."),
        "link_degraded": gauge(
            "Whether the PCIe link runs at a lower speed or width than both of its ends support (1) or not (0); absent"
            " if the current or maximum speed or width is not known."
        ),
        "link_max_speed_transfers_per_second": gauge(
            "Maximum PCIe link speed of the function, in transfers per second per lane (LnkCap)."
        ),
        "link_max_lanes": gauge("Maximum PCIe link width of the function, in lanes (LnkCap)."),
        "bridge_max_speed_transfers_per_second": gauge(
            "Maximum PCIe link speed of the upstream bridge, in transfers per second per lane (LnkCap)."
        ),
        "bridge_max_lanes": gauge("Maximum PCIe link width of the upstream bridge, in lanes (LnkCap)."),
    },
    origins={
        "info": ["uevent", "numa_node", "/sys/class/net", "/sys/class/infiniband", "class and vendor of all functions"],
        "link_degraded": [f"{word}_{one.file}" for one in LINK_PROPERTIES for word in ("current", "max")],
        **{one.current: [f"current_{one.file}"] for one in LINK_PROPERTIES},
        **{one.maximum: [f"max_{one.file}"] for one in LINK_PROPERTIES},
        **{one.bridge_maximum: [f"max_{one.file} of the bridge"] for one in LINK_PROPERTIES},
    },
    details=[ending for one in LINK_PROPERTIES for ending in (one.maximum, one.bridge_maximum)],
)

ERRORS = vocabulary.schema(
    "fabric_pci_",
    ("pci", "severity"),
    own={
        "aer_errors_total": counter(
            "Errors that the function detected, by severity of PCIe Advanced Error Reporting (AER): correctable,"
            " nonfatal, fatal. Absent where the firmware handles AER."
        )
    },
    origins={"aer_errors_total": list(AER_FILES.values())},
)
