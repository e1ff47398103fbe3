"""What the management interfaces of modules share: spans of memory, quantities and their levels, what is believed.

A module's memory is read in spans, each by one request to the kernel. No codec names a span that holds latched flags:
those are cleared by whoever reads them, and another reader would miss its alarms.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import NamedTuple, TypeAlias


class Span(NamedTuple):
    """Bytes that one request asks for: at most 128, all below 128 or none; from 128 on they are those of the page."""

    page: int
    offset: int
    length: int
    bank: int = 0
    address: int = 0x50

    def __str__(self) -> str:
        """Name the place."""
        last = self.offset + self.length - 1
        return f"address {self.address:#x}, page {self.page:02x}h, bytes {self.offset} to {last}"


Pages: TypeAlias = Mapping[Span, bytes]
"""What was answered. A span that could not be had is missing, and an answer may be short: what is not there is None."""

START = Span(0, 0, 3)
"""Identifier, revision and status: the same place in every module."""

_NO_BYTES = b""


class Levels(NamedTuple):
    """Thresholds that the module itself sets for a quantity, in its unit and in the order of its memory."""

    high_alarm: float
    low_alarm: float
    high_warning: float
    low_warning: float


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that modules measure, as a big-endian word of 16 bits.

    Attributes:
        name: What it is and its unit, as the fields of `Module` and `Lane` have it.
        divisor: Steps of the word in one unit.
        lowest: What a module that works can measure at least, in the unit.
        highest: The same at most.
        signed: Whether the word is.
    """

    name: str
    divisor: int
    lowest: float
    highest: float
    signed: bool = False

    def read(self, data: bytes, at: int, calibrate: Callable[[int], float] = float) -> float | None:
        """Read a value; None where the data ends before it, or calibration gives no number."""
        word = data[at : at + 2]
        if len(word) < 2:
            return None
        value = calibrate(int.from_bytes(word, "big", signed=self.signed)) / self.divisor
        return value if isfinite(value) else None

    def levels(self, data: bytes, at: int, calibrate: Callable[[int], float] = float) -> Levels | None:
        """Read the thresholds; None where there are none: all are zero where a module does not set them."""
        found = [value for place in range(4) if (value := self.read(data, at + 2 * place, calibrate)) is not None]
        if len(found) < 4 or not any(data[at : at + 8]):
            return None
        return Levels(*found)

    def believes(self, value: float) -> bool:
        """Tell whether a module that works can measure this."""
        return self.lowest <= value <= self.highest


TEMPERATURE = Quantity("temperature_celsius", 256, -40.0, 125.0, signed=True)
VOLTAGE = Quantity("voltage_volts", 10_000, 2.0, 4.5)
RECEIVE_POWER = Quantity("receive_power_watts", 10_000_000, 0.0, 0.02)
TRANSMIT_POWER = Quantity("transmit_power_watts", 10_000_000, 0.0, 0.02)
BIAS = Quantity("bias_amperes", 500_000, 0.0, 0.6)

QUANTITIES = (TEMPERATURE, VOLTAGE, RECEIVE_POWER, TRANSMIT_POWER, BIAS)
OF_LANES = (RECEIVE_POWER, TRANSMIT_POWER, BIAS)

HIGHEST = {quantity.name: quantity.highest for quantity in QUANTITIES}

WILD = 10
"""Times what can be measured that a threshold may be: makers who want no alarm set one that is never reached."""

DARK = 1e-7
"""Watts that still are no light: the smallest step, which many modules report with the laser off."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane of the fibre's side, from 1; None for what the module does not measure. No light is 0 W."""

    number: int
    receive_power_watts: float | None = None
    transmit_power_watts: float | None = None
    bias_amperes: float | None = None


@dataclass(frozen=True, slots=True)
class Module:
    """One module as it is now.

    Attributes:
        kind: `QSFP28`, `OSFP` …; its identifier in hexadecimal for one whose memory is not known here.
        vendor: Who made it, in its own words, as are the three that follow.
        part: Part number.
        serial: Serial number.
        revision: Revision of the part.
        temperature_celsius: Inside the case; None where it is not measured, as for all that follow.
        voltage_volts: Supply, nominally 3.3.
        lanes: Those that are in use.
        thresholds: By the name of their quantity.
        state: What it is doing, in a word: ready, fault …; None where its kind does not tell.
        doubts: What it says that cannot be true, and is therefore left out.
    """

    kind: str
    vendor: str = ""
    part: str = ""
    serial: str = ""
    revision: str = ""
    temperature_celsius: float | None = None
    voltage_volts: float | None = None
    lanes: tuple[Lane, ...] = ()
    thresholds: Mapping[str, Levels] = field(default_factory=dict)
    state: str | None = None
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """How modules of one management interface are read.

    Attributes:
        mark: What tells one module from the next, asked at each read with START.
        facts: What else never changes in a module, told from START.
        values: What changes all the time, told from all of those.
        decode: Makes a module of its kind and of all that was answered.
    """

    mark: Span
    facts: Callable[[Pages], Sequence[Span]]
    values: Callable[[Pages], Sequence[Span]]
    decode: Callable[[str, Pages], Module]


