"""Data Center Bridging (DCB) of a port by rtnetlink: priority flow control, traffic classes, DSCP rules.

Layouts: include/uapi/linux/dcbnl.h. Only the configuration is read: the pause frame counters of the same answer are as
old as the driver's last reading of its statistics.
"""

import errno
import socket
import struct
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from exporter.linux.netlink.messages import (
    attribute_device,
    attributes,
    text,
)
from exporter.linux.netlink.netlink_socket import SharedNetlinkSockets

_RTM_GETDCB = 78
_MESSAGE = struct.Struct("=BBxx")  # dcbmsg: family, command
_IEEE_GET = 21

_IFNAME = 1
_IEEE = 13
_IEEE_ETS = 1
_IEEE_PFC = 2
_IEEE_APPS = 3

_ETS = struct.Struct("=3x8s8x8s8s")  # ieee_ets: tc_tx_bw, tc_rx_bw (skipped), tc_tsa, prio_tc
_ALGORITHMS = MappingProxyType({0: "strict", 1: "credit", 2: "ets", 255: "vendor"})
_PFC = struct.Struct("=xB")  # ieee_pfc: pfc_cap, pfc_en
_APP = struct.Struct("=BBH")  # dcb_app: selector, priority, protocol
_SELECTOR_DSCP = 5


@dataclass(frozen=True, slots=True)
class Dcb:
    """The configuration of a port; None where the driver does not report it.

    Attributes:
        pfc: The priorities with priority flow control (IEEE 802.1Qbb).
        dscp_rules: Whether there are application entries that map a DSCP to a priority. Whether the port trusts DSCP
            or PCP follows from them only for some drivers.
        classes: The transmission selection of each of 8 traffic classes (IEEE 802.1Qaz): its share of the link in
            percent under ETS, else the algorithm (strict, credit, vendor; unknown_<number> for a newer one).
        priority_classes: The traffic class of each of 8 priorities.
    """

    pfc: tuple[int, ...] | None = None
    dscp_rules: bool | None = None
    classes: tuple[int | str, ...] | None = None
    priority_classes: tuple[int, ...] | None = None


def parse_dcb(answer: bytes) -> Dcb:
    """Parse the attributes of an answer to DCB_CMD_IEEE_GET; never raises, whatever they contain."""
    found = dict(attributes(dict(attributes(answer)).get(_IEEE, b"")))
    priorities = rules = classes = priority_classes = None
    pfc, ets, apps = (found.get(kind, b"") for kind in (_IEEE_PFC, _IEEE_ETS, _IEEE_APPS))
    if len(pfc) >= _PFC.size:
        (mask,) = _PFC.unpack_from(pfc)
        priorities = tuple(priority for priority in range(8) if mask >> priority & 1)
    if len(ets) >= _ETS.size:
        shares, algorithms, class_of_priority = _ETS.unpack_from(ets)
        classes = tuple(map(transmission_selection, shares, algorithms))
        priority_classes = tuple(class_of_priority)
    if _IEEE_APPS in found:
        entries = (payload for _, payload in attributes(apps) if len(payload) >= _APP.size)
        rules = any(_APP.unpack_from(entry)[0] == _SELECTOR_DSCP for entry in entries)
    return Dcb(priorities, rules, classes, priority_classes)


def transmission_selection(share: int, algorithm: int) -> int | str:
    """Return the share of a class in percent, which has a meaning under ETS only, else the name of its algorithm."""
    name = _ALGORITHMS.get(algorithm, f"unknown_{algorithm}")
    return share if name == "ets" else name


def parse_device_name(answer: bytes) -> str | None:
    """Parse the name of the device that an answer is about."""
    return text(dict(attributes(answer)).get(_IFNAME))


class DcbSocket:
    """Requests the DCB configuration of devices.

    Threads may share it; it stays in the network namespace of the thread that opened it.
    """

    def __init__(self) -> None:
        self._sockets = SharedNetlinkSockets(socket.NETLINK_ROUTE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets; idempotent."""
        self._sockets.close()

    def dcb(self, device: str) -> Dcb:
        """Request the configuration of a device.

        Raises:
            OSError: With the device as its file name; EOPNOTSUPP if the driver or the kernel does not support it.
        """
        request = _MESSAGE.pack(socket.AF_UNSPEC, _IEEE_GET) + attribute_device(_IFNAME, device)
        try:
            answer = self._sockets.request(_RTM_GETDCB, request)[_MESSAGE.size :]
        except OSError as error:
            raise OSError(error.errno, f"dcb IEEE_GET: {error.strerror}", device) from None
        if parse_device_name(answer) != device:
            raise OSError(errno.ENODEV, "dcb IEEE_GET: the answer is of another device", device)
        return parse_dcb(answer)
