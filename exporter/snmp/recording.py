"""Recordings of SNMP agents in the format of snmpsim (`.snmprec`): lines of `OID|TAG|VALUE`.

The tag is the number of the type's BER tag: 2 for INTEGER, 4 for OCTET STRING, 65 for Counter32, 70 for Counter64 and
so on; followed by `x`, the value is hexadecimal. Lines that begin with `#` are comments. Lines that cannot be parsed,
and those of variation modules (a tag followed by `:` and the name of the module), are skipped and reported.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from exporter.snmp.ber import (
    COUNTER32,
    COUNTER64,
    GAUGE32,
    INTEGER,
    IP_ADDRESS,
    NULL,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    OPAQUE,
    TIME_TICKS,
    UINTEGER32,
    Oid,
    Typed,
    Value,
    encode_value,
    format_oid,
    parse_oid,
)

MAX_BYTES: Final = 256 * 2**20
"""Largest file that is read: a hundred times the recording of a large switch."""

_NUMBERS: Final = frozenset((INTEGER, COUNTER32, GAUGE32, TIME_TICKS, COUNTER64, UINTEGER32))
_STRINGS: Final = frozenset((OCTET_STRING, OPAQUE))
_LONGEST_NUMBER: Final = 20  # digits, a sign among them


@dataclass(frozen=True, slots=True)
class Recording:
    """The content of a file.

    Attributes:
        rows: Typed values by identifier, as a simulated agent serves them.
        problems: What was skipped and why, one line each.
    """

    rows: dict[Oid, Typed]
    problems: list[str] = field(default_factory=list)


def load(path: Path) -> Recording:
    """Read a recording.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is too large to be a recording.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path}: larger than {MAX_BYTES >> 20} MiB, too large for a recording of a switch")
    return parse(content)


def parse(content: bytes) -> Recording:
    """Parse the content of a recording; a line that cannot be parsed becomes a problem."""
    recording = Recording({})
    for number, raw in enumerate(content.split(b"\n"), start=1):
        line = raw.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if not line.strip() or line.startswith("#"):
            continue
        try:
            oid, value = _parse_line(line)
            if oid in recording.rows:
                raise ValueError(f"{format_oid(oid)} is a duplicate; the first one is kept")
        except ValueError as error:
            recording.problems.append(f"line {number}: {error}")
        else:
            recording.rows[oid] = value
    return recording


def dump(rows: Mapping[Oid, Typed]) -> str:
    """Format rows as the content of a recording, in the order of their identifiers."""
    return "".join(f"{format_oid(oid)}|{_format_value(value)}\n" for oid, value in sorted(rows.items()))


def _parse_line(line: str) -> tuple[Oid, Typed]:
    """Parse one line. Raises ValueError with the reason if it is invalid."""
    parts = line.split("|", 2)
    if len(parts) < 3:
        raise ValueError(f"{line!r:.80} is not OID|TAG|VALUE")
    name, tag, text = parts
    if ":" in tag:
        raise ValueError(f"{name}: the value needs the variation module {tag.partition(':')[2]!r:.40} of snmpsim")
    digits = tag.removesuffix("x")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 3):
        raise ValueError(f"{name}: {tag!r:.40} is not the number of a type")
    oid = parse_oid(name)
    try:
        value = Typed(int(digits), _parse_value(int(digits), text, hexadecimal=tag != digits))
        encode_value(*value)  # rejects values that do not fit the type
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return oid, value


def _parse_value(tag: int, text: str, *, hexadecimal: bool) -> Value:
    """Parse a value of a type. Raises ValueError if it is invalid."""
    if tag in _NUMBERS and not hexadecimal:
        if len(text) > _LONGEST_NUMBER or not re.fullmatch(r"-?[0-9]+", text):
            raise ValueError(f"{text!r:.40} is not a number")
        return int(text)
    if hexadecimal:
        if not re.fullmatch(r"(?:[0-9A-Fa-f]{2} ?)*", text):
            raise ValueError(f"{text!r:.40} is not hexadecimal")
        content = bytes.fromhex(text)
        return int.from_bytes(content, "big") if tag in _NUMBERS else content
    if tag in _STRINGS:
        return text.encode("utf-8", "surrogateescape")
    if tag == IP_ADDRESS:
        try:
            return ipaddress.IPv4Address(text).packed
        except ValueError:
            raise ValueError(f"{text!r:.40} is not an IPv4 address") from None
    if tag == OBJECT_IDENTIFIER:
        return parse_oid(text) if text else ()
    if tag == NULL:
        return None
    raise ValueError(f"type {tag} is not a type of a row")


def _format_value(value: Typed) -> str:
    """Format type and value. Printable ASCII is written as text, other bytes in hexadecimal."""
    tag, content = value
    if isinstance(content, bytes):
        if tag == OCTET_STRING and content.isascii() and content.decode("ascii").isprintable():
            return f"{tag}|{content.decode('ascii')}"
        if tag == IP_ADDRESS:
            return f"{tag}|{ipaddress.IPv4Address(content)}"
        return f"{tag}x|{content.hex()}"
    if isinstance(content, tuple):
        return f"{tag}|{format_oid(content)}"
    return f"{tag}|{'' if content is None else content}"
