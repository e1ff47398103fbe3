"""What walk and get share: requests, problems, pacing, and the state kept about an agent between polls."""

import enum
from dataclasses import dataclass, field
from typing import Final, Protocol

from exporter.snmp.ber import Oid, decode_index, format_oid
from exporter.snmp.message import Pdu

MAX_RESPONSE_BYTES: Final = 1452
"""Size that a response should fit: an Ethernet frame less the headers of IPv6 and UDP. Larger ones are fragmented."""

MAX_VARBINDS: Final = 128
"""Most variable bindings requested at once, however small they are."""

_RESPONSE_OVERHEAD: Final = 48  # bytes around the variable bindings, with room for a long community
_ASSUMED_VARBIND_BYTES: Final = 32
_CLEAN_POLLS: Final = 20
MAX_CACHED_INDEXES: Final = 50_000
MAX_CACHED_INDEX_BYTES: Final = 64
CACHED_INDEX_POLLS: Final = 500
"""Indexes of rows that are kept decoded, the longest of them, and the exchanges after which they are dropped: an agent
may invent new ones each time."""

MAX_TEXT_BYTES: Final = 1024
"""Bytes of a string that are kept. A DisplayString has at most 255 (RFC 2579)."""

_MAX_TIMEOUTS: Final = 3


class Reason(enum.Enum):
    """Why something is missing from a result; the value can be used as a label."""

    NOT_INCREASING = "oid_not_increasing"
    MALFORMED = "malformed"
    ROW_LIMIT = "row_limit"
    SIZE_LIMIT = "size_limit"
    TEXT_LIMIT = "text_limit"
    ERROR_STATUS = "error_status"
    TOO_BIG = "too_big"
    NO_PROGRESS = "no_progress"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Problem:
    """One column of a walk, or one object of a get, that is incomplete, with the reason."""

    oid: Oid
    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"{format_oid(self.oid)}: {self.detail}"


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One request.

    Attributes:
        kind: the PDU type.
        oids: the requested identifiers, encoded.
        slots: for each of them, its position in the list of columns or objects of the exchange.
        max_repetitions: max-repetitions of GETBULK; 0 for a GET.
    """

    kind: int
    oids: list[bytes]
    slots: list[int]
    max_repetitions: int

    @property
    def varbinds(self) -> int:
        """Number of variable bindings in the full response."""
        return len(self.oids) * max(self.max_repetitions, 1)


@dataclass(slots=True)
class AgentState:
    """What earlier polls have shown about one agent.

    Attributes:
        varbinds: variable bindings that fit a response; bounds both columns in a request and repetitions.
        isolated: columns that failed when requested together with others, and are requested alone since.
        indexes: tail of an encoded identifier to its numbers.
        varbind_bytes: mean size of a variable binding in recent responses.
        supports_getbulk: whether the agent supports GETBULK, which v1 does not have.
    """

    varbinds: int = MAX_VARBINDS
    isolated: set[Oid] = field(default_factory=set)
    indexes: dict[bytes, Oid] = field(default_factory=dict)
    varbind_bytes: float = _ASSUMED_VARBIND_BYTES
    supports_getbulk: bool = True
    _clean_polls: int = 0
    _exchanges: int = 0

    def decoded_index(self, tail: bytes) -> Oid:
        """Decode the tail of an identifier that is not in `indexes`, and keep it there unless it is very long.

        Raises:
            DecodeError: It is not valid.
        """
        index = decode_index(tail)
        if len(tail) <= MAX_CACHED_INDEX_BYTES:
            if len(self.indexes) >= MAX_CACHED_INDEXES:
                self.indexes.clear()
            self.indexes[tail] = index
        return index

    def update(self, varbinds: int, *, shrunk: bool) -> None:
        """Store the request size of a poll that got responses.

        A smaller size is kept. Since the cause may have been packet loss, twice the size is tried again after a number
        of polls without shrinking.
        """
        self._exchanges += 1
        if self._exchanges % CACHED_INDEX_POLLS == 0:
            self.indexes.clear()
        self._clean_polls = 0 if shrunk else self._clean_polls + 1
        self.varbinds = varbinds
        if self._clean_polls >= _CLEAN_POLLS:
            self._clean_polls = 0
            self.varbinds = min(2 * varbinds, MAX_VARBINDS)


class Pacing:
    """How much one exchange requests at once, and how long the agent has not responded.

    Attributes:
        responded: whether the agent has responded at all.
        timeouts: requests in a row without a response to any of their tries.
        varbinds: how many variable bindings to request at once.
    """

    def __init__(self, state: AgentState) -> None:
        self.responded = False
        self.timeouts = 0
        self.varbinds = state.varbinds
        self._state = state
        self._shrunk = False
        self._try_timeouts = 0

    @property
    def is_unresponsive(self) -> bool:
        """Whether to stop: several requests timed out, since one bad column must not look like a dead target."""
        return self.timeouts >= _MAX_TIMEOUTS

    def max_repetitions(self, columns: int) -> int:
        """Return how many rows of that many columns to request at once."""
        fitting = int((MAX_RESPONSE_BYTES - _RESPONSE_OVERHEAD) / self._state.varbind_bytes)
        return max(1, min(self.varbinds, fitting) // columns)

    def on_response(self, size: int, varbinds: int) -> None:
        """Record a response of `size` bytes with that many variable bindings, 0 for an error.

        The newest response has a weight of one eighth in the mean size of a variable binding.
        """
        self.responded = True
        self.timeouts = self._try_timeouts = 0
        if varbinds:
            self._state.varbind_bytes += (size / varbinds - self._state.varbind_bytes) / 8

    def halve(self, requested: int) -> None:
        """Request half of the `requested` variable bindings from now on."""
        self.varbinds = max(1, min(self.varbinds, requested // 2))
        self._shrunk = True

    def on_try_timeout(self, requested: int) -> None:
        """Record a try that timed out. One may be a lost packet; after two, the request may be too large."""
        self._try_timeouts += 1
        if self._try_timeouts >= 2:
            self.halve(requested)

    def on_request_timeout(self) -> None:
        """Record a request of which all tries timed out."""
        self.timeouts += 1
        self._try_timeouts = 0

    def save(self) -> None:
        """Store the request size in the agent's state, if the agent responded."""
        if self.responded:
            self._state.update(self.varbinds, shrunk=self._shrunk)


class Exchange(Protocol):
    """A series of requests and responses with one agent, without I/O.

    The driver sends `next_request()` until it is None and passes the response to `on_response`. It reports a try that
    timed out to `pacing.on_try_timeout`, and may then call `next_request()` again, whose request may have become
    smaller. When it gives up the request, it calls `on_timeout`. A response to any try of a request is valid.
    """

    pacing: Pacing

    def next_request(self) -> Request | None:
        """Return the request to send now, or None when the exchange is complete."""

    def on_response(self, request: Request, response: Pdu, size: int) -> None:
        """Process the response to `request`, received in a datagram of `size` bytes."""

    def on_timeout(self, request: Request) -> None:
        """Process a request of which all tries timed out."""

    def abort(self, reason: Reason, detail: str) -> None:
        """End now; whatever is not complete becomes a problem."""
