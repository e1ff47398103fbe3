"""How a port treats priorities: flow control, scheduling and trust, as Data Center Bridging has it in the kernel.

Layouts: include/uapi/linux/dcbnl.h. Only the configuration is read: the counts of pause frames that are here too are
as old as the driver's last reading of its statistics.
"""

import errno
import socket
import struct
from dataclasses import dataclass
from typing import Self

from exporter.linux.netlink import SharedRequests, attribute_device, attributes, text

_RTM_GETDCB = 78
_MESSAGE = struct.Struct("=BBxx")  # dcbmsg: family, command
_IEEE_GET = 21

_IFNAME = 1
_IEEE = 13
_IEEE_ETS = 1
_IEEE_PFC = 2
_IEEE_APPS = 3

_ETS = struct.Struct("=3x8s8s8s8s")  # willing, classes, shaper; bandwidth out and in, algorithm, class of a priority
_PFC = struct.Struct("=BB")  # classes that may pause at once, mask of priorities
_APP = struct.Struct("=BBH")  # selector, priority, protocol
_SELECTOR_DSCP = 5


@dataclass(frozen=True, slots=True)
class Dcb:
    """What a port was told; None where its driver does not say.

    Attributes:
        pfc: The priorities with flow control.
        pfc_capacity: How many priorities may have it at once.
        trust: What names a packet's priority: its dscp, or the pcp of its VLAN tag.
        ets_bandwidth: Percent of the link for what each of 8 traffic classes sends, where it is scheduled by share.
        priority_classes: The traffic class of each of 8 priorities.
    """

    pfc: tuple[int, ...] | None = None
    pfc_capacity: int | None = None
    trust: str | None = None
    ets_bandwidth: tuple[int, ...] | None = None
    priority_classes: tuple[int, ...] | None = None


def parse_dcb(answer: bytes) -> Dcb:
    """Read the attributes of an answer to IEEE_GET, whatever they hold; it never fails."""
    found = dict(attributes(dict(attributes(answer)).get(_IEEE, b"")))
    capacity = priorities = bandwidth = classes = trust = None
    pfc, ets, apps = (found.get(kind, b"") for kind in (_IEEE_PFC, _IEEE_ETS, _IEEE_APPS))
    if len(pfc) >= _PFC.size:
        capacity, mask = _PFC.unpack_from(pfc)
        priorities = tuple(priority for priority in range(8) if mask >> priority & 1)
    if len(ets) >= _ETS.size:
        bandwidth, _, _, classes = map(tuple, _ETS.unpack_from(ets))
    if _IEEE_APPS in found:
        # No attribute says it: a driver that goes by DSCP has rules for it here, one that goes by the tag has none.
        rules = (payload for _, payload in attributes(apps) if len(payload) >= _APP.size)
        trust = "dscp" if any(_APP.unpack_from(rule)[0] == _SELECTOR_DSCP for rule in rules) else "pcp"
    return Dcb(priorities, capacity, trust, bandwidth, classes)


def parse_device(answer: bytes) -> str | None:
    """Read which device an answer is of."""
    return text(dict(attributes(answer)).get(_IFNAME))


class DcbSocket:
    """Asks drivers. Threads may share it; it stays in the network namespace of the thread that made it."""

    def __init__(self) -> None:
        self._sockets = SharedRequests(socket.NETLINK_ROUTE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets; closing twice does no harm."""
        self._sockets.close()

    def dcb(self, device: str) -> Dcb:
        """Ask for the configuration of priorities.

        Raises:
            OSError: With the device as its file name; EOPNOTSUPP if the driver, or the kernel, has no such thing.
        """
        request = _MESSAGE.pack(socket.AF_UNSPEC, _IEEE_GET) + attribute_device(_IFNAME, device)
        try:
            answer = self._sockets.ask(_RTM_GETDCB, request)[_MESSAGE.size :]
        except OSError as error:
            raise OSError(error.errno, f"dcb IEEE_GET: {error.strerror}", device) from None
        if parse_device(answer) != device:
            raise OSError(errno.ENODEV, "dcb IEEE_GET: the answer is of another device", device)
        return parse_dcb(answer)
