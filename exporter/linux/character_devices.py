"""Character devices of RDMA devices: which ones the kernel has created, and whether their nodes are in /dev/infiniband.

Programs open an RDMA device through `uverbsN`; tools of the fabric send management datagrams through `umadN`; a subnet
manager opens `issmN`; `rdma_cm` is for connections by IP address. The kernel creates them when the modules ib_uverbs,
ib_umad and rdma_ucm are loaded, and lists them in sysfs, which is the same in each container. Their nodes are created
by devtmpfs and udev. A container has a /dev of its own, so nodes are looked for only if the host's /dev is mounted.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from exporter.linux.cached_file import read_text

VERBS, MAD, SUBNET_MANAGER, CONNECTIONS = "uverbs", "umad", "issm", "rdma_cm"
"""Kinds of character devices, by the names of their nodes."""

MAX_ENTRIES = 4096
"""Maximum number of entries of a class that are read."""

_CLASSES = MappingProxyType(
    {"infiniband_verbs": (VERBS,), "infiniband_mad": (MAD, SUBNET_MANAGER), "misc": (CONNECTIONS,)}
)
"""Classes of sysfs, and the kinds of character devices in each that are read."""

_NAME = re.compile(r"([a-z]{1,8})\d{1,6}")
_NUMBER = re.compile(r"(\d{1,10}):(\d{1,10})")
_PORT = re.compile(r"\d{1,5}")

NODES = "infiniband"
"""Folder of the nodes below /dev."""


class CharacterDevice(NamedTuple):
    """A character device of an RDMA device: port 0 if it is for all its ports; no device name if it is of the host."""

    kind: str
    device: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True)
class CharacterDevices:
    """The character devices of this host.

    Attributes:
        found: Those that the kernel has created, and whether the node is there; None if that cannot be known.
        nodes: Names of their nodes below /dev/infiniband.
        unreadable: Kinds of which an entry could not be read: one that was not found may exist.
    """

    found: Mapping[CharacterDevice, bool | None] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()
    nodes: Mapping[CharacterDevice, str] = field(default_factory=dict)

    def has(self, device: CharacterDevice) -> bool | None:
        """Return whether a character device is there; None if that cannot be known."""
        if device in self.found:
            return self.found[device]
        return None if device.kind in self.unreadable else False


def is_listed(sysfs: Path) -> bool:
    """Return whether a sysfs has any of the classes; a recording of it may have none."""
    return any((sysfs / "class" / name).is_dir() for name in _CLASSES)


def read_character_devices(sysfs: Path, dev: Path | None = None) -> CharacterDevices:
    """Read the character devices; blocks.

    Args:
        sysfs: Root of sysfs.
        dev: The host's /dev; None where it is not known, so that what the kernel has created counts as there.

    Raises:
        OSError: A class cannot be listed.
    """
    found: dict[CharacterDevice, bool | None] = {}
    unreadable: set[str] = set()
    nodes: dict[CharacterDevice, str] = {}
    for class_name, kinds in _CLASSES.items():
        for entry, kind in _entries(sysfs / "class" / class_name, kinds):
            device = _identify(entry, kind)
            if device is None:
                unreadable.add(kind)
            else:
                found[device] = _has_node(entry, dev)
                nodes[device] = entry.name
    return CharacterDevices(found, frozenset(unreadable), nodes)


def _entries(folder: Path, kinds: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    """Yield the entries of a class and their kinds; none if there is no such class."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  # names alone
    except FileNotFoundError:
        return
    for name in names[:MAX_ENTRIES]:
        numbered = _NAME.fullmatch(name)
        kind = numbered[1] if numbered else name
        if kind in kinds:
            yield folder / name, kind


def _identify(entry: Path, kind: str) -> CharacterDevice | None:
    """Return what an entry belongs to; None if its attributes cannot be read."""
    if kind == CONNECTIONS:
        return CharacterDevice(kind)
    device, port = read_text(entry / "ibdev"), "0" if kind == VERBS else read_text(entry / "port")
    return CharacterDevice(kind, device, int(port)) if device and _PORT.fullmatch(port) else None


def _has_node(entry: Path, dev: Path | None) -> bool | None:
    """Return whether the node of an entry is a character device with its number; None if that cannot be known."""
    if dev is None:
        return True
    number = _NUMBER.fullmatch(read_text(entry / "dev"))
    if number is None:
        return None
    try:
        node = os.stat(dev / NODES / entry.name)  # noqa: PTH116  # needs no right to the device
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return None
    return stat.S_ISCHR(node.st_mode) and node.st_rdev == os.makedev(int(number[1]), int(number[2]))
