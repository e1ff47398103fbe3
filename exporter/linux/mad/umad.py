"""Management datagrams by libibumad: the ports of this host that can send them, and one such port, open.

The library is loaded when it is needed; reading and writing the device node is all that it takes. Ports of RoCE have
no subnet and are left alone. Calls block, for no longer than they are told to.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from exporter.linux.mad.datagram import (
    PERMISSIVE,
    SIZE,
    Class,
    Reply,
    Request,
    decode,
    encode_into,
)

LIBRARY = "libibumad.so.3"

MAX_DEVICES = 32
MAX_PORTS = 4
"""Ports of an adapter that are looked at."""

_NAME = 20
"""Bytes of a device's name."""

_QKEY = 0x80010000
"""The key that general services are reached with."""

_ADDRESS = struct.Struct(">IIHB")
"""Queue pair, key, LID and service level, at byte 20 of the library's header."""

_STATUS = struct.Struct("=I")


class UmadError(Exception):
    """The port cannot be used; the text says which, why, and what helps. `reason` is a word for a label."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class LocalPort(NamedTuple):
    """A port of this host, as the kernel tells of it.

    Attributes:
        device: Name of the adapter.
        number: Of the port.
        lid: Its LID; 0 or 0xffff while it has none.
        sm_lid: LID of its subnet manager; 0 while there is none.
        state: Logical state.
        is_infiniband: Whether it is a port of a subnet, and none of RoCE.
        gid_prefix: Of its subnet.
        guid: Of the port.
    """

    device: str
    number: int
    lid: int
    sm_lid: int
    state: int
    is_infiniband: bool
    gid_prefix: int
    guid: int

    @property
    def name(self) -> str:
        """Give its name, such as `mlx5_0:1`."""
        return f"{self.device}:{self.number}"


class _Port(ctypes.Structure):
    """umad_port_t of infiniband/umad.h."""

    _fields_ = (
        ("ca_name", ctypes.c_char * _NAME),
        ("portnum", ctypes.c_int),
        ("base_lid", ctypes.c_uint),
        ("lmc", ctypes.c_uint),
        ("sm_lid", ctypes.c_uint),
        ("sm_sl", ctypes.c_uint),
        ("state", ctypes.c_uint),
        ("phys_state", ctypes.c_uint),
        ("rate", ctypes.c_uint),
        ("capmask", ctypes.c_uint32),
        ("gid_prefix", ctypes.c_uint8 * 8),
        ("port_guid", ctypes.c_uint8 * 8),
        ("pkeys_size", ctypes.c_uint),
        ("pkeys", ctypes.c_void_p),
        ("link_layer", ctypes.c_char * _NAME),
    )


@cache
def _library() -> ctypes.CDLL:
    """Load the library.

    Raises:
        UmadError: It is not there.
    """
    try:
        found = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError as error:
        text = f"{LIBRARY} cannot be loaded: {error}; install libibumad3 (Debian) or libibumad (Red Hat)"
        raise UmadError("library", text) from None
    found.umad_recv.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.c_int)
    found.umad_send.argtypes = (
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
    )
    found.umad_init()
    return found


def local_ports() -> list[LocalPort]:
    """List the ports of this host that the kernel has management datagrams for. Blocks.

    Raises:
        UmadError: The library is not there.
    """
    library = _library()
    names = ((ctypes.c_char * _NAME) * MAX_DEVICES)()
    count = library.umad_get_cas_names(names, MAX_DEVICES)
    found = []
    for place in range(max(count, 0)):
        for number in range(1, MAX_PORTS + 1):
            port = _Port()
            if library.umad_get_port(names[place].value, number, ctypes.byref(port)) == 0:
                found.append(_told(port))
                library.umad_release_port(ctypes.byref(port))
    return found


def _told(port: _Port) -> LocalPort:
    layer = port.link_layer
    return LocalPort(
        os.fsdecode(port.ca_name),
        port.portnum,
        port.base_lid,
        port.sm_lid,
        port.state,
        layer in (b"", b"InfiniBand", b"IB"),
        int.from_bytes(bytes(port.gid_prefix)),
        int.from_bytes(bytes(port.port_guid)),
    )


class UmadPort:
    """One port, open for management datagrams; of one thread."""

    def __init__(self, device: str, number: int) -> None:
        """Open it. Blocks.

        Raises:
            UmadError: It cannot be opened, or serves no agent of ours.
        """
        self._name = f"{device}:{number}"
        self._library = _library()
        ctypes.set_errno(0)
        self._fd = self._library.umad_open_port(os.fsencode(device), number)
        if self._fd < 0:
            raise _refused(self._name, _cause(self._fd))
        self._agents: dict[Class, int] = {}
        try:
            for mad_class in Class:
                self._agents[mad_class] = self._registered(mad_class)
        except UmadError:
            self.close()
            raise
        self._header = self._library.umad_size()
        self._outgoing = ctypes.create_string_buffer(self._header + SIZE)
        self._outgoing_view = memoryview(self._outgoing).cast("B")
        self._incoming = ctypes.create_string_buffer(self._header + SIZE)
        self._incoming_view = memoryview(self._incoming).cast("B")
        self._length = ctypes.c_int(0)

    def send(self, request: Request, transaction: int, seconds: float, m_key: int = 0) -> None:
        """Send a request.

        Args:
            request: What is asked.
            transaction: What its reply is recognised by.
            seconds: How long the kernel may wait for the reply.
            m_key: The key of subnet management.

        Raises:
            OSError: The kernel would not.
        """
        mad_class, view = request.mad_class, self._outgoing_view
        special = mad_class is Class.PERFORMANCE
        lid = PERMISSIVE if mad_class is Class.DIRECTED else request.route.lid
        _ADDRESS.pack_into(view, 20, int(special), _QKEY if special else 0, lid, 0)
        encode_into(view, self._header, request, transaction, m_key)
        milliseconds = max(1, round(seconds * 1000))
        # The kernel sends again by itself where it is told to; here who is asked again, and when, is decided above.
        failed = self._library.umad_send(self._fd, self._agents[mad_class], self._outgoing, SIZE, milliseconds, 0)
        if failed:
            number = -failed if failed < 0 else errno.EIO
            raise OSError(number, os.strerror(number), self._name)

    def receive(self, seconds: float) -> Reply | None:
        """Wait for a datagram.

        Args:
            seconds: How long; 0 looks only.

        Returns:
            What came; None where nothing did, or what the kernel gives back because nobody answered.

        Raises:
            OSError: The port is gone.
        """
        self._length.value = SIZE
        milliseconds = min(round(seconds * 1000 + 0.5), 60_000) if seconds > 0 else 0
        agent = self._library.umad_recv(self._fd, self._incoming, ctypes.byref(self._length), milliseconds)
        if agent < 0:
            number = _cause(agent)
            if number in (errno.ETIMEDOUT, errno.EWOULDBLOCK, errno.EINTR, errno.ENOSPC):
                return None
            raise OSError(number, os.strerror(number), self._name)
        if _STATUS.unpack_from(self._incoming_view, 4)[0]:
            return None  # our own request, given back: its time is over, which is known here too
        return decode(bytes(self._incoming_view[self._header :]))

    def close(self) -> None:
        """Let go of the port."""
        if self._fd >= 0:
            for agent in self._agents.values():
                self._library.umad_unregister(self._fd, agent)
            self._library.umad_close_port(self._fd)
            self._fd = -1

    def _registered(self, mad_class: Class) -> int:
        agent = int(self._library.umad_register(self._fd, int(mad_class), 1, 0, None))
        if agent < 0:
            text = f"{self._name}: the kernel gives no agent for management class {mad_class:#04x}: {_words(-agent)}"
            raise UmadError("agent", text)
        return agent


def _refused(name: str, number: int) -> UmadError:
    """Say why a port cannot be opened."""
    if number in (errno.EACCES, errno.EPERM):
        text = "no right to read and write its node in /dev/infiniband (umadN); give the user that group, or the device"
        return UmadError("permission", f"{name}: {text}")
    if number in (errno.ENODEV, errno.ENOENT, errno.ENXIO, errno.EINVAL, errno.EOPNOTSUPP):
        text = "has no node in /dev/infiniband (umadN): load the module ib_umad, and give the device to the container"
        return UmadError("absent", f"{name}: {text}")
    return UmadError("open", f"{name}: cannot be opened: {_words(number)}")


def _cause(result: int) -> int:
    """Give the error behind a result below 0: the library says EIO of most of what the kernel says."""
    return ctypes.get_errno() or errno.EIO if result == -errno.EIO else -result


def _words(number: int) -> str:
    return os.strerror(number) if number > 0 else f"error {number}"


def chosen(ports: Sequence[LocalPort], device: str, number: int | None) -> LocalPort:
    """Choose the port to look from.

    Args:
        ports: Those there are.
        device: Name of the adapter; empty for any.
        number: Of the port; None for any.

    Raises:
        UmadError: None fits.
    """
    fit = [one for one in ports if device in ("", one.device) and number in (None, one.number)]
    found = [one for one in fit if one.is_infiniband]
    if found:
        return max(found, key=lambda one: one.state)  # of equals the first: an active one before one that is down
    asked = f"{device or 'any device'}, port {number or 'any'}"
    if fit:
        raise UmadError("roce", f"{asked}: Ethernet; a port of InfiniBand is needed, RoCE has no subnet to look at")
    known = ", ".join(one.name for one in ports) or "none"
    raise UmadError("absent", f"{asked}: no such port that takes management datagrams; there are: {known}")
