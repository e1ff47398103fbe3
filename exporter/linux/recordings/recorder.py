"""Makes recordings of this host's devices: the answers of a reader, in the form that the replaying reader parses."""

import errno
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from exporter.linux.ethtool_ioctl import Statistics
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import NicReader
from exporter.linux.rdma_reader import RdmaReader
from exporter.linux.recordings.module_memory import record_memory
from exporter.linux.recordings.recording_folder import recording_path

RecordedDevice: TypeAlias = tuple[str, dict[str, Any]]
"""Name of a device, and the content of its file."""

MAX_RDMA_PORTS = 1024
"""Ports of one RDMA device that are recorded; the sources examine as many."""


def record_nics(reader: NicReader, links: Collection[NetworkLink], *, module: bool = False) -> Iterator[RecordedDevice]:
    """Record network devices; each is read when it is yielded.

    Args:
        reader: Reader of the devices.
        links: The devices that are recorded.
        module: Whether the memory of optical modules is recorded too, which takes a second per port and delays packets
            on some devices.
    """
    disciplines = _queueing_disciplines_as_json(reader, links)
    for link in links:
        device = link.name
        answers = {
            "link": link,
            "driver": _answer_as_json(reader.driver, device),
            "statistics": _answer_as_json(lambda name: _statistics_as_json(reader.statistics(name)), device),
            "settings": _answer_as_json(reader.settings, device),
            "link_modes": _answer_as_json(reader.link_modes, device),
            "link_state": _answer_as_json(reader.link_state, device),
            "pause": _answer_as_json(reader.pause, device),
            "fec": _answer_as_json(reader.fec, device),
            "standard_statistics": _answer_as_json(reader.standard_statistics, device),
            "dcb": _answer_as_json(reader.dcb, device),
            "queueing": disciplines.get(link.ifindex),
            "module": _answer_as_json(partial(_record_memory, reader), device) if module else None,
        }
        recording = _without_missing(answers)
        del recording["link"]["name"]  # the name of the file has it
        yield device, recording


def record_rdma(reader: RdmaReader) -> Iterator[RecordedDevice]:
    """Record RDMA devices, without their queue pairs: those take firmware commands, and name processes.

    Raises:
        OSError: The devices cannot be listed.
    """
    for device in reader.devices():

        def statistics(port: int | None, index: int = device.index) -> object:
            return _statistics_as_json(reader.statistics(index, port))

        recording = _without_missing({"device": device, "statistics": _answer_as_json(statistics, None)})
        del recording["device"]["name"]  # the name of the file has it
        recording["ports"] = {
            str(port): _without_missing(
                {
                    "port": _answer_as_json(partial(reader.port, device.index), port),
                    "statistics": _answer_as_json(statistics, port),
                }
            )
            for port in range(1, min(device.ports, MAX_RDMA_PORTS) + 1)
        }
        yield device.name, recording


def write_recording(folder: Path, device: str, recording: dict[str, Any]) -> None:
    """Write the recording of a device to a folder; the folder is created if needed, and the file replaced atomically.

    Raises:
        OSError: The file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = recording_path(folder, device)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(recording), indent=2) + b"\n")
    new.replace(path)


def _answer_as_json(request: Callable[[Any], object], argument: object) -> object:
    """Return an answer or its error in the form of a recording; None if it is not supported."""
    try:
        return request(argument)
    except OSError as error:
        return _error_as_json(error)


def _error_as_json(error: OSError) -> dict[str, str] | None:
    """Convert an error to its form in a recording; None for EOPNOTSUPP, which is omitted."""
    number = error.errno or errno.EIO
    return None if number == errno.EOPNOTSUPP else {"errno": errno.errorcode.get(number, "EIO")}


def _statistics_as_json(statistics: Statistics) -> dict[str, int] | list[tuple[str, int]]:
    """Convert statistics to their form in a recording: a list of pairs only where names repeat."""
    found = list(zip(statistics.names, statistics.values, strict=True))
    unique = dict(found)
    return unique if len(unique) == len(found) else found


def _queueing_disciplines_as_json(reader: NicReader, links: Collection[NetworkLink]) -> dict[int, object]:
    """Return the root qdisc of each device, or the error, in the form of a recording."""
    try:
        found = reader.queueing_disciplines(links)
    except OSError as error:
        found = {link.ifindex: error for link in links}
    return {index: _error_as_json(one) if isinstance(one, OSError) else one for index, one in found.items()}


def _record_memory(reader: NicReader, device: str) -> object:
    return record_memory(partial(reader.module_page, device), _error_as_json)


def _without_missing(answers: dict[str, object]) -> dict[str, Any]:
    """Convert answers to JSON types, without missing ones and, of objects, without fields that are None or empty."""
    plain = {part: msgspec.to_builtins(answer) for part, answer in answers.items() if answer is not None}
    return {
        part: {k: v for k, v in answer.items() if v not in (None, {}, "")} if isinstance(answer, dict) else answer
        for part, answer in plain.items()
    }
