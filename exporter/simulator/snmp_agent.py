"""A simulated SNMP v2c agent: rows in, GET, GETNEXT and GETBULK answered, and the faults of real agents at a switch.

It knows nothing of switches. Whoever simulates one fills the rows, and sets values as the traffic goes on:

    agent = SnmpAgent({(1, 3, 6, 1, 2, 1, 2, 2, 1, 10, 1): Typed(COUNTER32, 0)})
    host, port = await agent.start()
    agent.set((1, 3, 6, 1, 2, 1, 2, 2, 1, 10, 1), Typed(COUNTER32, 1500))
    agent.faults.loop.add((1, 3, 6, 1, 2, 1, 2, 2, 1, 10))
    agent.close()
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self, cast

from exporter.snmp.ber import (
    END_OF_MIB_VIEW,
    NO_SUCH_INSTANCE,
    Oid,
    Typed,
    decode_oid,
    encode_oid,
    encode_value,
)
from exporter.snmp.errors import DecodeError
from exporter.snmp.message import (
    GEN_ERR,
    GET,
    GETBULK,
    NO_ERROR,
    RESPONSE,
    TOO_BIG,
    V2C,
    Pdu,
    decode_message,
    encode_message,
    encode_pdu,
    encode_varbind,
)

MAX_REPLY_BYTES: Final = 1472
"""What fits an Ethernet frame; real agents have limits from 484 to 65,507 bytes."""

_REPLY_OVERHEAD: Final = 40  # headers around the variables, beside the community
_JUNK: Final = b"\x30\x84\xff\xff\xff\xff junk"
_NO_SUCH_INSTANCE: Final = encode_value(NO_SUCH_INSTANCE, None)
_END_OF_MIB_VIEW: Final = encode_value(END_OF_MIB_VIEW, None)


@dataclass(slots=True)
class Faults:
    """How the agent misbehaves. All off at first; each may be changed at any time.

    Attributes:
        silent: answer nothing.
        delay: seconds to wait before each reply.
        too_big_above: answer tooBig, instead of a shorter reply, when more variables than this are asked for.
        silent_above: answer nothing when more variables than this are asked for.
        loop: columns whose last row is followed by their first.
        gen_err: columns that turn any answer they would be part of into genErr.
        gen_err_without_index: leave the error index 0.
        silent_on: columns that nothing is answered about, nor about others in the same request.
        truncate: columns that walks leave after so many rows, although GET finds the rest.
        wrong_id_first: send each reply with another request-id before the right one.
        junk_first: send a datagram of junk before each reply.
        drop_every: leave every n-th request unanswered; 0 drops none.
    """

    silent: bool = False
    delay: float = 0.0
    too_big_above: int | None = None
    silent_above: int | None = None
    loop: set[Oid] = field(default_factory=set)
    gen_err: set[Oid] = field(default_factory=set)
    gen_err_without_index: bool = False
    silent_on: set[Oid] = field(default_factory=set)
    truncate: dict[Oid, int] = field(default_factory=dict)
    wrong_id_first: bool = False
    junk_first: bool = False
    drop_every: int = 0


class _Found(NamedTuple):
    """One variable of an answer: its name, and name and value as they go on the wire."""

    oid: Oid
    encoded: bytes
    ended: bool = False


class SnmpAgent:
    """An agent that serves typed rows. Each row is encoded when it is set, not when it is asked for.

    Attributes:
        faults: see `Faults`.
        requests: datagrams received, whatever became of them.
    """

    def __init__(
        self,
        rows: Mapping[Oid, Typed] | None = None,
        *,
        community: str | bytes = "public",
        max_reply: int = MAX_REPLY_BYTES,
        faults: Faults | None = None,
    ) -> None:
        """Make an agent.

        Args:
            rows: identifier of each instance to its typed value.
            community: the only one it answers.
            max_reply: bytes of a reply, at which GETBULK is cut short and GET is answered tooBig.
            faults: see `Faults`.

        Raises:
            ValueError: an identifier or a value cannot be encoded.
        """
        self.faults = faults or Faults()
        self.requests = 0
        self._community = community.encode() if isinstance(community, str) else community
        self._room = max_reply - _REPLY_OVERHEAD - len(self._community)
        self._encoded = {oid: _encode(oid, value) for oid, value in (rows or {}).items()}
        self._order = sorted(self._encoded)
        self._transport: asyncio.DatagramTransport | None = None

    def set(self, oid: Oid, value: Typed) -> None:
        """Add a row or change its value. Raises ValueError as the constructor does."""
        encoded = _encode(oid, value)
        if oid not in self._encoded:
            insort(self._order, oid)
        self._encoded[oid] = encoded

    def set_many(self, rows: Mapping[Oid, Typed]) -> None:
        """Add or change several rows at once. Raises ValueError as the constructor does, and then changes none."""
        encoded = {oid: _encode(oid, value) for oid, value in rows.items()}
        if not encoded.keys() <= self._encoded.keys():
            self._order = sorted(self._encoded.keys() | encoded.keys())
        self._encoded.update(encoded)

    def remove(self, oid: Oid) -> None:
        """Take a row away. Raises KeyError if there is none."""
        del self._encoded[oid]
        del self._order[bisect_left(self._order, oid)]

    def remove_below(self, prefix: Oid) -> None:
        """Take all rows away whose identifiers begin with `prefix`: a column, or a table."""
        first, last = self._span(prefix)
        for oid in self._order[first:last]:
            del self._encoded[oid]
        del self._order[first:last]

    # --- the network ---------------------------------------------------------------------------------------------

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> tuple[str, int]:
        """Listen; give the address and the port, which the system chooses if it is 0."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Server(self), local_addr=(host, port))
        self._transport = transport
        name = transport.get_extra_info("sockname")
        return name[0], name[1]

    def close(self) -> None:
        """Stop listening."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # --- the protocol --------------------------------------------------------------------------------------------

    def answer(self, datagram: bytes) -> list[bytes]:
        """Give the datagrams to send back for one that came: none for junk, strangers and faults, else one or more."""
        self.requests += 1
        faults = self.faults
        try:
            message = decode_message(datagram)
            oids = [decode_oid(oid) for oid, _, _ in message.pdu.varbinds]
        except DecodeError:
            return []
        pdu = message.pdu
        if message.version != V2C or message.community != self._community or pdu.kind == RESPONSE:
            return []
        if faults.silent or (faults.drop_every and self.requests % faults.drop_every == 0):
            return []
        asked = _asked(pdu)
        if faults.silent_above is not None and asked > faults.silent_above:
            return []
        if faults.too_big_above is not None and asked > faults.too_big_above:
            return self._datagrams(pdu, TOO_BIG, 0, [])
        return self._reply(pdu, oids)

    def _reply(self, pdu: Pdu, oids: list[Oid]) -> list[bytes]:
        faults = self.faults
        first = [self._found(oid) if pdu.kind == GET else self._next(oid) for oid in oids]
        if any(_within(found.oid, faults.silent_on) for found in first):
            return []
        for place, found in enumerate(first, start=1):
            if _within(found.oid, faults.gen_err):
                index = 0 if faults.gen_err_without_index else place
                return self._datagrams(pdu, GEN_ERR, index, [encode_varbind(oid) for oid, _, _ in pdu.varbinds])
        encoded = self._bulk(pdu, oids) if pdu.kind == GETBULK else [found.encoded for found in first]
        if sum(map(len, encoded)) > self._room:
            return self._datagrams(pdu, TOO_BIG, 0, [])
        return self._datagrams(pdu, NO_ERROR, 0, encoded)

    def _datagrams(self, pdu: Pdu, status: int, index: int, varbinds: list[bytes]) -> list[bytes]:
        ids = [pdu.request_id]
        if self.faults.wrong_id_first:
            ids.insert(0, pdu.request_id ^ 0x2A)
        replies = [
            encode_message(V2C, self._community, encode_pdu(RESPONSE, number, status, index, varbinds))
            for number in ids
        ]
        return [_JUNK, *replies] if self.faults.junk_first else replies

    def _bulk(self, pdu: Pdu, oids: list[Oid]) -> list[bytes]:
        """Step as often as asked, as far as the reply has room and the view goes on (RFC 3416, 4.2.3)."""
        once = max(0, min(pdu.error_status, len(oids)))  # non-repeaters
        out = [self._next(oid).encoded for oid in oids[:once]]
        size = sum(map(len, out))
        row = oids[once:]
        for _ in range(max(0, pdu.error_index)):
            found = [self._next(oid) for oid in row]
            for one in found:
                size += len(one.encoded)
                if size > self._room:
                    return out
                out.append(one.encoded)
            if all(one.ended for one in found):
                break
            row = [one.oid for one in found]
        return out

    def _found(self, oid: Oid) -> _Found:
        return _Found(oid, self._encoded.get(oid) or encode_varbind(encode_oid(oid), _NO_SUCH_INSTANCE))

    def _next(self, oid: Oid) -> _Found:
        """Find the row behind `oid`."""
        at = bisect_right(self._order, oid)
        for column in self.faults.loop:
            first, behind = self._span(column)
            if at == behind > first and oid[: len(column)] == column:
                at = first
        for column, rows in self.faults.truncate.items():
            first, behind = self._span(column)
            if first + rows <= at < behind:
                at = behind
        if at == len(self._order):
            return _Found(oid, encode_varbind(encode_oid(oid), _END_OF_MIB_VIEW), ended=True)
        return _Found(self._order[at], self._encoded[self._order[at]])

    def _span(self, prefix: Oid) -> tuple[int, int]:
        """Give the places in the order of the first row below `prefix`, and of the first one behind."""
        return bisect_left(self._order, prefix), bisect_left(self._order, (*prefix[:-1], prefix[-1] + 1))


class _Server(asyncio.DatagramProtocol):
    def __init__(self, agent: SnmpAgent) -> None:
        self._agent = agent
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - nobody waits for the server
        self._transport = None

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        replies = self._agent.answer(data)
        if self._agent.faults.delay:
            asyncio.get_running_loop().call_later(self._agent.faults.delay, self._send, replies, addr)
        else:
            self._send(replies, addr)

    def _send(self, replies: list[bytes], addr: tuple[str, int]) -> None:
        for reply in replies:
            if self._transport is not None:  # closed while a delayed reply waited
                self._transport.sendto(reply, addr)


def _encode(oid: Oid, value: Typed) -> bytes:
    return encode_varbind(encode_oid(oid), encode_value(*value))


def _asked(pdu: Pdu) -> int:
    """Count the variables that the full answer to a request would have."""
    if pdu.kind != GETBULK:
        return len(pdu.varbinds)
    once = min(max(0, pdu.error_status), len(pdu.varbinds))
    return once + (len(pdu.varbinds) - once) * max(0, pdu.error_index)


def _within(oid: Oid, columns: Iterable[Oid]) -> bool:
    return any(oid[: len(column)] == column for column in columns)
