"""Ethernet link modes by ETHTOOL_LINK_MODE bit: speed and lanes of each, and the FEC modes.

From enum ethtool_link_mode_bit_indices of include/uapi/linux/ethtool.h, as of Linux 6.19. Bits without a speed
(autonegotiation, port type, pause) are omitted.
"""

from types import MappingProxyType
from typing import NamedTuple


class LinkMode(NamedTuple):
    """Speed in Mb/s, and number of lanes."""

    speed: int
    lanes: int


_BITS = MappingProxyType(
    {
        LinkMode(10, 1): (0, 1, 92, 99, 100, 101, 102),
        LinkMode(100, 1): (2, 3, 67, 90, 91),
        LinkMode(1_000, 1): (4, 5, 17, 41, 68),
        LinkMode(2_500, 1): (15, 47),
        LinkMode(5_000, 1): (48,),
        LinkMode(10_000, 1): (12, 19, 20, *range(42, 47)),
        LinkMode(10_000, 4): (18,),
        LinkMode(20_000, 2): (21, 22),
        LinkMode(25_000, 1): (31, 32, 33),
        LinkMode(40_000, 4): range(23, 27),
        LinkMode(50_000, 1): range(52, 57),
        LinkMode(50_000, 2): (34, 35, 40),
        LinkMode(56_000, 4): range(27, 31),
        LinkMode(100_000, 1): range(75, 80),
        LinkMode(100_000, 2): range(57, 62),
        LinkMode(100_000, 4): range(36, 40),
        LinkMode(200_000, 1): range(103, 109),
        LinkMode(200_000, 2): range(80, 85),
        LinkMode(200_000, 4): range(62, 67),
        LinkMode(400_000, 2): range(109, 115),
        LinkMode(400_000, 4): range(85, 90),
        LinkMode(400_000, 8): range(69, 74),
        LinkMode(800_000, 4): range(115, 121),
        LinkMode(800_000, 8): range(93, 99),
        LinkMode(1_600_000, 8): range(121, 125),
    }
)

MODES = MappingProxyType({bit: mode for mode, bits in _BITS.items() for bit in bits})
"""Bit -> link mode."""

KNOWN_BITS = max(MODES) + 1
"""Bits from this one on are newer than this table: any of them may be a speed, over any number of lanes."""

FEC = MappingProxyType({49: "none", 50: "rs", 51: "baser", 74: "llrs"})
"""Bit -> FEC mode."""
