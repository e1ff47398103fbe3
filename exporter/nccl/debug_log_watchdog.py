"""Rules for lines of the watchdog of PyTorch's ProcessGroupNCCL."""

import re

from exporter.nccl import log_facts as facts
from exporter.nccl.log_facts import Fact
from exporter.nccl.log_rule import log_rule, optional_number

_NO_ELEMENTS = 2**64 - 1
"""NumelIn of an operation that has none, such as a coalesced one: -1 as an unsigned number."""

_PROCESS = re.compile(r"\[rank(\d{1,7})\]:", re.ASCII)
_GROUP = re.compile(r"\[(?:PG (?:ID )?\d{1,9}(?: PG GUID [^ (\]]{1,64}\(([^)]{0,64})\))? )?Rank (\d{1,7})\]", re.ASCII)


def _process(line: str) -> int | None:
    """Return the rank in the job that PyTorch puts before its own lines, but not before those of an exception."""
    found = _PROCESS.search(line)
    return int(found[1]) if found else None


def _timeout(found: re.Match[str]) -> Fact:
    rank, sequence, operation, elements, ran = found.groups()
    count = optional_number(elements)
    return facts.WatchdogTimeout(
        _process(found.string),
        optional_number(rank),
        optional_number(sequence),
        operation,
        int(ran) / 1000,
        None if count == _NO_ELEMENTS else count,
    )


def _stall(found: re.Match[str]) -> Fact:
    group = _GROUP.search(found.string)
    rank, name = (int(group[2]), group[1] or "") if group else (None, "")
    return facts.WatchdogStall(_process(found.string), rank, name, int(found[1]))


WATCHDOG_RULES = (
    log_rule(
        "Watchdog caught collective operation timeout",
        r"(?:\[Rank (\d{1,7})\] )?Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(\d{1,20}), )?"
        r"OpType=(\w{1,40})(?:, NumelIn=(\d{1,20}), NumelOut=\d{1,20})?.{0,60}\) ran for (\d{1,15}) milliseconds",
        _timeout,
    ),
    log_rule("watchdog got stuck for", r"watchdog got stuck for (\d{1,9}) ?seconds", _stall),
)
"""Lines of the watchdog."""