def answered(pages: Pages, span: Span) -> bytes:
    """Give an answer; empty where there is none."""
    return pages.get(span, _NO_BYTES)


def byte(data: bytes, at: int) -> int:
    """Read a byte of flags; 0, which claims nothing, where the data ends before it."""
    return data[at] if at < len(data) else 0


def text(data: bytes, start: int, stop: int) -> str:
    """Read a text, padded with blanks or not set at all; any byte is possible in it."""
    return data[start:stop].strip(b" \0\xff").decode("ascii", "surrogateescape")


def thresholds(
    data: bytes, places: Mapping[Quantity, int], calibrate: Mapping[Quantity, Callable[[int], float]] | None = None
) -> dict[str, Levels]:
    """Read the thresholds of quantities at their places."""
    found = {
        quantity.name: quantity.levels(data, at, (calibrate or {}).get(quantity, float))
        for quantity, at in places.items()
    }
    return {name: levels for name, levels in found.items() if levels is not None}


def believed(module: Module) -> Module:
    """Leave out what is not measured, and what cannot be true.

    Some drivers give bytes from the wrong place. A temperature or a voltage that cannot be is the sign of it: nothing
    that was measured is believed then. A threshold is doubted for itself, as makers set many with little care.
    """
    module = _measured(module)
    doubts = [
        f"{quantity.name}, {value:g}, is not within {quantity.lowest:g} to {quantity.highest:g}"
        for quantity in (TEMPERATURE, VOLTAGE)
        if (value := getattr(module, quantity.name)) is not None and not quantity.believes(value)
    ]
    if doubts:
        bare = Module(module.kind, module.vendor, module.part, module.serial, module.revision)
        return replace(bare, doubts=tuple(doubts))
    lanes = tuple(_believed_lane(lane, doubts) for lane in module.lanes)
    levels = dict(module.thresholds)
    for name, found in module.thresholds.items():
        if found.low_alarm >= found.high_alarm:
            doubts.append(f"the low alarm of {name}, {found.low_alarm:g}, is not below its high, {found.high_alarm:g}")
            del levels[name]
        elif max(map(abs, found)) > WILD * HIGHEST[name]:
            doubts.append(f"a threshold of {name}, {max(found, key=abs):g}, is beyond all that a module can measure")
            del levels[name]
    return replace(module, lanes=used(lanes), thresholds=levels, doubts=tuple(doubts))


def used(lanes: tuple[Lane, ...]) -> tuple[Lane, ...]:
    """Leave out lanes that are dark in every way beside others that are lit: half of a cage that a module fills half.

    A lane with current and no light is in use and has a fault. Where all are dark, all stay: the lasers are off.
    """
    lit = tuple(lane for lane in lanes if not _dark(lane))
    return lit or lanes


def _dark(lane: Lane) -> bool:
    """Tell whether a lane has no current and no light; one whose current is not measured is never called dark."""
    light = max(lane.receive_power_watts or 0.0, lane.transmit_power_watts or 0.0)
    return lane.bias_amperes == 0 and light <= DARK


def _measured(module: Module) -> Module:
    """Take 0 V for what it is in a module that answers: not measured; with 0 degrees and dark lanes, nothing is."""
    if module.voltage_volts != 0:
        return module
    lit = any(getattr(lane, quantity.name) for lane in module.lanes for quantity in OF_LANES)
    if module.temperature_celsius or lit:
        return replace(module, voltage_volts=None)
    return replace(module, temperature_celsius=None, voltage_volts=None, lanes=())


def _believed_lane(lane: Lane, doubts: list[str]) -> Lane:
    """Leave out what a lane cannot have measured."""
    values: list[float | None] = []
    for quantity in OF_LANES:
        value = getattr(lane, quantity.name)
        if value is not None and not quantity.believes(value):
            doubts.append(f"{quantity.name} of lane {lane.number}, {value:g}, is not within 0 to {quantity.highest:g}")
            value = None
        values.append(value)
    return Lane(lane.number, *values)
