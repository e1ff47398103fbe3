"""HTTP responses, and the encoding of their heads."""

import time
from collections.abc import Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import NamedTuple

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case, and values."""

TEXT = (b"content-type", b"text/plain; charset=utf-8")

_STATUS_LINES = MappingProxyType(
    {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Reply(NamedTuple):
    """A response. The `parts` of its body are sent one by one; None where there is no body, as for HEAD."""

    status: int
    headers: Headers
    parts: Sequence[bytes] | None


def text(status: int, words: str, *headers: tuple[bytes, bytes]) -> Reply:
    """Return a response with one line of plain text."""
    return Reply(status, (TEXT, *headers), (f"{words}\n".encode(errors="replace"),))


def head_of(reply: Reply, added: Headers, connection: bytes) -> bytes:
    """Return the status line and the headers, encoded.

    Args:
        reply: The response.
        added: Headers that replace those of the same name.
        connection: Value of the Connection header; empty for none.
    """
    headers = reply.headers
    if added:
        names = {name for name, _ in added}
        headers = [*(header for header in headers if header[0] not in names), *added]
    lines = [_STATUS_LINES[reply.status], _date_line(int(time.time()))]
    lines += [b"%b: %b\r\n" % header for header in headers]
    if reply.parts is not None:
        lines.append(b"content-length: %d\r\n" % sum(map(len, reply.parts)))
    if connection:
        lines.append(b"connection: %b\r\n" % connection)
    lines.append(b"\r\n")
    return b"".join(lines)


def _date_line(second: int) -> bytes:
    """Return the Date header; importing email.utils for it would take a megabyte of memory."""
    now = time.gmtime(second)
    day, month = _DAYS[now.tm_wday], _MONTHS[now.tm_mon - 1]
    return (
        f"date: {day}, {now.tm_mday:02} {month} {now.tm_year} {now.tm_hour:02}:{now.tm_min:02}:{now.tm_sec:02} GMT\r\n"
    ).encode()
