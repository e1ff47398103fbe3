"""The ASGI application: routes, limits, authentication, and metrics rendered and compressed off the event loop."""

import asyncio
import contextlib
import logging
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from exporter.outputs.negotiation import Format, accepts_gzip, choose_format

if TYPE_CHECKING:  # only with a web configuration file; YAML and bcrypt cost memory
    from exporter.outputs.webauth import BasicAuth
    from exporter.outputs.webconfig import WebConfigFile

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

DEFAULT_MAX_REQUESTS = 40
MAX_TARGET_LENGTH = 8192
# What the loop hands to the kernel at a time: large enough to be few, small enough that other work gets its turn.
CHUNK_SIZE = 256 * 1024
_FEED_SIZE = 64 * 1024

_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_CLOSE = (b"connection", b"close")
_PAGE_HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True, slots=True)
class Handlers:
    """What the application serves.

    `metrics` is called in a thread that is not the event loop's, one call at a time; it may be a generator and yields
    UTF-8 in pieces of any size. `page` gives the HTML for people. `ready` gives None, or the reason why not yet.
    `reload` gives None, or the text of what is wrong with the new configuration.
    """

    metrics: Callable[[Format], Iterable[bytes]]
    page: Callable[[], str]
    ready: Callable[[], str | None]
    reload: Callable[[], Awaitable[str | None]]


@dataclass(slots=True)
class WebStats:
    """What happened so far, for the exporter's own metrics; all only grow, but for `in_flight`.

    `requests` counts by (path, status code), where a path that is not served is "other".
    """

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    in_flight: int = 0
    authentication_failures: int = 0
    refused_client_names: int = 0
    refused_connections: int = 0
    malformed_requests: int = 0
    timeouts: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. `parts` of the body go out one by one; `length` is theirs together, None when not known."""

    status: int
    headers: Headers = (_TEXT,)
    parts: Sequence[bytes] = ()
    length: int | None = 0


def _text(status: int, text: str, *headers: tuple[bytes, bytes]) -> Reply:
    body = f"{text}\n".encode(errors="replace")
    return Reply(status, (_TEXT, *headers), (body,), len(body))


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    headers: Mapping[bytes, bytes]

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def has_body(self) -> bool:
        return b"transfer-encoding" in self.headers or self.headers.get(b"content-length", b"0") != b"0"


@dataclass(frozen=True, slots=True)
class _Route:
    methods: tuple[str, ...]
    answer: Callable[[_Request], Awaitable[Reply]]


_READ = ("GET", "HEAD")


class WebApp:
    """The application; `security` is the web configuration file, or None for a server open to all.

    A request's body is never read; the connection ends after the answer to a request that has one.
    """

    def __init__(
        self,
        handlers: Handlers,
        *,
        telemetry_path: str = "/metrics",
        max_requests: int = DEFAULT_MAX_REQUESTS,
        security: "WebConfigFile | None" = None,
    ) -> None:
        if not telemetry_path.startswith("/") or telemetry_path.startswith("/-/"):
            raise ValueError(f"--web.telemetry-path: {telemetry_path!r}: start it with /, and not with /-/")
        self.stats = WebStats()
        self._handlers = handlers
        self._renderings = Renderings(handlers.metrics)
        self._max_requests = max_requests
        self._security = security
        self._auth: BasicAuth | None = None
        self._telemetry_path = telemetry_path
        self._routes = {
            "/": _Route(_READ, self._page),
            "/-/healthy": _Route(_READ, self._healthy),
            "/-/ready": _Route(_READ, self._ready),
            "/-/reload": _Route(("POST", "PUT"), self._reload),
            telemetry_path: _Route(_READ, self._metrics),
        }

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Serve one request (ASGI 3)."""
        if scope["type"] != "http":
            return
        # Only the stop of the server cancels a request, when its connection is cut already.
        with contextlib.suppress(asyncio.CancelledError):
            await self._counted(scope, send)

    def close(self) -> None:
        """Let the threads end; what is being rendered is finished."""
        self._renderings.close()
        if self._auth is not None:
            self._auth.close()

    async def _counted(self, scope: Scope, send: Send) -> None:
        path = scope["path"] if scope["path"] in self._routes else "other"
        request = _Request(scope["method"], _joined(scope["headers"]))
        if path != self._telemetry_path:
            await self._serve(scope, request, path, send)
            return
        # The place is held until the last byte is sent: a slow reader keeps its copy of the body.
        self.stats.in_flight += 1
        try:
            await self._serve(scope, request, path, send)
        finally:
            self.stats.in_flight -= 1

    async def _serve(self, scope: Scope, request: _Request, path: str, send: Send) -> None:
        try:
            reply = await self._answer(scope, request, path)
        except Exception:
            log.exception("%s %s failed", request.method, path)
            reply = _text(500, "internal error; the log tells more")
        self.stats.requests[path, reply.status] += 1
        await self._send(request, reply, send)

    async def _answer(self, scope: Scope, request: _Request, path: str) -> Reply:
        refusal = await self._authenticate(request)
        if refusal is not None:
            return refusal
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > MAX_TARGET_LENGTH:
            return _text(414, f"the request target is longer than {MAX_TARGET_LENGTH} bytes", _CLOSE)
        route = self._routes.get(path)
        if route is None:
            return _text(404, "not found")
        if request.method not in route.methods:
            allow = ", ".join(route.methods)
            return _text(405, f"use {allow}", (b"allow", allow.encode()))
        return await route.answer(request)

    async def _authenticate(self, request: _Request) -> Reply | None:
        """Give None for whoever may go on, else the refusal."""
        users = self._security.current().users if self._security is not None else None
        if not users:
            return None
        from exporter.outputs.webauth import BasicAuth, Verdict  # noqa: PLC0415 - only where there are users

        if self._auth is None:
            self._auth = BasicAuth()
        verdict = await self._auth.check(request.header(b"authorization"), users)
        if verdict is Verdict.ALLOWED:
            return None
        if verdict is Verdict.BUSY:
            return _text(503, "too many passwords are being checked", (b"retry-after", b"1"))
        self.stats.authentication_failures += 1
        return _text(401, "unauthorized", (b"www-authenticate", b'Basic realm="fabric-exporter", charset="UTF-8"'))

    async def _send(self, request: _Request, reply: Reply, send: Send) -> None:
        headers = [(b"date", formatdate(usegmt=True).encode()), *reply.headers]
        if reply.length is not None:
            headers.append((b"content-length", b"%d" % reply.length))
        if request.has_body and _CLOSE not in headers:
            headers.append(_CLOSE)
        if self._security is not None:
            configured = self._security.current().headers
            names = {name for name, _ in configured}
            headers = [header for header in headers if header[0] not in names] + list(configured)
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        *parts, last = reply.parts if reply.parts and request.method != "HEAD" else (b"",)
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0)  # a fast client never makes `send` wait; others get their turn here
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _page(self, _request: _Request) -> Reply:
        body = self._handlers.page().encode(errors="replace")
        return Reply(200, _PAGE_HEADERS, (body,), len(body))

    async def _healthy(self, _request: _Request) -> Reply:
        return _text(200, "healthy")

    async def _ready(self, _request: _Request) -> Reply:
        reason = self._handlers.ready()
        return _text(200, "ready") if reason is None else _text(503, f"not ready: {reason}")

    async def _reload(self, _request: _Request) -> Reply:
        error = await self._handlers.reload()
        return _text(200, "reloaded") if error is None else _text(500, error)

    async def _metrics(self, request: _Request) -> Reply:
        if self.stats.in_flight > self._max_requests:
            return _text(503, f"more than {self._max_requests} requests at a time", (b"retry-after", b"1"))
        chosen = choose_format(request.header(b"accept"))
        gzip = accepts_gzip(request.header(b"accept-encoding"))
        headers = [(b"content-type", chosen.content_type.encode()), (b"vary", b"accept, accept-encoding")]
        if gzip:
            headers.append((b"content-encoding", b"gzip"))
        if request.method == "HEAD":
            return Reply(200, headers, length=None)
        parts = await self._renderings.get(chosen, gzip)
        return Reply(200, headers, parts, sum(map(len, parts)))


