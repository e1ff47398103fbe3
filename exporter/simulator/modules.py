"""The memory of a simulated optical module: an OSFP of four lanes with CMIS (OIF-CMIS 5.2).

It consists of halves of 128 bytes, as in a recording of a NIC. Latched flags are not included, as in the recording of a
real module: reading them would clear them.
"""

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

VENDOR, PART = "SIMULATED OPTICS", "SIM-OSFP-400-DR4"
"""At most 16 characters each."""

LANES = 4

CELSIUS, VOLT, WATT, AMPERE = 256, 10_000, 10_000_000, 500_000
"""Units of a register per unit of measurement."""

BIAS_FACTOR = 2
"""Multiplier of the bias current, as page 01h states it."""

RECEIVE_POWER_LEVELS = (3.2e-3, 0.1e-3, 2.5e-3, 0.2e-3)
"""Received power in watts: high alarm, low alarm, high warning, low warning."""

_LEVELS = (
    (128, ">4h", CELSIUS, (80.0, -10.0, 75.0, -5.0)),
    (136, ">4H", VOLT, (3.63, 2.97, 3.46, 3.13)),
    (176, ">4H", WATT, (4.0e-3, 0.3e-3, 3.2e-3, 0.4e-3)),
    (184, ">4H", AMPERE / BIAS_FACTOR, (0.130, 0.030, 0.120, 0.040)),
    (192, ">4H", WATT, RECEIVE_POWER_LEVELS),
)
"""Thresholds on page 02h: temperature, supply voltage, transmitted power, bias current, received power."""

_LATCHED = MappingProxyType({"lower": range(8, 14), "page_11h_bank_0": range(134 - 128, 154 - 128)})


class LaneReadings(NamedTuple):
    """Readings of a lane: received and transmitted power in watts, bias current in amperes."""

    received: float
    transmitted: float
    bias: float


def memory(serial: str, temperature: float, supply: float, lanes: Sequence[LaneReadings]) -> dict[str, str]:
    """Return the memory of a module, by half.

    Args:
        serial: Serial number, at most 16 characters.
        temperature: Degrees Celsius.
        supply: Supply voltage in volts.
        lanes: Readings of the `LANES` media lanes.
    """
    halves = {
        "lower": _lower(temperature, supply),
        "page_00h": _identity(serial),
        "page_01h": _half({159: b"\x03", 160: bytes([0x07 | 1 << 3])}, checked=(130, 255)),  # 1: the factor is 2
        "page_02h": _half(
            {at: struct.pack(form, *(round(level * steps) for level in levels)) for at, form, steps, levels in _LEVELS},
            checked=(128, 255),
        ),
        "page_11h_bank_0": _lanes(lanes),
    }
    return {key: _text(half, _LATCHED.get(key, ())) for key, half in halves.items()}


def _lower(temperature: float, supply: float) -> bytes:
    """Return the lower memory: OSFP, CMIS 5.2, paged, ready; one application, 400GAUI-4 to 400GBASE-DR4."""
    values = {
        0: b"\x19\x52\x00\x07",
        14: struct.pack(">hH", round(temperature * CELSIUS), round(supply * VOLT)),
        39: b"\x01\x04",
        85: b"\x02\x4f\x1c\x44\x01\xff",
    }
    return _half(values, start=0)


def _identity(serial: str) -> bytes:
    """Return page 00h: vendor, part, 12 W, MPO connector, lanes 5 to 8 not implemented, 1310 nm lasers."""
    values = {
        128: b"\x19",
        129: _pad(VENDOR, 16),
        148: _pad(PART, 16),
        164: b"A1",
        166: _pad(serial, 16),
        182: _pad("250301", 8),
        200: b"\xc0\x30\x00\x0c",
        210: b"\xf0",
        212: b"\x06",
    }
    return _half(values, checked=(128, 222))


def _lanes(lanes: Sequence[LaneReadings]) -> bytes:
    """Return page 11h: activated data paths, and the readings of each lane."""
    words = f">{len(lanes)}H"
    values = {
        128: b"\x44\x44\x00\x00\x0f\x0f",
        154: struct.pack(words, *(round(lane.transmitted * WATT) for lane in lanes)),
        170: struct.pack(words, *(round(lane.bias * AMPERE / BIAS_FACTOR) for lane in lanes)),
        186: struct.pack(words, *(round(lane.received * WATT) for lane in lanes)),
    }
    return _half(values)


def _half(values: Mapping[int, bytes], *, start: int = 128, checked: tuple[int, int] | None = None) -> bytes:
    """Return a half with bytes at their addresses; `checked` is the first address of the checksum, and its own."""
    half = bytearray(128)
    for at, data in values.items():
        half[at - start : at - start + len(data)] = data
    if checked is not None:
        first, at = checked
        half[at - start] = sum(half[first - start : at - start]) % 256
    return bytes(half)


def _pad(text: str, length: int) -> bytes:
    return text.encode("ascii").ljust(length)


def _text(half: bytes, latched: Sequence[int]) -> str:
    """Return bytes as in a recording, with dots for those that are not included."""
    return " ".join(".." if place in latched else f"{byte:02x}" for place, byte in enumerate(half))
