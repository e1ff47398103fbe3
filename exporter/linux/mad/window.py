"""Many management datagrams in flight: a window over all, one at a time for each destination, and a ceiling a second.

A switch has one management processor for all its ports, so what goes to one destination goes one by one. A destination
that leaves questions unanswered, after all tries, is silent: what else was to be asked of it is given up, and until it
answers it gets one try a time. So one that is dead costs its own time alone. Nothing here knows what is asked, and why.
"""

import errno
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from time import monotonic, sleep
from typing import NamedTuple, Protocol

from exporter.linux.mad.datagram import (
    Answer,
    Problem,
    Reply,
    Request,
    answer_of,
)

LONGEST_WAIT = 0.2
"""Seconds after which it is looked whether to stop."""

REST = 0.1
"""Share of the time-out for which one that did not answer, or was busy, is left alone at first; then it doubles."""

PASSING = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.EINTR})
"""Errors of sending that the next datagram may not meet."""

PATIENCE = 2
"""Questions that one which answered others may leave unanswered before it is silent: it may not know a thing."""

TRIES_AT_BUSY = 5
"""Times that one is asked that says it is busy."""

MOST_SILENT = 10_000
"""Silent destinations that are remembered."""

MOST = 0xFFFFFFFF
"""The highest number of a transaction."""


class Endpoint(Protocol):
    """Something that datagrams are sent by."""

    def send(self, request: Request, transaction: int, seconds: float, m_key: int = 0) -> None:
        """Send a request; raises OSError."""

    def receive(self, seconds: float) -> Reply | None:
        """Wait for a datagram; raises OSError."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How hard a fabric may be asked.

    Attributes:
        window: Datagrams in flight.
        per_destination: Of them to one destination.
        per_second: Datagrams sent in a second.
        timeout: Seconds to wait for an answer.
        tries: Times that one is asked.
    """

    window: int = 64
    per_destination: int = 1
    per_second: float = 10_000.0
    timeout: float = 0.5
    tries: int = 3


@dataclass(slots=True)
class Counts:
    """What became of datagrams, since the start."""

    sent: int = 0
    received: int = 0
    timeouts: int = 0
    retries: int = 0
    stray: int = 0
    malformed: int = 0


class _Flight(NamedTuple):
    """A request that is out: its try, and when its time is over."""

    request: Request
    tried: int
    deadline: float


@dataclass(slots=True)
class _Destination:
    """What is to be asked of one destination: requests with the try that each is at."""

    waiting: deque[tuple[Request, int]] = field(default_factory=deque)
    flying: int = 0
    answered: bool = False
    missed: int = 0
    rests: bool = False
    is_ready: bool = False


