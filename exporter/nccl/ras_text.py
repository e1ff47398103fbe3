"""The text that RAS answers where it has no JSON (2.24 to 2.28.6), for what people paste and for forced polls."""

import re
from dataclasses import dataclass

from exporter.nccl.decoding import FormatError
from exporter.nccl.ras import MAX_ANSWER

MAX_ITEMS = 10_000
"""Groups, and mismatches, that are read of an answer."""


@dataclass(frozen=True, slots=True)
class CommunicatorGroup:
    """Communicators that look alike.

    Attributes:
        communicators: How many.
        nodes: Of each.
        ranks: Of each.
        status: RUNNING, INIT, …
        errors: OK, MISMATCH, ERROR, INCOMPLETE or DEAD.
    """

    communicators: int
    nodes: int
    ranks: int
    status: str
    errors: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks of one communicator that launched different numbers of operations.

    Attributes:
        communicator: Its hash, with 0x.
        kind: Of the operations; empty before 2.26, which counted all in one.
        counts: Pairs of ranks and operations; the lowest number of operations is of those that did not arrive.
    """

    communicator: str
    kind: str
    counts: tuple[tuple[int, int], ...]

    @property
    def behind(self) -> int:
        """How many ranks have the lowest number."""
        least = min(operations for _, operations in self.counts)
        return sum(ranks for ranks, operations in self.counts if operations == least)


@dataclass(frozen=True, slots=True)
class TextReport:
    """One answer.

    Attributes:
        nccl_version: "2.26.2".
        groups: Of communicators.
        mismatches: Those that are told.
    """

    nccl_version: str
    groups: tuple[CommunicatorGroup, ...]
    mismatches: tuple[Mismatch, ...]


_VERSION = re.compile(r"^NCCL version (\S{1,40}) compiled with CUDA", re.MULTILINE)
_GROUP = re.compile(
    r"^ *\d{1,9} +(\d{1,9}) +(\d{1,9}) +\d{1,9}(?:-\d{1,9})? +(\d{1,9}) +\d{1,9} +([A-Z]{2,20}) +([A-Z]{2,20}) *$",
    re.MULTILINE | re.ASCII,
)
_MISMATCH = re.compile(
    r"^#\d{1,9}-\d{1,9} \(([0-9a-f]{1,16})\) MISMATCH\n"
    r" +Communicator ranks have different (\w{0,32}) ?operation counts\n"
    r"((?: +\d{1,9} ranks? ha(?:ve|s) launched up to operation \d{1,20}\n)+)",
    re.MULTILINE | re.ASCII,
)
_COUNT = re.compile(r"(\d+) ranks? ha(?:ve|s) launched up to operation (\d+)", re.ASCII)


def parse_text(data: bytes) -> TextReport:
    """Read an answer to STATUS in text.

    Raises:
        FormatError: It is no such answer, or too large.
    """
    if len(data) > MAX_ANSWER:
        raise FormatError("too_large", f"{len(data)} bytes; at most {MAX_ANSWER} are read")
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    version = _VERSION.search(text)
    if version is None:
        raise FormatError("malformed", "no version of NCCL in it")
    groups = [
        CommunicatorGroup(int(found[1]), int(found[2]), int(found[3]), found[4], found[5])
        for found, _ in zip(_GROUP.finditer(text), range(MAX_ITEMS), strict=False)
    ]
    mismatches = [
        Mismatch(
            f"0x{found[1]}",
            found[2],
            tuple((int(ranks), int(operations)) for ranks, operations in _COUNT.findall(found[3])),
        )
        for found, _ in zip(_MISMATCH.finditer(text), range(MAX_ITEMS), strict=False)
    ]
    return TextReport(version[1], tuple(groups), tuple(mismatches))
