"""Module memory for tests: encoded after the standards, and read with the restrictions of the kernel.

It rejects the ranges that the kernel rejects, and latched flags, which reading would clear.
"""

import errno
import os

from exporter.linux import optics
from exporter.linux.optics.module import HEADER

CMIS = {"flags": [(0x50, None, range(8, 14)), (0x50, 0x11, range(134, 154))]}
SFF8636 = {"flags": [(0x50, None, range(3, 15))]}
SFF8472 = {"flags": [(0x51, None, range(110, 118))]}
FAMILIES = {0x03: SFF8472} | dict.fromkeys((0x0C, 0x0D, 0x11), SFF8636)
FAMILIES |= dict.fromkeys((0x18, 0x19, 0x1B, 0x1E, 0x1F, 0x20), CMIS)


class FakeModuleMemory:
    """The memory of one module: the lower half at an address, and the upper half of each page."""

    def __init__(self, identifier=0):
        self.parts = {}
        self.refused = {}
        """Errno of requests for a page, by address and page."""
        self.asked = []
        self.put(0, 0, bytes([identifier]))

    def put(self, page, offset, data, address=0x50):
        """Write bytes; those below 128 are in the lower memory of all pages."""
        part = self.parts.setdefault((address, page if offset >= 128 else None), bytearray(256))
        part[offset : offset + len(data)] = data
        return self

    def word(self, page, offset, value, address=0x50):
        return self.put(page, offset, (round(value) & 0xFFFF).to_bytes(2, "big"), address)

    def words(self, page, offset, values, address=0x50):
        for place, value in enumerate(values):
            self.word(page, offset + 2 * place, value, address)
        return self

    def text(self, page, offset, length, value, address=0x50):
        return self.put(page, offset, value.encode().ljust(length), address)

    def read(self, *, page, bank, offset, length, address=0x50):
        self.asked.append((address, page, offset, length))
        end = offset + length
        assert 0 < length <= 128
        assert (offset < 128) == (end <= 128)
        assert end <= 256
        assert page == 0 or offset >= 128
        assert bank == 0, "some drivers return bank 0 for others"
        upper = page if offset >= 128 else None
        for where, flags_page, flags in FAMILIES.get(self.parts[0x50, None][0], {"flags": []})["flags"]:
            assert (where, flags_page) != (address, upper) or not set(flags) & set(range(offset, end)), "clears flags"
        number = self.refused.get((address, upper))
        if (address, upper) not in self.parts:
            number = number or errno.EINVAL
        if number:
            raise OSError(number, os.strerror(number))
        return bytes(self.parts[address, upper][offset:end])

    def module(self):
        """Read all ranges, and decode the module."""
        pages = {}

        def read_ranges(ranges):
            for span in ranges:
                try:
                    page, offset, length, bank, address = span
                    pages[span] = self.read(page=page, bank=bank, offset=offset, length=length, address=address)
                except OSError:
                    continue

        read_ranges([HEADER])
        family = optics.family_of(pages[HEADER])
        if family is not None:
            read_ranges([family.identity])
            read_ranges(family.static_ranges(pages))
            read_ranges(family.monitor_ranges(pages))
        return optics.decode(pages)


POWER, BIAS, VOLTAGE, TEMPERATURE = 1e7, 5e5, 1e4, 256
"""Steps in a watt, an ampere, a volt and a degree."""


