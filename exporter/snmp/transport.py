"""The UDP socket of one SNMP target: request-ids, tries and timeouts, and the exchange of each response."""

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from exporter.snmp.ber import decode_oid, format_oid
from exporter.snmp.errors import (
    DecodeError,
    SnmpAuthenticationError,
    SnmpError,
    SnmpTimeout,
    SnmpUnreachable,
)
from exporter.snmp.exchange import Exchange, Request
from exporter.snmp.message import (
    PDU_NAMES,
    REPORT,
    RESPONSE,
    Pdu,
    encode_pdu,
    encode_varbind,
)
from exporter.snmp.session import MismatchError, Session, Verdict

_BACK_OFF: Final = 1.5  # factor between the timeouts of two tries
_MAX_REQUEST_ID: Final = 2**31 - 1
_MAX_DATAGRAM: Final = 65_535
_MAX_REPORTS: Final = 3  # for one request: engine discovery, time synchronization, and one more


@dataclass(slots=True)
class TransportCounters:
    """Datagrams of one client since it was created.

    Attributes:
        requests: datagrams sent, retries included.
        retries: datagrams sent again after a timeout.
        responses: responses accepted.
        unmatched: well-formed responses that match no pending request.
        malformed: datagrams that are not an SNMP response.
        mismatched: responses with another community, version, user or time, or without the required signature.
        reports: v3 Report PDUs processed.
    """

    requests: int = 0
    retries: int = 0
    responses: int = 0
    unmatched: int = 0
    malformed: int = 0
    mismatched: int = 0
    reports: int = 0

    def rejected(self, hint: str) -> str:
        """Return a text on the rejected datagrams, which may show the cause of a timeout; `hint` if there are none."""
        counts = {
            "malformed": self.malformed,
            "matching no request": self.unmatched,
            "with another community, user or signature": self.mismatched,
        }
        listed = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return f"; datagrams rejected so far: {listed}" if listed else hint


