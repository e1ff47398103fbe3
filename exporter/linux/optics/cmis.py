"""Memory of modules that speak CMIS: QSFP-DD, OSFP and the newer of the smaller ones.

Layout: OIF-CMIS 5.2, lower memory and pages 00h (identity), 01h (what is supported), 02h (thresholds) and 11h (lanes).
Latched flags are bytes 8 to 13 of the lower memory and 134 to 153 of page 11h.
"""

from collections.abc import Sequence
from math import nan

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

KINDS = {
    0x18: "QSFP-DD",
    0x19: "OSFP",
    0x1B: "DSFP",
    0x1E: "QSFP CMIS",
    0x1F: "SFP-DD CMIS",
    0x20: "SFP CMIS",
}
"""By identifier (SFF-8024)."""

_LANES = {"QSFP-DD": 8, "OSFP": 8, "DSFP": 2, "QSFP CMIS": 4, "SFP-DD CMIS": 2, "SFP CMIS": 1}
"""Lanes of a cage. All are in bank 0: no other is read, as some drivers give bank 0 again for the next."""

_MARK = Span(0, 166, 45)  # serial number to media lanes
_IDENTITY = Span(0, 129, 37)  # vendor to revision
_ADVERTISED = Span(1, 159, 2)
_THRESHOLDS = Span(2, 128, 72)
_STATE = Span(0, 3, 1)  # no part of START: in other families that byte is a latched flag
_MODULE = Span(0, 14, 4)  # temperature, supply
_MONITORS = Span(0x11, 154, 48)

_STATES = {1: "low_power", 2: "powering_up", 3: "ready", 4: "powering_down", 5: "fault"}  # bits 1 to 3

_FLAT = 0x80  # in the status: there are no pages but 00h, as in a copper cable
_TEMPERATURE, _VOLTAGE = 0x01, 0x02  # advertised in byte 159
_BIAS, _TRANSMIT_POWER, _RECEIVE_POWER = 0x01, 0x02, 0x04  # in byte 160, whose bits 3 and 4 are an index of:
_BIAS_FACTORS = (1, 2, 4, nan)  # the last is reserved: no value comes of it

_THRESHOLD_PLACES: dict[Quantity, int] = {
    TEMPERATURE: 0,
    VOLTAGE: 8,
    TRANSMIT_POWER: 48,
    BIAS: 56,
    RECEIVE_POWER: 64,
}


def _is_paged(pages: Pages) -> bool:
    start = answered(pages, START)
    return len(start) == START.length and not start[2] & _FLAT


def _facts(pages: Pages) -> Sequence[Span]:
    return (_IDENTITY, _ADVERTISED, _THRESHOLDS) if _is_paged(pages) else (_IDENTITY,)


def _values(pages: Pages) -> Sequence[Span]:
    advertised = answered(pages, _ADVERTISED)
    spans = [_STATE] if _is_paged(pages) else []  # a cable of flat memory is ready, always
    if byte(advertised, 0) & (_TEMPERATURE | _VOLTAGE):
        spans.append(_MODULE)
    if byte(advertised, 1) & (_BIAS | _TRANSMIT_POWER | _RECEIVE_POWER):
        spans.append(_MONITORS)
    return spans


def _decode(kind: str, pages: Pages) -> Module:
    mark, identity = answered(pages, _MARK), answered(pages, _IDENTITY)
    advertised, module = answered(pages, _ADVERTISED), answered(pages, _MODULE)
    factor = _bias_factor(advertised)
    return Module(
        kind,
        text(identity, 0, 16),
        text(identity, 19, 35),
        text(mark, 0, 16),
        text(identity, 35, 37),
        TEMPERATURE.read(module, 0) if byte(advertised, 0) & _TEMPERATURE else None,
        VOLTAGE.read(module, 2) if byte(advertised, 0) & _VOLTAGE else None,
        _lanes(kind, byte(mark, 44), byte(advertised, 1), answered(pages, _MONITORS), factor),
        thresholds(answered(pages, _THRESHOLDS), _THRESHOLD_PLACES, {BIAS: lambda raw: raw * factor}),
        _STATES.get(byte(answered(pages, _STATE), 0) >> 1 & 0x07),
    )


def _bias_factor(advertised: bytes) -> float:
    """Give what the steps of the bias, and of its thresholds, are multiplied by; nan where it is not known."""
    return _BIAS_FACTORS[advertised[1] >> 3 & 0x03] if len(advertised) > 1 else nan


def _lanes(kind: str, unsupported: int, advertised: int, monitors: bytes, factor: float) -> tuple[Lane, ...]:
    """Read the lanes that the module has, less those that it says are not there."""
    if not monitors:
        return ()
    return tuple(
        Lane(
            place + 1,
            RECEIVE_POWER.read(monitors, 32 + 2 * place) if advertised & _RECEIVE_POWER else None,
            TRANSMIT_POWER.read(monitors, 2 * place) if advertised & _TRANSMIT_POWER else None,
            BIAS.read(monitors, 16 + 2 * place, lambda raw: raw * factor) if advertised & _BIAS else None,
        )
        for place in range(_LANES[kind])
        if not unsupported >> place & 1
    )


FAMILY = Family(_MARK, _facts, _values, _decode)
