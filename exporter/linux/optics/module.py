"""Optical modules: ranges of their memory, the quantities that they monitor, and the decoded module.

The memory of a module is read in ranges, each by one request to the kernel. No range contains latched flags: reading
clears them, so that other readers would miss alarms.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple, TypeAlias


class MemoryRange(NamedTuple):
    """Bytes of one request: at most 128, all of the lower memory (below 128) or all of the upper page."""

    page: int
    offset: int
    length: int
    bank: int = 0
    address: int = 0x50

    def __str__(self) -> str:
        """Return the range as text for errors."""
        last = self.offset + self.length - 1
        return f"address {self.address:#x}, page {self.page:02x}h, bytes {self.offset} to {last}"


ModuleMemory: TypeAlias = Mapping[MemoryRange, bytes]
"""The ranges that were read. One that failed is missing, and one may be short; what it lacks is decoded as None."""

HEADER = MemoryRange(0, 0, 3)
"""Identifier, revision and status: at the same offset in all families."""


class ThresholdLevels(NamedTuple):
    """Alarm and warning thresholds that the module sets for a quantity, in its unit and in the order of its memory."""

    high_alarm: float
    low_alarm: float
    high_warning: float
    low_warning: float


@dataclass(frozen=True, slots=True)
class Quantity:
    """A monitored quantity: a big-endian word of 16 bits.

    Attributes:
        name: Name and unit, as the fields of `OpticalModule` and `OpticalLane` have it.
        divisor: Steps of the word in one unit.
        minimum: Lowest value that a working module can measure, in the unit.
        maximum: Highest value, likewise.
        signed: Whether the word is signed.
    """

    name: str
    divisor: int
    minimum: float
    maximum: float
    signed: bool = False

    def parse(self, data: bytes, offset: int, calibrate: Callable[[int], float] = float) -> float | None:
        """Parse a value; None if the data is too short or calibration gives NaN or infinity."""
        word = data[offset : offset + 2]
        if len(word) < 2:
            return None
        value = calibrate(int.from_bytes(word, "big", signed=self.signed)) / self.divisor
        return value if isfinite(value) else None

    def parse_levels(
        self, data: bytes, offset: int, calibrate: Callable[[int], float] = float
    ) -> ThresholdLevels | None:
        """Parse the thresholds; None where all are zero: the module does not set them."""
        found = [value for place in range(4) if (value := self.parse(data, offset + 2 * place, calibrate)) is not None]
        if len(found) < 4 or not any(data[offset : offset + 8]):
            return None
        return ThresholdLevels(*found)

    def is_plausible(self, value: float) -> bool:
        """Return whether a working module can measure this value."""
        return self.minimum <= value <= self.maximum


TEMPERATURE = Quantity("temperature_celsius", 256, -40.0, 125.0, signed=True)
VOLTAGE = Quantity("voltage_volts", 10_000, 2.0, 4.5)
RECEIVE_POWER = Quantity("receive_power_watts", 10_000_000, 0.0, 0.02)
TRANSMIT_POWER = Quantity("transmit_power_watts", 10_000_000, 0.0, 0.02)
BIAS = Quantity("bias_amperes", 500_000, 0.0, 0.6)

QUANTITIES = (TEMPERATURE, VOLTAGE, RECEIVE_POWER, TRANSMIT_POWER, BIAS)
LANE_QUANTITIES = (RECEIVE_POWER, TRANSMIT_POWER, BIAS)


@dataclass(frozen=True, slots=True)
class OpticalLane:
    """One media lane, from 1; None for what the module does not monitor. No light is 0 W."""

    number: int
    receive_power_watts: float | None = None
    transmit_power_watts: float | None = None
    bias_amperes: float | None = None


@dataclass(frozen=True, slots=True)
class OpticalModule:
    """One module as it was read.

    Attributes:
        kind: `QSFP28`, `OSFP` …; the SFF-8024 identifier in hexadecimal for one whose memory map is not supported.
        vendor: Vendor name.
        part: Vendor part number.
        serial: Vendor serial number.
        revision: Vendor revision.
        temperature_celsius: Case temperature; None where it is not monitored, as for all that follow.
        voltage_volts: Supply voltage, nominally 3.3.
        lanes: The lanes in use.
        thresholds: By the name of their quantity.
        state: CMIS module state: ready, fault …; None for other families.
        implausible: Descriptions of implausible values, which were dropped.
    """

    kind: str
    vendor: str = ""
    part: str = ""
    serial: str = ""
    revision: str = ""
    temperature_celsius: float | None = None
    voltage_volts: float | None = None
    lanes: tuple[OpticalLane, ...] = ()
    thresholds: Mapping[str, ThresholdLevels] = field(default_factory=dict)
    state: str | None = None
    implausible: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleFamily:
    """The modules of one management interface, and how they are read.

    Attributes:
        identity: Range with the serial number, read each time with HEADER; it differs from module to module.
        static_ranges: Ranges that never change in a module, derived from HEADER and `identity`.
        monitor_ranges: Ranges that change all the time, derived from all of those.
        decode: Decodes a module, given its kind and the ranges that were read.
    """

    identity: MemoryRange
    static_ranges: Callable[[ModuleMemory], Sequence[MemoryRange]]
    monitor_ranges: Callable[[ModuleMemory], Sequence[MemoryRange]]
    decode: Callable[[str, ModuleMemory], OpticalModule]


def parse_byte(data: bytes, offset: int) -> int:
    """Parse a byte of flags; 0, no flag set, if the data is too short."""
    return data[offset] if offset < len(data) else 0


def parse_text(data: bytes, start: int, stop: int) -> str:
    """Parse text, padded with blanks or not set at all; it may contain any byte."""
    return data[start:stop].strip(b" \0\xff").decode("ascii", "surrogateescape")


def parse_thresholds(
    data: bytes, offsets: Mapping[Quantity, int], calibrate: Mapping[Quantity, Callable[[int], float]] | None = None
) -> dict[str, ThresholdLevels]:
    """Parse the thresholds of the quantities at these offsets, by name."""
    found = {
        quantity.name: quantity.parse_levels(data, offset, (calibrate or {}).get(quantity, float))
        for quantity, offset in offsets.items()
    }
    return {name: levels for name, levels in found.items() if levels is not None}
