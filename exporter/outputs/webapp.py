"""The web application: routes, authentication, limits, and the rendering and compression of metrics."""

import asyncio
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs

from exporter.config.errors import UserError
from exporter.outputs.http_server import Application, ConnectionStats
from exporter.outputs.negotiation import Format, accepts_gzip, choose_format
from exporter.outputs.reply import Headers, Reply, text
from exporter.outputs.request import Request

if TYPE_CHECKING:  # only with a web configuration file; YAML and bcrypt cost memory
    from exporter.outputs.webauth import BasicAuth
    from exporter.outputs.webconfig import WebConfigFile

DEFAULT_MAX_REQUESTS = 40
# Written to a socket at a time: large enough for few writes, small enough not to block the loop.
CHUNK_SIZE = 256 * 1024
_FEED_SIZE = 64 * 1024
MAX_INLINE_SECONDS = 0.002
"""Duration of a rendering below which it runs on the event loop: a thread costs 0.25 to 0.5 ms."""

SCRAPE_TIMEOUT = b"x-prometheus-scrape-timeout-seconds"
"""Header in which Prometheus sends its timeout."""

MAX_PARAMETERS = 20

_PAGE_HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
)


class ProbeRequest(NamedTuple):
    """The parameters of `/probe`; empty where they are not given.

    Attributes:
        target: Name of a switch, or host or host and port.
        module: Name of a module.
        auth: Name of credentials.
        timeout: Timeout of the client in seconds; None where it is not stated.
        debug: Whether to return a report instead of metrics.
    """

    target: str
    module: str
    auth: str
    timeout: float | None
    debug: bool


class ProbeAnswer(NamedTuple):
    """The response to a probe: metrics in UTF-8 in the requested format, or a text."""

    status: int
    metrics: Iterable[bytes] | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Handlers:
    """The functions behind the paths.

    Attributes:
        metrics: Returns the metrics as UTF-8 in pieces of any size. Called in a thread, or on the event loop where it
            was fast the last time; never twice at a time.
        page: Returns the HTML of the status page.
        ready: Returns None, or why the exporter is not ready.
        reload: Returns None, or the error of the new configuration.
        probe: Polls one switch; None where the path is not served.
        discovery: Returns the JSON of service discovery; None where the path is not served.
    """

    metrics: Callable[[Format], Iterable[bytes]]
    page: Callable[[], str]
    ready: Callable[[], str | None]
    reload: Callable[[], Awaitable[str | None]]
    probe: Callable[[ProbeRequest, Format], Awaitable[ProbeAnswer]] | None = None
    discovery: Callable[[], bytes] | None = None


@dataclass(slots=True)
class WebStats(ConnectionStats):
    """Counters for the exporter's own metrics.

    Attributes:
        requests: Responses by (path, status code); the path is "other" where it is not served.
        in_flight: Requests for metrics in progress.
        authentication_failures: Requests with wrong or missing credentials.
    """

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    in_flight: int = 0
    authentication_failures: int = 0

    def refused(self) -> dict[str, int]:
        """Return the refused connections and requests by reason."""
        return {
            "connections": self.refused_connections,
            "handshake": self.failed_handshakes,
            "client_name": self.refused_client_names,
            "malformed": self.malformed_requests,
            "timeout": self.timeouts,
            "authentication": self.authentication_failures,
        }


class _Route(NamedTuple):
    methods: tuple[str, ...]
    answer: Callable[[Request], Reply | Awaitable[Reply]]


_READ = ("GET", "HEAD")


