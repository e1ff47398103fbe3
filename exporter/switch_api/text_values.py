"""Numbers, speeds and identities as APIs write them: `"1,234"`, `100 Gbps`, `N/A`.  A word for "no value" is None."""

import re

from exporter.switch_api.http import excerpt

COUNTER_TOP = 2**64 - 1

_ABSENT = frozenset({"", "-", "--", "n/a", "n\\a", "none", "not advertised", "not supported", "unknown"})
_NUMBER = re.compile(r"[0-9]{1,20}|[0-9]{1,3}(?:,[0-9]{3}){1,6}", re.ASCII)
_SPEED = re.compile(
    r"([0-9]{1,6})(?:\.([0-9]{1,3}))? ?([kKmMgGtT])(?:b(?:it)?(?:ps|/s(?:ec)?)?)?(?:x[0-9]{1,2})?(?: \([^()]*\))?",
    re.ASCII,
)
_POWERS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}|(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}", re.ASCII)


def known(text: str | None) -> str | None:
    """Give the text without blanks around it, None for one of the words that mean "no value"."""
    stripped = (text or "").strip()
    return None if stripped.lower() in _ABSENT else stripped


def number(text: str | None) -> int | None:
    """Read a counter, `"1,234"` included; None where the switch has no value.

    Raises:
        ValueError: the text is neither a number of up to 64 bits nor one of the words for "no value".
    """
    told = known(text)
    if told is None:
        return None
    value = int(told.replace(",", "")) if _NUMBER.fullmatch(told) else None
    if value is None or value > COUNTER_TOP:
        raise ValueError(f"{excerpt(told, 40)} is not a counter of at most 64 bits")
    return value


def speed(text: str | None) -> int | None:
    """Read a link speed (`100 Gbps`, `25G`, `1000Mb/s (auto)`, `200Gx4`) in bits per second; None if there is none.

    Raises:
        ValueError: the text is neither a speed nor one of the words for "no value".
    """
    told = known(text)
    if told is None:
        return None
    found = _SPEED.fullmatch(told)
    if not found:
        raise ValueError(f"{excerpt(told, 40)} is not a link speed")
    thousandths = int(found[1] + (found[2] or "").ljust(3, "0"))
    return thousandths * _POWERS[found[3].lower()] // 1000


def identity(text: str | None) -> str:
    """Give what identifies a device or port: a MAC address as `aa:bb:cc:dd:ee:ff`, other text as it stands."""
    told = known(text) or ""
    if not _MAC.fullmatch(told):
        return told
    digits = re.sub("[:.-]", "", told).lower()
    return ":".join(digits[place : place + 2] for place in range(0, 12, 2))
