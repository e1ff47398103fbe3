"""Codecs for the memory of optical modules and cables: which spans are to be asked for, and what the answers mean.

A module is read in three steps. START tells its family. The family's `mark` tells whether it is the one that was there
before; its `facts` are asked for where it is not; its `values` are asked for each time. `decode` then makes a Module of
all the answers. Whatever they hold, and whatever is missing among them, nothing is raised.
"""

from exporter.linux.optics import cmis, sff8472, sff8636
from exporter.linux.optics.module import (
    START,
    Family,
    Module,
    Pages,
    answered,
    believed,
)

_FAMILIES: dict[int, tuple[str, Family]] = {
    identifier: (kind, codec.FAMILY) for codec in (cmis, sff8636, sff8472) for identifier, kind in codec.KINDS.items()
}

NOTHING = {0x00, 0xFF}
"""Identifiers of an empty cage, or of lines that nobody drives."""


def family_of(start: bytes) -> Family | None:
    """Give how the module is read whose memory begins so; None for one whose memory is not known here."""
    found = _FAMILIES.get(start[0]) if start else None
    return found[1] if found else None


def decode(pages: Pages) -> Module | None:
    """Make a module of all that was answered; None where START tells that there is none."""
    start = answered(pages, START)
    if not start or start[0] in NOTHING:
        return None
    found = _FAMILIES.get(start[0])
    if found is None:
        return Module(f"{start[0]:#04x}")
    kind, family = found
    return believed(family.decode(kind, pages))
