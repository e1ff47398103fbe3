"""Texts of /sys/class/infiniband, as drivers/infiniband/core/sysfs.c of Linux prints them: bytes in, values out.

And which folders there are the ports of a device.
"""

import re
from pathlib import Path
from typing import NamedTuple

ACTIVE = 4
"""Logical state of a port that carries data: 0 no change, 1 down, 2 init, 3 armed, 4 active, 5 active, deferred."""

MAX_DIGITS = 20
"""Digits of 2^64 - 1; a longer number is no counter."""

ABSENT = (1 << 64) - 1
"""What firmware answers that could not fill a value, and what no counter of bytes or packets ever gets to."""

_RATE = re.compile(rb"(\d+(?:\.\d+)?) Gb/sec(?: \((\d+)X(?: ([A-Z0-9]+))?\))?")
_NUMBERED = re.compile(rb"(\d+): ?(.*)")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
"""Name of a port's folder, as the kernel writes numbers: with `01` beside `1` two ports would have one number."""

_PLACEHOLDER = b"40 Gb/sec (4X QDR)"
"""What mlx5 says of an Ethernet port whose speed it cannot name."""

IWARP = 4
"""Type of a device that carries RDMA in TCP, by its `node_type`."""

_UNKNOWN_SPEEDS = frozenset({b"65535", b"4294967295"})
"""What some drivers answer for -1; what is no number, and -1 itself, is no speed anyway."""

_SPEED_DIGITS = 7
"""Digits of 9,999,999 Mb/s, more than any link of today."""

_GUID = re.compile(rb"[0-9a-fA-F]{4}(:[0-9a-fA-F]{4}){3}")


class Rate(NamedTuple):
    """Speed of a port: bytes per second, lanes, and the name of the generation (`NDR`; empty on very old kernels)."""

    bytes_per_second: float
    lanes: int | None
    generation: str


def parse_rate(text: bytes) -> Rate | None:
    """Read `rate`, such as `400 Gb/sec (4X NDR)`; None for what is none, or for no speed at all.

    The number is taken as it stands. It is the whole port's, so it is never multiplied by the width.
    """
    found = _RATE.fullmatch(text.strip())
    if not found:
        return None
    speed = float(found[1]) * 1e9 / 8
    if speed <= 0:
        return None
    return Rate(speed, int(found[2]) if found[2] else None, (found[3] or b"").decode())


def parse_numbered(text: bytes) -> int | None:
    """Read the number of `state` and `phys_state`, such as `4: ACTIVE`; None for what is none."""
    found = _NUMBERED.fullmatch(text.strip())
    return int(found[1]) if found else None


def parse_link_rate(state: bytes, rate: bytes) -> Rate | None:
    """Read `rate` as far as it is the link's speed: a port that is down, by its `state`, shows the lowest there is."""
    return parse_rate(rate) if (parse_numbered(state) or 0) >= ACTIVE else None


def is_placeholder(rate: bytes) -> bool:
    """Tell whether `rate`, of an Ethernet port of mlx5, may stand for a speed that the driver cannot name."""
    return rate.startswith(_PLACEHOLDER)


def parse_netdev_speed(text: bytes) -> float | None:
    """Read `/sys/class/net/<name>/speed`, in Mb/s, as bytes per second; None where the driver does not know it."""
    digits = text.strip()
    if not digits.isdigit() or len(digits) > _SPEED_DIGITS or digits in _UNKNOWN_SPEEDS:
        return None
    return int(digits) * 1e6 / 8 or None


def port_numbers(device: Path) -> list[int]:
    """List the ports of a device in their order.

    Args:
        device: Path such as `/sys/class/infiniband/mlx5_0`.

    Raises:
        OSError: They cannot be listed.
    """
    return sorted(int(entry.name) for entry in (device / "ports").iterdir() if _PORT.fullmatch(entry.name))


def parse_guid(text: bytes) -> str | None:
    """Read `node_guid`, such as `248a:0703:00f8:1234`, as 16 hex digits; None for what is none, or all zeros."""
    guid = text.strip()
    if not _GUID.fullmatch(guid):
        return None
    digits = guid.replace(b":", b"").decode().lower()
    return digits if digits.strip("0") else None


def parse_counter(text: bytes) -> int | None:
    """Read a counter; None for what devices without the counter answer: `N/A (no PMA)` and its like, or all ones.

    Raises:
        ValueError: It is neither.
    """
    digits = text.strip()
    if digits.isdigit() and len(digits) <= MAX_DIGITS and (value := int(digits)) < 1 << 64:
        return None if value == ABSENT else value
    if text.startswith(b"N/A"):
        return None
    raise ValueError(f"no number: {text[:40]!r}")
