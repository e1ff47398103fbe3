"""CMIS modules: QSFP-DD, OSFP, and newer QSFP and SFP modules.

Layout: OIF-CMIS 5.2, lower memory and pages 00h (vendor information), 01h (advertising), 02h (thresholds) and 11h (lane
monitors). Latched flags are bytes 8 to 13 of the lower memory and 134 to 153 of page 11h.
"""

from collections.abc import Mapping, Sequence
from math import nan
from types import MappingProxyType

from exporter.linux.optics.module import (
    BIAS,
    HEADER,
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

KINDS = MappingProxyType(
    {
        0x18: "QSFP-DD",
        0x19: "OSFP",
        0x1B: "DSFP",
        0x1E: "QSFP CMIS",
        0x1F: "SFP-DD CMIS",
        0x20: "SFP CMIS",
    }
)
"""By SFF-8024 identifier."""

_MAX_LANES = MappingProxyType({"QSFP-DD": 8, "OSFP": 8, "DSFP": 2, "QSFP CMIS": 4, "SFP-DD CMIS": 2, "SFP CMIS": 1})
"""Lanes of a form factor. All are in bank 0: other banks are not read, as some drivers return bank 0 for them."""

_IDENTITY = MemoryRange(0, 166, 45)  # serial number to unsupported media lanes
_VENDOR = MemoryRange(0, 129, 37)  # vendor name to revision
_ADVERTISING = MemoryRange(1, 159, 2)
_THRESHOLDS = MemoryRange(2, 128, 72)
_STATE = MemoryRange(0, 3, 1)  # not in HEADER: in other families this byte is a latched flag
_MODULE_MONITORS = MemoryRange(0, 14, 4)  # temperature, supply voltage
_LANE_MONITORS = MemoryRange(0x11, 154, 48)

_STATES = MappingProxyType(
    {1: "low_power", 2: "powering_up", 3: "ready", 4: "powering_down", 5: "fault"}
)  # bits 1 to 3

_FLAT_MEMORY = 0x80  # in the status: page 00h only, as in a copper cable
_TEMPERATURE, _VOLTAGE = 0x01, 0x02  # advertised in byte 159
_BIAS, _TRANSMIT_POWER, _RECEIVE_POWER = 0x01, 0x02, 0x04  # in byte 160, whose bits 3 and 4 are the index of:
_BIAS_FACTORS = (1, 2, 4, nan)  # the last is reserved and gives no value

_THRESHOLD_OFFSETS: Mapping[Quantity, int] = MappingProxyType(
    {
        TEMPERATURE: 0,
        VOLTAGE: 8,
        TRANSMIT_POWER: 48,
        BIAS: 56,
        RECEIVE_POWER: 64,
    }
)


def _has_pages(memory: ModuleMemory) -> bool:
    header = memory.get(HEADER, b"")
    return len(header) == HEADER.length and not header[2] & _FLAT_MEMORY


def _static_ranges(memory: ModuleMemory) -> Sequence[MemoryRange]:
    return (_VENDOR, _ADVERTISING, _THRESHOLDS) if _has_pages(memory) else (_VENDOR,)


def _monitor_ranges(memory: ModuleMemory) -> Sequence[MemoryRange]:
    advertising = memory.get(_ADVERTISING, b"")
    ranges = [_STATE] if _has_pages(memory) else []  # a module with flat memory is always ready
    if parse_byte(advertising, 0) & (_TEMPERATURE | _VOLTAGE):
        ranges.append(_MODULE_MONITORS)
    if parse_byte(advertising, 1) & (_BIAS | _TRANSMIT_POWER | _RECEIVE_POWER):
        ranges.append(_LANE_MONITORS)
    return ranges


def _decode(kind: str, memory: ModuleMemory) -> OpticalModule:
    identity, vendor = memory.get(_IDENTITY, b""), memory.get(_VENDOR, b"")
    advertising, monitors = memory.get(_ADVERTISING, b""), memory.get(_MODULE_MONITORS, b"")
    factor = _bias_factor(advertising)
    return OpticalModule(
        kind,
        parse_text(vendor, 0, 16),
        parse_text(vendor, 19, 35),
        parse_text(identity, 0, 16),
        parse_text(vendor, 35, 37),
        TEMPERATURE.parse(monitors, 0) if parse_byte(advertising, 0) & _TEMPERATURE else None,
        VOLTAGE.parse(monitors, 2) if parse_byte(advertising, 0) & _VOLTAGE else None,
        _decode_lanes(
            kind, parse_byte(identity, 44), parse_byte(advertising, 1), memory.get(_LANE_MONITORS, b""), factor
        ),
        parse_thresholds(memory.get(_THRESHOLDS, b""), _THRESHOLD_OFFSETS, {BIAS: lambda raw: raw * factor}),
        _STATES.get(parse_byte(memory.get(_STATE, b""), 0) >> 1 & 0x07),
    )


def _bias_factor(advertising: bytes) -> float:
    """Return the multiplier of the bias and its thresholds; NaN where it is not known."""
    return _BIAS_FACTORS[advertising[1] >> 3 & 0x03] if len(advertising) > 1 else nan


def _decode_lanes(
    kind: str, unsupported: int, advertising: int, monitors: bytes, factor: float
) -> tuple[OpticalLane, ...]:
    """Decode the lanes of the form factor, without those that the module reports as unsupported."""
    if not monitors:
        return ()
    return tuple(
        OpticalLane(
            index + 1,
            RECEIVE_POWER.parse(monitors, 32 + 2 * index) if advertising & _RECEIVE_POWER else None,
            TRANSMIT_POWER.parse(monitors, 2 * index) if advertising & _TRANSMIT_POWER else None,
            BIAS.parse(monitors, 16 + 2 * index, lambda raw: raw * factor) if advertising & _BIAS else None,
        )
        for index in range(_MAX_LANES[kind])
        if not unsupported >> index & 1
    )


FAMILY = ModuleFamily(_IDENTITY, _static_ranges, _monitor_ranges, _decode)
