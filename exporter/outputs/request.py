"""HTTP requests from bytes: llhttp judges the head, strictly; what it leaves open is decided here."""

import re
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

MAX_HEAD_SIZE = 16 * 1024
MAX_TARGET_LENGTH = 8 * 1024
MAX_HEADERS = 100

_BLANK_LINE = re.compile(rb"\n\r?\n")  # what any parser might take for the end of a head


class RefusedError(Exception):
    """A request that is not answered by the application, with the status and words to answer instead."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(slots=True, eq=False)
class Request:
    """A request whose head, and body if that is wanted, is there whole.

    Attributes:
        method: one that llhttp knows, in capitals.
        target: as sent.
        path: of the target, percent-decoded; "*" or "host:port" where the target has that form.
        query: of the target, as sent.
        headers: names are in lower case; a repeated header is a list (RFC 9110, section 5.3).
        keep_alive: whether another request can follow on the connection.
        length: of the body in bytes, None when the client does not tell.
        body: empty where bodies are not read.
    """

    method: str
    target: str
    path: str
    query: str
    headers: dict[bytes, bytes]
    keep_alive: bool
    length: int | None
    body: bytes = b""


class RequestReader:
    """Takes one request after the other from what a connection `received`, to which the connection appends.

    Bodies of up to `max_body` bytes are read; with 0 none is, and nothing can follow a request that has one.
    """

    def __init__(self, max_body: int) -> None:
        self.received = b""
        self._max_body = max_body
        self._bodiless: Request | None = None  # whose body is not there yet
        self._head = _Head()
        self._parser = HttpRequestParser(self._head)

    @property
    def begun(self) -> bool:
        """Tell whether something of the next request is there."""
        return bool(self.received) or self._bodiless is not None

    def next_request(self) -> Request | None:
        """Give the next request, None while it is not there whole.

        Raises:
            RefusedError: it cannot be answered, and where the next one begins is not known.
        """
        request = self._bodiless or self._next_head()
        if request is None or not request.length or not self._max_body:
            return request
        if len(self.received) < request.length:
            self._bodiless = request
            return None
        self._bodiless = None
        request.body, self.received = self.received[: request.length], self.received[request.length :]
        if request.keep_alive:  # else llhttp is not asked again
            self._parser.feed_data(request.body)
        return request

    def wants_leave(self) -> bool:
        """Tell, once, that the client waits to hear that it may send the body."""
        request = self._bodiless
        return request is not None and request.headers.pop(b"expect", b"").lower() == b"100-continue"

    def _next_head(self) -> Request | None:
        received = self.received.lstrip(b"\r\n")  # empty lines before a request count for nothing: RFC 9112, 2.2
        blank = _BLANK_LINE.search(received)
        end = len(received) if blank is None else blank.end()
        if end > MAX_HEAD_SIZE:
            if len(received.partition(b"\n")[0]) > MAX_TARGET_LENGTH:
                raise _too_long_target()
            raise RefusedError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the head is longer than {MAX_HEAD_SIZE} bytes"
            )
        if blank is None:
            if received and not received[:1].isalpha():  # such as a TLS handshake, which would be waited for in vain
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
            upgrade = True  # is ignored, as a server may; but llhttp has lost its way for whatever follows
        except HttpParserError as error:
            raise _malformed() from error
        if len(head.target) > MAX_TARGET_LENGTH:
            raise _too_long_target()
        if len(head.fields) > MAX_HEADERS:
            raise RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MAX_HEADERS} headers")
        end_of_line = text.index(b"\r\n")
        version = text[end_of_line - 9 : end_of_line]
        if version not in {b" HTTP/1.1", b" HTTP/1.0"}:  # llhttp takes 2.0, 0.9, none at all, and RTSP
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
        target = head.target.decode("ascii")  # llhttp lets no other character pass
        path, _, query = target.partition("?")
        if "://" in path and path[0] != "/":  # the form for proxies, which servers have to understand as well
            path = "/" + path.partition("://")[2].partition("/")[2]
        method = text[: text.index(b" ")].decode("ascii")
        return Request(method, target, unquote(path), query, headers, keep_alive, length)


class _Head:
    """What llhttp finds in a head."""

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
    """Tell whether the client wants to go on (RFC 9112, section 9.3)."""
    if connection is None:
        return version == b" HTTP/1.1"
    options = {option.strip() for option in connection.lower().split(b",")}
    return b"close" not in options and (version == b" HTTP/1.1" or b"keep-alive" in options)


def _malformed() -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, "malformed request")


def _too_long_target() -> RefusedError:
    return RefusedError(HTTPStatus.REQUEST_URI_TOO_LONG, f"the request target is longer than {MAX_TARGET_LENGTH} bytes")
