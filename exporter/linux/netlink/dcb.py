"""How a port treats priorities: flow control, scheduling and trust, as Data Center Bridging has it in the kernel.

Layouts: include/uapi/linux/dcbnl.h. Only the configuration is read: the counts of pause frames that are here too are
as old as the driver's last reading of its statistics.
"""

import errno
import socket
import struct
from dataclasses import dataclass
from typing import Self

from exporter.linux.netlink.protocol import (
    SharedRequests,
    attribute_device,
    attributes,
    text,
)

_RTM_GETDCB = 78
_MESSAGE = struct.Struct("=BBxx")  # dcbmsg: family, command
_IEEE_GET = 21

_IFNAME = 1
_IEEE = 13
_IEEE_ETS = 1
_IEEE_PFC = 2
_IEEE_APPS = 3

_ETS = struct.Struct("=3x8s8x8s8s")  # willing, classes, shaper; bandwidth out and in, algorithm, class of a priority
_ALGORITHMS = {0: "strict", 1: "credit", 2: "ets", 255: "vendor"}
_PFC = struct.Struct("=xB")  # classes that may pause at once, mask of priorities
_APP = struct.Struct("=BBH")  # selector, priority, protocol
_SELECTOR_DSCP = 5


@dataclass(frozen=True, slots=True)
class Dcb:
    """What a port was told; None where its driver does not say.

    Attributes:
        pfc: The priorities with flow control.
        dscp_rules: Whether there are rules that give packets a priority by their DSCP. What such rules, or none, say
            of how the port treats packets depends on the driver.
        classes: How each of 8 traffic classes is scheduled when it sends: its share of the link in percent, or the
            word for what is no share (strict, credit, vendor; unknown_<number> for a newer one).
        priority_classes: The traffic class of each of 8 priorities.
    """

    pfc: tuple[int, ...] | None = None
    dscp_rules: bool | None = None
    classes: tuple[int | str, ...] | None = None
    priority_classes: tuple[int, ...] | None = None


def parse_dcb(answer: bytes) -> Dcb:
    """Read the attributes of an answer to IEEE_GET, whatever they hold; it never fails."""
    found = dict(attributes(dict(attributes(answer)).get(_IEEE, b"")))
    priorities = rules = classes = of_priorities = None
    pfc, ets, apps = (found.get(kind, b"") for kind in (_IEEE_PFC, _IEEE_ETS, _IEEE_APPS))
    if len(pfc) >= _PFC.size:
        (mask,) = _PFC.unpack_from(pfc)
        priorities = tuple(priority for priority in range(8) if mask >> priority & 1)
    if len(ets) >= _ETS.size:
        shares, algorithms, placed = _ETS.unpack_from(ets)
        classes = tuple(map(_scheduled, shares, algorithms))
        of_priorities = tuple(placed)
    if _IEEE_APPS in found:
        entries = (payload for _, payload in attributes(apps) if len(payload) >= _APP.size)
        rules = any(_APP.unpack_from(entry)[0] == _SELECTOR_DSCP for entry in entries)
    return Dcb(priorities, rules, classes, of_priorities)


def _scheduled(share: int, algorithm: int) -> int | str:
    """Give a class's share, which is its own only where it is scheduled by share, else the word for how it is."""
    word = _ALGORITHMS.get(algorithm, f"unknown_{algorithm}")
    return share if word == "ets" else word


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
