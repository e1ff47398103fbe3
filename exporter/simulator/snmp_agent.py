"""A simulated SNMP agent: it responds to GET, GETNEXT and GETBULK from its rows, with the faults of real agents.

The simulator of a switch adds the rows, and updates their values:

    agent = SnmpAgent({(1, 3, 6, 1, 2, 1, 2, 2, 1, 10, 1): Typed(COUNTER32, 0)})
    host, port = await agent.start()
    agent.set((1, 3, 6, 1, 2, 1, 2, 2, 1, 10, 1), Typed(COUNTER32, 1500))
    agent.faults.loop.add((1, 3, 6, 1, 2, 1, 2, 2, 1, 10))
    agent.close()
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Self, cast

from exporter.simulator.snmp_faults import SnmpFaults, next_unsorted
from exporter.simulator.snmp_rows import Rows, RowValue, end_of_view
from exporter.simulator.snmp_v3 import Engine, OpenedRequest
from exporter.snmp.ber import (
    COUNTER64,
    NO_SUCH_INSTANCE,
    Oid,
    decode_oid,
    encode_oid,
    encode_value,
    read_header,
)
from exporter.snmp.errors import DecodeError
from exporter.snmp.message import (
    GEN_ERR,
    GET,
    GETBULK,
    NO_ERROR,
    NO_SUCH_NAME,
    RESPONSE,
    TOO_BIG,
    V1,
    V2C,
    V3,
    Pdu,
    decode_message,
    encode_message,
    encode_pdu,
    encode_varbind,
)

MAX_REPLY_BYTES: Final = 1472
"""Size of a response that fits an Ethernet frame; real agents have limits from 484 to 65,507 bytes."""

_REPLY_OVERHEAD: Final = 40  # headers around the variables, without the community
_MALFORMED: Final = b"\x30\x84\xff\xff\xff\xff junk"
_NO_SUCH_INSTANCE: Final = encode_value(NO_SUCH_INSTANCE, None)
_MAX_IDS: Final = 1000
"""Request-ids that an agent with the fault `filter_duplicates` stores."""


class _Variable(NamedTuple):
    """One variable of a response: its name, and the encoding of name and value."""

    oid: Oid
    encoded: bytes
    ended: bool = False


class SnmpAgent:
    """An agent that serves typed rows. Each row is encoded when it is set, not when it is requested.

    Attributes:
        faults: See `SnmpFaults`.
        rows: The rows that are served.
        requests: Number of datagrams received, also of those without a response.
    """

    def __init__(
        self,
        rows: Mapping[Oid, RowValue] | Rows | None = None,
        *,
        community: str | bytes = "public",
        engine: Engine | None = None,
        max_reply: int = MAX_REPLY_BYTES,
        faults: SnmpFaults | None = None,
    ) -> None:
        """Create an agent.

        Args:
            rows: Typed values by identifier of the instance; or rows that are shared with other agents.
            community: The accepted community of v1 and v2c.
            engine: Engine of v3, with its users; without one, v3 is not supported.
            max_reply: Maximum size of a response; a longer one of GETBULK is shortened, of GET it is tooBig.
            faults: See `SnmpFaults`.

        Raises:
            ValueError: An identifier or a value cannot be encoded.
        """
        self.faults = faults or SnmpFaults()
        self.requests = 0
        self._community = community.encode() if isinstance(community, str) else community
        self._room = max_reply - _REPLY_OVERHEAD - len(self._community)
        self.engine = engine
        self._wrap: Callable[[bytes], bytes] = self._in_community
        self._version = V2C
        self.rows = rows if isinstance(rows, Rows) else Rows(rows)
        self._late: dict[tuple[object, ...], tuple[int, Callable[[bytes], bytes]]] = {}
        self._answered: dict[int, None] = {}
        self._transport: asyncio.DatagramTransport | None = None
        self._other: socket.socket | None = None

    def set(self, oid: Oid, value: RowValue) -> None:
        """Add a row or change its value. Raises ValueError as the constructor does."""
        self.rows.set_many({oid: value})

    def set_many(self, rows: Mapping[Oid, RowValue]) -> None:
        """Add or change several rows at once. Raises ValueError as the constructor does, and then changes none."""
        self.rows.set_many(rows)

    def clear(self) -> None:
        """Remove all rows."""
        self.rows.remove(0, len(self.rows))

    def remove(self, oid: Oid) -> None:
        """Remove a row. Raises KeyError if there is none."""
        place = self.rows.place(oid)
        if place is None:
            raise KeyError(oid)
        self.rows.remove(place, place + 1)

    # --- the network ---------------------------------------------------------------------------------------------

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> tuple[str, int]:
        """Listen; return the address and the port, which is a free one for 0."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Server(self), local_addr=(host, port))
        name = transport.get_extra_info("sockname")
        return name[0], name[1]

    def close(self) -> None:
        """Stop listening."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if self._other is not None:
            self._other.close()
            self._other = None

    def set_transport(self, transport: asyncio.DatagramTransport) -> None:
        """Set the socket to send from."""
        self._transport = transport

    def send(self, reply: bytes, to: tuple[str, int]) -> None:
        """Send a datagram, with the fault `other_port` from another port."""
        if self._transport is None:  # closed while a delayed reply waited
            return
        if not self.faults.other_port:
            self._transport.sendto(reply, to)
            return
        if self._other is None:
            listening = self._transport.get_extra_info("socket")
            self._other = socket.socket(listening.family, socket.SOCK_DGRAM)
            self._other.bind((listening.getsockname()[0], 0))
        self._other.sendto(reply, to)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # --- the protocol --------------------------------------------------------------------------------------------

    def answer(self, datagram: bytes) -> list[bytes]:
        """Return the datagrams to send for a received one: none if it is malformed, unauthorized or dropped."""
        self.requests += 1
        request = self._open(datagram)
        if isinstance(request, bytes):  # a report
            return [] if self.faults.silent else [request]
        return [] if request is None or self._is_ignored(request) else self._respond(request)

    def _open(self, datagram: bytes) -> Pdu | bytes | None:
        """Return the request in a datagram, a report to send, or None where no response is due."""
        try:
            message = decode_message(datagram)
        except DecodeError:
            opened = self.engine.open(datagram) if self.engine is not None else None
            if not isinstance(opened, OpenedRequest):
                return opened
            self._wrap, self._version = opened.wrap, V3
            return opened.pdu
        if message.community != self._community or message.pdu.kind == RESPONSE:
            return None
        self._wrap, self._version = self._in_community, message.version
        return message.pdu

    def _in_community(self, pdu: bytes) -> bytes:
        return encode_message(self._version, self._community, pdu)

    def _respond(self, pdu: Pdu) -> list[bytes]:
        faults = self.faults
        if faults.too_big_above is not None and _requested_variables(pdu) > faults.too_big_above:
            return self._datagrams(pdu, TOO_BIG, 0, [])
        if faults.late:
            first = self._first_try(pdu)
            if first is None:
                return []
            first_id, self._wrap = first
            return self._reply(pdu._replace(request_id=first_id))
        return self._reply(pdu)

    def _is_ignored(self, pdu: Pdu) -> bool:
        """Return whether a fault leaves a request without a response."""
        faults = self.faults
        if faults.silent or (faults.drop_every and self.requests % faults.drop_every == 0):
            return True
        if faults.silent_above is not None and _requested_variables(pdu) > faults.silent_above:
            return True
        return faults.filter_duplicates and self._is_duplicate(pdu)

    def _is_duplicate(self, pdu: Pdu) -> bool:
        """Return whether a request-id was received before; store it."""
        if pdu.request_id in self._answered:
            return True
        self._answered[pdu.request_id] = None
        if len(self._answered) > _MAX_IDS:
            del self._answered[next(iter(self._answered))]
        return False

    def _first_try(self, pdu: Pdu) -> tuple[int, Callable[[bytes], bytes]] | None:
        """Return request-id and wrapper of the first try of a request; None if this is the first."""
        request = (pdu.kind, pdu.error_index, *(name for name, _, _ in pdu.varbinds))
        first = self._late.pop(request, None)
        if first is None:
            self._late[request] = (pdu.request_id, self._wrap)
        return first

    def _reply(self, pdu: Pdu) -> list[bytes]:
        faults = self.faults
        names = [name for name, _, _ in pdu.varbinds]
        if self._version == V1:
            return self._reply_v1(pdu, names)
        if pdu.kind != GETBULK or faults.silent_on or faults.gen_err:
            first = [self._get(name) if pdu.kind == GET else self._next(name) for name in names]
            if any(_within(found.oid, faults.silent_on) for found in first):
                return []
            for place, found in enumerate(first, start=1):
                if _within(found.oid, faults.gen_err):
                    index = 0 if faults.gen_err_without_index else place
                    return self._datagrams(pdu, GEN_ERR, index, [encode_varbind(name) for name in names])
            encoded = [found.encoded for found in first]
        if pdu.kind == GETBULK:
            encoded = self._bulk(pdu, names)
        if sum(map(len, encoded)) > self._room:
            return self._datagrams(pdu, TOO_BIG, 0, [])
        return self._datagrams(pdu, NO_ERROR, 0, encoded)

    def _reply_v1(self, pdu: Pdu, names: list[bytes]) -> list[bytes]:
        """Respond in v1, which has neither GETBULK nor Counter64, and noSuchName for a missing row."""
        if pdu.kind == GETBULK:
            return []
        found = [self._get(name) if pdu.kind == GET else self._next(name) for name in names]
        for place, name in enumerate(names):
            while pdu.kind != GET and not found[place].ended and _is_counter64(found[place].encoded):
                found[place] = self._next(encode_oid(found[place].oid))
            missing = pdu.kind == GET and (
                self.rows.place(decode_oid(name)) is None or _is_counter64(found[place].encoded)
            )
            if missing or found[place].ended:
                return self._datagrams(pdu, NO_SUCH_NAME, place + 1, [encode_varbind(one) for one in names])
        return self._datagrams(pdu, NO_ERROR, 0, [one.encoded for one in found])

    def _datagrams(self, pdu: Pdu, status: int, index: int, varbinds: list[bytes]) -> list[bytes]:
        ids = [pdu.request_id]
        if self.faults.wrong_id_first:
            ids.insert(0, pdu.request_id ^ 0x2A)
        replies = [self._wrap(encode_pdu(RESPONSE, number, status, index, varbinds)) for number in ids]
        return [_MALFORMED, *replies] if self.faults.junk_first else replies

    def _bulk(self, pdu: Pdu, names: list[bytes]) -> list[bytes]:
        """Return the variables of a GETBULK that fit the response (RFC 3416, section 4.2.3)."""
        once = max(0, min(pdu.error_status, len(names)))  # non-repeaters
        out = [self._next(name).encoded for name in names[:once]]
        size = sum(map(len, out))
        row = names[once:]
        faults = self.faults
        if not (faults.loop or faults.truncate or faults.unsorted):
            return out + self.rows.bulk(row, pdu.error_index, self._room - size)
        for _ in range(max(0, pdu.error_index)):
            found = [self._next(name) for name in row]
            for one in found:
                size += len(one.encoded)
                if size > self._room:
                    return out
                out.append(one.encoded)
            if all(one.ended for one in found):
                break
            row = [encode_oid(one.oid) for one in found]
        return out

    def _get(self, name: bytes) -> _Variable:
        oid = decode_oid(name)
        place = self.rows.place(oid)
        encoded = encode_varbind(name, _NO_SUCH_INSTANCE) if place is None else self.rows.varbind(place)
        return _Variable(oid, encoded)

    def _next(self, name: bytes) -> _Variable:
        """Return the row after an identifier."""
        rows = self.rows
        at = rows.place_after(name)
        oid: Oid | None = None
        for column in self.faults.unsorted:
            oid = oid or decode_oid(name)
            at = next_unsorted(rows.place(oid), at, rows.span(column))
        for column in self.faults.loop:
            oid = oid or decode_oid(name)
            first, end = rows.span(column)
            if at == end > first and oid[: len(column)] == column:
                at = first
        for column, limit in self.faults.truncate.items():
            first, end = rows.span(column)
            if first + limit <= at < end:
                at = end
        if at == len(rows):
            return _Variable(decode_oid(name), end_of_view(name), ended=True)
        return _Variable(rows.oid(at), rows.varbind(at))


def _is_counter64(varbind: bytes) -> bool:
    """Return whether the value of an encoded variable is a Counter64."""
    _, start, _ = read_header(varbind, 0, len(varbind))
    _, _, end = read_header(varbind, start, len(varbind))
    return varbind[end] == COUNTER64


class _Server(asyncio.DatagramProtocol):
    def __init__(self, agent: SnmpAgent) -> None:
        self._agent = agent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._agent.set_transport(cast(asyncio.DatagramTransport, transport))

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        replies = self._agent.answer(data)
        if self._agent.faults.delay:
            asyncio.get_running_loop().call_later(self._agent.faults.delay, self._send, replies, addr)
        else:
            self._send(replies, addr)

    def _send(self, replies: list[bytes], addr: tuple[str, int]) -> None:
        for reply in replies:
            self._agent.send(reply, addr)


def _requested_variables(pdu: Pdu) -> int:
    """Return the number of variables in a complete response to a request."""
    if pdu.kind != GETBULK:
        return len(pdu.varbinds)
    once = min(max(0, pdu.error_status), len(pdu.varbinds))
    return once + (len(pdu.varbinds) - once) * max(0, pdu.error_index)


def _within(oid: Oid, columns: Iterable[Oid]) -> bool:
    return any(oid[: len(column)] == column for column in columns)
