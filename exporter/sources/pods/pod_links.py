"""What a network device in a pod is: how it is attached, and to which device of the host."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.pci import is_virtual_function
from exporter.sources.common.host_ports import is_hardware, is_infiniband_port

HOST_DEVICE, HOST_NETWORK = "host-device", "host-network"
SR_IOV, SUBFUNCTION, IPOIB, VETH = "sr-iov", "subfunction", "ipoib", "veth"

CARDS = frozenset({HOST_DEVICE, SR_IOV, SUBFUNCTION})
"""Attachments of a device that is hardware of its own, or a function of some."""

ATTACHMENTS: Mapping[str, str] = MappingProxyType(
    {
        "macvlan": "macvlan",
        "macvtap": "macvlan",
        "ipvlan": "ipvlan",
        "ipvtap": "ipvlan",
        "vlan": "vlan",
        "ipoib": IPOIB,
        VETH: VETH,
        "netkit": "netkit",
    }
)
"""How a device of a kind of rtnetlink (IFLA_INFO_KIND) is attached; other kinds, such as bridges, are no NICs."""

_PAIRS = frozenset({VETH, "netkit"})
"""Kinds whose IFLA_LINK is their peer, not a device below them."""


def attachment_of(link: NetworkLink, sysfs: Path) -> str:
    """Return how a device in a pod's namespace is attached; empty for one that is no NIC. Blocks."""
    if is_infiniband_port(link) or is_hardware(link):
        if link.parent_dev_bus_name == "auxiliary":
            return SUBFUNCTION
        return SR_IOV if is_virtual_function(parent_folder(sysfs, link)) else HOST_DEVICE
    return ATTACHMENTS.get(link.kind, "")


def parent_folder(sysfs: Path, link: NetworkLink) -> Path:
    """Return the folder of the device that a card's link belongs to, which all namespaces see alike."""
    return sysfs / "bus" / (link.parent_dev_bus_name or "-") / "devices" / (link.parent_dev_name or "-")


def lower_device(link: NetworkLink, host_id: int | None, host_links: Mapping[int, NetworkLink]) -> str:
    """Return the host's device that a device is made upon, or is the peer of; empty if it is in no known namespace.

    Args:
        link: The device.
        host_id: The id of the host's namespace in that of the device.
        host_links: Links of the host by index.
    """
    if link.lower is None or link.lower_namespace is None or link.lower_namespace != host_id:
        return ""
    lower = host_links.get(link.lower)
    if lower is None or (link.kind in _PAIRS and lower.lower != link.ifindex):
        return ""
    return lower.name
