"""Parser of NVUE's data of modules and cables: texts such as `0.8625 mW / -0.64 dBm`.  Pure: no I/O."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_MAX_LANES = 32
_QUANTITY = re.compile(
    r"([+-]?(?:\d{1,9}(?:\.\d{1,9})?|inf))\s{0,8}(mW|dBm|mA|uA|V|mV|C|degrees C)(?![A-Za-z])", re.ASCII | re.IGNORECASE
)
_LANE = re.compile(r"(?:ch|channel)-(\d{1,2})-(rx-power|tx-power|tx-bias-current)", re.ASCII)
_NESTED_KEYS = MappingProxyType({"rx-power": "power", "tx-power": "power", "tx-bias-current": "current"})


@dataclass(frozen=True, slots=True)
class NvueLane:
    """One lane: power in milliwatts or dBm, whichever the switch reports, and laser bias current in amperes."""

    receive_milliwatts: float | None = None
    receive_dbm: float | None = None
    transmit_milliwatts: float | None = None
    transmit_dbm: float | None = None
    bias: float | None = None


@dataclass(frozen=True, slots=True)
class NvueModule:
    """One module: degrees Celsius, volts, and lanes by number, starting at 1."""

    temperature: float | None = None
    voltage: float | None = None
    lanes: Mapping[int, NvueLane] = field(default_factory=dict)


def parse_module(data: object) -> NvueModule:
    """Parse `/interface/<port>/transceiver`, flat (`ch-1-rx-power`) or nested (`channel`, `channel-1`, `rx-power`).

    A copper cable has none of the values; a value that is not a quantity with a unit is absent.
    """
    if not isinstance(data, dict):
        return NvueModule()
    lanes: dict[int, dict[str, str]] = {}
    for lane, key, text in _lane_texts(data):
        if 1 <= lane <= _MAX_LANES:
            lanes.setdefault(lane, {}).setdefault(key, text)
    return NvueModule(
        _parse_quantity(_nested_text(data.get("temperature"), "temperature"), {"c": 1.0, "degrees c": 1.0}),
        _parse_quantity(_nested_text(data.get("voltage"), "voltage"), {"v": 1.0, "mv": 1e-3}),
        {lane: _parse_lane(texts) for lane, texts in sorted(lanes.items())},
    )


def _lane_texts(data: Mapping[str, object]) -> Iterator[tuple[int, str, str]]:
    """Yield the number of a lane, the key and the text of each value."""
    flat = dict(data)
    channels = data.get("channel")
    for name, channel in channels.items() if isinstance(channels, dict) else ():
        for key, value in channel.items() if isinstance(channel, dict) else ():
            flat[f"{name}-{key}"] = value
    for key, value in flat.items():
        found = _LANE.fullmatch(key)
        if found:
            yield int(found[1]), found[2], _nested_text(value, _NESTED_KEYS[found[2]])


def _nested_text(value: object, key: str) -> str:
    if isinstance(value, dict):
        value = value.get(key)
    return value if isinstance(value, str) else ""


def _parse_lane(texts: Mapping[str, str]) -> NvueLane:
    receive, transmit = texts.get("rx-power", ""), texts.get("tx-power", "")
    return NvueLane(
        _parse_quantity(receive, {"mw": 1.0}),
        _parse_quantity(receive, {"dbm": 1.0}),
        _parse_quantity(transmit, {"mw": 1.0}),
        _parse_quantity(transmit, {"dbm": 1.0}),
        _parse_quantity(texts.get("tx-bias-current", ""), {"ma": 1e-3, "ua": 1e-6}),
    )


def _parse_quantity(text: str, units: Mapping[str, float]) -> float | None:
    """Return the first number of the text that is followed by one of the units, in the base unit."""
    for number, unit in _QUANTITY.findall(text):
        factor = units.get(unit.lower())
        if factor is not None:
            value = float(number) * factor
            return None if math.isinf(value) and "dbm" not in units else value
    return None
