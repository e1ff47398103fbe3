"""Which ports of an RDMA device are read, and the netdev of each: the same for every source that reads RDMA ports."""

import errno
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from exporter.core.source import Failure, Host
from exporter.linux.cached_file import read_once, read_text
from exporter.linux.infiniband import parse_guid
from exporter.linux.netlink.rdma import RdmaDevice
from exporter.linux.rdma_reader import KernelRdma, RdmaReader, ReplayRdma
from exporter.sources.common.failures import failure_of
from exporter.sources.rdma.attributes import is_uplink, netdev_from_files

MAX_PORTS = 8
"""Ports of one device that are read. Cards have two; in switchdev mode each virtual function adds a port."""

MAX_EXAMINED_PORTS = 1024
"""Ports of one device that are examined to find those."""

PLANE = "smi"
"""Type of a device whose ports are the planes of another device's port: both count the same traffic."""

NO_NETLINK = frozenset({errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.ESOCKTNOSUPPORT})
"""Errors of a kernel without RDMA netlink: no failure."""


def rdma_reader(host: Host) -> Callable[[], RdmaReader]:
    """Return a function that opens the reader of RDMA devices: of the kernel, or of recordings."""
    replay = host.nic_replay
    return partial(KernelRdma, host.procfs) if replay is None else partial(ReplayRdma, replay)


class PortSelection(NamedTuple):
    """The ports of a device that are read.

    Attributes:
        node_guid: 16 hex digits; empty if there is none.
        netlink_device: The device by RDMA netlink; None if netlink does not list it, or failed.
        netdevs: By the number of each port that is read, its netdev; empty if there is none in this namespace.
        port_requests: Ports that netlink was queried for, each of which may be a firmware command.
        failures: Netlink requests that failed, and more ports than MAX_PORTS.
    """

    node_guid: str
    netlink_device: RdmaDevice | None
    netdevs: Mapping[int, str]
    port_requests: int
    failures: Sequence[Failure]

    @property
    def is_plane(self) -> bool:
        """Whether another device counts the same traffic, so that this one is not read."""
        return self.netlink_device is not None and self.netlink_device.kind == PLANE


def select_ports(folder: Path, net: Path, numbers: Sequence[int], reader: RdmaReader) -> PortSelection:
    """Select the ports of a device that are read; blocks.

    In switchdev mode each virtual function has a port too, whose traffic the uplink's port also counts.

    Args:
        folder: Of the device, in /sys/class/infiniband.
        net: /sys/class/net.
        numbers: Its port numbers, in order.
        reader: RDMA netlink, or recordings of it.
    """
    failures: list[Failure] = []
    node_guid = parse_guid(read_once(folder / "node_guid") or b"") or ""
    netlink_device = _netlink_device(folder, node_guid, reader, failures)
    selection = PortSelection(node_guid, netlink_device, {}, 0, failures)
    if selection.is_plane:
        return selection
    multi_port = len(numbers) > 1
    requests = 0
    netdevs: dict[int, str] = {}
    for number in numbers[:MAX_EXAMINED_PORTS]:
        # The kernel returns netdevs of this network namespace only, and none for InfiniBand ports.
        netdev = None
        if netlink_device is not None and read_text(folder / "ports" / str(number) / "link_layer") == "Ethernet":
            requests += 1
            try:
                netdev = reader.port(netlink_device.index, number).netdev or ""
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:  # of a recording without ports
                    failures.append(failure_of(folder.name, error, f"port {number} by RDMA netlink"))
        if netdev is None:
            netdev = netdev_from_files(net, folder, number, multi_port=multi_port)
        if not multi_port or is_uplink(net, netdev):
            netdevs[number] = netdev
    limited = _limit_ports(folder, numbers, netdevs, failures)
    return selection._replace(netdevs=limited, port_requests=requests)


def _netlink_device(folder: Path, node_guid: str, reader: RdmaReader, failures: list[Failure]) -> RdmaDevice | None:
    try:
        return reader.device(folder.name, node_guid)
    except OSError as error:
        if error.errno not in NO_NETLINK:
            failures.append(failure_of(folder.name, error, "RDMA netlink"))
        return None


def _limit_ports(
    folder: Path, numbers: Sequence[int], netdevs: dict[int, str], failures: list[Failure]
) -> dict[int, str]:
    """Limit the ports of a device to MAX_PORTS, those with a netdev first, and report the excess."""
    if len(netdevs) <= MAX_PORTS and len(numbers) <= MAX_EXAMINED_PORTS:
        return netdevs
    limited = sorted(netdevs, key=lambda number: (not netdevs[number], number))[:MAX_PORTS]
    detail = f"{folder}: {len(numbers)} ports; {len(limited)} are read: those of uplinks, then the first"
    failures.append(Failure(folder.name, "too_many", detail))
    return {number: netdevs[number] for number in sorted(limited)}
