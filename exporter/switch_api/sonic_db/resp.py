"""RESP2, the protocol of redis (https://redis.io/docs/latest/develop/reference/protocol-spec/): bytes in, values out.

Every size that the server declares is checked before anything is stored for it, and arrays are not nested: no command
of ours has such a reply.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

MAX_LINE: Final = 4096
"""Bytes of a line: a status, an error, a number or a size."""

MAX_TEXT: Final = 2**16
"""Bytes of one text; the longest that a switch has is the description of a neighbour."""

MAX_ITEMS: Final = 200_000
"""Items of an array."""

MAX_BYTES: Final = 16 * 2**20
"""Bytes of all replies to one round trip."""

_END: Final = b"\r\n"
_MAX_DIGITS: Final = 20  # of 2^64, with its sign


class ProtocolError(Exception):
    """The server sent something other than RESP2, more than requested, or more than the limits allow."""


class NotRedisError(ProtocolError):
    """The server does not speak RESP2."""


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error that the server replied with."""

    text: str


Item: TypeAlias = bytes | int | ErrorReply | None
Reply: TypeAlias = Item | list[Item]


def encode_command(words: Sequence[str | bytes]) -> bytes:
    """Encode a command as an array of its words."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        text = word.encode("utf-8", "surrogateescape") if isinstance(word, str) else word
        parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)


class ReplyParser:
    """Parses the replies to one round trip, in whatever pieces they arrive; the work is linear in their bytes.

    Attributes:
        replies: The complete replies so far.

    Args:
        expected: Number of replies.
    """

    def __init__(self, expected: int) -> None:
        self.replies: list[Reply] = []
        self._expected = expected
        self._buffer = bytearray()
        self._received = 0
        self._array: list[Item] = []  # the array that is not complete
        self._missing = 0  # items that it lacks

    def feed(self, data: bytes) -> bool:
        """Parse more bytes; return whether all replies are complete.

        Raises:
            ProtocolError: They are not RESP2, more than was requested, or too large.
        """
        self._received += len(data)
        if self._received > MAX_BYTES:
            raise ProtocolError(f"more than {MAX_BYTES} bytes in one reply")
        self._buffer += data
        at = 0
        while len(self.replies) < self._expected and (end := self._next(at)):
            at = end
        del self._buffer[:at]
        if len(self.replies) < self._expected:
            return False
        if self._buffer:
            raise ProtocolError(f"bytes after the last reply: {bytes(self._buffer[:40])!r}")
        return True

    def _next(self, at: int) -> int:
        """Parse the item that begins at an offset; return the offset after it, 0 if it is not complete."""
        buffer = self._buffer
        line_end = buffer.find(_END, at, at + MAX_LINE)
        if line_end < 0:
            if len(buffer) - at >= MAX_LINE:
                raise ProtocolError(f"a line of more than {MAX_LINE} bytes")
            return 0
        kind, line, end = buffer[at : at + 1], bytes(buffer[at + 1 : line_end]), line_end + len(_END)
        match kind:
            case b"$":
                return self._text(end, _number(line))
            case b":":
                self._add(_number(line))
            case b"+":
                self._add(line)
            case b"-":
                self._add(ErrorReply(line.decode("utf-8", "replace")))
            case b"*":
                self._begin_array(_number(line))
            case _:
                raise NotRedisError(f"{bytes(kind + line[:40])!r} is not a reply of redis")
        return end

    def _text(self, at: int, size: int) -> int:
        """Add the text that begins at an offset; return the offset after it, 0 if it is not complete."""
        if size == -1:
            self._add(None)
            return at
        if not 0 <= size <= MAX_TEXT:
            raise ProtocolError(f"a text of {size} bytes; the maximum is {MAX_TEXT}")
        end = at + size
        if len(self._buffer) < end + len(_END):
            return 0
        if self._buffer[end : end + len(_END)] != _END:
            raise ProtocolError(f"a text of {size} bytes does not end there")
        self._add(bytes(self._buffer[at:end]))
        return end + len(_END)

    def _begin_array(self, size: int) -> None:
        if self._missing:
            raise ProtocolError("an array within an array")
        if size == -1:
            self._add(None)
        elif size == 0:
            self.replies.append([])
        elif 0 < size <= MAX_ITEMS:
            self._array, self._missing = [], size
        else:
            raise ProtocolError(f"an array of {size} items; the maximum is {MAX_ITEMS}")

    def _add(self, item: Item) -> None:
        """Add an item to the array that is not complete, or to the replies."""
        if not self._missing:
            self.replies.append(item)
            return
        self._array.append(item)
        self._missing -= 1
        if not self._missing:
            self.replies.append(self._array)


def _number(line: bytes) -> int:
    digits = line[1:] if line[:1] in (b"-", b"+") else line
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise ProtocolError(f"{line[:40]!r} instead of a number")
    return int(line)
