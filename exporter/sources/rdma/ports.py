"""Which ports of an RDMA device are read, and the network device of each: the same for all that reads RDMA ports."""

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
from exporter.sources.rdma.netdevs import is_uplink, netdev_by_files

MAX_PORTS = 8
"""Ports of one device that are read. Cards have two; a switched one shows a port for each virtual function too."""

MAX_LISTED = 1024
"""Ports of one device that are looked at to find those."""

PLANE = "smi"
"""Kind of a device whose ports are the planes of another device's port: the traffic of both is the same."""

NO_NETLINK = frozenset({errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.ESOCKTNOSUPPORT})
"""What the kernel answers that has no RDMA netlink: no failure."""


def rdma_reader(host: Host) -> Callable[[], RdmaReader]:
    """Give what opens the reader of RDMA devices: of the kernel, or of recordings."""
    replay = host.nic_replay
    return partial(KernelRdma, host.procfs) if replay is None else partial(ReplayRdma, replay)


class Chosen(NamedTuple):
    """What is read of a device.

    Attributes:
        node_guid: As `parse_guid` has it; empty for none.
        known: The device as netlink has it; None where it is not there, or could not be asked.
        netdevs: By the number of each port that is read, its network device; empty where there is none here.
        asked: Ports that netlink was asked for, each of which may be a firmware command.
        failures: What could not be asked, and that there are too many ports.
    """

    node_guid: str
    known: RdmaDevice | None
    netdevs: Mapping[int, str]
    asked: int
    failures: Sequence[Failure]

    @property
    def is_plane(self) -> bool:
        """Whether another device has the same traffic, so that nothing is read of this one."""
        return self.known is not None and self.known.kind == PLANE


def choose(folder: Path, net: Path, numbers: Sequence[int], reader: RdmaReader) -> Chosen:
    """Choose the ports of a device that are read; blocks.

    Where the card is switched, each virtual function has a port too, whose traffic the uplink's port counts.

    Args:
        folder: Of the device, in /sys/class/infiniband.
        net: /sys/class/net.
        numbers: The ports that it has, in their order.
        reader: Asks the kernel.
    """
    failures: list[Failure] = []
    node_guid = parse_guid(read_once(folder / "node_guid") or b"") or ""
    known = _by_netlink(folder, node_guid, reader, failures)
    chosen = Chosen(node_guid, known, {}, 0, failures)
    if chosen.is_plane:
        return chosen
    several = len(numbers) > 1
    asked = 0
    netdevs: dict[int, str] = {}
    for number in numbers[:MAX_LISTED]:
        # The kernel tells what is in this network namespace; it does not name those of InfiniBand ports.
        netdev = None
        if known is not None and read_text(folder / "ports" / str(number) / "link_layer") == "Ethernet":
            asked += 1
            try:
                netdev = reader.port(known.index, number).netdev or ""
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:  # of a recording that leaves it to the files
                    failures.append(failure_of(folder.name, error, f"port {number} by RDMA netlink"))
        if netdev is None:
            netdev = netdev_by_files(net, folder, number, several=several)
        if not several or is_uplink(net, netdev):
            netdevs[number] = netdev
    return chosen._replace(netdevs=_bounded(folder, numbers, netdevs, failures), asked=asked)


def _by_netlink(folder: Path, node_guid: str, reader: RdmaReader, failures: list[Failure]) -> RdmaDevice | None:
    """Find the device among those that the kernel lists; None where it is none of them, or it lists none."""
    try:
        return reader.device(folder.name, node_guid)
    except OSError as error:
        if error.errno not in NO_NETLINK:
            failures.append(failure_of(folder.name, error, "RDMA netlink"))
        return None


def _bounded(folder: Path, numbers: Sequence[int], netdevs: dict[int, str], failures: list[Failure]) -> dict[int, str]:
    """Hold the ports of a device to their limit."""
    if len(netdevs) <= MAX_PORTS and len(numbers) <= MAX_LISTED:
        return netdevs
    kept = sorted(netdevs, key=lambda number: (not netdevs[number], number))[:MAX_PORTS]
    detail = f"{folder}: {len(numbers)} ports; {len(kept)} are read: those of uplinks, then the first"
    failures.append(Failure(folder.name, "too_many", detail))
    return {number: netdevs[number] for number in sorted(kept)}
