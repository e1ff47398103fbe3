"""A rule for lines of a log: keyword, pattern, and the fact that is built from a match."""

import re
from collections.abc import Callable
from typing import NamedTuple

from exporter.nccl.log_facts import Fact


class LogRule(NamedTuple):
    """One kind of log line.

    Attributes:
        word: Keyword that each such line contains.
        pattern: Pattern with the values.
        build: Builds the fact from the match; returns None if the values are not valid.
    """

    word: str
    pattern: re.Pattern[str]
    build: Callable[[re.Match[str]], Fact | None]


def log_rule(word: str, pattern: str, build: Callable[[re.Match[str]], Fact | None]) -> LogRule:
    """Return a rule; its pattern matches ASCII digits and letters only."""
    return LogRule(word, re.compile(pattern, re.ASCII), build)


def optional_number(text: str | None) -> int | None:
    """Return a number; None where the line has none."""
    return int(text) if text else None
