"""Durations, rates and sizes as people write them, with units, and as numbers in base units."""

import math
import re

DARK = -40.0
"""dBm from which on downwards there is no light: what modules say of a lane that gets none, or the most they tell."""

_DURATIONS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PREFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_AMOUNTS = {**_PREFIXES, "": 1, "b": 10**9, "p": 10**15}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?(?:[eE]\+?\d{1,2})?)\s*([kmgbtpKMGBTP]?)")
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtKMGT])(?:b/s|bps|bit/s|b)?")
"""The b is a small one: `50GB/s` are bytes, and taking them for bits would be wrong by eight times."""


class Duration(float):
    """Seconds, written `500ms`, `5s`, `1m30s` in the configuration."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Read a duration.

        Raises:
            ValueError: It is not one, or it is zero or too large to be a number.
        """
        if not _DURATION.fullmatch(text):
            raise ValueError("expected a duration with its unit, such as 500ms, 5s or 1m30s")
        seconds = sum(float(number) * _DURATIONS[unit] for number, unit in _DURATION_PART.findall(text))
        if not 0 < seconds < math.inf:
            raise ValueError("expected a duration above zero, and not without end")
        return cls(seconds)


class BitRate(float):
    """Bytes per second, written as a link's speed in bits: `400Gb/s`, `100G`, `25Gbit/s`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "BitRate":
        """Read the speed of a link.

        Raises:
            ValueError: It is not one, or it is zero.
        """
        found = _RATE.fullmatch(text.strip())
        speed = float(found[1]) * _PREFIXES[found[2].lower()] / 8 if found else 0.0
        if not 0 < speed < math.inf:
            raise ValueError("expected a link speed in bits with its unit, such as 400Gb/s or 100G")
        return cls(speed)


class Amount(float):
    """How many of something, written as people count parameters and operations: `70B`, `989T`, `70e9`, `500000`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Amount":
        """Read an amount.

        Raises:
            ValueError: It is not one, or it is zero.
        """
        found = _AMOUNT.fullmatch(text.strip())
        amount = float(found[1]) * _AMOUNTS[found[2].lower()] if found else 0.0
        if not 0 < amount < math.inf:
            raise ValueError("expected a number above zero, such as 70B, 989T or 5e5")
        return cls(amount)


def watts_of_dbm(level: float) -> float:
    """Turn a power in dBm into watts; what is as good as no light is 0."""
    return 10 ** (level / 10) / 1000 if level > DARK else 0.0
