"""Reader of RDMA devices beside their files: from the kernel by RDMA netlink, or from a folder of recordings.

A recording is a folder `rdma` with one file per device, `<device>.json`, beside those of the network devices:

    {
      "device": {"index": 0, "node_guid": "9c63c003001a2b3c", "ports": 1, "firmware": "28.39.1002"},
      "ports": {
        "1": {
          "port": {"netdev": "rail0", "netdev_index": 2, "state": 4, "physical_state": 5},
          "statistics": {"rx_write_requests": 120, "np_cnp_sent": 7}
        }
      },
      "statistics": {"submitted_cmds": 9},
      "queue_pairs": [{"pid": 4242, "command": "python", "type": "RC", "state": "RTS", "count": 64}]
    }

The keys of each part are the fields of `RdmaDevice` (without its name, which is the file's), `RdmaPort` and
`QueuePairs`; each device has an index of its own. The statistics beside `ports` are those of the device as a whole.
Errors, changes and broken files are described in `recordings.recording_folder`.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from exporter.linux.cached_file import read_text
from exporter.linux.ethtool_ioctl import Statistics
from exporter.linux.netlink import rdma as codec
from exporter.linux.netlink.netlink_socket import NetlinkSocket
from exporter.linux.netlink.rdma import (
    QueuePair,
    QueuePairs,
    RdmaDevice,
    RdmaPort,
    StatisticsLayout,
)
from exporter.linux.recordings.recording_folder import (
    RecordedError,
    Recordings,
    check_u64_values,
    convert_object,
    parse_part,
    parse_statistics,
    value_or_raise,
)

MAX_QUEUE_PAIRS = 100_000
"""Queue pairs of one device that are parsed; further ones are only counted."""

MAX_GROUPS = 500
"""Groups of queue pairs of one device; queue pairs of further groups are counted as `other`."""

OTHER = "other"
"""Command of the group of all queue pairs beyond the limits."""


class RdmaReader(Protocol):
    """Reads RDMA devices. All methods may block and belong in a worker thread, one at a time.

    Every request may raise OSError. EPROTONOSUPPORT: the kernel has no RDMA. EINVAL: there is no such device or port
    (any more), or it has no counters. EMSGSIZE: its counters do not fit into a reply of the kernel. EOPNOTSUPP: the
    request is not supported. EBADMSG: the recording is broken.
    """

    def device(self, name: str, node_guid: str) -> RdmaDevice | None:
        """Return the device of the same name and GUID as in sysfs; None if there is none.

        The name alone could match a device of this machine with a sysfs tree that was recorded on another.
        """

    def devices(self) -> list[RdmaDevice]:
        """Return all devices visible in this network namespace."""

    def port(self, index: int, port: int) -> RdmaPort:
        """Return the state of a port's link, and its network device."""

    def statistics(self, index: int, port: int | None) -> Statistics:
        """Return the counters of a port, or (None) of the device as a whole.

        While the names do not change, they are the same object from read to read, and for all devices with them.
        """

    def queue_pairs(self, index: int) -> list[QueuePairs]:
        """Count the queue pairs of a device by process, type and state.

        Each queue pair costs a firmware command: thousands take seconds.
        """

    def close(self) -> None:
        """Close sockets and files; may be called twice."""


