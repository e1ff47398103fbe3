"""Window of MAD requests in flight: a limit over all, one per destination, and a limit per second.

A switch has one management processor for all its ports, so requests to one destination are sent one at a time by
default. A destination that leaves requests unanswered, after all retries, is unresponsive: its remaining requests are
skipped, and until it responds again each request to it gets one try. So an unresponsive node delays itself only.
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
    Problem,
    Reply,
    Request,
    Result,
    result_of,
)

MAX_WAIT_SECONDS = 0.2
"""Seconds between two checks whether to stop."""

BACKOFF_SHARE = 0.1
"""Share of the timeout before the first retry to a destination that timed out or was busy; doubled at each retry."""

TRANSIENT_SEND_ERRORS = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.EINTR})
"""Errors of a send that concern one datagram; at others the port is gone."""

MAX_MISSED = 2
"""Timeouts in a row after which a destination that responded before is unresponsive: it may drop one attribute only."""

MAX_BUSY_TRIES = 5
"""Tries of a request to a destination that reports busy."""

MAX_UNRESPONSIVE = 10_000
"""Unresponsive destinations that are remembered."""

MAX_TRANSACTION = 0xFFFFFFFF


class Endpoint(Protocol):
    """A port that sends requests and receives replies."""

    def send(self, request: Request, transaction: int, seconds: float, m_key: int = 0) -> None:
        """Send a request; raises OSError."""

    def receive(self, seconds: float) -> Reply | None:
        """Wait for a reply; raises OSError."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of the load on a fabric.

    Attributes:
        window: Requests in flight.
        per_destination: Requests in flight to one destination.
        per_second: Requests sent per second.
        timeout: Seconds to wait for a reply.
        tries: Tries of a request, the first included.
    """

    window: int = 64
    per_destination: int = 1
    per_second: float = 10_000.0
    timeout: float = 0.5
    tries: int = 3


@dataclass(slots=True)
class DatagramCounts:
    """Datagrams by outcome, since the start."""

    sent: int = 0
    received: int = 0
    timeouts: int = 0
    retries: int = 0
    unmatched: int = 0
    malformed: int = 0


class _InFlight(NamedTuple):
    """A request that was sent."""

    request: Request
    tries: int
    deadline: float


@dataclass(slots=True)
class _Destination:
    """State of one destination; queued requests with the number of their next try."""

    queue: deque[tuple[Request, int]] = field(default_factory=deque)
    in_flight: int = 0
    has_responded: bool = False
    missed: int = 0
    is_backing_off: bool = False
    is_ready: bool = False


class RequestWindow:
    """Sends requests within limits, matches replies, retries, and calls the handlers with the results."""

    def __init__(
        self, endpoint: Endpoint, limits: RequestLimits, m_key: int = 0, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Create an empty window.

        Args:
            endpoint: The port.
            limits: The limits.
            m_key: M_Key of the subnet.
            should_stop: Polled at least every MAX_WAIT_SECONDS; ends the run when it returns true.
        """
        self.counts = DatagramCounts()
        self.unresponsive: set[Hashable] = set()
        self._endpoint = endpoint
        self._limits = limits
        self._m_key = m_key
        self._should_stop = should_stop
        self._transaction = random.randrange(MAX_TRANSACTION)  # noqa: S311  # differs from the last process
        self._destinations: dict[Hashable, _Destination] = {}
        self._ready: deque[Hashable] = deque()
        self._backoffs: list[tuple[float, int, Hashable]] = []
        self._backoff_count = 0
        self._in_flight: dict[int, _InFlight] = {}
        self._next_send = 0.0

    def run(self, requests: Iterable[Request]) -> None:
        """Process requests, and the follow-up requests of their handlers, until none is left. Blocks.

        Raises:
            OSError: The port is gone; requests without a result are dropped.
        """
        self._add(requests)
        try:
            while self._in_flight or self._ready or self._backoffs:
                if self._should_stop():
                    self._stop()
                    return
                wait = self._send_all()
                if self._in_flight:
                    reply = self._endpoint.receive(wait)
                    if reply is not None:
                        self._receive(reply)
                    self._expire(monotonic())
                else:
                    sleep(wait)
        finally:
            self._destinations.clear()
            self._ready.clear()
            self._backoffs.clear()
            self._in_flight.clear()

    def _add(self, requests: Iterable[Request] | None) -> None:
        for request in requests or ():
            destination = self._destinations.get(request.destination)
            if destination is None:
                destination = self._destinations[request.destination] = _Destination()
            destination.queue.append((request, 1))
            self._schedule(request.destination, destination)

    def _schedule(self, key: Hashable, destination: _Destination) -> None:
        """Mark a destination as ready if a request to it is queued and may be sent."""
        may_send = destination.in_flight < self._limits.per_destination and not destination.is_backing_off
        if destination.queue and may_send and not destination.is_ready:
            destination.is_ready = True
            self._ready.append(key)

    def _send_all(self) -> float:
        """Send what the limits allow; return the seconds until the next event."""
        limits, now = self._limits, monotonic()
        while self._backoffs and self._backoffs[0][0] <= now:
            key = heappop(self._backoffs)[2]
            destination = self._destinations[key]
            destination.is_backing_off = False
            self._schedule(key, destination)
        slack = limits.window / limits.per_second
        while self._ready and len(self._in_flight) < limits.window:
            if self._next_send - now > slack:
                return min(self._next_send - now - slack, MAX_WAIT_SECONDS)
            self._next_send = max(self._next_send, now) + 1 / limits.per_second
            self._send(self._ready.popleft(), now)
        wait = MAX_WAIT_SECONDS
        if self._in_flight:  # all have the same timeout, so the oldest expires first
            wait = min(wait, next(iter(self._in_flight.values())).deadline - now)
        if self._backoffs:
            wait = min(wait, self._backoffs[0][0] - now)
        return max(wait, 0.0)

    def _send(self, key: Hashable, now: float) -> None:
        destination = self._destinations[key]
        destination.is_ready = False
        if destination.is_backing_off or not destination.queue:
            return  # another request to it timed out since it was marked as ready
        request, tries = destination.queue.popleft()
        self._transaction = self._transaction % MAX_TRANSACTION + 1
        try:
            self._endpoint.send(request, self._transaction, self._limits.timeout, self._m_key)
        except OSError as error:
            if error.errno not in TRANSIENT_SEND_ERRORS:
                raise
            self._finish(request, Problem.SEND_FAILED)
        else:
            self.counts.sent += 1
            destination.in_flight += 1
            self._in_flight[self._transaction] = _InFlight(request, tries, now + self._limits.timeout)
        self._schedule(key, destination)

    def _receive(self, reply: Reply) -> None:
        sent = self._in_flight.pop(reply.transaction, None)
        if sent is None:
            self.counts.unmatched += 1
            return
        self.counts.received += 1
        request = sent.request
        self.unresponsive.discard(request.destination)
        destination = self._destinations[request.destination]
        destination.in_flight -= 1
        destination.has_responded, destination.missed = True, 0
        result = result_of(request, reply)
        if result is Problem.BUSY and sent.tries < MAX_BUSY_TRIES:
            self._retry(request, sent.tries + 1)
            return
        if result is Problem.MALFORMED:
            self.counts.malformed += 1
        self._finish(request, result)
        self._schedule(request.destination, destination)

    def _expire(self, now: float) -> None:
        """Retry or finish requests whose deadline has passed."""
        while self._in_flight:
            transaction, sent = next(iter(self._in_flight.items()))
            if sent.deadline > now:
                return
            del self._in_flight[transaction]
            request = sent.request
            destination = self._destinations[request.destination]
            destination.in_flight -= 1
            is_responsive = not destination.missed and request.destination not in self.unresponsive
            if is_responsive and sent.tries < self._limits.tries:
                self._retry(request, sent.tries + 1)
                continue
            self.counts.timeouts += 1
            destination.missed += 1
            self._finish(request, Problem.TIMEOUT)
            if not destination.has_responded or destination.missed >= MAX_MISSED:
                self._mark_unresponsive(request.destination, destination)
            self._schedule(request.destination, destination)

    def _mark_unresponsive(self, key: Hashable, destination: _Destination) -> None:
        """Skip the queued requests to a destination."""
        if len(self.unresponsive) < MAX_UNRESPONSIVE:
            self.unresponsive.add(key)
        skipped, destination.queue = destination.queue, deque()
        for request, _ in skipped:
            self._finish(request, Problem.UNRESPONSIVE)

    def _retry(self, request: Request, tries: int) -> None:
        """Queue a request again, first of its destination, after an exponential backoff."""
        self.counts.retries += 1
        destination = self._destinations[request.destination]
        destination.queue.appendleft((request, tries))
        destination.is_backing_off = True
        self._backoff_count += 1  # orders backoffs that end at the same time
        seconds = self._limits.timeout * BACKOFF_SHARE * 2 ** (tries - 2)
        heappush(self._backoffs, (monotonic() + seconds, self._backoff_count, request.destination))

    def _finish(self, request: Request, result: Result) -> None:
        self._add(request.handler(request.tag, result))

    def _stop(self) -> None:
        """Finish all requests without sending them; follow-up requests are dropped."""
        remaining = [sent.request for sent in self._in_flight.values()]
        remaining += [request for destination in self._destinations.values() for request, _ in destination.queue]
        for request in remaining:
            request.handler(request.tag, Problem.STOPPED)
