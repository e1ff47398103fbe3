"""Recordings: folders of JSON, one file a device, with the answers that a kernel gave or might give.

In the place of any answer, {"errno": "EINVAL"} has the request fail so. A file is read again when it has changed, so
replacing it (rename over it) moves the counters. Files with other endings are ignored. What is broken costs its own
device alone, or its own part of it: requests for it fail with EBADMSG.
"""

import errno
import os
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from exporter.linux.ethtool import Statistics

SUFFIX = ".json"

FILE_LIMIT = 8 * 1024 * 1024
"""Bytes of a file; 20,000 statistics take one million."""

MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)
"""What reading JSON raises; the last is for brackets nested without end."""

MOST_SHOWN = 256
"""Bits of a number that is told in an error; Python refuses to print those of more than 4,300 digits."""

Answer = TypeVar("Answer")
Recording = TypeVar("Recording")


@dataclass(frozen=True, slots=True)
class Failed:
    """An answer that is an error: recorded as one, left out, or not readable."""

    number: int
    text: str


class Recordings(Generic[Recording]):
    """The files of a folder, by device; each is parsed once for each of its states."""

    def __init__(self, folder: Path, parse: Callable[[bytes, Path, Recording | None], Recording]) -> None:
        """Take where the files lie.

        Args:
            folder: The folder.
            parse: Reads a file's bytes; it is given the path for errors, and what the file said before. It may raise
                what MALFORMED lists.
        """
        self._folder = folder
        self._parse = parse
        self._kept: dict[str, tuple[tuple[int, ...], Recording | Failed]] = {}

    def names(self) -> list[str]:
        """List the devices.

        Raises:
            OSError: The folder cannot be listed.
        """
        found = (path.name for path in self._folder.iterdir())
        names = sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))
        for gone in self._kept.keys() - set(names):
            self.forget(gone)
        return names

    def forget(self, device: str) -> None:
        """Drop what is kept for a device."""
        self._kept.pop(device, None)

    def clear(self) -> None:
        """Drop all that is kept."""
        self._kept.clear()

    def get(self, device: str) -> Recording:
        """Give what the device's file says now.

        Raises:
            OSError: There is none (ENODEV), or it is broken (EBADMSG).
        """
        path = path_of(self._folder, device)
        try:
            status = path.stat()
        except OSError as error:
            self.forget(device)
            raise OSError(errno.ENODEV, f"no recording: {error.strerror}", device) from None
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        kept = self._kept.get(device)
        if kept is None or kept[0] != version:
            before = None if kept is None or isinstance(kept[1], Failed) else kept[1]
            kept = self._kept[device] = (version, self._read(path, status.st_mode, before))
        if isinstance(kept[1], Failed):
            raise OSError(kept[1].number, kept[1].text, device)
        return kept[1]

    def _read(self, path: Path, mode: int, before: Recording | None) -> Recording | Failed:
        try:
            return self._parse(_bytes_of(path, mode), path, before)
        except MALFORMED as error:
            return Failed(errno.EBADMSG, f"{path}: {error}")


def path_of(folder: Path, device: str) -> Path:
    """Give the file of a device; a name that would lead out of the folder is no device.

    Raises:
        OSError: ENODEV.
    """
    if device in {"", ".", ".."} or "/" in device or "\0" in device:
        raise OSError(errno.ENODEV, "not a name for a device", device)
    return folder / (device + SUFFIX)


def _bytes_of(path: Path, mode: int) -> bytes:
    """Read a file.

    Raises:
        ValueError: It cannot be read.
    """
    if not stat.S_ISREG(mode):  # a pipe would block for ever
        raise ValueError("is no regular file")
    try:
        with path.open("rb") as file:
            data = file.read(FILE_LIMIT + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if len(data) > FILE_LIMIT:
        raise ValueError(f"is larger than {FILE_LIMIT} bytes")
    return data


def read_part(raw: msgspec.Raw, read: Callable[[msgspec.Raw], Answer], name: str, path: Path) -> Answer | Failed:
    """Read one answer of a recording, or the error in its place; one left out fails with EOPNOTSUPP.

    Args:
        raw: What the file has.
        read: Makes the answer of it; it may raise what MALFORMED lists.
        name: The part's name, for the error.
        path: The file, likewise.
    """
    if not bytes(raw):
        return Failed(errno.EOPNOTSUPP, f"{name}: {os.strerror(errno.EOPNOTSUPP)}")
    try:
        return _recorded_failure(raw) or read(raw)
    except MALFORMED as error:
        return Failed(errno.EBADMSG, f"{name} in {path}: {error}")


def given(answer: Answer | Failed, device: str) -> Answer:
    """Give an answer.

    Raises:
        OSError: It is an error.
    """
    if isinstance(answer, Failed):
        raise OSError(answer.number, answer.text, device)
    return answer


def _recorded_failure(raw: msgspec.Raw) -> Failed | None:
    """Read {"errno": "EINVAL"}; a statistic of that name would be a number."""
    if not bytes(raw).lstrip().startswith(b"{"):
        return None
    name = msgspec.json.decode(raw, type=dict[str, Any]).get("errno")
    if not isinstance(name, str):
        return None
    number = error_number(name)
    return Failed(number, f"{os.strerror(number)} (recorded)")


def error_number(name: str) -> int:
    """Read the name of an errno.

    Raises:
        ValueError: It is none.
    """
    number: int | None = getattr(errno, name, None) if name.startswith("E") else None
    if number is None:
        raise ValueError(f"errno {name!r} is unknown; write a name such as EINVAL")
    return number


def build(kind: type[Answer], raw: msgspec.Raw, **known: str) -> Answer:
    """Make a dataclass of an object, whose keys have to be its fields, less those that are known already."""
    value = msgspec.json.decode(raw, type=dict[str, Any])
    fields = set(kind.__annotations__) - known.keys()
    unknown = sorted(value.keys() - fields)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(fields))}")
    check_values(_numbers(value))
    return msgspec.convert({**value, **known}, kind)


def _numbers(value: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """List the whole numbers of an object and of the objects in it, but for the one that may be below zero."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _numbers(inner)
        elif isinstance(inner, int) and name != "link_netnsid":
            yield name, inner


def statistics(raw: msgspec.Raw, before: Statistics | Failed | None) -> Statistics:
    """Read an object of names and values or, where names repeat, a list of [name, value].

    Args:
        raw: What the file has.
        before: What was read last, which lends its names if they are still the same.
    """
    pairs = msgspec.json.decode(raw, type=dict[str, int] | list[tuple[str, int]])
    if isinstance(pairs, dict):
        pairs = list(pairs.items())
    check_values(pairs)
    names = tuple([name for name, _ in pairs])
    if isinstance(before, Statistics) and before.names == names:
        names = before.names
    return Statistics(names, array("Q", [value for _, value in pairs]))


def check_values(pairs: Iterable[tuple[str, int]]) -> None:
    """Raise ValueError unless all values are numbers such as the kernel has."""
    for name, value in pairs:
        if not 0 <= value < 1 << 64:
            shown = value if value.bit_length() < MOST_SHOWN else "a number without end"
            raise ValueError(f"{name!r} is {shown}; a number has 64 bits here, and no sign")
