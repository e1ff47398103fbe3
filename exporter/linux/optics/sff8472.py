"""SFP modules (SFF-8472): identity at I2C address A0h, digital diagnostic monitoring (DDM) at A2h.

Status and flags, bytes 110 to 117 of A2h, are not read: modules may latch them.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from exporter.linux.optics.module import (
    BIAS,
    RECEIVE_POWER,
    TEMPERATURE,
    TRANSMIT_POWER,
    VOLTAGE,
    MemoryRange,
    ModuleFamily,
    ModuleMemory,
    OpticalLane,
    OpticalModule,
    Quantity,
    parse_byte,
    parse_text,
    parse_thresholds,
)

KINDS = MappingProxyType({0x03: "SFP"})
"""By SFF-8024 identifier: SFP, SFP+ and SFP28 share one."""

_A2H = 0x51  # the 7-bit I2C address

_IDENTITY = MemoryRange(0, 68, 25)  # serial number to diagnostic monitoring type
_VENDOR = MemoryRange(0, 20, 40)  # vendor name to revision
_THRESHOLDS = MemoryRange(0, 0, 40, address=_A2H)
_CALIBRATION = MemoryRange(0, 56, 36, address=_A2H)
_MONITORS = MemoryRange(0, 96, 10, address=_A2H)

_DDM, _EXTERNALLY_CALIBRATED, _ADDRESS_CHANGE_REQUIRED = 0x40, 0x10, 0x04  # in byte 92 of A0h

_THRESHOLD_OFFSETS: Mapping[Quantity, int] = MappingProxyType(
    {
        TEMPERATURE: 0,
        VOLTAGE: 8,
        BIAS: 16,
        TRANSMIT_POWER: 24,
        RECEIVE_POWER: 32,
    }
)

_SLOPE_OFFSETS: Mapping[Quantity, int] = MappingProxyType({BIAS: 20, TRANSMIT_POWER: 24, TEMPERATURE: 28, VOLTAGE: 32})
"""Offsets of slope and offset in the calibration; that of the receive power is a polynomial, highest term first."""

_POLYNOMIAL = struct.Struct(">5f")
_SLOPE = struct.Struct(">Hh")  # 1/256, then steps of the quantity

Calibration = dict[Quantity, Callable[[int], float]]


def _monitoring_type(memory: ModuleMemory) -> int:
    """Return byte 92; 0 where diagnostics cannot be read without writing to the module (address change)."""
    flags = parse_byte(memory.get(_IDENTITY, b""), 24)
    return flags if flags & _DDM and not flags & _ADDRESS_CHANGE_REQUIRED else 0


def _static_ranges(memory: ModuleMemory) -> Sequence[MemoryRange]:
    monitoring = _monitoring_type(memory)
    ranges = [_VENDOR]
    if monitoring:
        ranges.append(_THRESHOLDS)
    if monitoring & _EXTERNALLY_CALIBRATED:
        ranges.append(_CALIBRATION)
    return ranges


def _monitor_ranges(memory: ModuleMemory) -> Sequence[MemoryRange]:
    monitoring = _monitoring_type(memory)
    is_calibrated = not monitoring & _EXTERNALLY_CALIBRATED or _parse_calibration(memory)
    return (_MONITORS,) if monitoring and is_calibrated else ()


def _parse_calibration(memory: ModuleMemory) -> Calibration:
    """Return the functions that convert raw readings of an externally calibrated module; empty if not known.

    Thresholds have the same steps as the readings, so they are converted in the same way.
    """
    data = memory.get(_CALIBRATION, b"")
    if len(data) < _CALIBRATION.length:
        return {}
    calibration: Calibration = {
        quantity: partial(_linear, *_SLOPE.unpack_from(data, offset)) for quantity, offset in _SLOPE_OFFSETS.items()
    }
    calibration[RECEIVE_POWER] = partial(_polynomial, _POLYNOMIAL.unpack_from(data))
    return calibration


def _linear(slope: int, offset: int, raw: int) -> float:
    return raw * slope / 256 + offset


def _polynomial(terms: Sequence[float], raw: int) -> float:
    value = 0.0
    for term in terms:
        value = value * raw + term
    return max(value, 0.0)  # without light, noise and offset may give a negative value


def _decode(kind: str, memory: ModuleMemory) -> OpticalModule:
    identity, vendor, monitors = memory.get(_IDENTITY, b""), memory.get(_VENDOR, b""), memory.get(_MONITORS, b"")
    if not any(monitors):  # not measured; calibration would make values of the zeros
        monitors = b""
    is_external = _monitoring_type(memory) & _EXTERNALLY_CALIBRATED
    calibration = _parse_calibration(memory) if is_external else {}
    thresholds = b"" if is_external and not calibration else memory.get(_THRESHOLDS, b"")

    def value(quantity: Quantity, offset: int) -> float | None:
        return quantity.parse(monitors, offset, calibration.get(quantity, float))

    lane = OpticalLane(1, value(RECEIVE_POWER, 8), value(TRANSMIT_POWER, 6), value(BIAS, 4))
    return OpticalModule(
        kind,
        parse_text(vendor, 0, 16),
        parse_text(vendor, 20, 36),
        parse_text(identity, 0, 16),
        parse_text(vendor, 36, 40),
        value(TEMPERATURE, 0),
        value(VOLTAGE, 2),
        (lane,) if monitors else (),
        parse_thresholds(thresholds, _THRESHOLD_OFFSETS, calibration),
    )


FAMILY = ModuleFamily(_IDENTITY, _static_ranges, _monitor_ranges, _decode)
