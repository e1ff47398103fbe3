"""Packet socket that receives LLDP frames on network devices; it never transmits, and needs CAP_NET_RAW.

One socket receives from all devices of its network namespace. A device accepts frames for the LLDP group address only
after it joined the group (PACKET_ADD_MEMBERSHIP), which the kernel undoes when the socket is closed. Other receivers,
such as lldpd or systemd-networkd, still receive all frames.
"""

import errno
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from exporter.linux.lldp.frames import ETHERTYPE, GROUP_ADDRESS, MAX_FRAME

_SOL_PACKET = 263
_ADD_MEMBERSHIP, _DROP_MEMBERSHIP = 1, 2
_MULTICAST = 0
_REQUEST = struct.Struct("=iHH8s")  # packet_mreq: ifindex, type, address length, address

MAX_FRAMES_PER_RECEIVE = 256
"""Frames that one call receives; the rest makes the descriptor readable again."""


class ReceivedFrame(NamedTuple):
    """A frame, and the name of the device that received it."""

    device: str
    frame: bytes


class LldpSocket:
    """Receives LLDP frames in the network namespace of the thread that opens it.

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
        """Return the descriptor, readable when there are frames."""
        return self._socket.fileno()

    def listen_on(self, devices: Mapping[int, str]) -> dict[str, OSError]:
        """Join the group on these devices, by index, and leave it on all others; return the errors by device."""
        for index in self._joined - devices.keys():
            with suppress(OSError):  # the memberships of a removed device are gone
                self._set_membership(_DROP_MEMBERSHIP, index)
        self._joined &= devices.keys()
        failed: dict[str, OSError] = {}
        for index, name in devices.items():
            if index not in self._joined:
                try:
                    self._set_membership(_ADD_MEMBERSHIP, index)
                    self._joined |= {index}
                except OSError as error:
                    failed[name] = error
        return failed

    def receive(self) -> Iterator[ReceivedFrame]:
        """Yield the frames received so far, without waiting; frames that this host transmits are not among them."""
        for _ in range(MAX_FRAMES_PER_RECEIVE):
            try:
                frame, (device, *_) = self._socket.recvfrom(MAX_FRAME)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENETDOWN:  # reported once when a device goes down; the others still receive
                    continue
                raise
            yield ReceivedFrame(device, frame)

    def close(self) -> None:
        """Close the socket; idempotent."""
        self._socket.close()

    def _set_membership(self, option: int, index: int) -> None:
        self._socket.setsockopt(
            _SOL_PACKET, option, _REQUEST.pack(index, _MULTICAST, len(GROUP_ADDRESS), GROUP_ADDRESS)
        )
