"""The asyncio side: one connected UDP socket and one question in flight for each target."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self, cast

from exporter.snmp.ber import Oid, decode_oid, format_oid
from exporter.snmp.errors import DecodeError, SnmpError, SnmpTimeout, SnmpUnreachable
from exporter.snmp.get import Get, GetResult
from exporter.snmp.message import (
    PDU_NAMES,
    RESPONSE,
    V2C,
    decode_message,
    encode_message,
    encode_pdu,
    encode_varbind,
)
from exporter.snmp.poll import Exchange, Memory, Reason, Request
from exporter.snmp.walk import MAX_ROWS, Walk, WalkResult

DEFAULT_PORT: Final = 161

_BACK_OFF: Final = 1.5  # each try waits so much longer than the one before
_LARGEST_ID: Final = 2**31 - 1
_LARGEST_DATAGRAM: Final = 65_535


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
        foreign: responses with another community or version than ours.
    """

    requests: int = 0
    retries: int = 0
    replies: int = 0
    stray: int = 0
    junk: int = 0
    foreign: int = 0

    def refused(self) -> str:
        """Say what came instead of an answer, which often names the cause: some other service, a wrong community."""
        seen = {"junk": self.junk, "stray": self.stray, "of another community or version": self.foreign}
        told = ", ".join(f"{count} {name}" for name, count in seen.items() if count)
        return f"; datagrams refused so far: {told}" if told else " (a wrong community looks like this too)"


