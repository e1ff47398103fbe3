"""Durations, rates and amounts as written in the configuration, with units, and as numbers in base units."""

import math
import re
from types import MappingProxyType

NO_LIGHT_DBM = -40.0
"""Optical power in dBm at and below which there is no light: the value that modules report for a dark lane."""

_DURATIONS = MappingProxyType({"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0})
_PREFIXES = MappingProxyType({"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12})
_AMOUNTS = MappingProxyType({**_PREFIXES, "": 1, "b": 10**9, "p": 10**15})
_NUMBER = r"\d{1,400}(?:\.\d{1,400})?"
"""Repetitions are bounded, so that no text makes a pattern slow: a probe may bring one."""

_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|[smhd])){{1,16}}")
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|[smhd])")
_AMOUNT = re.compile(rf"({_NUMBER}(?:[eE]\+?\d{{1,2}})?)\s{{0,8}}([kmgbtpKMGBTP]?)")
_RATE = re.compile(rf"({_NUMBER})\s{{0,8}}([kmgtKMGT])(?:b/s|bps|bit/s|b)?")
"""With a small b: `50GB/s` are bytes, and treating them as bits would be wrong by a factor of eight."""

_BYTES = re.compile(rf"({_NUMBER})\s{{0,8}}([kmgtKMGT]?)B?")
_BYTES_PER_SECOND = re.compile(rf"({_NUMBER}\s{{0,8}}[kmgtKMGT]?B)/s")


class Duration(float):
    """Seconds, written `500ms`, `5s` or `1m30s`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Parse a duration.

        Raises:
            ValueError: The text is not a duration, or is zero or not finite.
        """
        if not _DURATION.fullmatch(text):
            raise ValueError("expected a duration with its unit, such as 500ms, 5s or 1m30s")
        seconds = sum(float(number) * _DURATIONS[unit] for number, unit in _DURATION_PART.findall(text))
        if not 0 < seconds < math.inf:
            raise ValueError("expected a duration above zero and finite")
        return cls(seconds)


def at_least(duration: str, seconds: float) -> str:
    """Return a valid duration as it is written, or the least one in seconds if it is shorter."""
    return duration if Duration.parse(duration) >= seconds else f"{seconds:g}s"


class BitRate(float):
    """Bytes per second, written as a link speed in bits: `400Gb/s`, `100G`, `25Gbit/s`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "BitRate":
        """Parse a link speed.

        Raises:
            ValueError: The text is not a link speed, or is zero or not finite.
        """
        found = _RATE.fullmatch(text.strip())
        speed = float(found[1]) * _PREFIXES[found[2].lower()] / 8 if found else 0.0
        if not 0 < speed < math.inf:
            raise ValueError("expected a link speed in bits with its unit, such as 400Gb/s or 100G")
        return cls(speed)


class Amount(float):
    """A number of parameters, tokens or operations, written `70B`, `989T`, `70e9` or `500000`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Amount":
        """Parse an amount.

        Raises:
            ValueError: The text is not an amount, or is zero or not finite.
        """
        found = _AMOUNT.fullmatch(text.strip())
        amount = float(found[1]) * _AMOUNTS[found[2].lower()] if found else 0.0
        if not 0 < amount < math.inf:
            raise ValueError("expected a number above zero, such as 70B, 989T or 5e5")
        return cls(amount)


class ByteCount(float):
    """Bytes in decimal units, written `440MB`, `14GB` or `1500`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "ByteCount":
        """Parse a number of bytes.

        Raises:
            ValueError: The text is not a number of bytes, or is zero or not finite.
        """
        found = _BYTES.fullmatch(text.strip())
        count = float(found[1]) * _PREFIXES.get(found[2].lower(), 1) if found else 0.0
        if not 0 < count < math.inf:
            raise ValueError("expected a number of bytes such as 440MB, 14GB or 1500")
        return cls(count)


class ByteRate(float):
    """Bytes per second, written in bytes or in bits: `110MB/s`, `11GB/s`, `400Gb/s`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "ByteRate":
        """Parse a rate.

        Raises:
            ValueError: The text is not a rate in bytes or bits per second, or is zero or not finite.
        """
        found = _BYTES_PER_SECOND.fullmatch(text.strip())
        if found:
            return cls(ByteCount.parse(found[1]))
        try:
            return cls(BitRate.parse(text))
        except ValueError:
            raise ValueError("expected a rate such as 110MB/s (bytes) or 400Gb/s (bits)") from None


def watts_of_dbm(level: float) -> float:
    """Return an optical power in dBm as watts; 0 if there is no light."""
    return 10 ** (level / 10) / 1000 if level > NO_LIGHT_DBM else 0.0
