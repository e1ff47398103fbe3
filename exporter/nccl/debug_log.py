"""Lines of NCCL's debug log (NCCL_DEBUG), of all releases and behind any launcher's prefix; no pattern is anchored.

Logs are large, and most lines are unrelated. A line is first tested for the name of the library, then for the keywords
of all rules with one regular expression, and only the rules of the keyword found are applied.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from exporter.core.printable import printable
from exporter.nccl.debug_log_rules import RULES
from exporter.nccl.log_facts import Fact, LogEntry
from exporter.nccl.log_rule import LogRule

MAX_LINE = 16384
"""Bytes of a line; longer lines are skipped."""

_WORDS = (b"NCCL", b"RCCL")
"""One of them occurs in every relevant line: before the message, or in the name of PyTorch's module."""

_BY_WORD: Mapping[str, tuple[LogRule, ...]] = MappingProxyType(
    {word: tuple(rule for rule in RULES if rule.word == word) for word in dict.fromkeys(rule.word for rule in RULES)}
)
_ANY = re.compile("|".join(re.escape(word) for word in _BY_WORD))

_PROCESS = re.compile(r"([\w.\-]{0,255}):(\d{1,10})(?::\d{1,10})? \[(\d{1,4})\] ", re.ASCII)
_TASK = re.compile(r"\[\d{1,4},(\d{1,7})\]<std(?:out|err)>|^(\d{1,7}): |^\[(\d{1,7})\] ", re.ASCII)
_RANK = re.compile(r"\[rank(\d{1,7})\]:", re.ASCII)
_STAMP = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?|\[[EF](\d{3,4} \d\d:\d\d:\d\d(?:\.\d{1,9})?)", re.ASCII
)

PREFIX_LENGTH = 400
"""Characters at the start of a line that are searched for host, process, task and time."""


@dataclass(slots=True)
class ScanStats:
    """Counts of one scan.

    Attributes:
        lines: Lines scanned.
        too_long: Lines skipped because they exceed MAX_LINE.
    """

    lines: int = 0
    too_long: int = 0


def scan(data: bytes, stats: ScanStats) -> Iterator[LogEntry]:
    """Yield the facts of a chunk of a log, which ends with a complete line."""
    for line in data.split(b"\n"):
        stats.lines += 1
        if len(line) > MAX_LINE:
            stats.too_long += 1
        elif _WORDS[0] in line or _WORDS[1] in line:
            entry = parse_line(line)
            if entry is not None:
                yield entry


def parse_line(line: bytes) -> LogEntry | None:
    """Return the fact of one line; None where no rule matches. Raise nothing."""
    text = printable(line[:MAX_LINE].decode("utf-8", "replace").rstrip("\r\n"))
    for word in dict.fromkeys(_ANY.findall(text)):  # rules search the whole line, so a keyword is tried once
        for rule in _BY_WORD[word]:
            found = rule.pattern.search(text)
            fact = rule.build(found) if found else None
            if fact is not None:
                return _entry(fact, text[:PREFIX_LENGTH])
    return None


def _entry(fact: Fact, start: str) -> LogEntry:
    process, task, stamp = _PROCESS.search(start), _TASK.search(start) or _RANK.search(start), _STAMP.search(start)
    return LogEntry(
        fact,
        process[1] if process else "",
        int(process[2]) if process else None,
        int(process[3]) if process else None,
        next((int(one) for one in task.groups() if one), None) if task else None,
        (stamp[1] or stamp[0]) if stamp else "",
    )
