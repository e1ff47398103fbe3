"""The configuration space of a PCI function: PCI Express device control, and Access Control Services.

As the PCI Express Base Specification and Linux (include/uapi/linux/pci_regs.h) have it. Bytes from 64 on need
CAP_SYS_ADMIN. Opening the file wakes a suspended function, so it should be read of active ones only.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.linux.untrusted_files import open_untrusted

REDIRECTS = ((1 << 2, "ReqRedir"), (1 << 3, "CmpltRedir"), (1 << 4, "UpstreamFwd"))
"""Bits of ACS control by which a port sends traffic between functions below it up, as lspci names them."""

_STATUS, _CAPABILITIES, _FIRST, _EXTENDED = 0x06, 0x34, 0x40, 0x100
_HAS_CAPABILITIES = 1 << 4

_NOTHING = 0xFFFF
"""What is read of a function that does not respond."""

_EXPRESS, _ACS = 0x10, 0x0D
_DEVICE_CONTROL, _ACS_CONTROL = 8, 6
"""Offsets of the control words in their capabilities."""

_RELAXED_ORDERING = 1 << 4

_MOST, _MOST_EXTENDED = 48, 960
"""Capabilities that fit, which ends a list that refers to itself."""


class PciConfig(NamedTuple):
    """Settings of a function.

    Attributes:
        max_read_request, max_payload: Bytes; None without PCI Express.
        relaxed_ordering: Whether the function may use it; None likewise.
        redirects: Names of the redirects of ACS that are on; empty also without ACS, None if that cannot be read.
    """

    max_read_request: int | None = None
    max_payload: int | None = None
    relaxed_ordering: bool | None = None
    redirects: Sequence[str] | None = None


def read_pci_config(path: Path) -> PciConfig | None:
    """Read the file `config` of a function; None if it cannot be read beyond its first 64 bytes, or is gone."""
    try:
        with open_untrusted(str(path)) as (descriptor, _):
            return _read(descriptor)
    except OSError:
        return None


def _read(descriptor: int) -> PciConfig | None:
    """Read what is needed, as each word costs an access to the bus.

    Raises:
        OSError: As `os.pread` does.
    """
    status = _number(descriptor, _STATUS, 2)
    if status is None or status == _NOTHING or _number(descriptor, _FIRST, 2) is None:
        return None
    express = _capability(descriptor, _EXPRESS) if status & _HAS_CAPABILITIES else None
    if express is None:
        return PciConfig(redirects=())
    control = _number(descriptor, express + _DEVICE_CONTROL, 2)
    if control is None:
        return None
    return PciConfig(
        max_read_request=128 << (control >> 12 & 7),
        max_payload=128 << (control >> 5 & 7),
        relaxed_ordering=bool(control & _RELAXED_ORDERING),
        redirects=_redirects(descriptor),
    )


def _number(descriptor: int, offset: int, size: int) -> int | None:
    data = os.pread(descriptor, size, offset)
    return int.from_bytes(data, "little") if len(data) == size else None


def _capability(descriptor: int, wanted: int) -> int | None:
    """Return the offset of a capability; None if there is none."""
    offset = _number(descriptor, _CAPABILITIES, 1) or 0
    for _ in range(_MOST):
        offset &= 0xFC
        header = _number(descriptor, offset, 2) if offset >= _FIRST else None
        if header is None:
            return None
        if header & 0xFF == wanted:
            return offset
        offset = header >> 8
    return None


def _redirects(descriptor: int) -> Sequence[str] | None:
    """Return the redirects that are on; None if the extended space, from 256 on, cannot be read."""
    offset = _EXTENDED
    for _ in range(_MOST_EXTENDED):
        header = _number(descriptor, offset, 4)
        if header is None:
            return None
        if header & 0xFFFF == _ACS:
            control = _number(descriptor, offset + _ACS_CONTROL, 2)
            return None if control is None else [name for bit, name in REDIRECTS if control & bit]
        offset = header >> 20 & 0xFFC
        if offset < _EXTENDED:
            break
    return ()
