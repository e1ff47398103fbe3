"""A socket that hears LLDP on network devices: it only listens, and needs CAP_NET_RAW.

One socket hears all devices of its network namespace. A device passes frames to the group address of LLDP up only when
it is told to: the kernel is told for the devices that are named here, and forgets it when the socket is closed. Others
that listen, such as lldpd or systemd-networkd, go on to hear all.
"""

import errno
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from exporter.linux.lldp.frames import ETHERTYPE, GROUP, MAX_FRAME

_SOL_PACKET = 263
_ADD_MEMBERSHIP, _DROP_MEMBERSHIP = 1, 2
_MULTICAST = 0
_REQUEST = struct.Struct("=iHH8s")  # struct packet_mreq: index of the device, type, length of the address, address

MAX_HEARD = 256
"""Frames that are taken at one look; what is left makes the descriptor readable again."""


class Heard(NamedTuple):
    """A frame and the name of the device that heard it."""

    device: str
    frame: bytes


class LldpSocket:
    """Listens in the network namespace of the thread that makes it.

    Raises:
        OSError: EPERM without CAP_NET_RAW.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_PACKET,
            socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
            socket.htons(ETHERTYPE),
        )
        self._joined: frozenset[int] = frozenset()

    def fileno(self) -> int:
        """Give the descriptor that is readable when there are frames."""
        return self._socket.fileno()

    def listen_on(self, devices: Mapping[int, str]) -> dict[str, OSError]:
        """Have these devices, by index, pass frames up, and no others; give those that cannot, and why."""
        for index in self._joined - devices.keys():
            with suppress(OSError):  # a device that is gone takes its memberships along
                self._ask(_DROP_MEMBERSHIP, index)
        self._joined &= devices.keys()
        failed: dict[str, OSError] = {}
        for index, name in devices.items():
            if index not in self._joined:
                try:
                    self._ask(_ADD_MEMBERSHIP, index)
                    self._joined |= {index}
                except OSError as error:
                    failed[name] = error
        return failed

    def heard(self) -> Iterator[Heard]:
        """Take the frames that have arrived, without waiting; what this host sends is not among them."""
        for _ in range(MAX_HEARD):
            try:
                frame, (device, *_) = self._socket.recvfrom(MAX_FRAME)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENETDOWN:  # told once when a device goes down; others are still heard
                    continue
                raise
            yield Heard(device, frame)

    def close(self) -> None:
        """Close; closing twice does no harm."""
        self._socket.close()

    def _ask(self, option: int, index: int) -> None:
        self._socket.setsockopt(_SOL_PACKET, option, _REQUEST.pack(index, _MULTICAST, len(GROUP), GROUP))
