"""An asyncio client of one SNMP target: walk and get over one UDP socket."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Final, Self

from exporter.snmp.ber import Oid
from exporter.snmp.errors import (
    SnmpAuthenticationError,
    SnmpTimeout,
    SnmpUnreachable,
)
from exporter.snmp.exchange import AgentState, Exchange, Reason
from exporter.snmp.get import Get, GetResult
from exporter.snmp.message import V1
from exporter.snmp.security import Community, Credentials
from exporter.snmp.session import make_session
from exporter.snmp.transport import TransportCounters, UdpTransport
from exporter.snmp.usm import PasswordKeys
from exporter.snmp.walk import (
    MAX_ROWS,
    Walk,
    WalkResult,
    merge_results,
    split_columns,
)

DEFAULT_PORT: Final = 161


def parse_address(text: str) -> tuple[str, int]:
    """Split `host`, `host:port`, `[ipv6]`, `[ipv6]:port` or a bare IPv6 address into host and port (161 if none).

    Raises:
        ValueError: the host is empty or cannot be a name, or the port is not 1 to 65535.
    """
    if "@" in text:  # it is not quoted
        raise ValueError("address: user and password do not belong into the address; give host or host:port")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"address {text!r}: an IPv6 address with a port is written [2001:db8::1]:161")
        port = rest[1:] if rest else str(DEFAULT_PORT)
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host, port = text, str(DEFAULT_PORT)
    if not host:
        raise ValueError(f"address {text!r}: the host is empty")
    try:
        host.encode("idna")  # as the resolver does
    except UnicodeError:
        what = "is not a host name; each part between dots has 1 to 63 characters, none of them invalid"
        raise ValueError(f"address {text!r}: {host!r} {what}") from None
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise ValueError(f"address {text!r}: port {port!r} is not a number from 1 to 65535")
    return host, int(port)


class SnmpClient:
    """Polls one SNMP target. For use in one event loop; concurrent calls run one after the other."""

    def __init__(
        self,
        address: str,
        credentials: Credentials | str | bytes,
        *,
        timeout: float = 1.0,
        retries: int = 2,
        deadline: float = 10.0,
        window: int = 1,
        unconnected: bool = False,
        password_keys: PasswordKeys | None = None,
    ) -> None:
        """Store the options; nothing is sent or resolved yet.

        Args:
            address: see `parse_address`.
            credentials: a community or a user; a string is a community of v2c. Never part of an error's text.
            timeout: seconds to wait for the first try of a request; each further try waits half as long again.
            retries: tries after the first one.
            deadline: seconds for a whole walk or get.
            window: requests in flight at the same time; many agents cannot serve more than one.
            unconnected: accept responses from other addresses and ports too, as some agents send them.
            password_keys: those of a v3 user's passwords, shared by clients; None for a client on its own.

        Raises:
            ValueError: the address is invalid.
        """
        if isinstance(credentials, str):
            credentials = credentials.encode()
        if isinstance(credentials, bytes):
            credentials = Community(credentials)
        self.address = address
        self.counters = TransportCounters()
        self._host, self._port = parse_address(address)
        self._session = make_session(credentials, password_keys=password_keys)
        self._timeout = timeout
        self._retries = retries
        self._deadline = deadline
        self._window = window
        self._unconnected = unconnected
        v1 = isinstance(credentials, Community) and credentials.version == V1
        self._state = AgentState(supports_getbulk=not v1)
        self._lock = asyncio.Lock()
        self._transport: UdpTransport | None = None

    @property
    def boots(self) -> int | None:
        """SnmpEngineBoots of a v3 agent, from a signed message; None where it is not known."""
        return self._session.boots

    @property
    def engine_id(self) -> bytes:
        """SnmpEngineID of a v3 agent; empty where it is not known."""
        return self._session.engine_id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket. A call in progress fails; a later call opens a new one."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    async def walk(self, columns: Sequence[Oid], *, max_rows: int = MAX_ROWS, unordered: bool = False) -> WalkResult:
        """Walk several columns; see `Walk` and `WalkResult`.

        If a target stops responding, only the missing columns are problems of the result.

        Raises:
            SnmpTimeout: the target did not respond at all.
            SnmpUnreachable: the network or the host reported an error.
            SnmpAuthenticationError: the target rejects the v3 user or its passwords.
            ValueError: a column is not an object identifier.
        """
        walks = [
            Walk(share, self._state, max_rows=max_rows, unordered=unordered)
            for share in split_columns(columns, self._window)
        ]
        await self._run(walks)
        return merge_results([walk.result() for walk in walks], columns)

    async def get(self, oids: Sequence[Oid]) -> GetResult:
        """Read single objects; see `GetResult`. Raises the same errors as `walk`."""
        get = Get(oids, self._state)
        await self._run([get])
        return get.result()

    async def _run(self, exchanges: Sequence[Exchange]) -> None:
        async with self._lock:
            deadline = asyncio.get_running_loop().time() + self._deadline
            try:
                transport = await self._open(deadline)
                await self._run_exchanges(transport, exchanges, deadline)
            except (SnmpTimeout, SnmpUnreachable, SnmpAuthenticationError) as error:
                self.close()  # the next call resolves the name again, and repeats the engine discovery
                if not any(exchange.pacing.responded for exchange in exchanges):
                    raise
                reason = Reason.TIMEOUT if isinstance(error, SnmpTimeout) else Reason.UNREACHABLE
                for exchange in exchanges:
                    exchange.abort(reason, str(error))

    async def _open(self, deadline: float) -> UdpTransport:
        if self._transport is None:
            self._session.reset()
            transport = UdpTransport(
                self.address, self._session, self.counters, timeout=self._timeout, retries=self._retries
            )
            try:
                async with asyncio.timeout_at(deadline):
                    if self._unconnected:
                        await self._bind(transport)
                    else:
                        await asyncio.get_running_loop().create_datagram_endpoint(
                            lambda: transport, remote_addr=(self._host, self._port)
                        )
            except TimeoutError as error:
                raise SnmpTimeout(f"{self.address}: the name was not resolved in {self._deadline:g} s") from error
            except (OSError, UnicodeError) as error:
                raise SnmpUnreachable(f"{self.address}: {error}") from error
            self._transport = transport
        return self._transport

    async def _bind(self, transport: UdpTransport) -> None:
        """Open a socket that receives datagrams from any address."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_DGRAM)
        family, _, _, _, address = found[0]
        transport.peer = address
        any_address = "::" if family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104  # responses may come from any
        await loop.create_datagram_endpoint(lambda: transport, local_addr=(any_address, 0))

    async def _run_exchanges(self, transport: UdpTransport, exchanges: Sequence[Exchange], deadline: float) -> None:
        pending = [transport.start(exchange) for exchange in exchanges]
        try:
            async with asyncio.timeout_at(deadline):
                for exchange in pending:
                    await exchange.done
        except TimeoutError as error:
            unfinished = next((exchange for exchange in pending if not exchange.done.done()), pending[0])
            what = f"the {self._deadline:g} s for the poll passed before a response to {unfinished.last_request}"
            raise SnmpTimeout(f"{self.address}: {what}") from error
        finally:
            for exchange in pending:
                exchange.stop()
