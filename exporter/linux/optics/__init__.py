"""Optical modules and cables: which ranges of the module memory to read (CMIS, SFF-8636, SFF-8472), and their decoding.

A module is read in three steps. HEADER contains its identifier, which selects the family. The family's `identity` range
contains the serial number, which shows whether the module was replaced; its `static_ranges` are read after that; its
`monitor_ranges` are read each time. `decode` makes an OpticalModule of all of them. Nothing raises, whatever the
memory contains and whichever ranges are missing.
"""

from collections.abc import Mapping
from types import MappingProxyType

from exporter.linux.optics import cmis, sff8472, sff8636
from exporter.linux.optics.module import (
    HEADER,
    ModuleFamily,
    ModuleMemory,
    OpticalModule,
)
from exporter.linux.optics.plausibility import drop_implausible

_FAMILIES: Mapping[int, tuple[str, ModuleFamily]] = MappingProxyType(
    {identifier: (kind, codec.FAMILY) for codec in (cmis, sff8636, sff8472) for identifier, kind in codec.KINDS.items()}
)

EMPTY_IDENTIFIERS = frozenset({0x00, 0xFF})
"""SFF-8024 identifiers of an empty cage: unspecified, and a bus that nothing drives."""


def family_of(header: bytes) -> ModuleFamily | None:
    """Return the family of a module by its HEADER; None if its memory map is not supported."""
    found = _FAMILIES.get(header[0]) if header else None
    return found[1] if found else None


def decode(memory: ModuleMemory) -> OpticalModule | None:
    """Decode the ranges that were read; None where HEADER shows that there is no module."""
    header = memory.get(HEADER, b"")
    if not header or header[0] in EMPTY_IDENTIFIERS:
        return None
    found = _FAMILIES.get(header[0])
    if found is None:
        return OpticalModule(f"{header[0]:#04x}")
    kind, family = found
    return drop_implausible(family.decode(kind, memory))
