"""A simulated SNMP agent: rows in, GET, GETNEXT and GETBULK answered, and the faults of real agents at a switch.

It knows nothing of switches. Whoever simulates one fills the rows, and sets values as the traffic goes on:

    agent = SnmpAgent({(1, 3, 6, 1, 2, 1, 2, 2, 1, 10, 1): Typed(COUNTER32, 0)})
    host, port = await agent.start()
    agent.set((1, 3, 6, 1, 2, 1, 2, 2, 1, 10, 1), Typed(COUNTER32, 1500))
    agent.faults.loop.add((1, 3, 6, 1, 2, 1, 2, 2, 1, 10))
    agent.close()
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self, cast

from exporter.simulator.snmp_rows import Rows, RowValue, end_of_view
from exporter.simulator.snmp_v3 import Asked, Engine
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
"""What fits an Ethernet frame; real agents have limits from 484 to 65,507 bytes."""

_REPLY_OVERHEAD: Final = 40  # headers around the variables, beside the community
_JUNK: Final = b"\x30\x84\xff\xff\xff\xff junk"
_NO_SUCH_INSTANCE: Final = encode_value(NO_SUCH_INSTANCE, None)
_MOST_IDS: Final = 1000
"""Request-ids that an agent which filters duplicates remembers."""


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
        unsorted: columns that a walk gets with each two neighbouring rows in the wrong order.
        wrong_id_first: send each reply with another request-id before the right one.
        junk_first: send a datagram of junk before each reply.
        drop_every: leave every n-th request unanswered; 0 drops none.
        late: answer each question only when it is asked again, and then as it was asked first.
        filter_duplicates: answer no request-id twice.
        other_port: reply from another port than was asked.
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
    unsorted: set[Oid] = field(default_factory=set)
    wrong_id_first: bool = False
    junk_first: bool = False
    drop_every: int = 0
    late: bool = False
    filter_duplicates: bool = False
    other_port: bool = False


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
        rows: Mapping[Oid, RowValue] | Rows | None = None,
        *,
        community: str | bytes = "public",
        engine: Engine | None = None,
        max_reply: int = MAX_REPLY_BYTES,
        faults: Faults | None = None,
    ) -> None:
        """Make an agent.

        Args:
            rows: identifier of each instance to its typed value; or rows that are shared with other agents.
            community: the only one it answers, in v1 and v2c.
            engine: of v3, with its users; without one, v3 is not answered.
            max_reply: bytes of a reply, at which GETBULK is cut short and GET is answered tooBig.
            faults: see `Faults`.

        Raises:
            ValueError: an identifier or a value cannot be encoded.
        """
        self.faults = faults or Faults()
        self.requests = 0
        self._community = community.encode() if isinstance(community, str) else community
        self._room = max_reply - _REPLY_OVERHEAD - len(self._community)
        self.engine = engine
        self._wrap: Callable[[bytes], bytes] = self._in_community
        self._version = V2C
        self._rows = rows if isinstance(rows, Rows) else Rows(rows)
        self._late: dict[tuple[object, ...], tuple[int, Callable[[bytes], bytes]]] = {}
        self._answered: dict[int, None] = {}
        self._transport: asyncio.DatagramTransport | None = None
        self._other: socket.socket | None = None

    def set(self, oid: Oid, value: RowValue) -> None:
        """Add a row or change its value. Raises ValueError as the constructor does."""
        self._rows.set_many({oid: value})

    def set_many(self, rows: Mapping[Oid, RowValue]) -> None:
        """Add or change several rows at once. Raises ValueError as the constructor does, and then changes none."""
        self._rows.set_many(rows)

    def clear(self) -> None:
        """Take all rows away."""
        self._rows.remove(0, len(self._rows))

    def remove(self, oid: Oid) -> None:
        """Take a row away. Raises KeyError if there is none."""
        place = self._rows.place(oid)
        if place is None:
            raise KeyError(oid)
        self._rows.remove(place, place + 1)

    def remove_below(self, prefix: Oid) -> None:
        """Take all rows away whose identifiers begin with `prefix`: a column, or a table."""
        self._rows.remove(*self._rows.span(prefix))

    # --- the network ---------------------------------------------------------------------------------------------

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> tuple[str, int]:
        """Listen; give the address and the port, which the system chooses if it is 0."""
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

    def listening(self, transport: asyncio.DatagramTransport) -> None:
        """Take the socket to send from."""
        self._transport = transport

    def send(self, reply: bytes, to: tuple[str, int]) -> None:
        """Send a datagram, from the port that was asked or, as a fault, from another one."""
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
        """Give the datagrams to send back for one that came: none for junk, strangers and faults, else one or more."""
        self.requests += 1
        asked = self._opened(datagram)
        if isinstance(asked, bytes):  # a report
            return [] if self.faults.silent else [asked]
        return [] if asked is None or self._is_ignored(asked) else self._answer_to(asked)

    def _opened(self, datagram: bytes) -> Pdu | bytes | None:
        """Give the question in a datagram, a report that answers it, or None where nobody is answered."""
        try:
            message = decode_message(datagram)
        except DecodeError:
            opened = self.engine.open(datagram) if self.engine is not None else None
            if not isinstance(opened, Asked):
                return opened
            self._wrap, self._version = opened.wrap, V3
            return opened.pdu
        if message.community != self._community or message.pdu.kind == RESPONSE:
            return None
        self._wrap, self._version = self._in_community, message.version
        return message.pdu

    def _in_community(self, pdu: bytes) -> bytes:
        return encode_message(self._version, self._community, pdu)

    def _answer_to(self, pdu: Pdu) -> list[bytes]:
        faults = self.faults
        if faults.too_big_above is not None and _asked(pdu) > faults.too_big_above:
            return self._datagrams(pdu, TOO_BIG, 0, [])
        if faults.late:
            first = self._first_try(pdu)
            if first is None:
                return []
            first_id, self._wrap = first
            return self._reply(pdu._replace(request_id=first_id))
        return self._reply(pdu)

    def _is_ignored(self, pdu: Pdu) -> bool:
        """Tell whether a fault leaves a request without an answer."""
        faults = self.faults
        if faults.silent or (faults.drop_every and self.requests % faults.drop_every == 0):
            return True
        if faults.silent_above is not None and _asked(pdu) > faults.silent_above:
            return True
        return faults.filter_duplicates and self._is_duplicate(pdu)

    def _is_duplicate(self, pdu: Pdu) -> bool:
        """Tell whether a request-id was seen before; remember it."""
        if pdu.request_id in self._answered:
            return True
        self._answered[pdu.request_id] = None
        if len(self._answered) > _MOST_IDS:
            del self._answered[next(iter(self._answered))]
        return False

    def _first_try(self, pdu: Pdu) -> tuple[int, Callable[[bytes], bytes]] | None:
        """Give request-id of the first try of a question and what wraps its answer, None if this is the first."""
        question = (pdu.kind, pdu.error_index, *(name for name, _, _ in pdu.varbinds))
        first = self._late.pop(question, None)
        if first is None:
            self._late[question] = (pdu.request_id, self._wrap)
        return first

    def _reply(self, pdu: Pdu) -> list[bytes]:
        faults = self.faults
        names = [name for name, _, _ in pdu.varbinds]
        if self._version == V1:
            return self._reply_v1(pdu, names)
        if pdu.kind != GETBULK or faults.silent_on or faults.gen_err:
            first = [self._found(name) if pdu.kind == GET else self._next(name) for name in names]
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
        """Answer in v1, which has neither GETBULK nor 64-bit counters, and one error for all that is not there."""
        if pdu.kind == GETBULK:
            return []
        found = [self._found(name) if pdu.kind == GET else self._next(name) for name in names]
        for place, name in enumerate(names):
            while pdu.kind != GET and not found[place].ended and _is_wide(found[place].encoded):
                found[place] = self._next(encode_oid(found[place].oid))
            missing = pdu.kind == GET and (self._rows.place(decode_oid(name)) is None or _is_wide(found[place].encoded))
            if missing or found[place].ended:
                return self._datagrams(pdu, NO_SUCH_NAME, place + 1, [encode_varbind(one) for one in names])
        return self._datagrams(pdu, NO_ERROR, 0, [one.encoded for one in found])

    def _datagrams(self, pdu: Pdu, status: int, index: int, varbinds: list[bytes]) -> list[bytes]:
        ids = [pdu.request_id]
        if self.faults.wrong_id_first:
            ids.insert(0, pdu.request_id ^ 0x2A)
        replies = [self._wrap(encode_pdu(RESPONSE, number, status, index, varbinds)) for number in ids]
        return [_JUNK, *replies] if self.faults.junk_first else replies

    def _bulk(self, pdu: Pdu, names: list[bytes]) -> list[bytes]:
        """Step as often as asked, as far as the reply has room and the view goes on (RFC 3416, 4.2.3)."""
        once = max(0, min(pdu.error_status, len(names)))  # non-repeaters
        out = [self._next(name).encoded for name in names[:once]]
        size = sum(map(len, out))
        row = names[once:]
        faults = self.faults
        if not (faults.loop or faults.truncate or faults.unsorted):
            return out + self._rows.bulk(row, pdu.error_index, self._room - size)
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

    def _found(self, name: bytes) -> _Found:
        oid = decode_oid(name)
        place = self._rows.place(oid)
        encoded = encode_varbind(name, _NO_SUCH_INSTANCE) if place is None else self._rows.varbind(place)
        return _Found(oid, encoded)

    def _next(self, name: bytes) -> _Found:
        """Find the row behind an identifier."""
        rows = self._rows
        at = rows.behind(name)
        oid: Oid | None = None
        for column in self.faults.unsorted:
            oid = oid or decode_oid(name)
            at = _next_unsorted(rows.place(oid), at, rows.span(column))
        for column in self.faults.loop:
            oid = oid or decode_oid(name)
            first, behind = rows.span(column)
            if at == behind > first and oid[: len(column)] == column:
                at = first
        for column, most in self.faults.truncate.items():
            first, behind = rows.span(column)
            if first + most <= at < behind:
                at = behind
        if at == len(rows):
            return _Found(decode_oid(name), end_of_view(name), ended=True)
        return _Found(rows.oid(at), rows.varbind(at))


def _is_wide(varbind: bytes) -> bool:
    """Tell whether the value of an encoded variable is a 64-bit counter."""
    _, start, _ = read_header(varbind, 0, len(varbind))
    _, _, behind = read_header(varbind, start, len(varbind))
    return varbind[behind] == COUNTER64


class _Server(asyncio.DatagramProtocol):
    def __init__(self, agent: SnmpAgent) -> None:
        self._agent = agent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._agent.listening(cast(asyncio.DatagramTransport, transport))

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        replies = self._agent.answer(data)
        if self._agent.faults.delay:
            asyncio.get_running_loop().call_later(self._agent.faults.delay, self._send, replies, addr)
        else:
            self._send(replies, addr)

    def _send(self, replies: list[bytes], addr: tuple[str, int]) -> None:
        for reply in replies:
            self._agent.send(reply, addr)


def _next_unsorted(place: int | None, at: int, span: tuple[int, int]) -> int:
    """Give the place of the next row where those of a column come with each two neighbours swapped.

    Args:
        place: of the row that was asked for; None if it is none.
        at: place of the next row in the right order.
        span: places of the column's first row, and of the first one behind it.
    """
    first, behind = span

    def swapped(step: int) -> int:
        """Give the place of the row that comes at a step, which is also the step at which the row of a place comes."""
        other = first + ((step - first) ^ 1)
        return other if other < behind else step

    if place is not None and first <= place < behind:
        step = swapped(place) + 1
        return swapped(step) if step < behind else behind
    return swapped(first) if at == first < behind else at


def _asked(pdu: Pdu) -> int:
    """Count the variables that the full answer to a request would have."""
    if pdu.kind != GETBULK:
        return len(pdu.varbinds)
    once = min(max(0, pdu.error_status), len(pdu.varbinds))
    return once + (len(pdu.varbinds) - once) * max(0, pdu.error_index)


def _within(oid: Oid, columns: Iterable[Oid]) -> bool:
    return any(oid[: len(column)] == column for column in columns)
