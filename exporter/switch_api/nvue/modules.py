"""What NVUE tells of the modules and cables in ports: texts such as `0.8625 mW / -0.64 dBm`, made into values."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_MAX_LANES = 32
_QUANTITY = re.compile(
    r"([+-]?(?:\d+(?:\.\d+)?|inf))\s*(mW|dBm|mA|uA|V|mV|C|degrees C)(?![A-Za-z])", re.ASCII | re.IGNORECASE
)
_LANE = re.compile(r"(?:ch|channel)-(\d{1,2})-(rx-power|tx-power|tx-bias-current)", re.ASCII)
_INNER = {"rx-power": "power", "tx-power": "power", "tx-bias-current": "current"}


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane: light in milliwatts or dBm, whichever is told, and the laser's current in amperes."""

    receive_milliwatts: float | None = None
    receive_dbm: float | None = None
    transmit_milliwatts: float | None = None
    transmit_dbm: float | None = None
    bias: float | None = None


@dataclass(frozen=True, slots=True)
class Module:
    """One module: degrees Celsius, volts, and lanes by number, the first is 1."""

    temperature: float | None = None
    voltage: float | None = None
    lanes: Mapping[int, Lane] = field(default_factory=dict)


def parse_module(data: object) -> Module:
    """Read `/interface/<port>/transceiver`, flat (`ch-1-rx-power`) or nested (`channel`, `channel-1`, `rx-power`).

    A copper cable has none of the values; a value that is no quantity is absent.
    """
    if not isinstance(data, dict):
        return Module()
    texts: dict[int, dict[str, str]] = {}
    for lane, key, text in _lanes(data):
        if 1 <= lane <= _MAX_LANES:
            texts.setdefault(lane, {}).setdefault(key, text)
    return Module(
        _quantity(_inner(data.get("temperature"), "temperature"), {"c": 1.0, "degrees c": 1.0}),
        _quantity(_inner(data.get("voltage"), "voltage"), {"v": 1.0, "mv": 1e-3}),
        {lane: _lane(told) for lane, told in sorted(texts.items())},
    )


def _lanes(data: Mapping[str, object]) -> Iterator[tuple[int, str, str]]:
    flat = dict(data)
    channels = data.get("channel")
    for name, channel in channels.items() if isinstance(channels, dict) else ():
        for key, value in channel.items() if isinstance(channel, dict) else ():
            flat[f"{name}-{key}"] = value
    for key, value in flat.items():
        found = _LANE.fullmatch(key)
        if found:
            yield int(found[1]), found[2], _inner(value, _INNER[found[2]])


def _inner(told: object, key: str) -> str:
    if isinstance(told, dict):
        told = told.get(key)
    return told if isinstance(told, str) else ""


def _lane(told: Mapping[str, str]) -> Lane:
    receive, transmit = told.get("rx-power", ""), told.get("tx-power", "")
    return Lane(
        _quantity(receive, {"mw": 1.0}),
        _quantity(receive, {"dbm": 1.0}),
        _quantity(transmit, {"mw": 1.0}),
        _quantity(transmit, {"dbm": 1.0}),
        _quantity(told.get("tx-bias-current", ""), {"ma": 1e-3, "ua": 1e-6}),
    )


def _quantity(text: str, units: Mapping[str, float]) -> float | None:
    """Give the first number of the text that stands before one of the units, in the base unit."""
    for number, unit in _QUANTITY.findall(text):
        factor = units.get(unit.lower())
        if factor is not None:
            value = float(number) * factor
            return None if math.isinf(value) and "dbm" not in units else value
    return None
