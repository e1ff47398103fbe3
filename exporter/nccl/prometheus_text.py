"""Prometheus text format as jobs write it: label values are not escaped, and the last line may be truncated.

Inspector writes names of communicators and jobs without escaping, so a value may contain quotes. A value therefore ends
at the quote that is followed by the next label or the end of the labels, and nothing is unescaped. A communicator named
`x",gpu="7` can add a label this way, but not change one: a line with a duplicate label is rejected.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from exporter.core.printable import printable
from exporter.nccl.decoding import FormatError

MAX_TEXT = 8 << 20
"""Bytes of a file."""

MAX_LINE = 8192
"""Bytes of a line."""

MAX_VALUE = 256
"""Characters of a label value."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: metric name, labels by name, and a finite value."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(slots=True)
class LineErrors:
    """Number of rejected lines by reason: `malformed`, `invalid`, `too_large`, `truncated` or `unknown`."""

    reasons: Counter[str] = field(default_factory=Counter)


_NAME = re.compile(r"[A-Za-z_:][\w:]{0,199}", re.ASCII)
_VALUE = re.compile(r"[ \t]{1,64}(\S{1,40})(?:[ \t]{1,64}-?\d{1,20})?[ \t]{0,64}", re.ASCII)
_NEXT = re.compile(r'"[ \t]*,[ \t]*(?=[A-Za-z_]\w{0,99}=")', re.ASCII)
_LABEL = re.compile(r'([A-Za-z_]\w{0,99})="(.*)', re.ASCII | re.DOTALL)


def parse_samples(data: bytes, errors: LineErrors) -> Iterator[Sample]:
    """Yield the samples of a file; lines that cannot be parsed are counted in `errors`.

    Raises:
        FormatError: The file exceeds MAX_TEXT.
    """
    if len(data) > MAX_TEXT:
        raise FormatError("too_large", f"{len(data)} bytes; at most {MAX_TEXT} are read")
    *lines, unfinished = data.split(b"\n")
    if unfinished.strip():
        errors.reasons["truncated"] += 1
    for line in lines:
        stripped = line.strip()
        if stripped and not stripped.startswith(b"#"):
            try:
                yield parse_line(stripped)
            except FormatError as error:
                errors.reasons[error.reason] += 1


def parse_line(line: bytes) -> Sample:
    """Parse one line that is not a comment.

    Raises:
        FormatError: It cannot be used.
    """
    if len(line) > MAX_LINE:
        raise FormatError("too_large", f"a line of {len(line)} bytes")
    name, labels, value = _parts(line.decode("utf-8", "replace"))
    try:
        number = float(value)
    except ValueError:
        raise FormatError("invalid", f"{name}: {value!r} is not a number") from None
    if not math.isfinite(number):
        raise FormatError("invalid", f"{name}: {value!r} is not finite")
    return Sample(name, _labels(labels), number)


def _parts(text: str) -> tuple[str, str, str]:
    """Return the name, the text of the labels, which ends at the last brace, and the value."""
    name = _NAME.match(text)
    rest, labels = text[name.end() :] if name else "", ""
    if rest.startswith("{"):
        labels, _, rest = rest[1:].rpartition("}")
    value = _VALUE.fullmatch(rest)
    if name is None or value is None:
        raise FormatError("malformed", "no name, labels and value")
    return name[0], labels, value[1]


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
            raise FormatError("invalid", f"duplicate label {found[1]}")
        if len(found[2]) > MAX_VALUE:
            raise FormatError("too_large", f"label {found[1]} has {len(found[2])} characters")
        labels[found[1]] = printable(found[2])
    return labels


def whole_number(labels: dict[str, str], name: str, least: int, largest: int) -> int | None:
    """Return the integer in a label; None if it is absent, out of range or not a number ("unknown", "NOT_SET")."""
    text = labels.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        return None
    number = int(text)
    return number if least <= number <= largest else None