def sff8636(identifier=0x11):
    """Return a QSFP28: identity, four lanes and thresholds."""
    memory = FakeModuleMemory(identifier)
    memory.put(0, 147, b"\x40").text(0, 148, 16, "EXAMPLE OPTICS").text(0, 168, 16, "EX-100G-CWDM4").text(
        0, 184, 2, "A0"
    )
    memory.text(0, 196, 16, "EX0000000001").put(0, 220, b"\x0c")
    memory.word(0, 22, 33.5 * TEMPERATURE).word(0, 26, 3.25 * VOLTAGE)
    memory.words(0, 34, [1e-3 * POWER, 0.9e-3 * POWER, 0.8e-3 * POWER, 0.7e-3 * POWER])
    memory.words(0, 42, [42e-3 * BIAS, 41e-3 * BIAS, 40e-3 * BIAS, 39e-3 * BIAS])
    memory.words(0, 50, [1.1e-3 * POWER, 1.2e-3 * POWER, 1.3e-3 * POWER, 1.4e-3 * POWER])
    memory.words(3, 128, [level * TEMPERATURE for level in (75, -5, 70, 0)])
    memory.words(3, 144, [level * VOLTAGE for level in (3.63, 2.97, 3.465, 3.135)])
    memory.words(3, 176, [level * POWER for level in (2e-3, 25e-6, 1.7e-3, 63e-6)])
    memory.words(3, 184, [level * BIAS for level in (55e-3, 25e-3, 50e-3, 30e-3)])
    memory.words(3, 192, [level * POWER for level in (3.5e-3, 158e-6, 1.8e-3, 400e-6)])
    return memory


def cmis(identifier=0x18, lanes=8, factor=1):
    """Return a CMIS module; `lanes` are lit."""
    memory = FakeModuleMemory(identifier)
    memory.put(0, 1, b"\x52\x00\x07").text(0, 129, 16, "EXAMPLE OPTICS").text(0, 148, 16, "EX-400G-DR4")
    memory.text(0, 164, 2, "B1").text(0, 166, 16, "EX0000000002").text(0, 182, 8, "260101")
    memory.put(1, 159, bytes([0x03, 0x07 | {1: 0, 2: 1, 4: 2}[factor] << 3]))
    memory.word(0, 14, -1.5 * TEMPERATURE).word(0, 16, 3.3 * VOLTAGE)
    memory.words(0x11, 154, [(1 + lane / 10) * 1e-3 * POWER for lane in range(lanes)])
    memory.words(0x11, 170, [(50 + lane) * 1e-3 * BIAS / factor for lane in range(lanes)])
    memory.words(0x11, 186, [(2 + lane / 10) * 1e-3 * POWER for lane in range(lanes)])
    memory.words(2, 128, [level * TEMPERATURE for level in (80, -10, 75, -5)])
    memory.words(2, 136, [level * VOLTAGE for level in (3.6, 3.0, 3.5, 3.1)])
    memory.words(2, 176, [level * POWER for level in (4e-3, 0.2e-3, 3e-3, 0.4e-3)])
    memory.words(2, 184, [level * BIAS / factor for level in (0.1, 0.02, 0.09, 0.03)])
    memory.words(2, 192, [level * POWER for level in (5e-3, 0.1e-3, 4.5e-3, 0.3e-3)])
    return memory


def sff8472(monitoring=0x60):
    """Return an SFP; `monitoring` is byte 92."""
    memory = FakeModuleMemory(0x03)
    memory.text(0, 20, 16, "EXAMPLE").text(0, 40, 16, "EX-10G-SR").text(0, 56, 4, "A").text(0, 68, 16, "EX0000000003")
    memory.put(0, 92, bytes([monitoring]))
    memory.words(0, 96, [40 * 256, 3.3 * VOLTAGE, 6e-3 * BIAS, 0.6e-3 * POWER, 0.5e-3 * POWER], 0x51)
    memory.words(0, 0, [level * TEMPERATURE for level in (80, -10, 70, 0)], 0x51)
    memory.words(0, 8, [level * VOLTAGE for level in (3.6, 3.0, 3.5, 3.1)], 0x51)
    memory.words(0, 16, [level * BIAS for level in (15e-3, 2e-3, 12e-3, 3e-3)], 0x51)
    memory.words(0, 24, [level * POWER for level in (1.5e-3, 0.1e-3, 1e-3, 0.2e-3)], 0x51)
    memory.words(0, 32, [level * POWER for level in (1.6e-3, 0.04e-3, 1.1e-3, 0.06e-3)], 0x51)
    return memory
