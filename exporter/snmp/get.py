"""GET of single objects as a state machine without I/O: requests out, responses in, a value for each object found."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.snmp.ber import (
    MALFORMED,
    NO_SUCH_INSTANCE,
    NO_SUCH_OBJECT,
    Oid,
    Typed,
    encode_oid,
)
from exporter.snmp.exchange import (
    MAX_TEXT_BYTES,
    AgentState,
    Pacing,
    Problem,
    Reason,
    Request,
)
from exporter.snmp.message import (
    GET,
    NO_ERROR,
    NO_SUCH_NAME,
    TOO_BIG,
    Pdu,
    status_name,
)


@dataclass(frozen=True, slots=True)
class GetResult:
    """Values of the objects that the agent has, and problems; an object that the agent lacks is in neither."""

    values: dict[Oid, Typed]
    problems: list[Problem]


class Get:
    """One GET of several objects; an `Exchange`. An object that the agent fails on does not lose the others."""

    def __init__(self, oids: Sequence[Oid], state: AgentState) -> None:
        """Plan the GET of `oids`, in as many requests as the agent's state suggests.

        Raises:
            ValueError: one of them is not an object identifier.
        """
        self.pacing = Pacing(state)
        self._oids = list(dict.fromkeys(oids))
        self._encoded = [encode_oid(oid) for oid in self._oids]
        self._chunks = deque([list(range(len(self._oids)))])
        self._values: dict[Oid, Typed] = {}
        self._problems: list[Problem] = []

    def next_request(self) -> Request | None:
        """Return the request to send now, or None when no object is left."""
        while self._chunks:
            chunk = self._chunks.popleft()
            if not chunk:
                continue
            size = self.pacing.max_repetitions(1)
            if len(chunk) > size:
                self._chunks.appendleft(chunk[size:])
                chunk = chunk[:size]
            self._chunks.appendleft(chunk)
            return Request(GET, [self._encoded[slot] for slot in chunk], chunk, 0)
        return None

    def on_response(self, request: Request, response: Pdu, size: int) -> None:
        """Process the response to `request`, received in a datagram of `size` bytes."""
        self.pacing.on_response(size, len(response.varbinds) if response.error_status == NO_ERROR else 0)
        status, slots = response.error_status, request.slots
        self._remove(slots)
        if status == TOO_BIG and len(slots) > 1:
            self.pacing.halve(len(slots))
            self._chunks.appendleft(slots)
        elif status == NO_SUCH_NAME and 1 <= response.error_index <= len(slots):
            self._chunks.appendleft([slot for slot in slots if slot != slots[response.error_index - 1]])
        elif status == NO_SUCH_NAME and len(slots) == 1:
            pass  # v1: there is no such object
        elif status != NO_ERROR:
            self._split(slots, Reason.TOO_BIG if status == TOO_BIG else Reason.ERROR_STATUS, status_name(status))
        else:
            self._store(slots, response)

    def on_timeout(self, request: Request) -> None:
        """Request the objects of a request that timed out in halves; give up a single one."""
        self.pacing.on_request_timeout()
        self._remove(request.slots)
        self._split(request.slots, Reason.TIMEOUT, "no response in time, requested alone")

    def abort(self, reason: Reason, detail: str) -> None:
        """End now; each object without a result becomes a problem."""
        self._problems += [Problem(self._oids[slot], reason, detail) for chunk in self._chunks for slot in chunk]
        self._chunks.clear()

    def result(self) -> GetResult:
        """Return the values and problems. To be called once, at the end."""
        self.pacing.save()
        return GetResult(self._values, self._problems)

    def _store(self, slots: list[int], response: Pdu) -> None:
        found = {oid: (tag, value) for oid, tag, value in response.varbinds}
        for slot in slots:
            tag, value = found.get(self._encoded[slot], (None, None))
            if tag is None:
                self._problems.append(Problem(self._oids[slot], Reason.NO_PROGRESS, "not in the response"))
            elif tag == MALFORMED:
                self._problems.append(Problem(self._oids[slot], Reason.MALFORMED, "the value could not be decoded"))
            elif tag not in (NO_SUCH_OBJECT, NO_SUCH_INSTANCE):
                if isinstance(value, bytes) and len(value) > MAX_TEXT_BYTES:
                    detail = f"the text was cut off after {MAX_TEXT_BYTES} bytes"
                    self._problems.append(Problem(self._oids[slot], Reason.TEXT_LIMIT, detail))
                    value = value[:MAX_TEXT_BYTES]
                self._values[self._oids[slot]] = Typed(tag, value)

    def _split(self, slots: list[int], reason: Reason, detail: str) -> None:
        """Request the objects in halves; a single one becomes a problem."""
        if len(slots) == 1:
            self._problems.append(Problem(self._oids[slots[0]], reason, detail))
            return
        middle = len(slots) // 2
        self._chunks.extendleft((slots[middle:], slots[:middle]))

    def _remove(self, slots: list[int]) -> None:
        """Remove objects from the pending chunks. They may be in several of them, see `Walk._groups_without`."""
        removed = set(slots)
        self._chunks = deque([slot for slot in chunk if slot not in removed] for chunk in self._chunks)
