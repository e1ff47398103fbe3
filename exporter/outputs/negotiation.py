"""Content negotiation: the format and encoding of a response by Accept and Accept-Encoding (RFC 9110, section 12.5).

Quality values are honoured: the order of preference that Prometheus sends depends on its configuration.
"""

import re
from collections.abc import Iterator
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

# The headers of scrapers are shorter; the rest of a longer one is ignored.
MAX_HEADER_LENGTH = 4096
_MAX_RANGES = 64

_QUALITY = re.compile(r"(?:0?\.\d{1,6}|0\.?|1(?:\.0{0,6})?)\Z")


class Format(Enum):
    """A text format of metrics, with the Content-Type it is sent under."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

    @property
    def content_type(self) -> str:
        """The value of the Content-Type header."""
        return self.value


class _Offer(NamedTuple):
    """Media type of a format, the version served, and other versions whose readers can read it."""

    kind: str
    subtype: str
    version: str
    also: frozenset[str]


# OpenMetrics 0.0.1 is the draft that 1.0.0 made final. A reader of text 1.0.0 (UTF-8 names, quoted) reads 0.0.4 too.
_OFFERS = MappingProxyType(
    {
        Format.TEXT: _Offer("text", "plain", "0.0.4", frozenset({"1.0.0"})),
        Format.OPENMETRICS: _Offer("application", "openmetrics-text", "1.0.0", frozenset({"0.0.1"})),
    }
)


class _Range(NamedTuple):
    """One element of an Accept header; `value` is a media range or a coding in lower case."""

    value: str
    parameters: dict[str, str]
    quality: float


def choose_format(accept: str) -> Format:
    """Return the format for an Accept header ("" where there is none).

    The quality of a format is that of the most specific range that matches it. The highest quality wins, then the
    first range of the header, then plain text, which is also the format where no range matches.
    """
    best, chosen = (0.0, 0), Format.TEXT
    ranges = list(_ranges(accept))
    for candidate, offer in _OFFERS.items():
        # (specificity, quality, first mention); of equally specific ranges the one of the highest quality applies.
        ranks = [(_specificity(r, offer), r.quality, -place) for place, r in enumerate(ranges)]
        specificity, quality, place = max(ranks, default=(0, 0.0, 0))
        if specificity and quality > 0 and (quality, place) > best:
            best, chosen = (quality, place), candidate
    return chosen


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header ("" where there is none) allows gzip and does not prefer identity."""
    qualities: dict[str, float] = {}
    for coding in _ranges(accept_encoding):
        name = "gzip" if coding.value == "x-gzip" else coding.value
        qualities.setdefault(name, coding.quality)
    gzip = qualities.get("gzip", qualities.get("*", 0.0))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


def _specificity(accepted: _Range, offer: _Offer) -> int:
    """Return how specific a range is for an offer: 4 to 1, or 0 where it does not match."""
    kind, _, subtype = accepted.value.partition("/")
    if (kind, subtype) == ("*", "*"):
        return 1
    if kind != offer.kind:
        return 0
    if subtype == "*":
        return 2
    if subtype != offer.subtype:
        return 0
    version = accepted.parameters.get("version")
    if version == offer.version:
        return 4
    return 3 if version is None or version in offer.also else 0


def _ranges(header: str) -> Iterator[_Range]:
    """Yield the ranges of an Accept or Accept-Encoding header; skip those whose q-value is not a number from 0 to 1."""
    for element in header[:MAX_HEADER_LENGTH].split(",")[:_MAX_RANGES]:
        value, *rest = element.split(";")
        parameters: dict[str, str] = {}
        for parameter in rest:
            name, _, text = parameter.partition("=")
            parameters[name.strip().lower()] = text.strip().strip('"').lower()
        quality = parameters.pop("q", "1")
        if _QUALITY.match(quality):
            yield _Range(value.strip().lower(), parameters, float(quality))
