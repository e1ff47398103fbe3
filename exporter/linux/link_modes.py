"""The link modes of Ethernet by the kernel's numbers: what a bit of a mask of modes, or of FEC, stands for.

From enum ethtool_link_mode_bit_indices of include/uapi/linux/ethtool.h, as of Linux 6.19. Bits that name no speed
(autonegotiation, the kind of port, pause) are left out.
"""

from typing import NamedTuple


class Mode(NamedTuple):
    """A speed in Mb/s, and over how many lanes."""

    speed: int
    lanes: int


_BITS = {
    Mode(10, 1): (0, 1, 92, 99, 100, 101, 102),
    Mode(100, 1): (2, 3, 67, 90, 91),
    Mode(1_000, 1): (4, 5, 17, 41, 68),
    Mode(2_500, 1): (15, 47),
    Mode(5_000, 1): (48,),
    Mode(10_000, 1): (12, 19, 20, *range(42, 47)),
    Mode(10_000, 4): (18,),
    Mode(20_000, 2): (21, 22),
    Mode(25_000, 1): (31, 32, 33),
    Mode(40_000, 4): range(23, 27),
    Mode(50_000, 1): range(52, 57),
    Mode(50_000, 2): (34, 35, 40),
    Mode(56_000, 4): range(27, 31),
    Mode(100_000, 1): range(75, 80),
    Mode(100_000, 2): range(57, 62),
    Mode(100_000, 4): range(36, 40),
    Mode(200_000, 1): range(103, 109),
    Mode(200_000, 2): range(80, 85),
    Mode(200_000, 4): range(62, 67),
    Mode(400_000, 2): range(109, 115),
    Mode(400_000, 4): range(85, 90),
    Mode(400_000, 8): range(69, 74),
    Mode(800_000, 4): range(115, 121),
    Mode(800_000, 8): range(93, 99),
    Mode(1_600_000, 8): range(121, 125),
}

MODES = {bit: mode for mode, bits in _BITS.items() for bit in bits}
"""Bit -> what it stands for."""

KNOWN_BITS = max(MODES) + 1
"""Bits from this one on are younger than this table: any of them may be a speed, and over any number of lanes."""

FEC = {49: "none", 50: "rs", 51: "baser", 74: "llrs"}
"""Bit -> the forward error correction that it stands for."""
