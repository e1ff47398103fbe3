"""Memory of QSFP modules before CMIS.

Layout: SFF-8636, lower memory and pages 00h (identity) and 03h (thresholds). Latched flags are bytes 3 to 14 of the
lower memory.
"""

from collections.abc import Sequence

from exporter.linux.optics.module import (
    BIAS,
    RECEIVE_POWER,
    START,
    TEMPERATURE,
    TRANSMIT_POWER,
    VOLTAGE,
    Family,
    Lane,
    Module,
    Pages,
    Quantity,
    Span,
    answered,
    byte,
    text,
    thresholds,
)

KINDS = {0x0C: "QSFP", 0x0D: "QSFP+", 0x11: "QSFP28"}
"""By identifier (SFF-8024)."""

_MARK = Span(0, 196, 25)  # serial number to what is monitored
_IDENTITY = Span(0, 147, 39)  # technology, vendor to revision
_THRESHOLDS = Span(3, 128, 72)
_VALUES = Span(0, 22, 36)  # temperature to the power of lane 4

_LANES = 4
_FLAT, _NOT_READY = 0x04, 0x01  # in the status
_PASSIVE = {0xA, 0xB}  # technologies: copper without electronics, which measures nothing
_TRANSMIT_POWER = 0x04  # in byte 220; its other flags are younger than many modules

_THRESHOLD_PLACES: dict[Quantity, int] = {
    TEMPERATURE: 0,
    VOLTAGE: 16,
    RECEIVE_POWER: 48,
    BIAS: 56,
    TRANSMIT_POWER: 64,
}


def _facts(pages: Pages) -> Sequence[Span]:
    start = answered(pages, START)
    return (_IDENTITY,) if byte(start, 2) & _FLAT or len(start) < 3 else (_IDENTITY, _THRESHOLDS)


def _values(pages: Pages) -> Sequence[Span]:
    passive = byte(answered(pages, _IDENTITY), 0) >> 4 in _PASSIVE
    return () if passive or byte(answered(pages, START), 2) & _NOT_READY else (_VALUES,)


def _decode(kind: str, pages: Pages) -> Module:
    mark, identity, values = answered(pages, _MARK), answered(pages, _IDENTITY), answered(pages, _VALUES)
    has_power = byte(mark, 24) & _TRANSMIT_POWER
    lanes = (
        Lane(
            place + 1,
            RECEIVE_POWER.read(values, 12 + 2 * place),
            TRANSMIT_POWER.read(values, 28 + 2 * place) if has_power else None,
            BIAS.read(values, 20 + 2 * place),
        )
        for place in range(_LANES)
    )
    return Module(
        kind,
        text(identity, 1, 17),
        text(identity, 21, 37),
        text(mark, 0, 16),
        text(identity, 37, 39),
        TEMPERATURE.read(values, 0),
        VOLTAGE.read(values, 4),
        tuple(lanes) if values else (),
        thresholds(answered(pages, _THRESHOLDS), _THRESHOLD_PLACES),
    )


FAMILY = Family(_MARK, _facts, _values, _decode)
