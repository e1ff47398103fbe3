"""HTTP answers, and their heads as bytes."""

import time
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case, and values."""

TEXT = (b"content-type", b"text/plain; charset=utf-8")

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Reply(NamedTuple):
    """A whole answer. `parts` of the body go out one by one; None is a body that was not made, for HEAD alone."""

    status: int
    headers: Headers
    parts: Sequence[bytes] | None


def text(status: int, words: str, *headers: tuple[bytes, bytes]) -> Reply:
    """Give an answer of one line of plain text."""
    return Reply(status, (TEXT, *headers), (f"{words}\n".encode(errors="replace"),))


def head_of(reply: Reply, added: Headers, connection: bytes) -> bytes:
    """Give all that goes before the body.

    Args:
        reply: the answer.
        added: headers that replace those of the same names.
        connection: value of the Connection header; empty for none.
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


@lru_cache(maxsize=1)
def _date_line(second: int) -> bytes:
    """Give the Date header; email.utils, which also makes it, takes a megabyte."""
    now = time.gmtime(second)
    day, month = _DAYS[now.tm_wday], _MONTHS[now.tm_mon - 1]
    return (
        f"date: {day}, {now.tm_mday:02} {month} {now.tm_year} {now.tm_hour:02}:{now.tm_min:02}:{now.tm_sec:02} GMT\r\n"
    ).encode()
