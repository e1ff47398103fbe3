"""Parsing of HTTP requests: llhttp parses the head, strictly; limits and semantics are checked here."""

import re
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

MAX_HEAD_SIZE = 16 * 1024
MAX_TARGET_LENGTH = 8 * 1024
MAX_HEADERS = 100

_BLANK_LINE = re.compile(rb"\n\r?\n")  # what any parser might treat as the end of a head


class RefusedError(Exception):
    """A request that is refused before the application receives it, with status and text of the response."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True, eq=False)
class Request:
    """A complete request.

    Attributes:
        method: One that llhttp knows, in capitals.
        target: As sent.
        path: Path of the target, percent-decoded; "*" or "host:port" where the target has that form.
        query: Query of the target, as sent.
        headers: Names in lower case; values of a repeated header are joined as a list (RFC 9110, section 5.3).
        keep_alive: Whether another request can follow on the connection.
        length: Length of the body in bytes; None where the client does not state it.
        body: Empty where bodies are not read.
        client: Address of the client; empty where it has none, as at a Unix socket.
    """

    method: str
    target: str
    path: str
    query: str
    headers: dict[bytes, bytes]
    keep_alive: bool
    length: int | None
    body: bytes = b""
    client: str = ""


class RequestReader:
    """Parses one request after the other from `received`, to which the connection appends.

    Bodies of up to `max_body` bytes are read; with 0 none is, and no request can follow one that has a body.
    """

    def __init__(self, max_body: int) -> None:
        self.received = b""
        self._max_body = max_body
        self._incomplete: Request | None = None  # its body is not complete
        self._head = _Head()
        self._parser = HttpRequestParser(self._head)

    @property
    def begun(self) -> bool:
        """Whether a part of the next request was received."""
        return bool(self.received) or self._incomplete is not None

    def next_request(self) -> Request | None:
        """Return the next request, None while it is incomplete.

        Raises:
            RefusedError: The request is refused, and the start of the next one is unknown.
        """
        request = self._incomplete or self._next_head()
        if request is None or not request.length or not self._max_body:
            return request
        if len(self.received) < request.length:
            self._incomplete = request
            return None
        self._incomplete = None
        request.body, self.received = self.received[: request.length], self.received[request.length :]
        if request.keep_alive:  # otherwise llhttp is not used again
            self._parser.feed_data(request.body)
        return request

    def expects_continue(self) -> bool:
        """Return True once where the client waits for status 100 before it sends the body."""
        request = self._incomplete
        return request is not None and request.headers.pop(b"expect", b"").lower() == b"100-continue"

    def _next_head(self) -> Request | None:
        received = self.received.lstrip(b"\r\n")  # empty lines before a request are ignored (RFC 9112, section 2.2)
        blank = _BLANK_LINE.search(received)
        end = len(received) if blank is None else blank.end()
        if end > MAX_HEAD_SIZE:
            if len(received.partition(b"\n")[0]) > MAX_TARGET_LENGTH:
                raise _too_long_target()
            raise RefusedError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the head is longer than {MAX_HEAD_SIZE} bytes"
            )
        if blank is None:
            if received and not received[:1].isalpha():  # such as a TLS handshake, which never completes a head
                raise _malformed()
            self.received = received
            return None
        self.received = received[end:]
        return self._parse(received[:end])

    def _parse(self, text: bytes) -> Request:
        head = self._head
        head.target, head.fields = b"", []
        upgrade = False
        try:
            self._parser.feed_data(text)
        except HttpParserUpgrade:
            upgrade = True  # ignored, as a server may; but llhttp cannot parse what follows
        except HttpParserError as error:
            raise _malformed() from error
        if len(head.target) > MAX_TARGET_LENGTH:
            raise _too_long_target()
        if len(head.fields) > MAX_HEADERS:
            raise RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MAX_HEADERS} headers")
        end_of_line = text.index(b"\r\n")
        version = text[end_of_line - 9 : end_of_line]
        if version not in {b" HTTP/1.1", b" HTTP/1.0"}:  # llhttp accepts 2.0, 0.9, no version, and RTSP
            raise RefusedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 and HTTP/1.0 are served")
        headers = _joined(head.fields)
        host = headers.get(b"host", b"," if version == b" HTTP/1.1" else b"")
        if b"," in host:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "one Host header is needed")
        length = None if b"transfer-encoding" in headers else int(headers.get(b"content-length", b"0"))
        if self._max_body and length is None:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "a body needs a Content-Length")
        if self._max_body and length is not None and length > self._max_body:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is longer than {self._max_body} bytes")
        unread = length != 0 and not self._max_body
        keep_alive = not (upgrade or unread) and _keeps_alive(version, headers.get(b"connection"))
        target = head.target.decode("ascii")  # llhttp accepts no other character
        path, _, query = target.partition("?")
        if "://" in path and path[0] != "/":  # the absolute form, which servers have to accept as well
            path = "/" + path.partition("://")[2].partition("/")[2]
        method = text[: text.index(b" ")].decode("ascii")
        return Request(method, target, unquote(path), query, headers, keep_alive, length)


class _Head:
    """Collects target and headers from the callbacks of llhttp."""

    def __init__(self) -> None:
        self.target = b""
        self.fields: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.target = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))


def _joined(fields: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for raw_name, raw_value in fields:
        name, value = raw_name.lower(), raw_value.strip(b" \t")
        headers[name] = headers[name] + b"," + value if name in headers else value
    return headers


def _keeps_alive(version: bytes, connection: bytes | None) -> bool:
    """Return whether the connection persists (RFC 9112, section 9.3)."""
    if connection is None:
        return version == b" HTTP/1.1"
    options = {option.strip() for option in connection.lower().split(b",")}
    return b"close" not in options and (version == b" HTTP/1.1" or b"keep-alive" in options)


def _malformed() -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, "malformed request")


def _too_long_target() -> RefusedError:
    return RefusedError(HTTPStatus.REQUEST_URI_TOO_LONG, f"the request target is longer than {MAX_TARGET_LENGTH} bytes")
