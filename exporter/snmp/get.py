"""Reading single objects, as a state machine: GET requests out, responses in, a value for each object that has one."""

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
from exporter.snmp.message import (
    GET,
    NO_ERROR,
    NO_SUCH_NAME,
    TOO_BIG,
    Pdu,
    status_name,
)
from exporter.snmp.poll import (
    Memory,
    Pace,
    Problem,
    Reason,
    Request,
)


@dataclass(frozen=True, slots=True)
class GetResult:
    """What a get brought: a value for each object that the agent has; objects that it lacks are in neither part."""

    values: dict[Oid, Typed]
    problems: list[Problem]


class Get:
    """One get of several objects; an `Exchange`. One that the agent chokes on does not lose the others."""

    def __init__(self, oids: Sequence[Oid], memory: Memory) -> None:
        """Plan the get of `oids`, in as many requests as the target's memory advises.

        Raises:
            ValueError: one of them is no object identifier.
        """
        self.pace = Pace(memory)
        self._oids = list(dict.fromkeys(oids))
        self._encoded = [encode_oid(oid) for oid in self._oids]
        self._chunks = deque([list(range(len(self._oids)))])
        self._values: dict[Oid, Typed] = {}
        self._problems: list[Problem] = []

    def next_request(self) -> Request | None:
        """Give the question to ask now, or None when each object is dealt with."""
        while self._chunks:
            chunk = self._chunks.popleft()
            if not chunk:
                continue
            size = self.pace.repetitions(1)
            if len(chunk) > size:
                self._chunks.appendleft(chunk[size:])
                chunk = chunk[:size]
            self._chunks.appendleft(chunk)
            return Request(GET, [self._encoded[place] for place in chunk], chunk, 0)
        return None

    def answered(self, request: Request, response: Pdu, size: int) -> None:
        """Take the response to `request`, which came in a datagram of `size` bytes."""
        self.pace.answered(size, len(response.varbinds) if response.error_status == NO_ERROR else 0)
        status, places = response.error_status, request.places
        self._drop(places)
        if status == TOO_BIG and len(places) > 1:
            self.pace.too_big(len(places))
            self._chunks.appendleft(places)
        elif status == NO_SUCH_NAME and 1 <= response.error_index <= len(places):
            self._chunks.appendleft([place for place in places if place != places[response.error_index - 1]])
        elif status == NO_SUCH_NAME and len(places) == 1:
            pass  # how v1 says that there is no such object
        elif status != NO_ERROR:
            self._apart(places, Reason.TOO_BIG if status == TOO_BIG else Reason.ERROR_STATUS, status_name(status))
        else:
            self._take(places, response)

    def unanswered(self, request: Request) -> None:
        """Take note that `request` got no answer: its objects are asked in halves, a lone one is given up."""
        self.pace.silent()
        self._drop(request.places)
        self._apart(request.places, Reason.TIMEOUT, "no answer in time, asked alone")

    def give_up(self, reason: Reason, detail: str) -> None:
        """End now; each object that has not been dealt with becomes a problem."""
        self._problems += [Problem(self._oids[place], reason, detail) for chunk in self._chunks for place in chunk]
        self._chunks.clear()

    def result(self) -> GetResult:
        """Give all that came. To be called once, at the end."""
        self.pace.end()
        return GetResult(self._values, self._problems)

    def _take(self, places: list[int], response: Pdu) -> None:
        found = {oid: (tag, value) for oid, tag, value in response.varbinds}
        for place in places:
            tag, value = found.get(self._encoded[place], (None, None))
            if tag is None:
                self._problems.append(Problem(self._oids[place], Reason.NO_PROGRESS, "not in the reply"))
            elif tag == MALFORMED:
                self._problems.append(Problem(self._oids[place], Reason.MALFORMED, "the value could not be read"))
            elif tag not in (NO_SUCH_OBJECT, NO_SUCH_INSTANCE):
                self._values[self._oids[place]] = Typed(tag, value)

    def _apart(self, places: list[int], reason: Reason, detail: str) -> None:
        if len(places) == 1:
            self._problems.append(Problem(self._oids[places[0]], reason, detail))
            return
        middle = len(places) // 2
        self._chunks.extendleft((places[middle:], places[:middle]))

    def _drop(self, places: list[int]) -> None:
        """Take objects off the list of what is to ask. They may lie in several chunks, see `Walk._without`."""
        out = set(places)
        self._chunks = deque([place for place in chunk if place not in out] for chunk in self._chunks)
