"""Files in which systemd-networkd stores the LLDP frames of each device, by ifindex."""

import os
import re
from pathlib import Path
from time import time

from exporter.linux.lldp.frames import (
    Advertisement,
    LldpDecodeError,
    parse_frame,
    split_networkd_file,
)

MAX_FILE_SIZE = 64 << 10
"""Bytes that are read of a file."""

_IFINDEX = re.compile(r"[0-9]{1,10}")


def read_files(folder: Path, ifindexes: frozenset[int]) -> dict[int, tuple[bytes, float] | OSError]:
    """Read the file of each device that has one: content, and seconds since it was written. Blocks.

    Raises:
        OSError: The folder cannot be listed; a missing folder is no error.
    """
    try:
        paths = list(folder.iterdir())
    except FileNotFoundError:
        return {}
    found: dict[int, tuple[bytes, float] | OSError] = {}
    for path in paths:
        if _IFINDEX.fullmatch(path.name) and int(path.name) in ifindexes:
            try:
                found[int(path.name)] = _read_file(path)
            except FileNotFoundError:
                continue  # networkd removed it meanwhile
            except OSError as error:
                found[int(path.name)] = error
    return found


def _read_file(path: Path) -> tuple[bytes, float]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    try:
        return os.pread(descriptor, MAX_FILE_SIZE, 0), time() - os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def parse_file(content: bytes, age: float) -> tuple[list[Advertisement], list[LldpDecodeError]]:
    """Parse the frames of a file, and collect the errors; expired advertisements are dropped.

    networkd writes the file with each frame that it receives, so an older one is from a networkd that was stopped.
    """
    advertisements: list[Advertisement] = []
    errors: list[LldpDecodeError] = []
    try:
        frames = split_networkd_file(content)
    except LldpDecodeError as error:
        return [], [error]
    for frame in frames:
        try:
            advertisement = parse_frame(frame)
        except LldpDecodeError as error:
            errors.append(error)
        else:
            if age <= advertisement.ttl:
                advertisements.append(advertisement)
    return advertisements, errors
