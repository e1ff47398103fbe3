"""Everything the exporter asks network devices that is not a file: from the kernel, or from a folder of answers.

A recording is a folder with one file per device, `<device>.json`, made by `record` or by hand:

    {
      "link": {"ifindex": 2, "admin_up": true, "carrier": true, "mtu": 9000, "stats": {"rx_bytes": 1}},
      "driver": {"name": "mlx5_core", "firmware": "28.39.1002", "bus": "0000:17:00.0"},
      "statistics": {"rx_bytes_phy": 18446744073709551615, "rx_prio3_pause": 7},
      "settings": {"speed_bits_per_second": 400000000000, "duplex": "full"}
    }

The keys of each answer are the fields of `Link` (less its name, which is the file's), `Driver` and `LinkSettings`.
Statistics are an object in the driver's order or, where a driver repeats names, a list of [name, value]. In the place
of an answer, {"errno": "EINVAL"} has the request fail so; an answer left out fails with EOPNOTSUPP. A file is read
again when it has changed, so replacing it (rename over it) moves the counters. Files with other endings are ignored.
"""

import errno
import logging
import os
import stat
from array import array
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from exporter.linux.ethtool import Driver, Ethtool, LinkSettings, Statistics
from exporter.linux.rtnetlink import Event, EventSocket, Link, LinkSocket

_log = logging.getLogger(__name__)

_SUFFIX = ".json"
_FILE_LIMIT = 8 * 1024 * 1024  # bytes; 20,000 statistics take one

_Answer = TypeVar("_Answer")
_Pairs = list[tuple[str, int]]
# What reading JSON raises; the last is for brackets nested without end.
_MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)


class NicReader(Protocol):
    """What is asked of network devices. All but the events may block and belong in a worker thread.

    Every request may raise OSError. ENODEV: there is no such device (now). EOPNOTSUPP: the driver has no such thing,
    which is normal.
    """

    def links(self) -> list[Link]:
        """Give all devices of the network namespace; one thread at a time."""

    def driver(self, device: str) -> Driver:
        """Give the driver's name, version and firmware, and the device's bus address."""

    def statistics(self, device: str) -> Statistics:
        """Give the driver's statistics."""

    def settings(self, device: str) -> LinkSettings:
        """Give speed, duplex, autonegotiation and the kind of port."""

    def forget(self, device: str) -> None:
        """Drop what is kept for a device that is gone or is no longer read."""

    def event_fd(self) -> int | None:
        """Give the descriptor that is readable when there are events; None: there are never any."""

    def events(self) -> list[Event]:
        """Take the events that have arrived, without waiting."""

    def close(self) -> None:
        """Give back what the system lent; closing twice does no harm."""


class KernelNic:
    """Asks the kernel, in the network namespace of the thread that makes this object."""

    def __init__(self) -> None:
        with ExitStack() as stack:
            self._links = stack.enter_context(LinkSocket())
            self._events = stack.enter_context(EventSocket())
            self._ethtool = stack.enter_context(Ethtool())
            self._open = stack.pop_all()

    def links(self) -> list[Link]:
        """See NicReader."""
        return self._links.dump()

    def driver(self, device: str) -> Driver:
        """See NicReader."""
        return self._ethtool.driver(device)

    def statistics(self, device: str) -> Statistics:
        """See NicReader."""
        return self._ethtool.statistics(device)

    def settings(self, device: str) -> LinkSettings:
        """See NicReader."""
        return self._ethtool.settings(device)

    def forget(self, device: str) -> None:
        """See NicReader."""
        self._ethtool.forget(device)

    def event_fd(self) -> int | None:
        """See NicReader."""
        return self._events.fileno()

    def events(self) -> list[Event]:
        """See NicReader."""
        return self._events.read()

    def close(self) -> None:
        """See NicReader."""
        self._open.close()