class WebApp(Application):
    """The application; `security` is the web configuration file, None for a server without TLS and users."""

    def __init__(
        self,
        handlers: Handlers,
        *,
        telemetry_path: str = "/metrics",
        max_requests: int = DEFAULT_MAX_REQUESTS,
        security: "WebConfigFile | None" = None,
    ) -> None:
        if not telemetry_path.startswith("/") or telemetry_path.startswith("/-/"):
            raise UserError(f"--web.telemetry-path: {telemetry_path!r}: start it with /, and not with /-/")
        self.stats = WebStats()
        self._handlers = handlers
        self._renderings = Renderings(handlers.metrics)
        self._negotiate = lru_cache(maxsize=32)(_negotiate)  # scrapers send the same each time
        self._max_requests = max_requests
        self._scrapes: set[Request] = set()
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
        if handlers.probe is not None:
            self._routes["/probe"] = _Route(("GET",), self._probe)
        if handlers.discovery is not None:
            self._routes["/sd"] = _Route(_READ, self._discover)

    def answer(self, request: Request) -> Reply | Awaitable[Reply]:
        """Serve one request."""
        users = self._security.current().users if self._security is not None else None
        return self._route(request) if not users else self._answer_user(request, users)

    def ended(self, request: Request, status: int | None) -> None:
        """Count a response."""
        path = request.path
        self._scrapes.discard(request)
        self.stats.in_flight = len(self._scrapes)
        if status is not None:
            self.stats.requests[path if path in self._routes else "other", status] += 1

    def headers(self) -> Headers:
        """Return the headers that the web configuration adds to each response."""
        return self._security.current().headers if self._security is not None else ()

    def close(self) -> None:
        """Stop the threads; a rendering in progress is finished."""
        self._renderings.close()
        if self._auth is not None:
            self._auth.close()

    async def _answer_user(self, request: Request, users: Mapping[str, bytes]) -> Reply:
        """Answer requests with valid credentials, refuse others."""
        from exporter.outputs.webauth import AuthResult, BasicAuth  # noqa: PLC0415 - only where there are users

        if self._auth is None:
            self._auth = BasicAuth(max(1, self.max_connections // 2))  # the others remain for new clients
        authorization = request.headers.get(b"authorization", b"").decode("latin-1")
        result = await self._auth.check(authorization, users, request.client)
        if result is AuthResult.BUSY:
            return text(503, "too many passwords are being checked", (b"retry-after", b"1"))
        if result is AuthResult.DENIED:
            self.stats.authentication_failures += 1
            return text(401, "unauthorized", (b"www-authenticate", b'Basic realm="fabric-exporter", charset="UTF-8"'))
        reply = self._route(request)
        return reply if isinstance(reply, Reply) else await reply

    def _route(self, request: Request) -> Reply | Awaitable[Reply]:
        route = self._routes.get(request.path)
        if route is None:
            return text(404, "not found")
        if request.method not in route.methods:
            allow = ", ".join(route.methods)
            return text(405, f"use {allow}", (b"allow", allow.encode()))
        return route.answer(request)

    def _page(self, _request: Request) -> Reply:
        return Reply(200, _PAGE_HEADERS, (self._handlers.page().encode(errors="replace"),))

    def _healthy(self, _request: Request) -> Reply:
        return text(200, "healthy")

    def _ready(self, _request: Request) -> Reply:
        reason = self._handlers.ready()
        return text(200, "ready") if reason is None else text(503, f"not ready: {reason}")

    async def _reload(self, _request: Request) -> Reply:
        # The reload continues if the client disconnects.
        error = await asyncio.shield(asyncio.ensure_future(self._handlers.reload()))
        return text(200, "reloaded") if error is None else text(500, error)

    async def _probe(self, request: Request) -> Reply:
        assert self._handlers.probe is not None  # noqa: S101  # otherwise there is no route
        parameters = _parse_probe(request)
        if isinstance(parameters, str):
            return text(400, parameters)
        headers = request.headers
        chosen, gzip, answer_headers = self._negotiate(
            headers.get(b"accept", b""), headers.get(b"accept-encoding", b"")
        )
        answer = await self._handlers.probe(parameters, chosen)
        if answer.metrics is None:
            return text(answer.status, answer.text)
        chunks = _compressed(answer.metrics) if gzip else answer.metrics
        return Reply(answer.status, answer_headers, list(_blocks(chunks, CHUNK_SIZE)))

    def _discover(self, _request: Request) -> Reply:
        assert self._handlers.discovery is not None  # noqa: S101  # otherwise there is no route
        return Reply(200, ((b"content-type", b"application/json"),), (self._handlers.discovery(),))

    def _metrics(self, request: Request) -> Reply | Awaitable[Reply]:
        # Counted until the last byte is sent: a slow reader holds its copy of the body. Not before: those without
        # a right password keep no place of others.
        self._scrapes.add(request)
        self.stats.in_flight = len(self._scrapes)
        if self.stats.in_flight > self._max_requests:
            return text(503, f"more than {self._max_requests} requests at a time", (b"retry-after", b"1"))
        given = request.headers
        chosen, gzip, headers = self._negotiate(given.get(b"accept", b""), given.get(b"accept-encoding", b""))
        if request.method == "HEAD":
            return Reply(200, headers, None)
        body = self._renderings.get(chosen, gzip)
        return Reply(200, headers, body) if isinstance(body, list) else _rendered(headers, body)


def _parse_probe(request: Request) -> ProbeRequest | str:
    """Return the parameters of a probe, or what is wrong with them."""
    try:
        given = parse_qs(request.query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS, errors="strict")
    except ValueError as error:
        return f"the query cannot be read: {error}"
    unknown = given.keys() - {"target", "module", "auth", "debug"}
    if unknown:
        return f"there is no parameter {min(unknown)!r}; known are target, module, auth and debug"
    if any(len(values) > 1 for values in given.values()):
        return "a parameter is given twice; give each once"
    one = {name: values[0] for name, values in given.items()}
    if not one.get("target"):
        return "give target=HOST, target=HOST:PORT or target=NAME of a configured switch"
    if one.get("debug", "") not in ("", "true", "false", "1", "0"):
        return "debug is true or false"
    header = request.headers.get(SCRAPE_TIMEOUT, b"").decode("latin-1")
    try:
        timeout = float(header) if header else None
    except ValueError:
        timeout = None
    if timeout is not None and not 0 < timeout < inf:
        timeout = None
    debug = one.get("debug", "") in ("true", "1")
    return ProbeRequest(one["target"], one.get("module", ""), one.get("auth", ""), timeout, debug)


async def _rendered(headers: Headers, body: Awaitable[list[bytes]]) -> Reply:
    return Reply(200, headers, await body)


def _negotiate(accept: bytes, accept_encoding: bytes) -> tuple[Format, bool, Headers]:
    """Return the format, whether to compress, and the headers of the response."""
    chosen = choose_format(accept.decode("latin-1"))
    gzip = accepts_gzip(accept_encoding.decode("latin-1"))
    headers = [(b"content-type", chosen.content_type.encode()), (b"vary", b"accept, accept-encoding")]
    if gzip:
        headers.append((b"content-encoding", b"gzip"))
    return chosen, gzip, tuple(headers)


class Renderings:
    """Renders in one thread, so that the event loop is not blocked; concurrent requests share a rendering.

    A rendering that took less than MAX_INLINE_SECONDS the last time runs on the event loop, as a thread would cost
    more. The first one of each format runs in the thread, and so does the one after a slow one.
    """

    def __init__(self, render: Callable[[Format], Iterable[bytes]]) -> None:
        self._render = render
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="render")
        self._running: dict[tuple[Format, bool], asyncio.Future[list[bytes]]] = {}
        self._inline: set[tuple[Format, bool]] = set()

    def get(self, chosen: Format, gzip: bool) -> list[bytes] | Awaitable[list[bytes]]:
        """Return the body in parts of about CHUNK_SIZE bytes, or an awaitable of it."""
        key = (chosen, gzip)
        if key in self._inline and not self._running:  # never two renderings at a time
            return self._body(chosen, gzip)
        running = self._running.get(key)
        if running is None:
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._thread, self._body, chosen, gzip)
            self._running[key] = running
            running.add_done_callback(lambda _: self._running.pop(key))
        return asyncio.shield(running)

    def close(self) -> None:
        """Stop the thread after the rendering in progress."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _body(self, chosen: Format, gzip: bool) -> list[bytes]:
        start = perf_counter()
        chunks: Iterable[bytes] = self._render(chosen)
        if gzip:
            chunks = _compressed(chunks)
        body = list(_blocks(chunks, CHUNK_SIZE))
        if perf_counter() - start < MAX_INLINE_SECONDS:
            self._inline.add((chosen, gzip))
        else:
            self._inline.discard((chosen, gzip))
        return body


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress at level 1: at most a fifth larger than the best in a quarter of the time; zlib releases the GIL."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    for block in _blocks(chunks, _FEED_SIZE):
        yield packer.compress(block)
    yield packer.flush()


def _blocks(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in blocks of `size`, the last one shorter, so that no call on a block takes long."""
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
