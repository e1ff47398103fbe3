"""Access to umad ports through libibumad: the list of local ports, and an open port that sends and receives MADs.

The library is loaded on first use. Read and write access to the umad device node is the only privilege needed. RoCE
ports have no subnet and are not used. Calls block up to the given timeout.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

from exporter.linux.mad.datagram import (
    MAD_SIZE,
    PERMISSIVE_LID,
    MadClass,
    Reply,
    Request,
    decode,
    encode_into,
)

LIBRARY = "libibumad.so.3"

MAX_DEVICES = 32
MAX_PORTS = 4
"""Ports of an adapter that are tried."""

_NAME_SIZE = 20
"""Bytes of a device name (UMAD_CA_NAME_LEN)."""

_GSI_QKEY = 0x80010000
"""Well-known Q_Key of the general services interface."""

_ADDRESS = struct.Struct(">IIHB")
"""QPN, Q_Key, LID and service level, at byte 20 of the ib_user_mad header."""

_STATUS = struct.Struct("=I")


class UmadError(Exception):
    """A port cannot be used; the text contains the port, the cause and the remedy. `reason` is a label value."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class LocalPort(NamedTuple):
    """A port of this host, as the kernel reports it.

    Attributes:
        device: Name of the adapter.
        number: Port number.
        lid: LID; 0 or 0xffff while none is assigned.
        sm_lid: LID of the subnet manager; 0 while there is none.
        state: PortState.
        is_infiniband: Whether the link layer is InfiniBand and not Ethernet (RoCE).
        gid_prefix: GID prefix of the subnet.
        guid: PortGUID.
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
        """Name of the port, such as `mlx5_0:1`."""
        return f"{self.device}:{self.number}"


class _UmadPortStruct(ctypes.Structure):
    """umad_port_t of infiniband/umad.h."""

    _fields_ = (
        ("ca_name", ctypes.c_char * _NAME_SIZE),
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
        ("link_layer", ctypes.c_char * _NAME_SIZE),
    )


def _library() -> ctypes.CDLL:
    """Load the library; if it is loaded, this costs little.

    Raises:
        UmadError: It cannot be loaded.
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
    """List the ports of this host that have a umad device. Blocks.

    Raises:
        UmadError: The library cannot be loaded.
    """
    library = _library()
    names = ((ctypes.c_char * _NAME_SIZE) * MAX_DEVICES)()
    count = library.umad_get_cas_names(names, MAX_DEVICES)
    found = []
    for index in range(max(count, 0)):
        for number in range(1, MAX_PORTS + 1):
            port = _UmadPortStruct()
            if library.umad_get_port(names[index].value, number, ctypes.byref(port)) == 0:
                found.append(_to_local_port(port))
                library.umad_release_port(ctypes.byref(port))
    return found