class PendingExchange:
    """One exchange in progress: one request in flight, and its tries.

    Since some agents drop a repeated request-id as a duplicate, each try has a new one. Since the response to an
    earlier try may only be late, all ids of the request are valid. The next request is sent directly from the receive
    callback: waking a task for each of the forty requests of a poll costs a sixth of the poll's CPU.
    """

    __slots__ = ("_exchange", "_reports", "_sent", "_timer", "_transport", "_tries_left", "done")

    def __init__(self, transport: "UdpTransport", exchange: Exchange) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport = transport
        self._exchange = exchange
        self._timer: asyncio.TimerHandle | None = None
        self._sent: dict[int, Request | None] = {}  # by id, the tries in flight; None is the engine discovery
        self._tries_left = 0
        self._reports = 0

    @property
    def last_request(self) -> str:
        """The last request, for error texts."""
        return _describe(next(reversed(self._sent.values()))) if self._sent else "nothing"

    def stop(self) -> None:
        """End the exchange, finished or not; later responses match no request."""
        self._clear_pending()
        if not self.done.done():
            self.done.cancel()
        elif not self.done.cancelled():
            self.done.exception()  # if two exchanges fail, only one error is raised

    def send_next(self) -> None:
        """Send the next request, or finish."""
        self._clear_pending()
        request = self._exchange.next_request()
        if request is not None:
            # After one request timed out, one try of each other request is enough to see whether the target is alive.
            self._tries_left = 1 if self._exchange.pacing.timeouts else 1 + self._transport.retries
            self._reports = 0
            self._send_try(request)
        elif not self.done.done():
            self.done.set_result(None)

    def on_response(self, request_id: int, pdu: Pdu, size: int) -> None:
        """Process the response to one of the tries."""
        request = self._sent[request_id]
        if request is not None:
            self._exchange.on_response(request, pdu, size)
            self.send_next()

    def resend(self, text: str) -> None:
        """Send the request again after a Report updated the session; `text` describes the Report, for an error."""
        self._reports += 1
        request = self._exchange.next_request()
        if self._reports > _MAX_REPORTS or request is None:
            self.fail(
                SnmpAuthenticationError(f"{self._transport.address}: {text}, after each of {_MAX_REPORTS} requests")
            )
        else:
            self._clear_pending()
            self._tries_left = 1 + self._transport.retries
            self._send_try(request)

    def fail(self, error: SnmpError) -> None:
        """End the exchange with an error."""
        self._clear_pending()
        if not self.done.done():
            self.done.set_exception(error)

    def _send_try(self, request: Request) -> None:
        transport = self._transport
        wait = transport.timeout * _BACK_OFF ** len(self._sent)
        self._timer = asyncio.get_running_loop().call_later(wait, self._on_try_timeout, request)
        self._tries_left -= 1
        request_id = transport.next_request_id(self)
        if transport.session.is_ready:
            self._sent[request_id] = request
            varbinds = map(encode_varbind, request.oids)
            pdu = encode_pdu(request.kind, request_id, 0, request.max_repetitions, varbinds)
            transport.send(transport.session.wrap(request_id, pdu))
        else:
            self._sent[request_id] = None
            transport.send(transport.session.discovery(request_id))

    def _on_try_timeout(self, request: Request) -> None:
        exchange = self._exchange
        if self._transport.session.is_ready:  # an engine discovery cannot have been too large
            exchange.pacing.on_try_timeout(request.varbinds)
        if self._tries_left:
            self._transport.counters.retries += 1
            self._send_try(exchange.next_request() or request)  # the same request, possibly smaller
            return
        tries = len(self._sent)
        last_request = self.last_request
        exchange.on_timeout(request)
        if exchange.pacing.is_unresponsive or (not exchange.pacing.responded and exchange.next_request() is None):
            times = f"{tries} {'time' if tries == 1 else 'times'}"
            what = f"no response to {last_request}, tried {times}{self._transport.rejected()}"
            self.fail(SnmpTimeout(f"{self._transport.address}: {what}"))
        else:
            self.send_next()

    def _clear_pending(self) -> None:
        """Cancel the timer and forget the tries in flight."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport.forget(self._sent)
        self._sent.clear()


def _describe(request: Request | None) -> str:
    if request is None:
        return "the engine discovery"
    first = format_oid(decode_oid(request.oids[0]))
    more = f" and {len(request.oids) - 1} more" if len(request.oids) > 1 else ""
    times = f" times {request.max_repetitions}" if request.max_repetitions else ""
    return f"{PDU_NAMES[request.kind]} {first}{more}{times}"


class UdpTransport(asyncio.DatagramProtocol):
    """The socket of one target: assigns request-ids, and passes each response to the exchange it belongs to."""

    def __init__(
        self,
        address: str,
        session: Session,
        counters: TransportCounters,
        *,
        timeout: float,
        retries: int,
    ) -> None:
        self.address = address
        self.session = session
        self.counters = counters
        self.timeout = timeout
        self.retries = retries
        self.peer: tuple[Any, ...] | None = None  # where to send, if the socket is not connected
        self._last_request_id = int.from_bytes(os.urandom(4), "big") >> 1
        self._transport: asyncio.DatagramTransport | None = None
        self._pending: dict[int, PendingExchange] = {}
        self._exchanges: list[PendingExchange] = []

    def start(self, exchange: Exchange) -> PendingExchange:
        """Start an exchange; its future is done when the exchange is, and fails if the target does not respond."""
        pending = PendingExchange(self, exchange)
        self._exchanges = [one for one in self._exchanges if not one.done.done()]
        self._exchanges.append(pending)
        if self._transport is None:
            pending.fail(SnmpUnreachable(f"{self.address}: the socket is closed"))
        else:
            pending.send_next()
        return pending

    def next_request_id(self, exchange: PendingExchange) -> int:
        """Return a new request-id whose response is passed to the exchange."""
        self._last_request_id = self._last_request_id % _MAX_REQUEST_ID + 1
        self._pending[self._last_request_id] = exchange
        return self._last_request_id

    def forget(self, request_ids: Iterable[int]) -> None:
        """Treat responses to these request-ids as unmatched from now on."""
        for request_id in request_ids:
            self._pending.pop(request_id, None)

    def send(self, datagram: bytes) -> None:
        """Send one datagram and count it."""
        self.counters.requests += 1
        if self._transport is not None:  # else connection_lost reports it in a moment
            self._transport.sendto(datagram, self.peer)

    def close(self) -> None:
        """Close the socket; exchanges in progress fail."""
        if self._transport is not None:
            self._transport.abort()

    def rejected(self) -> str:
        """Return a text on what was received in place of valid responses."""
        return self.counters.rejected(self.session.hint)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport, as asyncio calls it; limit its receive buffer."""
        self._transport = cast(asyncio.DatagramTransport, transport)
        # asyncio allocates a buffer of 256 KiB for each datagram, which the C library maps and unmaps each time. The
        # size of the largest datagram is enough, and saves a fifth of a poll's CPU.
        if hasattr(transport, "max_size"):
            transport.max_size = _MAX_DATAGRAM

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all exchanges: the socket is closed."""
        self._transport = None
        self._fail_all(SnmpUnreachable(f"{self.address}: the socket was closed{f': {exc}' if exc else ''}"))

    def error_received(self, exc: Exception) -> None:
        """Fail all exchanges: the kernel reported an ICMP error."""
        self._fail_all(SnmpUnreachable(f"{self.address}: {exc}; the port is closed, or there is no route to the host"))

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Pass a response to its exchange; count all other datagrams."""
        try:
            pdu = self.session.unwrap(data)
        except DecodeError:
            self.counters.malformed += 1
            return
        except MismatchError:
            self.counters.mismatched += 1
            return
        exchange = self._pending.get(pdu.request_id)
        if pdu.kind not in (RESPONSE, REPORT):
            self.counters.malformed += 1
        elif exchange is None:
            self.counters.unmatched += 1
        elif pdu.kind == REPORT:
            self._on_report(exchange, pdu, addr)
        else:
            self.counters.responses += 1
            exchange.on_response(pdu.request_id, pdu, len(data))

    def _on_report(self, exchange: PendingExchange, report: Pdu, addr: object) -> None:
        if self._is_other_address(addr):  # any host can send an unsigned Report
            self.counters.mismatched += 1
            return
        self.counters.reports += 1
        verdict, text = self.session.handle_report(report)
        if verdict is Verdict.RESEND:
            exchange.resend(text)
        else:
            exchange.fail(SnmpAuthenticationError(f"{self.address}: {text}"))

    def _is_other_address(self, addr: object) -> bool:
        return self.peer is not None and addr != self.peer

    def _fail_all(self, error: SnmpError) -> None:
        for exchange in self._exchanges:
            exchange.fail(error)
