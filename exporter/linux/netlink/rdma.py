"""RDMA devices, their ports, counters and queue pairs, as the kernel's RDMA netlink tells them: bytes in, values out.

Layouts: include/uapi/rdma/rdma_netlink.h and drivers/infiniband/core/nldev.c. There is no header of the family's own:
attributes follow netlink's. A device is asked for by its index, which is another one after it was re-created.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
    """Give the message type of a command of nldev, one of the clients of the family."""
    return 5 << 10 | number


GET_DEVICES = _command(1)
GET_PORT = _command(5)
GET_QUEUE_PAIRS = _command(10)
GET_STATISTICS = _command(17)


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """A device.

    Attributes:
        index: What requests name it by; another one after it was re-created.
        name: Its name, as in /sys/class/infiniband.
        node_guid: 16 hex digits; None where it has none.
        ports: Number of the last port; they count from 1.
        kind: Empty for a common device; `smi` for one plane of a device of several; `unknown_<n>` for what is newer.
        parent: Name of the device that it is a part of; empty where there is none.
        node_type: 1 channel adapter, 2 switch, 4 iWARP, 5 and 6 usNIC; as the file `node_type` has it.
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
        netdev: Its network device; None where it has none in this network namespace: it may be inside a pod.
        netdev_index: That device's index.
        state: Logical state, as the file `state` has it.
        physical_state: As the file `phys_state` has it.
    """

    netdev: str | None = None
    netdev_index: int | None = None
    state: int | None = None
    physical_state: int | None = None


@dataclass(frozen=True, slots=True)
class QueuePairs:
    """Queue pairs of one device that are alike, and how many.

    Attributes:
        pid: The process that made them; None for those of the kernel, and where it is not told.
        command: Name of that process, or of the kernel's module; `other` for those beyond the limits.
        type: `RC`, `UD` …
        state: `RTS`, `INIT`, `ERR` …
        count: How many.
    """

    pid: int | None
    command: str
    type: str
    state: str
    count: int


class QueuePair(NamedTuple):
    """Whose one queue pair is: a process, or (by name) a module of the kernel; neither where that is not told."""

    pid: int | None
    module: str
    type: str
    state: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the values stand in an answer with counters, of which all else stays the same from read to read.

    Attributes:
        names: Names of the counters, in the kernel's order.
        form: The whole answer: what is fixed and the values in turn.
        fixed: What is fixed.
    """

    names: tuple[str, ...]
    form: struct.Struct
    fixed: tuple[bytes, ...]

    def values(self, body: bytes) -> tuple[int, ...] | None:
        """Take the values out of an answer; None where it is laid out otherwise, and has to be looked at anew."""
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
_DEV_TYPE = 99
_PARENT_NAME = 100

_KINDS = {0: "", 1: "smi"}
_TYPES = {
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
_STATES = {0: "RESET", 1: "INIT", 2: "RTR", 3: "RTS", 4: "SQD", 5: "SQE", 6: "ERR"}
"""Names of include/rdma/ib_verbs.h, as the program rdma of iproute2 writes them."""

_VALUE = 8


def device_request(index: int) -> bytes:
    """Build the body of a request that concerns a device."""
    return attribute_u32(_DEV_INDEX, index)


def port_request(index: int, port: int) -> bytes:
    """Build the body of a request that concerns a port."""
    return attribute_u32(_DEV_INDEX, index) + attribute_u32(_PORT_INDEX, port)


def parse_device(body: bytes) -> RdmaDevice | None:
    """Read a device of a dump of GET_DEVICES; None for what lacks its index or name."""
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
        _named(_KINDS, number(found.get(_DEV_TYPE)) or 0),
        text(found.get(_PARENT_NAME)) or "",
        number(found.get(_DEV_NODE_TYPE)),
        text(found.get(_FW_VERSION)) or "",
    )


def parse_port(body: bytes) -> RdmaPort:
    """Read an answer to GET_PORT."""
    found = dict(attributes(body))
    return RdmaPort(
        text(found.get(_NDEV_NAME)) or None,
        number(found.get(_NDEV_INDEX)),
        number(found.get(_PORT_STATE)),
        number(found.get(_PORT_PHYS_STATE)),
    )


def parse_statistics(body: bytes, known: Iterable[Layout] = ()) -> tuple[Layout, tuple[int, ...]]:
    """Find the counters in an answer to GET_STATISTICS; an entry without a name or a value of 64 bits is passed over.

    Args:
        body: The answer.
        known: Layouts whose names are used again where they are the same.

    Returns:
        The layout of such answers, and the values of this one.
    """
    found = [(name, place) for name, place in _counters(body) if name and place]
    form, end = ["="], 0
    for _, place in found:
        form.append(f"{place - end}sQ")
        end = place + _VALUE
    form.append(f"{len(body) - end}s")
    shape = struct.Struct("".join(form))
    parts = shape.unpack(body)
    names = tuple([name for name, _ in found])
    names = next((other.names for other in known if other.names == names), names)
    return Layout(names, shape, parts[::2]), parts[1::2]


def _counters(body: bytes) -> Iterator[tuple[str, int]]:
    """List the counters of an answer: name and place of the value, either of which may be lacking."""
    for kind, start, table in _placed(body):
        if kind == _STAT_HWCOUNTERS:
            for entry_kind, entry_start, entry in _placed(table, start):
                if entry_kind == _STAT_HWCOUNTER_ENTRY:
                    yield _counter(entry, entry_start)


def _placed(data: bytes, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """List attributes with the place of each one's payload, where the first stands at `start`."""
    for kind, payload in attributes(data):
        yield kind, start + ATTRIBUTE.size, payload
        start += (ATTRIBUTE.size + len(payload) + 3) & -4


def _counter(entry: bytes, start: int) -> tuple[str, int]:
    """Give the name of a counter and the place of its value; empty and 0 where it lacks them."""
    name, value = "", 0
    for kind, place, payload in _placed(entry, start):
        if kind == _STAT_HWCOUNTER_ENTRY_NAME:
            name = text(payload) or ""
        elif kind == _STAT_HWCOUNTER_ENTRY_VALUE and len(payload) == _VALUE:
            value = place
    return name, value


def queue_pair_entries(body: bytes) -> Iterator[bytes]:
    """List the entries of one answer of a dump of GET_QUEUE_PAIRS."""
    for kind, table in attributes(body):
        if kind == _RES_QP:
            yield from (entry for entry_kind, entry in attributes(table) if entry_kind == _RES_QP_ENTRY)


def parse_queue_pair(entry: bytes) -> QueuePair:
    """Read one entry; what it lacks is empty."""
    found = dict(attributes(entry))
    return QueuePair(
        number(found.get(_RES_PID)) or None,
        text(found.get(_RES_KERN_NAME)) or "",
        _named(_TYPES, number(found.get(_RES_TYPE))),
        _named(_STATES, number(found.get(_RES_STATE))),
    )


def _named(names: dict[int, str], value: int | None) -> str:
    """Give the word for a number, `unknown_<n>` for one that is newer than this, and nothing for none."""
    return "" if value is None else names.get(value, f"unknown_{value}")