def _to_local_port(port: _UmadPortStruct) -> LocalPort:
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
    """An open umad port; used by one thread."""

    def __init__(self, device: str, number: int) -> None:
        """Open the port and register an agent for each management class. Blocks.

        Raises:
            UmadError: The port cannot be opened, or an agent cannot be registered.
        """
        self._name = f"{device}:{number}"
        self._library = _library()
        ctypes.set_errno(0)
        self._fd = self._library.umad_open_port(os.fsencode(device), number)
        if self._fd < 0:
            raise _open_error(self._name, _errno_of(self._fd))
        self._agents: dict[MadClass, int] = {}
        try:
            for mad_class in MadClass:
                self._agents[mad_class] = self._register_agent(mad_class)
        except UmadError:
            self.close()
            raise
        self._header = self._library.umad_size()
        self._outgoing = ctypes.create_string_buffer(self._header + MAD_SIZE)
        self._outgoing_view = memoryview(self._outgoing).cast("B")
        self._incoming = ctypes.create_string_buffer(self._header + MAD_SIZE)
        self._incoming_view = memoryview(self._incoming).cast("B")
        self._length = ctypes.c_int(0)

    def send(self, request: Request, transaction: int, seconds: float, m_key: int = 0) -> None:
        """Send a request.

        Args:
            request: The request.
            transaction: TransactionID, by which the reply is matched.
            seconds: Timeout of the kernel for the reply.
            m_key: M_Key of the subnet.

        Raises:
            OSError: The kernel rejected it.
        """
        mad_class, view = request.mad_class, self._outgoing_view
        is_general_service = mad_class is MadClass.PERFORMANCE
        lid = PERMISSIVE_LID if mad_class is MadClass.DIRECTED_ROUTE else request.route.lid
        _ADDRESS.pack_into(view, 20, int(is_general_service), _GSI_QKEY if is_general_service else 0, lid, 0)
        encode_into(view, self._header, request, transaction, m_key)
        milliseconds = max(1, round(seconds * 1000))
        # Retries of the kernel are off: the request window decides about retries.
        failed = self._library.umad_send(self._fd, self._agents[mad_class], self._outgoing, MAD_SIZE, milliseconds, 0)
        if failed:
            number = -failed if failed < 0 else errno.EIO
            raise OSError(number, os.strerror(number), self._name)

    def receive(self, seconds: float) -> Reply | None:
        """Wait for a datagram.

        Args:
            seconds: Timeout; 0 polls.

        Returns:
            The reply; None at the timeout, and for a request that the kernel returns because it was not answered.

        Raises:
            OSError: The port is gone.
        """
        self._length.value = MAD_SIZE
        milliseconds = min(round(seconds * 1000 + 0.5), 60_000) if seconds > 0 else 0
        agent = self._library.umad_recv(self._fd, self._incoming, ctypes.byref(self._length), milliseconds)
        if agent < 0:
            number = _errno_of(agent)
            if number in (errno.ETIMEDOUT, errno.EWOULDBLOCK, errno.EINTR, errno.ENOSPC):
                return None
            raise OSError(number, os.strerror(number), self._name)
        if _STATUS.unpack_from(self._incoming_view, 4)[0]:
            return None  # our own request, returned at its timeout; the request window has the same timeout
        return decode(bytes(self._incoming_view[self._header :]))

    def close(self) -> None:
        """Unregister the agents and close the port."""
        if self._fd >= 0:
            for agent in self._agents.values():
                self._library.umad_unregister(self._fd, agent)
            self._library.umad_close_port(self._fd)
            self._fd = -1

    def _register_agent(self, mad_class: MadClass) -> int:
        agent = int(self._library.umad_register(self._fd, int(mad_class), 1, 0, None))
        if agent < 0:
            text = f"{self._name}: no agent for management class {mad_class:#04x}: {_error_text(-agent)}"
            raise UmadError("agent", text)
        return agent


def _open_error(name: str, number: int) -> UmadError:
    """Return the error for a port that cannot be opened, with the remedy."""
    if number in (errno.EACCES, errno.EPERM):
        text = "no permission to read and write its node in /dev/infiniband (umadN); add the user to the node's group"
        return UmadError("permission", f"{name}: {text}")
    if number in (errno.ENODEV, errno.ENOENT, errno.ENXIO, errno.EINVAL, errno.EOPNOTSUPP):
        text = "no node in /dev/infiniband (umadN); load the module ib_umad, and pass the device to the container"
        return UmadError("absent", f"{name}: {text}")
    return UmadError("open", f"{name}: cannot be opened: {_error_text(number)}")


def _errno_of(result: int) -> int:
    """Return the errno behind a negative result: the library returns -EIO for most errors of the kernel."""
    return ctypes.get_errno() or errno.EIO if result == -errno.EIO else -result


def _error_text(number: int) -> str:
    return os.strerror(number) if number > 0 else f"error {number}"


def select_port(ports: Sequence[LocalPort], device: str, number: int | None) -> LocalPort:
    """Select the port from which the fabric is read: the first with the highest PortState.

    Args:
        ports: The local ports.
        device: Name of the adapter; empty for any.
        number: Port number; None for any.

    Raises:
        UmadError: No port matches.
    """
    matching = [port for port in ports if device in ("", port.device) and number in (None, port.number)]
    infiniband = [port for port in matching if port.is_infiniband]
    if infiniband:
        return max(infiniband, key=lambda port: port.state)
    requested = f"{device or 'any device'}, port {number or 'any'}"
    if matching:
        raise UmadError("roce", f"{requested}: the link layer is Ethernet; use an InfiniBand port, RoCE has no subnet")
    known = ", ".join(port.name for port in ports) or "none"
    raise UmadError("absent", f"{requested}: no such umad port; available ports: {known}")
