"""The asyncio side: one UDP socket for each target, and one question or a few in flight over it."""

import asyncio
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from exporter.snmp.ber import Oid, decode_oid, format_oid
from exporter.snmp.errors import (
    DecodeError,
    SnmpAuthenticationError,
    SnmpError,
    SnmpTimeout,
    SnmpUnreachable,
)
from exporter.snmp.get import Get, GetResult
from exporter.snmp.message import (
    PDU_NAMES,
    REPORT,
    RESPONSE,
    V1,
    Pdu,
    encode_pdu,
    encode_varbind,
)
from exporter.snmp.poll import (
    Exchange,
    Memory,
    Reason,
    Request,
)
from exporter.snmp.security import Community, Credentials
from exporter.snmp.session import (
    ForeignError,
    Session,
    Verdict,
    make_session,
)
from exporter.snmp.walk import (
    MAX_ROWS,
    Walk,
    WalkResult,
    merged,
    shares,
)

DEFAULT_PORT: Final = 161

_BACK_OFF: Final = 1.5  # each try waits so much longer than the one before
_LARGEST_ID: Final = 2**31 - 1
_LARGEST_DATAGRAM: Final = 65_535
_MAX_REPORTS: Final = 3  # of one question, that lead to asking again: who is there, what time it is, and once more


def parse_address(text: str) -> tuple[str, int]:
    """Split `host`, `host:port`, `[ipv6]`, `[ipv6]:port` or a bare IPv6 address into host and port (161 if none).

    Raises:
        ValueError: the host is empty, or the port is not 1 to 65535.
    """
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"address {text!r}: an IPv6 address with a port is written [2001:db8::1]:161")
        port = rest[1:] if rest else str(DEFAULT_PORT)
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host, port = text, str(DEFAULT_PORT)
    if not host:
        raise ValueError(f"address {text!r}: the host is empty")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise ValueError(f"address {text!r}: port {port!r} is not a number from 1 to 65535")
    return host, int(port)


@dataclass(slots=True)
class Counters:
    """What went over one client's socket, since it was made.

    Attributes:
        requests: datagrams sent, retries among them.
        retries: datagrams sent again for want of an answer.
        replies: answers that were taken.
        stray: well-formed responses that nobody waits for (any more).
        junk: datagrams that are no SNMP response.
        foreign: responses with another community, version, user or time than ours, or not signed as they should be.
        elsewhere: answers that were taken though they came from another address.
        reports: reports of v3 agents that were heeded.
    """

    requests: int = 0
    retries: int = 0
    replies: int = 0
    stray: int = 0
    junk: int = 0
    foreign: int = 0
    elsewhere: int = 0
    reports: int = 0

    def refused(self, hint: str) -> str:
        """Say what came instead of an answer, which often names the cause: some other service, a wrong password."""
        seen = {"junk": self.junk, "stray": self.stray, "not for us or not signed as it should be": self.foreign}
        told = ", ".join(f"{count} {name}" for name, count in seen.items() if count)
        return f"; datagrams refused so far: {told}" if told else hint