class Window:
    """Asks and tells."""

    def __init__(
        self, endpoint: Endpoint, limits: Limits, m_key: int = 0, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Take what to ask by.

        Args:
            endpoint: Sends and receives.
            limits: How hard.
            m_key: The key of subnet management.
            stopping: Tells that all shall end at once.
        """
        self.counts = Counts()
        self.silent: set[Hashable] = set()  # those that did not answer when they were asked last
        self._endpoint = endpoint
        self._limits = limits
        self._m_key = m_key
        self._stopping = stopping
        self._transaction = random.randrange(MOST)  # noqa: S311  # another one than the last process had
        self._destinations: dict[Hashable, _Destination] = {}
        self._ready: deque[Hashable] = deque()
        self._resting: list[tuple[float, int, Hashable]] = []
        self._rests = 0
        self._flights: dict[int, _Flight] = {}
        self._next_send = 0.0

    def run(self, requests: Iterable[Request]) -> None:
        """Ask these, and what their answers lead to, until nothing is left. Blocks.

        Raises:
            OSError: The port is gone; what is out is forgotten.
        """
        self._add(requests)
        try:
            while self._flights or self._ready or self._resting:
                if self._stopping():
                    self._give_up()
                    return
                wait = self._send_all()
                if self._flights:
                    reply = self._endpoint.receive(wait)
                    if reply is not None:
                        self._take(reply)
                    self._expire(monotonic())
                else:
                    sleep(wait)
        finally:
            self._destinations.clear()
            self._ready.clear()
            self._resting.clear()
            self._flights.clear()

    def _add(self, requests: Iterable[Request] | None) -> None:
        for request in requests or ():
            destination = self._destinations.get(request.destination)
            if destination is None:
                destination = self._destinations[request.destination] = _Destination()
            destination.waiting.append((request, 1))
            self._wake(request.destination, destination)

    def _wake(self, key: Hashable, destination: _Destination) -> None:
        """Let a destination be asked, if there is something to ask and it may be."""
        may_fly = destination.flying < self._limits.per_destination and not destination.rests
        if destination.waiting and may_fly and not destination.is_ready:
            destination.is_ready = True
            self._ready.append(key)

    def _send_all(self) -> float:
        """Send what may be sent now, and tell how long to wait for something to happen."""
        limits, now = self._limits, monotonic()
        while self._resting and self._resting[0][0] <= now:
            key = heappop(self._resting)[2]
            destination = self._destinations[key]
            destination.rests = False
            self._wake(key, destination)
        slack = limits.window / limits.per_second
        while self._ready and len(self._flights) < limits.window:
            if self._next_send - now > slack:
                return min(self._next_send - now - slack, LONGEST_WAIT)
            self._next_send = max(self._next_send, now) + 1 / limits.per_second
            self._send(self._ready.popleft(), now)
        wait = LONGEST_WAIT
        if self._flights:  # the oldest of them is over first, as all wait alike
            wait = min(wait, next(iter(self._flights.values())).deadline - now)
        if self._resting:
            wait = min(wait, self._resting[0][0] - now)
        return max(wait, 0.0)

    def _send(self, key: Hashable, now: float) -> None:
        destination = self._destinations[key]
        destination.is_ready = False
        if destination.rests or not destination.waiting:
            return  # another of its questions was not answered since it was ready
        request, tried = destination.waiting.popleft()
        self._transaction = self._transaction % MOST + 1
        try:
            self._endpoint.send(request, self._transaction, self._limits.timeout, self._m_key)
        except OSError as error:
            if error.errno not in PASSING:
                raise  # the port is gone: all others would fail alike
            self._answer(request, Problem.SEND)
        else:
            self.counts.sent += 1
            destination.flying += 1
            self._flights[self._transaction] = _Flight(request, tried, now + self._limits.timeout)
        self._wake(key, destination)

    def _take(self, reply: Reply) -> None:
        flight = self._flights.pop(reply.transaction, None)
        if flight is None:
            self.counts.stray += 1  # late, or nobody's
            return
        self.counts.received += 1
        request = flight.request
        self.silent.discard(request.destination)
        destination = self._destinations[request.destination]
        destination.flying -= 1
        destination.answered, destination.missed = True, 0
        answer = answer_of(request, reply)
        if answer is Problem.BUSY and flight.tried < TRIES_AT_BUSY:
            self._again(request, flight.tried + 1)
            return
        if answer is Problem.MALFORMED:
            self.counts.malformed += 1
        self._answer(request, answer)
        self._wake(request.destination, destination)

    def _expire(self, now: float) -> None:
        """Ask again, or give up, what got no answer in time."""
        while self._flights:
            transaction, flight = next(iter(self._flights.items()))
            if flight.deadline > now:
                return
            del self._flights[transaction]
            request = flight.request
            destination = self._destinations[request.destination]
            destination.flying -= 1
            is_trusted = not destination.missed and request.destination not in self.silent
            if is_trusted and flight.tried < self._limits.tries:
                self._again(request, flight.tried + 1)
                continue
            self.counts.timeouts += 1
            destination.missed += 1
            self._answer(request, Problem.TIMEOUT)
            if not destination.answered or destination.missed >= PATIENCE:
                self._fall_silent(request.destination, destination)
            self._wake(request.destination, destination)

    def _fall_silent(self, key: Hashable, destination: _Destination) -> None:
        """Give up what else was to be asked of one that does not answer."""
        if len(self.silent) < MOST_SILENT:
            self.silent.add(key)
        left, destination.waiting = destination.waiting, deque()
        for request, _ in left:
            self._answer(request, Problem.SILENT)

    def _again(self, request: Request, tried: int) -> None:
        """Ask once more, after a rest that doubles."""
        self.counts.retries += 1
        destination = self._destinations[request.destination]
        destination.waiting.appendleft((request, tried))
        destination.rests = True
        self._rests += 1  # of those that end at the same time the first goes on first
        rest = self._limits.timeout * REST * 2 ** (tried - 2)
        heappush(self._resting, (monotonic() + rest, self._rests, request.destination))

    def _answer(self, request: Request, answer: Answer) -> None:
        self._add(request.then(request.tag, answer))

    def _give_up(self) -> None:
        """Answer all that is left: there is no time for more; what answers lead to is not asked."""
        left = [flight.request for flight in self._flights.values()]
        left += [request for one in self._destinations.values() for request, _ in one.waiting]
        for request in left:
            request.then(request.tag, Problem.STOPPED)