class KernelRdma:
    """Reads from the kernel, in the network namespace of the thread that makes the first request.

    Opening the socket loads the kernel's RDMA core if that is a module not loaded yet, so no request should be made on
    a host without RDMA devices. Only processes of the reader's own PID namespace are visible.

    Args:
        procfs: Root of procfs, for the names of processes.
    """

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._procfs = procfs
        self._idle: list[NetlinkSocket] = []
        self._closed = False
        self._layouts: dict[tuple[int, int], StatisticsLayout] = {}

    def device(self, name: str, node_guid: str) -> RdmaDevice | None:
        """See RdmaReader."""
        return _find_device(self.devices(), name, node_guid)

    def devices(self) -> list[RdmaDevice]:
        """See RdmaReader."""
        with self._socket() as requests:
            bodies = requests.dump(codec.GET_DEVICES)
        found = [device for body in bodies if (device := codec.parse_device(body)) is not None]
        indices = {device.index for device in found}
        self._layouts = {key: layout for key, layout in self._layouts.items() if key[0] in indices}
        return found

    def port(self, index: int, port: int) -> RdmaPort:
        """See RdmaReader."""
        with self._socket() as requests:
            return codec.parse_port(requests.request(codec.GET_PORT, codec.port_request(index, port)))

    def statistics(self, index: int, port: int | None) -> Statistics:
        """See RdmaReader; the kernel has those of a device as a whole in files only."""
        if port is None:
            raise OSError(errno.EOPNOTSUPP, "RDMA netlink: the counters of a device as a whole are in files only")
        with self._socket() as requests:
            body = requests.request(codec.GET_STATISTICS, codec.port_request(index, port))
        layout = self._layouts.get((index, port))
        values = None if layout is None else layout.values(body)
        if layout is None or values is None:
            layout, values = codec.parse_statistics(body, self._layouts.values())
            self._layouts[index, port] = layout
        return Statistics(layout.names, values)

    def is_shared(self) -> bool | None:
        """Return whether all network namespaces see all devices; None if the kernel does not report it."""
        with self._socket() as requests:
            return codec.parse_is_shared(requests.request(codec.GET_SYSTEM, b""))

    def queue_pairs(self, index: int) -> list[QueuePairs]:
        """See RdmaReader."""
        with self._socket() as requests:
            bodies = requests.dump(codec.GET_QUEUE_PAIRS, codec.device_request(index))
        return count_queue_pairs((entry for body in bodies for entry in codec.queue_pair_entries(body)), self._command)

    def close(self) -> None:
        """See RdmaReader; a socket in use is closed by the call that uses it."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _socket(self) -> Iterator[NetlinkSocket]:
        """Provide a socket. A call that hangs keeps its socket, and the next call opens another."""
        requests = self._idle.pop() if self._idle else NetlinkSocket(codec.FAMILY)
        try:
            yield requests
        finally:
            if self._idle or self._closed:
                requests.close()
            else:
                self._idle.append(requests)

    def _command(self, pid: int) -> str:
        """Return the name of a process; empty after it ended."""
        return read_text(self._procfs / str(pid) / "comm")


def _find_device(listed: Iterable[RdmaDevice], name: str, node_guid: str) -> RdmaDevice | None:
    return next((one for one in listed if one.name == name and one.node_guid == node_guid != ""), None)


def count_queue_pairs(entries: Iterable[bytes], command: Callable[[int], str]) -> list[QueuePairs]:
    """Count queue pairs by process, type and state.

    Args:
        entries: The kernel's entries.
        command: Returns the name of a process.
    """
    counted: Counter[QueuePair] = Counter()
    others = 0
    for index, entry in enumerate(entries):
        if index < MAX_QUEUE_PAIRS:
            pair = codec.parse_queue_pair(entry)
            if pair in counted or len(counted) < MAX_GROUPS:
                counted[pair] += 1
                continue
        others += 1
    commands = {pid: command(pid) for pid in {pair.pid for pair in counted} if pid is not None}
    groups = [
        QueuePairs(pair.pid, pair.module if pair.pid is None else commands[pair.pid], pair.type, pair.state, count)
        for pair, count in counted.items()
    ]
    groups.sort(key=lambda group: (group.command, group.pid or 0, group.type, group.state))
    return [*groups, QueuePairs(None, OTHER, "", "", others)] if others else groups


class _PortParts(msgspec.Struct, forbid_unknown_fields=True):
    """The parts of a port in a recording, not yet parsed, so that a broken part does not affect the others."""

    port: msgspec.Raw = msgspec.Raw()
    statistics: msgspec.Raw = msgspec.Raw()


class _DeviceParts(msgspec.Struct, forbid_unknown_fields=True):
    """The parts of a recording, likewise."""

    device: msgspec.Raw = msgspec.Raw()
    ports: dict[int, _PortParts] = {}
    statistics: msgspec.Raw = msgspec.Raw()
    queue_pairs: msgspec.Raw = msgspec.Raw()


@dataclass(frozen=True, slots=True)
class _Recording:
    """Contents of a recording; statistics by port, those of the device as a whole by None."""

    device: RdmaDevice | RecordedError
    queue_pairs: list[QueuePairs] | RecordedError
    ports: dict[int, RdmaPort | RecordedError] = field(default_factory=dict)
    statistics: dict[int | None, Statistics | RecordedError] = field(default_factory=dict)


class ReplayRdma:
    """Reads from a folder of recordings, whose layout the module describes. Without the folder there are no devices.

    Args:
        folder: The folder that contains the folder `rdma`.
    """

    def __init__(self, folder: Path) -> None:
        self._recordings = Recordings(folder / "rdma", _parse)
        self._names: dict[int, str] = {}
        self._broken: dict[str, OSError] = {}

    def device(self, name: str, node_guid: str) -> RdmaDevice | None:
        """See RdmaReader."""
        found = self.devices()
        if name in self._broken:
            raise self._broken[name]
        return _find_device(found, name, node_guid)

    def devices(self) -> list[RdmaDevice]:
        """Return all recorded devices, except those whose file is broken: `device` raises its error."""
        found: dict[int, RdmaDevice] = {}
        self._broken = {}
        for name in self._recorded_names():
            try:
                device = value_or_raise(self._recordings.get(name).device, name)
                first = found.setdefault(device.index, device)
                if first is not device:
                    text = f"recording of {name}: index {device.index} is also that of {first.name}; use a unique one"
                    raise OSError(errno.EBADMSG, text, name)
            except OSError as error:
                if error.errno not in {errno.ENODEV, errno.EOPNOTSUPP}:  # removed since, or recorded without this part
                    self._broken[name] = error
        self._names = {index: device.name for index, device in found.items()}
        return sorted(found.values(), key=lambda device: device.index)

    def port(self, index: int, port: int) -> RdmaPort:
        """See RdmaReader."""
        name, recording = self._recording(index)
        return value_or_raise(recording.ports.get(port) or _no_port(port), name)

    def statistics(self, index: int, port: int | None) -> Statistics:
        """See RdmaReader."""
        name, recording = self._recording(index)
        return value_or_raise(recording.statistics.get(port) or _no_port(port), name)

    def queue_pairs(self, index: int) -> list[QueuePairs]:
        """See RdmaReader."""
        name, recording = self._recording(index)
        return value_or_raise(recording.queue_pairs, name)

    def close(self) -> None:
        """See RdmaReader."""
        self._recordings.clear()

    def _recorded_names(self) -> list[str]:
        """List the recordings; without the folder there are none.

        Raises:
            OSError: The folder cannot be listed.
        """
        try:
            return self._recordings.names()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise OSError(error.errno, f"recordings in {error.filename}: {error.strerror}", error.filename) from None

    def _recording(self, index: int) -> tuple[str, _Recording]:
        """Return the name and the recording of a device, by its index in the last list of devices."""
        name = self._names.get(index)
        if name is None:
            raise OSError(errno.EINVAL, f"{os.strerror(errno.EINVAL)}: no RDMA device has index {index}")
        return name, self._recordings.get(name)


def _no_port(port: int | None) -> RecordedError:
    return RecordedError(errno.EINVAL, f"{os.strerror(errno.EINVAL)}: no port {port}")


def _parse(data: bytes, path: Path, before: _Recording | None) -> _Recording:
    """Parse the parts of a recording."""
    file = msgspec.json.decode(data, type=_DeviceParts)
    name = path.stem
    known = {} if before is None else before.statistics

    def counters(raw: msgspec.Raw, port: int | None) -> Statistics | RecordedError:
        place = "statistics" if port is None else f"statistics of port {port}"
        return parse_part(raw, lambda raw: parse_statistics(raw, known.get(port)), place, path)

    return _Recording(
        parse_part(file.device, lambda raw: convert_object(RdmaDevice, raw, name=name), "device", path),
        parse_part(file.queue_pairs, _groups, "queue_pairs", path),
        {
            port: parse_part(parts.port, lambda raw: convert_object(RdmaPort, raw), f"port {port}", path)
            for port, parts in file.ports.items()
        },
        {None: counters(file.statistics, None)}
        | {port: counters(parts.statistics, port) for port, parts in file.ports.items()},
    )


def _groups(raw: msgspec.Raw) -> list[QueuePairs]:
    """Parse groups of queue pairs; those beyond the limit are counted as `other`."""
    groups = [convert_object(QueuePairs, group) for group in msgspec.json.decode(raw, type=list[msgspec.Raw])]
    total = sum(group.count for group in groups)
    check_u64_values([("count of all", total)])
    if len(groups) <= MAX_GROUPS:
        return groups
    first = groups[:MAX_GROUPS]
    return [*first, QueuePairs(None, OTHER, "", "", total - sum(group.count for group in first))]