@dataclass(frozen=True, slots=True)
class _Failure:
    """An answer that is an error: recorded as one, left out, or not readable."""

    number: int
    text: str


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The parts of a recording, each still to be read, so that a broken one costs no other."""

    link: msgspec.Raw = msgspec.Raw()
    driver: msgspec.Raw = msgspec.Raw()
    statistics: msgspec.Raw = msgspec.Raw()
    settings: msgspec.Raw = msgspec.Raw()


@dataclass(frozen=True, slots=True)
class _Recording:
    """What a file says."""

    link: Link | _Failure
    driver: Driver | _Failure
    statistics: Statistics | _Failure
    settings: LinkSettings | _Failure


class ReplayNic:
    """Answers from a folder of recordings; the module's text gives its layout. There are no events.

    What is broken costs its own device alone: its requests fail with EBADMSG, it is missing among the links if that
    part is unreadable, and the log says why once for each state of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, tuple[tuple[int, ...], _Recording]] = {}

    def links(self) -> list[Link]:
        """See NicReader."""
        links = []
        for path in self._folder.iterdir():
            if path.name.endswith(_SUFFIX):
                with suppress(OSError):  # gone since, broken, or without a link
                    links.append(self._answer(path.name.removesuffix(_SUFFIX), "link", Link))
        return sorted(links, key=lambda link: link.ifindex)

    def driver(self, device: str) -> Driver:
        """See NicReader."""
        return self._answer(device, "driver", Driver)

    def statistics(self, device: str) -> Statistics:
        """See NicReader."""
        return self._answer(device, "statistics", Statistics)

    def settings(self, device: str) -> LinkSettings:
        """See NicReader."""
        return self._answer(device, "settings", LinkSettings)

    def forget(self, device: str) -> None:
        """See NicReader."""
        self._kept.pop(device, None)

    def event_fd(self) -> int | None:
        """See NicReader."""
        return None

    def events(self) -> list[Event]:
        """See NicReader."""
        return []

    def close(self) -> None:
        """See NicReader."""
        self._kept.clear()

    def _answer(self, device: str, part: str, kind: type[_Answer]) -> _Answer:
        answer = getattr(self._recording(device), part)
        if isinstance(answer, kind):
            return answer
        raise OSError(answer.number, answer.text, device)

    def _recording(self, device: str) -> _Recording:
        """Give what the device's file says now."""
        path = _path(self._folder, device)
        try:
            status = path.stat()
        except OSError as error:
            self.forget(device)
            raise OSError(errno.ENODEV, f"no recording: {error.strerror}", device) from None
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        kept = self._kept.get(device)
        if kept is None or kept[0] != version:
            recording = _parse(_read(path, status.st_mode), path, kept and kept[1].statistics)
            kept = self._kept[device] = (version, recording)
        return kept[1]


def _path(folder: Path, device: str) -> Path:
    """Give the file of a device; a name that would lead out of the folder is no device."""
    if device in {"", ".", ".."} or "/" in device or "\0" in device:
        raise OSError(errno.ENODEV, "not a name for a device", device)
    return folder / (device + _SUFFIX)


def _read(path: Path, mode: int) -> bytes | str:
    """Read a recording, or say why not."""
    if not stat.S_ISREG(mode):  # a pipe would block for ever
        return "is no regular file"
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_LIMIT + 1)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return data if len(data) <= _FILE_LIMIT else f"is larger than {_FILE_LIMIT} bytes"