class Renderings:
    """Renders in one thread, so that the loop stays free; whoever asks for what is being rendered shares it."""

    def __init__(self, render: Callable[[Format], Iterable[bytes]]) -> None:
        self._render = render
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="render")
        self._running: dict[tuple[Format, bool], asyncio.Future[list[bytes]]] = {}

    async def get(self, chosen: Format, gzip: bool) -> list[bytes]:
        """Give the body in parts of about CHUNK_SIZE bytes."""
        key = (chosen, gzip)
        running = self._running.get(key)
        if running is None:
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._thread, self._body, chosen, gzip)
            self._running[key] = running
            running.add_done_callback(lambda _: self._running.pop(key))
        return await asyncio.shield(running)

    def close(self) -> None:
        """Start no more renderings."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _body(self, chosen: Format, gzip: bool) -> list[bytes]:
        chunks: Iterable[bytes] = self._render(chosen)
        if gzip:
            chunks = _compressed(chunks)
        return list(_blocks(chunks, CHUNK_SIZE))


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress at level 1: within a fifth of the best size for a quarter of the time; zlib runs without the GIL."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    for block in _blocks(chunks, _FEED_SIZE):
        yield packer.compress(block)
    yield packer.flush()


def _blocks(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Give the same bytes in blocks of `size`, the last one shorter: no call on a block takes long."""
    pending: list[bytes] = []
    held = 0
    for chunk in chunks:
        pending.append(chunk)
        held += len(chunk)
        if held >= size:
            joined = b"".join(pending)
            whole = held - held % size
            for start in range(0, whole, size):
                yield joined[start : start + size]
            pending, held = [joined[whole:]], held - whole
    if held:
        yield b"".join(pending)


def _joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Give headers by name; a repeated one is a list (RFC 9110, section 5.3)."""
    result: dict[bytes, bytes] = {}
    for name, value in headers:
        result[name] = result[name] + b"," + value if name in result else value
    return result