class SnmpClient:
    """Asks one SNMP target. Not for use from several event loops; calls at the same time wait for each other."""

    def __init__(
        self,
        address: str,
        credentials: Credentials | str | bytes,
        *,
        timeout: float = 1.0,
        retries: int = 2,
        deadline: float = 10.0,
        window: int = 1,
        unconnected: bool = False,
    ) -> None:
        """Prepare; nothing is sent or resolved yet.

        Args:
            address: see `parse_address`.
            credentials: a community or a user; a mere text is a community of v2c. Never part of an error's text.
            timeout: seconds to wait for the first try of a question; each further try waits half as long again.
            retries: tries after the first one.
            deadline: seconds for a whole walk or get.
            window: questions in flight at the same time; many agents starve at more than one.
            unconnected: take answers from other addresses and ports too, as some agents send them.

        Raises:
            ValueError: the address cannot be one.
        """
        if isinstance(credentials, str):
            credentials = credentials.encode()
        if isinstance(credentials, bytes):
            credentials = Community(credentials)
        self.address = address
        self.counters = Counters()
        self._host, self._port = parse_address(address)
        self._session = make_session(credentials)
        self._timeout = timeout
        self._retries = retries
        self._deadline = deadline
        self._window = window
        self._unconnected = unconnected
        v1 = isinstance(credentials, Community) and credentials.version == V1
        self._memory = Memory(bulk=not v1)
        self._lock = asyncio.Lock()
        self._wire: _Wire | None = None

    @property
    def boots(self) -> int | None:
        """How often an agent of v3 has started, as it says under signature; None where that is not known."""
        return self._session.boots

    @property
    def engine_id(self) -> bytes:
        """The identity of the agent's engine, of v3; empty where it is not known."""
        return self._session.engine_id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket. A call that waits for an answer fails; a later call opens a new one."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    async def walk(self, columns: Sequence[Oid], *, max_rows: int = MAX_ROWS, unordered: bool = False) -> WalkResult:
        """Walk several columns; see `Walk` and `WalkResult`.

        A target that falls silent midway costs only what is missing then, which the result's problems say.

        Raises:
            SnmpTimeout: it answered nothing at all.
            SnmpUnreachable: nor will it, says the network.
            SnmpAuthenticationError: it does not know the user of v3, or its passwords.
            ValueError: a column is no object identifier.
        """
        walks = [
            Walk(share, self._memory, max_rows=max_rows, unordered=unordered) for share in shares(columns, self._window)
        ]
        await self._run(walks)
        return merged([walk.result() for walk in walks], columns)

    async def get(self, oids: Sequence[Oid]) -> GetResult:
        """Read single objects; see `GetResult`. Raises the same errors as `walk`."""
        get = Get(oids, self._memory)
        await self._run([get])
        return get.result()

    async def _run(self, exchanges: Sequence[Exchange]) -> None:
        async with self._lock:
            deadline = asyncio.get_running_loop().time() + self._deadline
            try:
                wire = await self._open(deadline)
                await self._converse(wire, exchanges, deadline)
            except (SnmpTimeout, SnmpUnreachable, SnmpAuthenticationError) as error:
                self.close()  # the next call resolves the name again, and meets a v3 agent anew
                if not any(exchange.pace.heard for exchange in exchanges):
                    raise
                reason = Reason.TIMEOUT if isinstance(error, SnmpTimeout) else Reason.UNREACHABLE
                for exchange in exchanges:
                    exchange.give_up(reason, str(error))

    async def _open(self, deadline: float) -> "_Wire":
        if self._wire is None:
            self._session.forget()
            wire = _Wire(self.address, self._session, self.counters, timeout=self._timeout, retries=self._retries)
            try:
                async with asyncio.timeout_at(deadline):
                    if self._unconnected:
                        await self._bind(wire)
                    else:
                        await asyncio.get_running_loop().create_datagram_endpoint(
                            lambda: wire, remote_addr=(self._host, self._port)
                        )
            except TimeoutError as error:
                raise SnmpTimeout(f"{self.address}: the name was not resolved in {self._deadline:g} s") from error
            except OSError as error:
                raise SnmpUnreachable(f"{self.address}: {error}") from error
            self._wire = wire
        return self._wire

    async def _bind(self, wire: "_Wire") -> None:
        """Open a socket that takes datagrams from anywhere."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_DGRAM)
        family, _, _, _, address = found[0]
        wire.to = address
        anywhere = "::" if family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104  # to hear who answers from elsewhere
        await loop.create_datagram_endpoint(lambda: wire, local_addr=(anywhere, 0))

    async def _converse(self, wire: "_Wire", exchanges: Sequence[Exchange], deadline: float) -> None:
        lanes = [wire.start(exchange) for exchange in exchanges]
        try:
            async with asyncio.timeout_at(deadline):
                for lane in lanes:
                    await lane.done
        except TimeoutError as error:
            asked = next((lane.asked for lane in lanes if not lane.done.done()), lanes[0].asked)
            what = f"the {self._deadline:g} s for the poll were over before an answer to {asked}"
            raise SnmpTimeout(f"{self.address}: {what}") from error
        finally:
            for lane in lanes:
                lane.stop()


def _describe(request: Request) -> str:
    first = format_oid(decode_oid(request.oids[0]))
    more = f" and {len(request.oids) - 1} more" if len(request.oids) > 1 else ""
    times = f" times {request.max_repetitions}" if request.max_repetitions else ""
    return f"{PDU_NAMES[request.kind]} {first}{more}{times}"


class _Lane:
    """One exchange under way: one question in flight, and its tries.

    Since some agents drop a repeated request-id as a duplicate, each try has a new one; since the answer to an earlier
    try may only be late, all ids of the question are good. The next question is sent right where the answer arrives:
    waking a task for each of the forty questions of a poll costs a sixth of the poll's CPU.
    """

    __slots__ = ("_exchange", "_reports", "_sent", "_timer", "_tries_left", "_wire", "done")

    def __init__(self, wire: "_Wire", exchange: Exchange) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wire = wire
        self._exchange = exchange
        self._timer: asyncio.TimerHandle | None = None
        self._sent: dict[int, Request | None] = {}  # the tries of the question in flight; None is the one who is there
        self._tries_left = 0
        self._reports = 0

    @property
    def asked(self) -> str:
        """The last question, for error texts."""
        return self._described(next(reversed(self._sent.values()))) if self._sent else "nothing"

    def stop(self) -> None:
        """End the exchange, finished or not; later answers to it are strays."""
        self._rest()
        if not self.done.done():
            self.done.cancel()
        elif not self.done.cancelled():
            self.done.exception()  # of two lanes that fail, one is told

    def ask(self) -> None:
        """Send the next question, or end."""
        self._rest()
        request = self._exchange.next_request()
        if request is not None:
            # Once a question stayed unanswered, one try of each other one is enough to learn whether the target lives.
            self._tries_left = 1 if self._exchange.pace.unanswered else 1 + self._wire.retries
            self._reports = 0
            self._try(request)
        elif not self.done.done():
            self.done.set_result(None)

    def take(self, number: int, pdu: Pdu, size: int) -> None:
        """Take the answer to one of the tries."""
        request = self._sent[number]
        if request is not None:
            self._exchange.answered(request, pdu, size)
            self.ask()

    def again(self, text: str) -> None:
        """Ask the question again, since the session has learnt something; `text` says what, for an error."""
        self._reports += 1
        request = self._exchange.next_request()
        if self._reports > _MAX_REPORTS or request is None:
            self.fail(SnmpAuthenticationError(f"{self._wire.address}: {text}, and so again after each question"))
        else:
            self._rest()
            self._tries_left = 1 + self._wire.retries
            self._try(request)

    def fail(self, error: SnmpError) -> None:
        """End the exchange by an error."""
        self._rest()
        if not self.done.done():
            self.done.set_exception(error)

    def _try(self, request: Request) -> None:
        wire = self._wire
        wait = wire.timeout * _BACK_OFF ** len(self._sent)
        self._timer = asyncio.get_running_loop().call_later(wait, self._expired, request)
        self._tries_left -= 1
        number = wire.number(self)
        if wire.session.known:
            self._sent[number] = request
            varbinds = map(encode_varbind, request.oids)
            pdu = encode_pdu(request.kind, number, 0, request.max_repetitions, varbinds)
            wire.send(wire.session.wrap(number, pdu))
        else:
            self._sent[number] = None
            wire.send(wire.session.hello(number))

    def _expired(self, request: Request) -> None:
        exchange = self._exchange
        if self._wire.session.known:  # else it was asked who is there, which cannot have been too much
            exchange.pace.try_lost(request.varbinds)
        if self._tries_left:
            self._wire.counters.retries += 1
            self._try(exchange.next_request() or request)  # the same question, smaller perhaps
            return
        tries = len(self._sent)
        asked = self.asked
        exchange.unanswered(request)
        if exchange.pace.gone or (not exchange.pace.heard and exchange.next_request() is None):
            what = f"no answer to {asked}, tried {tries} {'time' if tries == 1 else 'times'}{self._wire.refused()}"
            self.fail(SnmpTimeout(f"{self._wire.address}: {what}"))
        else:
            self.ask()

    def _rest(self) -> None:
        """Wait for nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wire.forget(self._sent)
        self._sent.clear()

    def _described(self, request: Request | None) -> str:
        return "the question who is there" if request is None else _describe(request)