class SnmpClient:
    """Asks one SNMP v2c target. Not for use from several event loops; calls at the same time wait for each other."""

    def __init__(
        self, address: str, community: str | bytes, *, timeout: float = 1.0, retries: int = 2, deadline: float = 10.0
    ) -> None:
        """Prepare; nothing is sent or resolved yet.

        Args:
            address: see `parse_address`.
            community: the password of v2c; never part of an error's text.
            timeout: seconds to wait for the first try of a question; each further try waits half as long again.
            retries: tries after the first one.
            deadline: seconds for a whole walk or get.

        Raises:
            ValueError: the address cannot be one.
        """
        self.address = address
        self.counters = Counters()
        self._host, self._port = parse_address(address)
        self._community = community.encode() if isinstance(community, str) else community
        self._timeout = timeout
        self._retries = retries
        self._deadline = deadline
        self._memory = Memory()
        self._lock = asyncio.Lock()
        self._conversation: _Conversation | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket. A call that waits for an answer fails; a later call opens a new one."""
        if self._conversation is not None:
            self._conversation.close()
            self._conversation = None

    async def walk(self, columns: Sequence[Oid], *, max_rows: int = MAX_ROWS) -> WalkResult:
        """Walk several columns; see `Walk` and `WalkResult`.

        A target that falls silent midway costs only what is missing then, which the result's problems say.

        Raises:
            SnmpTimeout: it answered nothing at all.
            SnmpUnreachable: nor will it, says the network.
            ValueError: a column is no object identifier.
        """
        walk = Walk(columns, self._memory, max_rows=max_rows)
        await self._run(walk)
        return walk.result()

    async def get(self, oids: Sequence[Oid]) -> GetResult:
        """Read single objects; see `GetResult`. Raises the same errors as `walk`."""
        get = Get(oids, self._memory)
        await self._run(get)
        return get.result()

    async def _run(self, exchange: Exchange) -> None:
        async with self._lock:
            deadline = asyncio.get_running_loop().time() + self._deadline
            try:
                conversation = await self._open(deadline)
                await self._converse(conversation, exchange, deadline)
            except (SnmpTimeout, SnmpUnreachable) as error:
                self.close()  # the next call resolves the name again
                if not exchange.pace.heard:
                    raise
                reason = Reason.TIMEOUT if isinstance(error, SnmpTimeout) else Reason.UNREACHABLE
                exchange.give_up(reason, str(error))

    async def _open(self, deadline: float) -> "_Conversation":
        if self._conversation is None:
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout_at(deadline):
                    _, self._conversation = await loop.create_datagram_endpoint(
                        lambda: _Conversation(
                            self.address, self._community, self.counters, timeout=self._timeout, retries=self._retries
                        ),
                        remote_addr=(self._host, self._port),
                    )
            except TimeoutError as error:
                raise SnmpTimeout(f"{self.address}: the name was not resolved in {self._deadline:g} s") from error
            except OSError as error:
                raise SnmpUnreachable(f"{self.address}: {error}") from error
        return self._conversation

    async def _converse(self, conversation: "_Conversation", exchange: Exchange, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await conversation.start(exchange)
        except TimeoutError as error:
            what = f"the {self._deadline:g} s for the poll were over before an answer to {conversation.asked}"
            raise SnmpTimeout(f"{self.address}: {what}") from error
        finally:
            conversation.stop()


def _describe(request: Request) -> str:
    first = format_oid(decode_oid(request.oids[0]))
    more = f" and {len(request.oids) - 1} more" if len(request.oids) > 1 else ""
    times = f" times {request.max_repetitions}" if request.max_repetitions else ""
    return f"{PDU_NAMES[request.kind]} {first}{more}{times}"


class _Conversation(asyncio.DatagramProtocol):
    """A connected UDP socket over which one exchange at a time is carried, one question in flight.

    Since some agents drop a repeated request-id as a duplicate, each try has a new one; since the answer to an earlier
    try may only be late, all ids of the question are good. The next question is sent right where the answer arrives:
    waking a task for each of the forty questions of a poll costs a sixth of the poll's CPU.
    """

    def __init__(self, address: str, community: bytes, counters: Counters, *, timeout: float, retries: int) -> None:
        self._address = address
        self._community = community
        self._counters = counters
        self._timeout = timeout
        self._retries = retries
        self._request_id = int.from_bytes(os.urandom(4), "big") >> 1
        self._transport: asyncio.DatagramTransport | None = None
        self._exchange: Exchange | None = None
        self._done: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent: dict[int, Request] = {}  # the tries of the question in flight
        self._tries_left = 0

    @property
    def asked(self) -> str:
        """The last question, for error texts."""
        return _describe(next(reversed(self._sent.values()))) if self._sent else "nothing"

    def start(self, exchange: Exchange) -> "asyncio.Future[None]":
        """Begin an exchange; the future is done when the exchange is, and fails if the target is not there."""
        self._done = asyncio.get_running_loop().create_future()
        if self._transport is None:
            self._fail(SnmpUnreachable(f"{self._address}: the socket is closed"))
        else:
            self._exchange = exchange
            self._ask(exchange)
        return self._done

    def stop(self) -> None:
        """End the exchange, finished or not; later answers to it are strays."""
        if self._timer is not None:
            self._timer.cancel()
        self._exchange = self._timer = self._done = None
        self._sent.clear()

    def close(self) -> None:
        """Close the socket; an exchange under way fails."""
        if self._transport is not None:
            self._transport.abort()

    def _ask(self, exchange: Exchange) -> None:
        self._sent.clear()
        request = exchange.next_request()
        if request is not None:
            # Once a question stayed unanswered, one try of each other one is enough to learn whether the target lives.
            self._tries_left = 1 if exchange.pace.unanswered else 1 + self._retries
            self._try(request)
        elif self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _try(self, request: Request) -> None:
        wait = self._timeout * _BACK_OFF ** len(self._sent)
        self._timer = asyncio.get_running_loop().call_later(wait, self._expired, request)
        self._tries_left -= 1
        self._request_id = self._request_id % _LARGEST_ID + 1
        self._sent[self._request_id] = request
        self._counters.requests += 1
        varbinds = map(encode_varbind, request.oids)
        pdu = encode_pdu(request.kind, self._request_id, 0, request.max_repetitions, varbinds)
        if self._transport is not None:  # else connection_lost says so in a moment
            self._transport.sendto(encode_message(V2C, self._community, pdu))

    def _expired(self, request: Request) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        exchange.pace.try_lost(request.varbinds)
        if self._tries_left:
            self._counters.retries += 1
            self._try(exchange.next_request() or request)  # the same question, smaller perhaps
            return
        tries = len(self._sent)
        exchange.unanswered(request)
        if exchange.pace.gone or (not exchange.pace.heard and exchange.next_request() is None):
            what = f"no answer to {_describe(request)}, tried {tries} times{self._counters.refused()}"
            self._fail(SnmpTimeout(f"{self._address}: {what}"))
        else:
            self._ask(exchange)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        # asyncio takes a fresh buffer of 256 KiB for each datagram, which the C library maps and unmaps each time. One
        # as large as a datagram can be does as well, and saves a fifth of a poll's CPU.
        if hasattr(transport, "max_size"):
            transport.max_size = _LARGEST_DATAGRAM

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(SnmpUnreachable(f"{self._address}: the socket was closed{f': {exc}' if exc else ''}"))

    def error_received(self, exc: Exception) -> None:
        self._fail(SnmpUnreachable(f"{self._address}: {exc}; nothing listens there, or no way leads there"))

    def datagram_received(self, data: bytes, addr: object) -> None:  # noqa: ARG002 - the socket is connected
        try:
            message = decode_message(data)
        except DecodeError:
            self._counters.junk += 1
            return
        if message.version != V2C or message.community != self._community:
            self._counters.foreign += 1
        elif message.pdu.kind != RESPONSE:
            self._counters.junk += 1
        elif self._exchange is None or message.pdu.request_id not in self._sent:
            self._counters.stray += 1
        else:
            self._counters.replies += 1
            if self._timer is not None:
                self._timer.cancel()
            self._exchange.answered(self._sent[message.pdu.request_id], message.pdu, len(data))
            self._ask(self._exchange)

    def _fail(self, error: SnmpError) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._exchange = None
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
