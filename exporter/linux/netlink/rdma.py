"""RDMA netlink: devices, their ports, counters and queue pairs. Bytes in, values out.

Layouts: include/uapi/rdma/rdma_netlink.h and drivers/infiniband/core/nldev.c. The family has no header of its own:
attributes follow the netlink header. Requests name a device by its index, which changes when the device is re-created.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from exporter.linux.netlink.messages import (
    ATTRIBUTE,
    attribute_u32,
    attributes,
    number,
    text,
)

FAMILY = 20
"""NETLINK_RDMA."""


def _command(number: int) -> int:
    """Return the message type of a command of nldev, one of the clients of the family."""
    return 5 << 10 | number


GET_DEVICES = _command(1)
GET_PORT = _command(5)
GET_SYSTEM = _command(6)
GET_QUEUE_PAIRS = _command(10)
GET_STATISTICS = _command(17)


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """A device.

    Attributes:
        index: Its index in requests, which changes when the device is re-created.
        name: Its name, as in /sys/class/infiniband.
        node_guid: 16 hex digits; None if it has none.
        ports: Number of the last port; ports are numbered from 1.
        kind: Empty for a regular device; `smi` for one plane of a multi-plane device; `unknown_<n>` for a newer type.
        parent: Name of the device that it is a plane of; empty if there is none.
        node_type: 1 channel adapter, 2 switch, 4 iWARP, 5 and 6 usNIC; the same as in the file `node_type`.
        firmware: Version.
    """

    index: int
    name: str
    node_guid: str | None
    ports: int
    kind: str = ""
    parent: str = ""
    node_type: int | None = None
    firmware: str = ""


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """A port.

    Attributes:
        netdev: Its network device; None if it has none in this network namespace: it may be in a pod.
        netdev_index: That device's index.
        state: Logical state, the same as in the file `state`.
        physical_state: The same as in the file `phys_state`.
    """

    netdev: str | None = None
    netdev_index: int | None = None
    state: int | None = None
    physical_state: int | None = None


@dataclass(frozen=True, slots=True)
class QueuePairs:
    """Number of queue pairs of one device with the same owner, type and state.

    Attributes:
        pid: The process that created them; None for those of the kernel, and if it is unknown.
        command: Name of that process, or of the kernel module; `other` for those beyond the limits.
        type: `RC`, `UD` …
        state: `RTS`, `INIT`, `ERR` …
        count: Number of queue pairs.
    """

    pid: int | None
    command: str
    type: str
    state: str
    count: int


class QueuePair(NamedTuple):
    """One queue pair: its process or (by name) kernel module, neither if it is unknown; type and state."""

    pid: int | None
    module: str
    type: str
    state: str


@dataclass(frozen=True, slots=True)
class StatisticsLayout:
    """Positions of the values in a reply with counters, whose other bytes are the same from read to read.

    Attributes:
        names: Names of the counters, in the kernel's order.
        form: Format of the whole reply: fixed bytes and values alternate.
        fixed: The fixed bytes.
    """

    names: tuple[str, ...]
    form: struct.Struct
    fixed: tuple[bytes, ...]

    def values(self, body: bytes) -> tuple[int, ...] | None:
        """Return the values of a reply; None if it has another layout, and has to be parsed again."""
        if len(body) != self.form.size:
            return None
        parts = self.form.unpack(body)
        return parts[1::2] if parts[::2] == self.fixed else None


_DEV_INDEX = 1
_DEV_NAME = 2
_PORT_INDEX = 3
_FW_VERSION = 5
_NODE_GUID = 6
_PORT_STATE = 12
_PORT_PHYS_STATE = 13
_DEV_NODE_TYPE = 14
_RES_QP = 19
_RES_QP_ENTRY = 20
_RES_TYPE = 26
_RES_STATE = 27
_RES_PID = 28
_RES_KERN_NAME = 29
_NDEV_INDEX = 50
_NDEV_NAME = 51
_STAT_HWCOUNTERS = 80
_STAT_HWCOUNTER_ENTRY = 81
_STAT_HWCOUNTER_ENTRY_NAME = 82
_STAT_HWCOUNTER_ENTRY_VALUE = 83
_NAMESPACE_MODE = 66
_DEV_TYPE = 99
_PARENT_NAME = 100

_KINDS = MappingProxyType({0: "", 1: "smi"})
_TYPES = MappingProxyType(
    {
        0: "SMI",
        1: "GSI",
        2: "RC",
        3: "UC",
        4: "UD",
        5: "RAW_IPV6",
        6: "RAW_ETHERTYPE",
        8: "RAW_PACKET",
        9: "XRC_INI",
        10: "XRC_TGT",
        255: "DRIVER",
    }
)
_STATES = MappingProxyType({0: "RESET", 1: "INIT", 2: "RTR", 3: "RTS", 4: "SQD", 5: "SQE", 6: "ERR"})
"""Names of include/rdma/ib_verbs.h, as the program rdma of iproute2 prints them."""

_VALUE_BYTES = 8


def device_request(index: int) -> bytes:
    """Return the body of a request for a device."""
    return attribute_u32(_DEV_INDEX, index)


def port_request(index: int, port: int) -> bytes:
    """Return the body of a request for a port."""
    return attribute_u32(_DEV_INDEX, index) + attribute_u32(_PORT_INDEX, port)


def parse_device(body: bytes) -> RdmaDevice | None:
    """Parse a device of a dump of GET_DEVICES; None for one without an index or name."""
    found = dict(attributes(body))
    index, name = number(found.get(_DEV_INDEX)), text(found.get(_DEV_NAME))
    if index is None or not name:
        return None
    guid = number(found.get(_NODE_GUID))
    return RdmaDevice(
        index,
        name,
        f"{guid:016x}" if guid else None,
        number(found.get(_PORT_INDEX)) or 0,
        _name_of(_KINDS, number(found.get(_DEV_TYPE)) or 0),
        text(found.get(_PARENT_NAME)) or "",
        number(found.get(_DEV_NODE_TYPE)),
        text(found.get(_FW_VERSION)) or "",
    )


def parse_port(body: bytes) -> RdmaPort:
    """Parse a reply to GET_PORT."""
    found = dict(attributes(body))
    return RdmaPort(
        text(found.get(_NDEV_NAME)) or None,
        number(found.get(_NDEV_INDEX)),
        number(found.get(_PORT_STATE)),
        number(found.get(_PORT_PHYS_STATE)),
    )


def parse_is_shared(body: bytes) -> bool | None:
    """Parse a reply to GET_SYSTEM: whether all network namespaces see all devices; None if it does not say so.

    Otherwise (`exclusive`) a device is in one namespace, and its files are only there.
    """
    mode = number(dict(attributes(body)).get(_NAMESPACE_MODE))
    return None if mode is None else mode != 0


def parse_statistics(body: bytes, known: Iterable[StatisticsLayout] = ()) -> tuple[StatisticsLayout, tuple[int, ...]]:
    """Parse a reply to GET_STATISTICS; an entry without a name or a value of 64 bits is skipped.

    Args:
        body: The reply.
        known: Layouts whose tuple of names is reused if it is equal.

    Returns:
        The layout of such replies, and the values of this one.
    """
    found = [(name, offset) for name, offset in _counters(body) if name and offset]
    form, end = ["="], 0
    for _, offset in found:
        form.append(f"{offset - end}sQ")
        end = offset + _VALUE_BYTES
    form.append(f"{len(body) - end}s")
    shape = struct.Struct("".join(form))
    parts = shape.unpack(body)
    names = tuple([name for name, _ in found])
    names = next((other.names for other in known if other.names == names), names)
    return StatisticsLayout(names, shape, parts[::2]), parts[1::2]


def _counters(body: bytes) -> Iterator[tuple[str, int]]:
    """Return the counters of a reply: name and offset of the value, either of which may be missing."""
    for kind, start, table in _attribute_offsets(body):
        if kind == _STAT_HWCOUNTERS:
            for entry_kind, entry_start, entry in _attribute_offsets(table, start):
                if entry_kind == _STAT_HWCOUNTER_ENTRY:
                    yield _counter(entry, entry_start)


def _attribute_offsets(data: bytes, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """Return attributes with the offset of each payload, for data that begins at `start`."""
    for kind, payload in attributes(data):
        yield kind, start + ATTRIBUTE.size, payload
        start += (ATTRIBUTE.size + len(payload) + 3) & -4


def _counter(entry: bytes, start: int) -> tuple[str, int]:
    """Return the name of a counter and the offset of its value; empty and 0 if they are missing."""
    name, value = "", 0
    for kind, offset, payload in _attribute_offsets(entry, start):
        if kind == _STAT_HWCOUNTER_ENTRY_NAME:
            name = text(payload) or ""
        elif kind == _STAT_HWCOUNTER_ENTRY_VALUE and len(payload) == _VALUE_BYTES:
            value = offset
    return name, value


def queue_pair_entries(body: bytes) -> Iterator[bytes]:
    """Return the entries of one reply of a dump of GET_QUEUE_PAIRS."""
    for kind, table in attributes(body):
        if kind == _RES_QP:
            yield from (entry for entry_kind, entry in attributes(table) if entry_kind == _RES_QP_ENTRY)


def parse_queue_pair(entry: bytes) -> QueuePair:
    """Parse one entry; missing attributes are empty."""
    found = dict(attributes(entry))
    return QueuePair(
        number(found.get(_RES_PID)) or None,
        text(found.get(_RES_KERN_NAME)) or "",
        _name_of(_TYPES, number(found.get(_RES_TYPE))),
        _name_of(_STATES, number(found.get(_RES_STATE))),
    )


def _name_of(names: Mapping[int, str], value: int | None) -> str:
    """Return the name of a number, `unknown_<n>` for a newer one, and an empty text for None."""
    return "" if value is None else names.get(value, f"unknown_{value}")
