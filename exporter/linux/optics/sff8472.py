"""Memory of SFP modules: identity at the address A0h, what is measured at A2h.

Layout: SFF-8472. Status and flags, bytes 110 to 117 of A2h, are left alone: modules may latch them.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial

from exporter.linux.optics.module import (
    BIAS,
    RECEIVE_POWER,
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

KINDS = {0x03: "SFP"}
"""By identifier (SFF-8024): SFP, SFP+ and SFP28 are one."""

_A2H = 0x51  # as addresses are counted without the bit for reading

_MARK = Span(0, 68, 25)  # serial number to the type of monitoring
_IDENTITY = Span(0, 20, 40)  # vendor to revision
_THRESHOLDS = Span(0, 0, 40, address=_A2H)
_CALIBRATION = Span(0, 56, 36, address=_A2H)
_VALUES = Span(0, 96, 10, address=_A2H)

_MONITORED, _EXTERNAL, _ADDRESS_CHANGE = 0x40, 0x10, 0x04  # in byte 92 of A0h

_THRESHOLD_PLACES: dict[Quantity, int] = {
    TEMPERATURE: 0,
    VOLTAGE: 8,
    BIAS: 16,
    TRANSMIT_POWER: 24,
    RECEIVE_POWER: 32,
}

_SLOPES: dict[Quantity, int] = {BIAS: 20, TRANSMIT_POWER: 24, TEMPERATURE: 28, VOLTAGE: 32}
"""Places of slope and offset in the calibration; that of the power received is a polynomial, its highest term first."""

_POLYNOMIAL = struct.Struct(">5f")
_SLOPE = struct.Struct(">Hh")  # 1/256, then steps of the quantity

Calibration = dict[Quantity, Callable[[int], float]]


def _kind_of_monitoring(pages: Pages) -> int:
    """Give byte 92; 0 where nothing can be had: what wants its address changed first would have to be written to."""
    found = byte(answered(pages, _MARK), 24)
    return found if found & _MONITORED and not found & _ADDRESS_CHANGE else 0


def _facts(pages: Pages) -> Sequence[Span]:
    monitoring = _kind_of_monitoring(pages)
    spans = [_IDENTITY]
    if monitoring:
        spans.append(_THRESHOLDS)
    if monitoring & _EXTERNAL:
        spans.append(_CALIBRATION)
    return spans


def _values(pages: Pages) -> Sequence[Span]:
    monitoring = _kind_of_monitoring(pages)
    known = not monitoring & _EXTERNAL or _calibration(pages)
    return (_VALUES,) if monitoring and known else ()


def _calibration(pages: Pages) -> Calibration:
    """Give what turns readings into values where the module leaves that to its host; empty where it does not tell.

    Thresholds are in the same steps as the readings, so they are turned in the same way.
    """
    data = answered(pages, _CALIBRATION)
    if len(data) < _CALIBRATION.length:
        return {}
    found: Calibration = {
        quantity: partial(_straight, *_SLOPE.unpack_from(data, place)) for quantity, place in _SLOPES.items()
    }
    found[RECEIVE_POWER] = partial(_polynomial, _POLYNOMIAL.unpack_from(data))
    return found


def _straight(slope: int, offset: int, raw: int) -> float:
    return raw * slope / 256 + offset


def _polynomial(terms: Sequence[float], raw: int) -> float:
    value = 0.0
    for term in terms:
        value = value * raw + term
    return max(value, 0.0)  # without light, noise and offset may come out below


def _decode(kind: str, pages: Pages) -> Module:
    mark, identity, values = answered(pages, _MARK), answered(pages, _IDENTITY), answered(pages, _VALUES)
    external = _kind_of_monitoring(pages) & _EXTERNAL
    calibration = _calibration(pages) if external else {}
    levels = b"" if external and not calibration else answered(pages, _THRESHOLDS)

    def value(quantity: Quantity, at: int) -> float | None:
        return quantity.read(values, at, calibration.get(quantity, float))

    lane = Lane(1, value(RECEIVE_POWER, 8), value(TRANSMIT_POWER, 6), value(BIAS, 4))
    return Module(
        kind,
        text(identity, 0, 16),
        text(identity, 20, 36),
        text(mark, 0, 16),
        text(identity, 36, 40),
        value(TEMPERATURE, 0),
        value(VOLTAGE, 2),
        (lane,) if values else (),
        thresholds(levels, _THRESHOLD_PLACES, calibration),
    )


FAMILY = Family(_MARK, _facts, _values, _decode)
