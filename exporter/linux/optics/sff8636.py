"""QSFP modules before CMIS (SFF-8636): lower memory and pages 00h (identity) and 03h (thresholds).

Latched flags are bytes 3 to 14 of the lower memory.
"""

from collections.abc import Mapping, Sequence
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

KINDS = MappingProxyType({0x0C: "QSFP", 0x0D: "QSFP+", 0x11: "QSFP28"})
"""By SFF-8024 identifier."""

_IDENTITY = MemoryRange(0, 196, 25)  # serial number to diagnostic monitoring type
_VENDOR = MemoryRange(0, 147, 39)  # device technology, vendor name to revision
_THRESHOLDS = MemoryRange(3, 128, 72)
_MONITORS = MemoryRange(0, 22, 36)  # temperature to the transmit power of lane 4

_LANES = 4
_FLAT_MEMORY, _DATA_NOT_READY = 0x04, 0x01  # in the status
_PASSIVE_COPPER = frozenset({0xA, 0xB})  # device technologies without monitors
_TRANSMIT_POWER = 0x04  # in byte 220; its other flags are newer than many modules

_THRESHOLD_OFFSETS: Mapping[Quantity, int] = MappingProxyType(
    {
        TEMPERATURE: 0,
        VOLTAGE: 16,
        RECEIVE_POWER: 48,
        BIAS: 56,
        TRANSMIT_POWER: 64,
    }
)


def _static_ranges(memory: ModuleMemory) -> Sequence[MemoryRange]:
    header = memory.get(HEADER, b"")
    return (_VENDOR,) if parse_byte(header, 2) & _FLAT_MEMORY or len(header) < 3 else (_VENDOR, _THRESHOLDS)


def _monitor_ranges(memory: ModuleMemory) -> Sequence[MemoryRange]:
    is_passive = parse_byte(memory.get(_VENDOR, b""), 0) >> 4 in _PASSIVE_COPPER
    return () if is_passive or parse_byte(memory.get(HEADER, b""), 2) & _DATA_NOT_READY else (_MONITORS,)


def _decode(kind: str, memory: ModuleMemory) -> OpticalModule:
    identity, vendor, monitors = memory.get(_IDENTITY, b""), memory.get(_VENDOR, b""), memory.get(_MONITORS, b"")
    has_transmit_power = parse_byte(identity, 24) & _TRANSMIT_POWER
    lanes = (
        OpticalLane(
            index + 1,
            RECEIVE_POWER.parse(monitors, 12 + 2 * index),
            TRANSMIT_POWER.parse(monitors, 28 + 2 * index) if has_transmit_power else None,
            BIAS.parse(monitors, 20 + 2 * index),
        )
        for index in range(_LANES)
    )
    return OpticalModule(
        kind,
        parse_text(vendor, 1, 17),
        parse_text(vendor, 21, 37),
        parse_text(identity, 0, 16),
        parse_text(vendor, 37, 39),
        TEMPERATURE.parse(monitors, 0),
        VOLTAGE.parse(monitors, 4),
        tuple(lanes) if monitors else (),
        parse_thresholds(memory.get(_THRESHOLDS, b""), _THRESHOLD_OFFSETS),
    )


FAMILY = ModuleFamily(_IDENTITY, _static_ranges, _monitor_ranges, _decode)
