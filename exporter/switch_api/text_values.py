"""Values as APIs write them: counters (`"1,234"`), speeds (`100 Gbps`), identifiers, placeholders (`N/A`, None)."""

import re
from types import MappingProxyType

MAX_COUNTER = 2**64 - 1
MAX_TEXT_LENGTH = 1024

_PLACEHOLDERS = frozenset({"", "-", "--", "n/a", "n\\a", "none", "not advertised", "not supported", "unknown"})
_COUNTER = re.compile(r"[0-9]{1,20}|[0-9]{1,3}(?:,[0-9]{3}){1,6}", re.ASCII)
_SPEED = re.compile(
    r"([0-9]{1,6})(?:\.([0-9]{1,3}))? ?([kKmMgGtT])(?:b(?:it)?(?:ps|/s(?:ec)?)?)?(?:x[0-9]{1,2})?(?: \([^()]*\))?",
    re.ASCII,
)
_POWERS = MappingProxyType({"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12})
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}|(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}", re.ASCII)


def excerpt(value: object, limit: int = 120) -> str:
    """Return the beginning of a value as one printable line, for an error text."""
    text = ascii(value[: limit * 2] if isinstance(value, str | bytes) else value)
    return text if len(text) <= limit else text[:limit] + "…"


def strip_placeholder(text: str | None) -> str | None:
    """Return the text without surrounding blanks; None for a placeholder of "no value"."""
    stripped = (text or "").strip()
    return None if stripped.lower() in _PLACEHOLDERS else stripped


def parse_counter(text: str | None) -> int | None:
    """Parse a counter, `"1,234"` included; None for a placeholder.

    Raises:
        ValueError: the text is neither a number of up to 64 bits nor a placeholder.
    """
    stripped = strip_placeholder(text)
    if stripped is None:
        return None
    value = int(stripped.replace(",", "")) if _COUNTER.fullmatch(stripped) else None
    if value is None or value > MAX_COUNTER:
        raise ValueError(f"{excerpt(stripped, 40)} is not a counter of at most 64 bits")
    return value


def parse_speed(text: str | None) -> int | None:
    """Parse a link speed (`100 Gbps`, `25G`, `1000Mb/s (auto)`, `200Gx4`) in bits per second; None for a placeholder.

    Raises:
        ValueError: the text is neither a speed nor a placeholder.
    """
    stripped = strip_placeholder(text)
    if stripped is None:
        return None
    found = _SPEED.fullmatch(stripped)
    if not found:
        raise ValueError(f"{excerpt(stripped, 40)} is not a link speed")
    thousandths = int(found[1] + (found[2] or "").ljust(3, "0"))
    return thousandths * _POWERS[found[3].lower()] // 1000


def normalise_identifier(text: str | None) -> str:
    """Return a chassis or port identifier: a MAC address as `aa:bb:cc:dd:ee:ff`, other text unchanged."""
    stripped = strip_placeholder(text) or ""
    if not _MAC.fullmatch(stripped):
        return stripped
    digits = re.sub("[:.-]", "", stripped).lower()
    return ":".join(digits[start : start + 2] for start in range(0, 12, 2))


def json_counter(value: object) -> int | None:
    """Return a counter that JSON has as a number or as decimal text; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNTER else None


def json_text(value: object) -> str:
    """Return a JSON string without surrounding blanks, at most MAX_TEXT_LENGTH characters; "" for anything else."""
    return value[:MAX_TEXT_LENGTH].strip() if isinstance(value, str) else ""