def _parse(data: bytes | str, path: Path, previous: Statistics | _Failure | None) -> _Recording:
    """Read the parts of a recording; `previous` lends the names of the statistics if they are still the same."""
    if isinstance(data, str):
        return _broken(path, data)
    try:
        file = msgspec.json.decode(data, type=_File)
    except _MALFORMED as error:
        return _broken(path, f"is no recording: {error}")

    def part(name: str, read: Callable[[msgspec.Raw], _Answer]) -> _Answer | _Failure:
        raw = getattr(file, name)
        if not bytes(raw):
            return _Failure(errno.EOPNOTSUPP, f"{name}: {os.strerror(errno.EOPNOTSUPP)}")
        try:
            return _recorded_failure(raw) or read(raw)
        except _MALFORMED as error:
            _log.warning("recording %s: %s: %s", path, name, error)
            return _Failure(errno.EBADMSG, f"{name} in {path}: {error}")

    return _Recording(
        part("link", lambda raw: _build(Link, raw, name=path.name.removesuffix(_SUFFIX))),
        part("driver", lambda raw: _build(Driver, raw)),
        part("statistics", lambda raw: _statistics(raw, previous)),
        part("settings", lambda raw: _build(LinkSettings, raw)),
    )


def _broken(path: Path, text: str) -> _Recording:
    _log.warning("recording %s %s", path, text)
    failure = _Failure(errno.EBADMSG, f"{path} {text}")
    return _Recording(failure, failure, failure, failure)


def _recorded_failure(raw: msgspec.Raw) -> _Failure | None:
    """Read {"errno": "EINVAL"}; a statistic of that name would be a number."""
    if not bytes(raw).lstrip().startswith(b"{"):
        return None
    name = msgspec.json.decode(raw, type=dict[str, Any]).get("errno")
    if not isinstance(name, str):
        return None
    number = getattr(errno, name, None) if name.startswith("E") else None
    if number is None:
        raise ValueError(f"errno {name!r} is unknown; write a name such as EINVAL")
    return _Failure(number, f"{os.strerror(number)} (recorded)")


def _build(kind: type[_Answer], raw: msgspec.Raw, **given: str) -> _Answer:
    """Make a dataclass of an object, whose keys have to be its fields, less the given ones."""
    value = msgspec.json.decode(raw, type=dict[str, Any])
    known = set(kind.__annotations__) - given.keys()
    unknown = sorted(value.keys() - known)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
    return msgspec.convert({**value, **given}, kind)


def _statistics(raw: msgspec.Raw, previous: Statistics | _Failure | None) -> Statistics:
    pairs = msgspec.json.decode(raw, type=dict[str, int] | _Pairs)
    if isinstance(pairs, dict):
        pairs = list(pairs.items())
    for name, value in pairs:
        if not 0 <= value < 1 << 64:
            raise ValueError(f"{name!r} is {value}; a statistic has 64 bits, unsigned")
    names = tuple([name for name, _ in pairs])
    if isinstance(previous, Statistics) and previous.names == names:
        names = previous.names
    return Statistics(names, array("Q", [value for _, value in pairs]))


def record(reader: NicReader, folder: Path) -> None:
    """Write what a reader answers for all its devices as a folder that ReplayNic reads.

    The folder is made if need be; each file appears, or replaces the one before, in one piece.

    Raises:
        OSError: the links cannot be read, or a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for link in reader.links():
        path = _path(folder, link.name)
        answers = {
            "link": {
                key: value for key, value in asdict(link).items() if key != "name" and value not in (None, {}, "")
            },
            "driver": _ask(lambda name: asdict(reader.driver(name)), link.name),
            "statistics": _ask(lambda name: _pairs(reader.statistics(name)), link.name),
            "settings": _ask(lambda name: asdict(reader.settings(name)), link.name),
        }
        kept = {key: value for key, value in answers.items() if value is not None}
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
        new.replace(path)


def _ask(request: Callable[[str], dict[str, Any] | _Pairs], device: str) -> dict[str, Any] | _Pairs | None:
    """Give an answer or its error as a recording has it; None for what the device does not support."""
    try:
        return request(device)
    except OSError as error:
        number = error.errno or errno.EIO
        return None if number == errno.EOPNOTSUPP else {"errno": errno.errorcode.get(number, "EIO")}


def _pairs(statistics: Statistics) -> dict[str, Any] | _Pairs:
    pairs = list(zip(statistics.names, statistics.values, strict=True))
    unique = dict(pairs)
    return unique if len(unique) == len(pairs) else pairs
