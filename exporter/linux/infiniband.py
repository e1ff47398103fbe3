"""Attributes of /sys/class/infiniband, as drivers/infiniband/core/sysfs.c of Linux prints them: bytes in, values out.

Counters are parsed in `cached_file`.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

ACTIVE = 4
"""PortState of a port that carries data: 0 no change, 1 down, 2 init, 3 armed, 4 active, 5 active, deferred."""

_RATE = re.compile(rb"(\d{1,7}(?:\.\d{1,6})?) Gb/sec(?: \((\d{1,4})X(?: ([A-Z0-9]{1,16}))?\))?")
_NUMBERED = re.compile(rb"(\d{1,10}): ?(.{0,256})")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
"""Name of a port's folder, as the kernel writes numbers: with `01` beside `1` two ports would have one number."""

_PLACEHOLDER = b"40 Gb/sec (4X QDR)"
"""Rate that mlx5 prints for an Ethernet port with a speed it has no name for."""

IWARP = 4
"""`node_type` of a device that carries RDMA over TCP (RNIC)."""

_UNKNOWN_SPEEDS = frozenset({b"65535", b"4294967295"})
"""How some drivers print SPEED_UNKNOWN (-1); `-1` itself is not a speed anyway."""

_SPEED_DIGITS = 7
"""Digits of 9,999,999 Mb/s, more than any link of today."""

MAX_DEVICES = 1024
"""Devices that are read of a host; with virtual functions there may be hundreds."""

_GUID = re.compile(rb"[0-9a-fA-F]{4}(:[0-9a-fA-F]{4}){3}")


def limit_devices(names: Sequence[str], known: Collection[str]) -> Sequence[str]:
    """Return the devices to read, in their order: of too many those known already, then the first."""
    if len(names) <= MAX_DEVICES:
        return names
    return sorted(sorted(names, key=lambda name: name not in known)[:MAX_DEVICES])


class Rate(NamedTuple):
    """Speed of a port: bytes per second, lanes, and the name of the generation (`NDR`; empty on very old kernels)."""

    bytes_per_second: float
    lanes: int | None
    generation: str


def parse_rate(text: bytes) -> Rate | None:
    """Parse `rate`, such as `400 Gb/sec (4X NDR)`; None for other text, and for a speed of 0.

    The number is the speed of the whole port, so it is never multiplied by the width.
    """
    found = _RATE.fullmatch(text.strip())
    if not found:
        return None
    speed = float(found[1]) * 1e9 / 8
    if speed <= 0:
        return None
    return Rate(speed, int(found[2]) if found[2] else None, (found[3] or b"").decode())


def parse_numbered(text: bytes) -> int | None:
    """Parse the number of `state`, `phys_state` or `node_type`, such as `4: ACTIVE`; None for other text."""
    found = _NUMBERED.fullmatch(text.strip())
    return int(found[1]) if found else None


def parse_link_rate(state: bytes, rate: bytes) -> Rate | None:
    """Parse `rate`; None unless `state` is active, since a port that is down shows the lowest rate."""
    return parse_rate(rate) if (parse_numbered(state) or 0) >= ACTIVE else None


def is_placeholder(rate: bytes) -> bool:
    """Return whether `rate`, of an Ethernet port of mlx5, may be the placeholder of a speed without a name."""
    return rate.startswith(_PLACEHOLDER)


def parse_netdev_speed(text: bytes) -> float | None:
    """Parse `/sys/class/net/<name>/speed`, in Mb/s, to bytes per second; None if the driver does not know it."""
    digits = text.strip()
    if not digits.isdigit() or len(digits) > _SPEED_DIGITS or digits in _UNKNOWN_SPEEDS:
        return None
    return int(digits) * 1e6 / 8 or None


def port_numbers(device: Path) -> list[int]:
    """List the port numbers of a device in order.

    Args:
        device: Path such as `/sys/class/infiniband/mlx5_0`.

    Raises:
        OSError: They cannot be listed.
    """
    return sorted(int(entry.name) for entry in (device / "ports").iterdir() if _PORT.fullmatch(entry.name))


def parse_guid(text: bytes) -> str | None:
    """Parse `node_guid`, such as `248a:0703:00f8:1234`, to 16 hex digits; None for other text, and for all zeros."""
    guid = text.strip()
    if not _GUID.fullmatch(guid):
        return None
    digits = guid.replace(b":", b"").decode().lower()
    return digits if digits.strip("0") else None