class _Wire(asyncio.DatagramProtocol):
    """The socket towards one target: it numbers the questions, and deals the answers out to those who asked."""

    def __init__(
        self,
        address: str,
        session: Session,
        counters: Counters,
        *,
        timeout: float,
        retries: int,
    ) -> None:
        self.address = address
        self.session = session
        self.counters = counters
        self.timeout = timeout
        self.retries = retries
        self.to: tuple[Any, ...] | None = None  # where to send, of a socket that is not connected
        self._last_number = int.from_bytes(os.urandom(4), "big") >> 1
        self._transport: asyncio.DatagramTransport | None = None
        self._waiting: dict[int, _Lane] = {}
        self._lanes: list[_Lane] = []

    def start(self, exchange: Exchange) -> _Lane:
        """Begin an exchange; its future is done when it is, and fails if the target is not there."""
        lane = _Lane(self, exchange)
        self._lanes = [one for one in self._lanes if not one.done.done()]
        self._lanes.append(lane)
        if self._transport is None:
            lane.fail(SnmpUnreachable(f"{self.address}: the socket is closed"))
        else:
            lane.ask()
        return lane

    def number(self, lane: _Lane) -> int:
        """Give a new number for a question, whose answer goes to the lane."""
        self._last_number = self._last_number % _LARGEST_ID + 1
        self._waiting[self._last_number] = lane
        return self._last_number

    def forget(self, numbers: Iterable[int]) -> None:
        """Take answers to these numbers for strays from now on."""
        for number in numbers:
            self._waiting.pop(number, None)

    def send(self, datagram: bytes) -> None:
        """Send one datagram."""
        self.counters.requests += 1
        if self._transport is not None:  # else connection_lost says so in a moment
            self._transport.sendto(datagram, self.to)

    def close(self) -> None:
        """Close the socket; exchanges under way fail."""
        if self._transport is not None:
            self._transport.abort()

    def refused(self) -> str:
        """Say what came in place of answers."""
        return self.counters.refused(self.session.hint)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        # asyncio takes a fresh buffer of 256 KiB for each datagram, which the C library maps and unmaps each time. One
        # as large as a datagram can be does as well, and saves a fifth of a poll's CPU.
        if hasattr(transport, "max_size"):
            transport.max_size = _LARGEST_DATAGRAM

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(SnmpUnreachable(f"{self.address}: the socket was closed{f': {exc}' if exc else ''}"))

    def error_received(self, exc: Exception) -> None:
        self._fail(SnmpUnreachable(f"{self.address}: {exc}; nothing listens there, or no way leads there"))

    def datagram_received(self, data: bytes, addr: object) -> None:
        try:
            pdu = self.session.unwrap(data)
        except DecodeError:
            self.counters.junk += 1
            return
        except ForeignError:
            self.counters.foreign += 1
            return
        lane = self._waiting.get(pdu.request_id)
        if pdu.kind not in (RESPONSE, REPORT):
            self.counters.junk += 1
        elif lane is None:
            self.counters.stray += 1
        elif pdu.kind == REPORT:
            self._reported(lane, pdu, addr)
        else:
            self.counters.replies += 1
            if self.to is not None:
                self.counters.elsewhere += self._is_elsewhere(addr)
            lane.take(pdu.request_id, pdu, len(data))

    def _reported(self, lane: _Lane, report: Pdu, addr: object) -> None:
        if self._is_elsewhere(addr):  # anybody can say that he knows nobody
            self.counters.foreign += 1
            return
        self.counters.reports += 1
        verdict, text = self.session.reported(report)
        if verdict is Verdict.AGAIN:
            lane.again(text)
        else:
            lane.fail(SnmpAuthenticationError(f"{self.address}: {text}"))

    def _is_elsewhere(self, addr: object) -> bool:
        return self.to is not None and addr != self.to

    def _fail(self, error: SnmpError) -> None:
        for lane in self._lanes:
            lane.fail(error)
