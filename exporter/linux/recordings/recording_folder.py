"""Folders of recordings: one JSON file per device, with the kernel's answers to requests, recorded or hand-written.

Any answer may be an error: {"errno": "EINVAL"}. A file is read again when it has changed, so replacing it (by rename)
changes the counters. Files with other suffixes are ignored. A malformed file affects only its device, and a malformed
answer only itself: requests for it fail with EBADMSG.
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

from exporter.linux.ethtool_ioctl import Statistics

SUFFIX = ".json"

MAX_FILE_SIZE = 8 * 1024 * 1024
"""Bytes of a file; 20,000 statistics need about a million."""

MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)
"""Exceptions of the JSON parser; RecursionError for deeply nested brackets."""

MAX_BITS_SHOWN = 256
"""Bits of a number that an error shows; Python refuses to print those of more than 4,300 digits."""

Answer = TypeVar("Answer")
Recording = TypeVar("Recording")


@dataclass(frozen=True, slots=True)
class RecordedError:
    """An answer that is an error: recorded as one, absent, or malformed."""

    errno: int
    text: str


class Recordings(Generic[Recording]):
    """The files of a folder, by device; each is parsed again only when it changed."""

    def __init__(self, folder: Path, parse: Callable[[bytes, Path, Recording | None], Recording]) -> None:
        """Read no file yet.

        Args:
            folder: The folder of the files.
            parse: Parses the bytes of a file, given its path (for errors) and the previous recording, if any. It may
                raise the exceptions in MALFORMED.
        """
        self._folder = folder
        self._parse = parse
        self._cache: dict[str, tuple[tuple[int, ...], Recording | RecordedError]] = {}

    def names(self) -> list[str]:
        """Return the names of the devices.

        Raises:
            OSError: The folder cannot be listed.
        """
        found = (path.name for path in self._folder.iterdir())
        names = sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))
        for gone in self._cache.keys() - set(names):
            self.forget(gone)
        return names

    def forget(self, device: str) -> None:
        """Drop the cached recording of a device."""
        self._cache.pop(device, None)

    def clear(self) -> None:
        """Drop all cached recordings."""
        self._cache.clear()

    def get(self, device: str) -> Recording:
        """Return the current recording of a device.

        Raises:
            OSError: It has no file (ENODEV), or the file is malformed (EBADMSG).
        """
        path = recording_path(self._folder, device)
        try:
            status = path.stat()
        except OSError as error:
            self.forget(device)
            raise OSError(errno.ENODEV, f"no recording: {error.strerror}", device) from None
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        cached = self._cache.get(device)
        if cached is None or cached[0] != version:
            before = None if cached is None or isinstance(cached[1], RecordedError) else cached[1]
            cached = self._cache[device] = (version, self._read(path, status.st_mode, before))
        return value_or_raise(cached[1], device)

    def _read(self, path: Path, mode: int, before: Recording | None) -> Recording | RecordedError:
        try:
            return self._parse(_read_file(path, mode), path, before)
        except MALFORMED as error:
            return RecordedError(errno.EBADMSG, f"{path}: {error}")


def recording_path(folder: Path, device: str) -> Path:
    """Return the path of a device's file.

    Raises:
        OSError: ENODEV for a name that would lead out of the folder.
    """
    if device in {"", ".", ".."} or "/" in device or "\0" in device:
        raise OSError(errno.ENODEV, "not a valid name of a device", device)
    return folder / (device + SUFFIX)


def _read_file(path: Path, mode: int) -> bytes:
    """Read a file.

    Raises:
        ValueError: It cannot be read.
    """
    if not stat.S_ISREG(mode):  # opening a FIFO would block
        raise ValueError("is not a regular file")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_SIZE + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_FILE_SIZE:
        raise ValueError(f"is larger than {MAX_FILE_SIZE} bytes")
    return data


def parse_part(
    raw: msgspec.Raw, parse: Callable[[msgspec.Raw], Answer], name: str, path: Path
) -> Answer | RecordedError:
    """Parse one answer of a recording, or the error recorded instead; an absent one is EOPNOTSUPP.

    Args:
        raw: The JSON of the answer; empty if it is absent.
        parse: Parses the JSON; it may raise the exceptions in MALFORMED.
        name: Name of the answer, for the error.
        path: Path of the file, for the error.
    """
    if not bytes(raw):
        return RecordedError(errno.EOPNOTSUPP, f"{name}: {os.strerror(errno.EOPNOTSUPP)}")
    try:
        return _parse_recorded_error(raw) or parse(raw)
    except MALFORMED as error:
        return RecordedError(errno.EBADMSG, f"{name} in {path}: {error}")


def value_or_raise(answer: Answer | RecordedError, device: str) -> Answer:
    """Return an answer that is not an error.

    Raises:
        OSError: It is an error.
    """
    if isinstance(answer, RecordedError):
        raise OSError(answer.errno, answer.text, device)
    return answer


def _parse_recorded_error(raw: msgspec.Raw) -> RecordedError | None:
    """Parse {"errno": "EINVAL"}; a statistic of that name has a number as its value."""
    if not bytes(raw).lstrip().startswith(b"{"):
        return None
    name = msgspec.json.decode(raw, type=dict[str, Any]).get("errno")
    if not isinstance(name, str):
        return None
    number = parse_errno(name)
    return RecordedError(number, f"{os.strerror(number)} (recorded)")


def parse_errno(name: str) -> int:
    """Return the number of an errno name.

    Raises:
        ValueError: There is no such errno.
    """
    number: int | None = getattr(errno, name, None) if name.startswith("E") else None
    if number is None:
        raise ValueError(f"errno {name!r} is unknown; write a name such as EINVAL")
    return number


def convert_object(kind: type[Answer], raw: msgspec.Raw, **known: str) -> Answer:
    """Convert a JSON object to a dataclass; its keys must be fields of the class other than those in `known`."""
    value = msgspec.json.decode(raw, type=dict[str, Any])
    fields = set(kind.__annotations__) - known.keys()
    unknown = sorted(value.keys() - fields)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(fields))}")
    check_u64_values(_integers(value))
    return msgspec.convert({**value, **known}, kind)


def _integers(value: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the integers of an object and of nested objects."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _integers(inner)
        elif isinstance(inner, int):
            yield name, inner


def parse_statistics(raw: msgspec.Raw, before: Statistics | RecordedError | None) -> Statistics:
    """Parse an object of names and values or, where names repeat, a list of [name, value].

    Args:
        raw: The JSON of the statistics.
        before: The previous statistics, whose names are reused if they are the same.
    """
    pairs = msgspec.json.decode(raw, type=dict[str, int] | list[tuple[str, int]])
    if isinstance(pairs, dict):
        pairs = list(pairs.items())
    check_u64_values(pairs)
    names = tuple([name for name, _ in pairs])
    if isinstance(before, Statistics) and before.names == names:
        names = before.names
    return Statistics(names, array("Q", [value for _, value in pairs]))


def check_u64_values(pairs: Iterable[tuple[str, int]]) -> None:
    """Raise ValueError unless all values are unsigned 64-bit integers."""
    for name, value in pairs:
        if not 0 <= value < 1 << 64:
            shown = value if value.bit_length() < MAX_BITS_SHOWN else f"a number of {value.bit_length()} bits"
            raise ValueError(f"{name!r} is {shown}; write an unsigned 64-bit integer")
