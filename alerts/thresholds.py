"""Read thresholds: values by `section.name`, each a time or a number, and times divided by one factor."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias

from exporter.config.errors import ConfigError
from exporter.config.yaml_loader import load

UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
"""Milliseconds of the units of PromQL, longest first; weeks and years are left out, as no window is as long."""

LONGEST = 3650 * UNITS["d"]
"""Milliseconds; sums of several such times are within what PromQL has, about 290 years."""

_TIME = re.compile(r"([1-9]\d{0,8})(ms|[smhd])")


@dataclass(frozen=True, slots=True)
class Time:
    """A time; as text it has the longest unit that leaves no fraction, as PromQL has no fractions."""

    ms: int

    @property
    def parts(self) -> tuple[int, str]:
        """Return the number and its unit."""
        unit = next(one for one in UNITS if self.ms % UNITS[one] == 0)
        return self.ms // UNITS[unit], unit

    def __str__(self) -> str:
        return "{}{}".format(*self.parts)


Value: TypeAlias = Time | int | float
Thresholds: TypeAlias = Mapping[str, Value]


def read(text: str, file: str, defaults: Thresholds | None = None) -> Thresholds:
    """Return the values of a file; with defaults the file has only those that differ, and all others are added.

    Raises:
        ConfigError: A value is invalid, or is not one of the defaults; the text has place, value and remedy.
    """
    found = {
        name: _value(node, place, name, (defaults or {}).get(name))
        for name, node, place in _scalars(text, file, defaults)
    }
    return {**(defaults or {}), **found}


def divided(values: Thresholds, factor: float) -> Thresholds:
    """Return the values with all times divided by a factor, in whole milliseconds."""
    return {
        name: Time(max(round(one.ms / factor), 1)) if isinstance(one, Time) else one for name, one in values.items()
    }


def _scalars(text: str, file: str, defaults: Thresholds | None) -> Iterator[tuple[str, Any, str]]:
    """Yield name, node and place of each value; the nodes are those of PyYAML, which have the lines."""
    root, _ = load(text, file)
    for section, values in _pairs(root, file, "the file"):
        for key, node in _pairs(values, f"{file}:{section.start_mark.line + 1}", section.value):
            name, place = f"{section.value}.{key.value}", f"{file}:{key.start_mark.line + 1}"
            if defaults is not None and name not in defaults:
                near = get_close_matches(name, defaults, 1, 0.0)[0]
                raise ConfigError(f"{place}: there is no threshold {name}; did you mean {near}?")
            yield name, node, place


def _pairs(node: Any, place: str, what: str) -> list[tuple[Any, Any]]:  # noqa: ANN401  # YAML nodes
    if not hasattr(node, "value") or not all(isinstance(one, tuple) for one in node.value):
        raise ConfigError(f"{place}: {what} has no names with values; write `section:`, and `  name: value` below it")
    return list(node.value)


def _value(node: Any, place: str, name: str, default: Value | None) -> Value:  # noqa: ANN401  # a YAML node
    text = str(node.value)
    time = _TIME.fullmatch(text)
    if time and not isinstance(default, int | float):
        found = Time(int(time[1]) * UNITS[time[2]])
        if found.ms > LONGEST:
            raise ConfigError(f"{place}: {name}: {text} is more than ten years; write a shorter time")
        return found
    if isinstance(default, Time):
        raise ConfigError(
            f"{place}: {name}: {text!r} is not a time above 0; write a number and ms, s, m, h or d: {default}"
        )
    number = _number(text)
    if number is None:
        example = 0.1 if default is None else default
        raise ConfigError(f"{place}: {name}: {text!r} is not a number above 0; write it without a unit: {example}")
    if default is not None and default < 1 < number:
        raise ConfigError(f"{place}: {name}: {text} is more than 1, the whole; write a share such as {default:.10g}")
    return number


def _number(text: str) -> int | float | None:
    """Return a finite number above 0, an integer if it is written as one."""
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number) or number <= 0:
        return None
    return int(text) if text.isdecimal() else number
