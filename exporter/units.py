"""Durations, rates and sizes as people write them, with units, and as numbers in base units."""

import re

_DURATIONS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(b/s|bps|bit/s|b)", re.IGNORECASE)


class Duration(float):
    """Seconds, written `500ms`, `5s`, `1m30s` in the configuration."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Read a duration.

        Raises:
            ValueError: It is not one, or it is zero.
        """
        if not _DURATION.fullmatch(text):
            raise ValueError("expected a duration with its unit, such as 500ms, 5s or 1m30s")
        seconds = sum(float(number) * _DURATIONS[unit] for number, unit in _DURATION_PART.findall(text))
        if seconds <= 0:
            raise ValueError("expected a duration above zero")
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
        found = _RATE.fullmatch(text.strip()) or _RATE.fullmatch(f"{text.strip()}b")
        if not found or float(found[1]) <= 0:
            raise ValueError("expected a link speed with its unit, such as 400Gb/s or 100G")
        return cls(float(found[1]) * _PREFIXES[found[2].lower()] / 8)
