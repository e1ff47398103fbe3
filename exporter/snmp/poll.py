"""What a walk and a get have in common: requests, problems, and what is remembered about a target between polls."""

import enum
from dataclasses import dataclass, field
from typing import Final, Protocol

from exporter.snmp.ber import Oid, format_oid
from exporter.snmp.message import Pdu

REPLY_BYTES: Final = 1452
"""What a reply should fit in, a frame of Ethernet less the headers of IPv6 and UDP: larger ones travel in fragments."""

MAX_VARBINDS: Final = 128
"""Most variables asked for at once, however small they are."""

_REPLY_OVERHEAD: Final = 48  # what stands around the variables, with some room for a long community
_ASSUMED_VARBIND_BYTES: Final = 32
_CLEAN_POLLS: Final = 20
_MAX_CACHED_INDEXES: Final = 50_000
_MAX_UNANSWERED: Final = 3


class Reason(enum.Enum):
    """Why something is missing from a result; the value is fit for a label."""

    NOT_INCREASING = "oid_not_increasing"
    MALFORMED = "malformed"
    ROW_LIMIT = "row_limit"
    SIZE_LIMIT = "size_limit"
    ERROR_STATUS = "error_status"
    TOO_BIG = "too_big"
    NO_PROGRESS = "no_progress"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Problem:
    """One column of a walk, or one object of a get, that is not all there, and why."""

    oid: Oid
    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"{format_oid(self.oid)}: {self.detail}"


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One question.

    Attributes:
        kind: the PDU type.
        oids: the identifiers asked for, encoded.
        places: for each of them, its place in the list of columns or objects that the exchange was made for.
        max_repetitions: how often GETBULK shall step; 0 for a GET.
    """

    kind: int
    oids: list[bytes]
    places: list[int]
    max_repetitions: int

    @property
    def varbinds(self) -> int:
        """How many variables the full answer has."""
        return len(self.oids) * max(self.max_repetitions, 1)


@dataclass(slots=True)
class Memory:
    """What polling one target has taught: how much to ask at once, which columns to ask apart, the indexes seen.

    Attributes:
        varbinds: variables that a reply may carry; this one number bounds both columns in a request and repetitions.
        apart: columns that got an error in company, and are asked alone since.
        indexes: tail of an encoded identifier to its numbers.
        varbind_bytes: mean size of a variable in recent replies.
        bulk: whether the agent knows GETBULK, which v1 does not have.
    """

    varbinds: int = MAX_VARBINDS
    apart: set[Oid] = field(default_factory=set)
    indexes: dict[bytes, Oid] = field(default_factory=dict)
    varbind_bytes: float = _ASSUMED_VARBIND_BYTES
    bulk: bool = True
    _clean: int = 0

    def end(self, varbinds: int, *, shrunk: bool) -> None:
        """Learn from a poll that got answers.

        What it had to shrink to is kept. Since what was taken for too large may have been lost packets, twice as much
        is tried again after a number of clean polls.
        """
        if len(self.indexes) > _MAX_CACHED_INDEXES:  # an agent may invent new ones each time
            self.indexes.clear()
        self._clean = 0 if shrunk else self._clean + 1
        self.varbinds = varbinds
        if self._clean >= _CLEAN_POLLS:
            self._clean = 0
            self.varbinds = min(2 * varbinds, MAX_VARBINDS)


class Pace:
    """How one exchange gets on: how much it asks for at once, and how long the target has been silent.

    Attributes:
        heard: whether the target has answered anything.
        unanswered: questions in a row that got no answer in any of their tries.
        varbinds: how many variables to ask for at once.
    """

    def __init__(self, memory: Memory) -> None:
        self.heard = False
        self.unanswered = 0
        self.varbinds = memory.varbinds
        self._memory = memory
        self._shrunk = False
        self._lost = 0

    @property
    def gone(self) -> bool:
        """Whether the silence is long enough to stop: one bad column must not look like a dead target."""
        return self.unanswered >= _MAX_UNANSWERED

    def repetitions(self, columns: int) -> int:
        """Say how many rows of so many columns to ask for at once."""
        fitting = int((REPLY_BYTES - _REPLY_OVERHEAD) / self._memory.varbind_bytes)
        return max(1, min(self.varbinds, fitting) // columns)

    def answered(self, size: int, varbinds: int) -> None:
        """Take note of a reply of `size` bytes with so many variables, 0 for an error.

        The newest reply has an eighth of the say in the mean size of a variable.
        """
        self.heard = True
        self.unanswered = self._lost = 0
        if varbinds:
            self._memory.varbind_bytes += (size / varbinds - self._memory.varbind_bytes) / 8

    def too_big(self, asked: int) -> None:
        """Ask for half of the `asked` variables from now on."""
        self.varbinds = max(1, min(self.varbinds, asked // 2))
        self._shrunk = True

    def try_lost(self, asked: int) -> None:
        """Take note of a try that got no answer. One is a lost packet; at two, the agent may be busy with too much."""
        self._lost += 1
        if self._lost >= 2:
            self.too_big(asked)

    def silent(self) -> None:
        """Take note of a question that got no answer in any of its tries."""
        self.unanswered += 1
        self._lost = 0

    def end(self) -> None:
        """Hand over to the memory what a target that answered has taught; silence teaches nothing."""
        if self.heard:
            self._memory.end(self.varbinds, shrunk=self._shrunk)


class Exchange(Protocol):
    """A series of questions and answers with one target, without I/O.

    The driver sends `next_request()` until it is None. It hands in the answer with `answered`. It reports a try that
    got no answer to `pace.try_lost`, and may then ask for the request anew, which may have become smaller; when it has
    given up the request it says `unanswered`. An answer to an earlier try of a question is as good as one to the last.
    """

    pace: Pace

    def next_request(self) -> Request | None:
        """Give the question to ask now, or None when all is done."""

    def answered(self, request: Request, response: Pdu, size: int) -> None:
        """Take the response to `request`, which came in a datagram of `size` bytes."""

    def unanswered(self, request: Request) -> None:
        """Take note that `request` got no answer in any of its tries."""

    def give_up(self, reason: Reason, detail: str) -> None:
        """End now; whatever is not complete becomes a problem."""
