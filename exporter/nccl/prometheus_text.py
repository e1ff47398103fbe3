"""Lines of the Prometheus text format as jobs write them: labels unescaped, the last line torn.

Inspector writes names of communicators and jobs as they come, so that a value may hold quotes. A value therefore ends
at the quote that the next label or the end of the labels follows, and nothing is unescaped. Whoever names his
communicator `x",gpu="7` can add a label in this way, but not change one: a label that comes twice ends its line.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from exporter.nccl.decoding import FormatError, printable

MAX_TEXT = 8 << 20
"""Bytes of a file."""

MAX_LINE = 8192
"""Bytes of a line."""

MAX_VALUE = 256
"""Characters of a label's value."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: a name, labels by name, and a value that is a number."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(slots=True)
class Lost:
    """How many lines gave no sample, by reason: `malformed`, `invalid`, `too_large`, `torn` or `unknown`."""

    reasons: Counter[str] = field(default_factory=Counter)


_LINE = re.compile(r"([A-Za-z_:][\w:]{0,199})(?:\{(.*)\})?[ \t]+(\S{1,40})(?:[ \t]+-?\d{1,20})?[ \t]*", re.ASCII)
_NEXT = re.compile(r'"[ \t]*,[ \t]*(?=[A-Za-z_]\w{0,99}=")', re.ASCII)
_LABEL = re.compile(r'([A-Za-z_]\w{0,99})="(.*)', re.ASCII | re.DOTALL)


def samples(data: bytes, lost: Lost) -> Iterator[Sample]:
    """Give the samples of a file; a line that cannot be used is counted in `lost` and loses no other.

    Raises:
        FormatError: The file is larger than any that is believed.
    """
    if len(data) > MAX_TEXT:
        raise FormatError("too_large", f"{len(data)} bytes; at most {MAX_TEXT} are read")
    *lines, torn = data.split(b"\n")
    if torn.strip():
        lost.reasons["torn"] += 1
    for line in lines:
        stripped = line.strip()
        if stripped and not stripped.startswith(b"#"):
            try:
                yield parse_line(stripped)
            except FormatError as error:
                lost.reasons[error.reason] += 1


def parse_line(line: bytes) -> Sample:
    """Read one line that is no comment.

    Raises:
        FormatError: It cannot be used.
    """
    if len(line) > MAX_LINE:
        raise FormatError("too_large", f"a line of {len(line)} bytes")
    found = _LINE.fullmatch(line.decode("utf-8", "replace"))
    if found is None:
        raise FormatError("malformed", "no name, labels and value")
    name, labels, value = found.groups()
    try:
        number = float(value)
    except ValueError:
        raise FormatError("invalid", f"{name}: {value!r} is no number") from None
    if not math.isfinite(number):
        raise FormatError("invalid", f"{name}: {value!r} is no value")
    return Sample(name, _labels(labels or ""), number)


def _labels(text: str) -> dict[str, str]:
    text = text.strip().removesuffix(",")
    if not text:
        return {}
    if not text.endswith('"'):
        raise FormatError("malformed", "labels do not end with a quote")
    labels: dict[str, str] = {}
    for part in _NEXT.split(text[:-1]):
        found = _LABEL.fullmatch(part)
        if found is None:
            raise FormatError("malformed", "no label and value")
        if found[1] in labels:
            raise FormatError("invalid", f"label {found[1]} comes twice")
        if len(found[2]) > MAX_VALUE:
            raise FormatError("too_large", f"label {found[1]} has {len(found[2])} characters")
        labels[found[1]] = printable(found[2])
    return labels


def whole_number(labels: dict[str, str], name: str, least: int, largest: int) -> int | None:
    """Give the whole number in a label; None where it has none that is believed ("unknown", "NOT_SET")."""
    text = labels.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        return None
    number = int(text)
    return number if least <= number <= largest else None
