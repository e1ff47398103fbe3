"""Receiver of SNMP traps and informs: a trap about a link polls the switch at once, and each trap is counted.

Any host can send a datagram to the trap port, with any address as its source. It is accepted only from the address of a
target, with the credentials and at least the security level of that target. pysnmp, which is slow, gets it only after
its size and first fields were checked, and within a rate limit for each address and one for all.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

from pysnmp.carrier.asyncio.dgram import udp, udp6
from pysnmp.entity import config
from pysnmp.entity.engine import SnmpEngine
from pysnmp.entity.rfc3413 import ntfrcv
from pysnmp.proto import errind

from exporter.config.secret import SecretError
from exporter.core.source import Failure, Reading, SourceError
from exporter.core.table import RowKeeper, TableBuilder
from exporter.snmp.client import parse_address
from exporter.snmp.security import Community, Credentials
from exporter.sources.switch.credentials import read_credentials
from exporter.sources.switch.metrics import TRAPS, TRAPS_REFUSED
from exporter.sources.switch.options import Target, Traps
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.trap_credentials import add_credentials, remove_community, security_of
from exporter.sources.switch.trap_events import POLLING_EVENTS, event_of, port_of
from exporter.sources.switch.trap_head import CREDENTIALS, MALFORMED, TOO_LARGE, TrapSender, refusal

INTERVAL = 5.0
"""Seconds between two readings of the counters."""

UPDATE_SECONDS = 300.0
"""Seconds after which the credentials of a target are read, and its address is resolved, again."""

LOOKUP_SECONDS = 1.5
"""Seconds for one answer of the resolver, and for all updates of one reading; it continues at the next one."""

BURST, RATE = 20.0, 2.0
"""Rate limit of one address: datagrams at once, and datagrams per second after that."""

TOTAL_BURST, TOTAL_RATE = 100.0, 20.0
"""Rate limit of all addresses, in pieces of PIECE_BYTES: a sender can be invented for each datagram."""

PIECE_BYTES = 512
"""A trap about a link fits into a piece; pysnmp takes 2 to 5 ms for one."""

UNKNOWN_SENDER, RATE_LIMITED, OVERLOAD = "unknown_sender", "rate_limited", "overload"
REASONS = (UNKNOWN_SENDER, TOO_LARGE, MALFORMED, CREDENTIALS, RATE_LIMITED, OVERLOAD)
"""Values of the label `reason`, in the order of the checks."""

MIN_POLL_SECONDS = 2.0
"""Minimum seconds between two polls of a switch by traps: a flapping link sends many."""

SECURITY_FAILURES = ("rfc2576.prepareDataElements:sm-failure", "rfc3412.prepareDataElements:sm-failure")
"""Points at which pysnmp refuses the credentials of a message: those of versions 1 and 2c, and of version 3."""

DISCOVERY = frozenset({str(errind.unknownEngineID), str(errind.notInTimeWindow)})
"""Errors by which the sender of an inform discovers our engine and its time (RFC 3414, section 4)."""


@dataclass(slots=True)
class Peer:
    """What is known of a target with `snmp`. A later failure leaves what was read or resolved before.

    Attributes:
        credentials: Those in pysnmp.
        addresses: Those that its name was resolved to.
        tried_at: Time of the last update, successful or not.
        updated_at: Time of the last update without failures.
        failures: Those of the last update.
    """

    target: Target
    credentials: Credentials | None = None
    addresses: tuple[str, ...] = ()
    tried_at: float = float("-inf")
    updated_at: float = float("-inf")
    failures: Sequence[Failure] = ()

    def sender(self) -> TrapSender:
        """Return what its traps are checked by."""
        options = self.target.snmp
        engine_id = (options.engine_id or "") if options is not None else ""
        security = None if self.credentials is None else security_of(self.credentials)
        return TrapSender(self.target.name, security, bytes.fromhex(engine_id.removeprefix("0x")))


@dataclass(slots=True)
class TokenBucket:
    """A rate limit: of one address, unless another is given.

    Attributes:
        tokens: Those that can be taken.
        burst: Maximum number of tokens.
        rate: Tokens that are added in a second.
        filled_at: Monotonic time when tokens were added last.
    """

    tokens: float = BURST
    burst: float = BURST
    rate: float = field(default_factory=lambda: RATE)
    filled_at: float = field(default_factory=monotonic)

    def take(self, now: float, count: int = 1) -> bool:
        """Take tokens; return False if there are not enough."""
        self.tokens = min(self.burst, self.tokens + (now - self.filled_at) * self.rate)
        self.filled_at = now
        if self.tokens < count:
            return False
        self.tokens -= count
        return True


class TrapSource:
    """Receives the traps of all targets.

    Args:
        options: Where to listen.
        targets: All targets; traps are accepted from those with `snmp`.
        registry: Labels of the targets, and the callbacks that poll them.
    """

    name = "traps"
    target = ""
    interval = INTERVAL
    changed: asyncio.Event | None = None

    def __init__(self, options: Traps, targets: Sequence[Target], registry: SwitchRegistry) -> None:
        self.settings = (options, tuple((one.name, one.address, one.snmp) for one in targets))
        self._options = options
        self._targets = [target for target in targets if target.snmp is not None]
        self._registry = registry
        self._engine: SnmpEngine | None = None
        self._peers: list[Peer] = []
        self._senders: dict[str, list[TrapSender]] = {}
        self._is_counted = False
        self._buckets: dict[str, TokenBucket] = {}
        self._bucket_of_all = TokenBucket(TOTAL_BURST, TOTAL_BURST, TOTAL_RATE)
        self._polled_at: dict[str, float] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._refused: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (TRAPS, TRAPS_REFUSED)}

    async def applies(self) -> bool:
        """Return True: a configured receiver always listens."""
        return True

    async def read(self) -> Reading:
        """Return the counters; open the sockets at the first call.

        Raises:
            SourceError: A socket cannot be opened.
        """
        if self._engine is None:
            self._engine = await self._open()
            self._peers = [Peer(target) for target in self._targets]
        await self._update(self._engine)
        events, refused = TableBuilder(TRAPS), TableBuilder(TRAPS_REFUSED)
        labels = self._registry.known
        for (target, event), count in sorted(self._counts.items()):
            if target in labels:
                events.row((labels[target].label, event), {"traps_total": count})
        for reason, count in self._refused.items():
            refused.row((reason,), {"traps_refused_total": count})
        now = monotonic()
        failures = [failure for peer in self._peers for failure in peer.failures]
        return Reading([one.table(self._keepers[one.schema], now) for one in (events, refused)], failures)

    async def close(self) -> None:
        """Close the sockets."""
        if self._engine is not None:
            self._engine.close_dispatcher()
            self._engine = None
            await asyncio.sleep(0)  # the transports close in the next iteration of the loop

    # --- opening -------------------------------------------------------------------------------------------------

    async def _open(self) -> SnmpEngine:
        engine = SnmpEngine()
        try:
            for number, address in enumerate(self._options.listen):
                domain, transport = await self._transport(address)
                config.add_transport(engine, (*domain, number), transport)
        except OSError as error:
            engine.close_dispatcher()
            remedy = "ports below 1024 need CAP_NET_BIND_SERVICE, and no other program may listen there"
            raise SourceError(
                "configuration", f"switches.traps.listen: {address!r}: {error.strerror}; {remedy}"
            ) from None
        ntfrcv.NotificationReceiver(engine, self._on_notification)
        engine.observer.register_observer(self._on_security_failure, *SECURITY_FAILURES)
        return engine

    async def _transport(self, address: str) -> tuple[tuple[int, ...], Any]:
        """Open a socket, and return its pysnmp domain and transport."""
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            sock.bind((host, int(port)))
        except OSError:
            sock.close()
            raise
        kind: Any = _FilteredUdp6 if family == socket.AF_INET6 else _FilteredUdp
        transport = kind(self._on_datagram, loop)
        await loop.create_datagram_endpoint(lambda: transport, sock=sock)  # open_server_mode could not be awaited
        return (udp6.DOMAIN_NAME if family == socket.AF_INET6 else udp.DOMAIN_NAME), transport

    # --- targets -------------------------------------------------------------------------------------------------

    async def _update(self, engine: SnmpEngine) -> None:
        """Update the targets that failed or were not updated for long; those that were not tried for longest first."""
        begun = monotonic()
        due = [peer for peer in self._peers if peer.failures or begun - peer.updated_at >= UPDATE_SECONDS]
        for peer in sorted(due, key=lambda peer: peer.tried_at):
            if monotonic() - begun >= LOOKUP_SECONDS:
                break
            peer.tried_at = monotonic()
            peer.failures = [*await self._update_credentials(engine, peer), *await _update_addresses(peer)]
            if not peer.failures:
                peer.updated_at = monotonic()
        if due:
            self._update_senders()

    async def _update_credentials(self, engine: SnmpEngine, peer: Peer) -> Sequence[Failure]:
        """Read the credentials of a target, and give them to pysnmp if they changed."""
        options = peer.target.snmp
        assert options is not None  # noqa: S101  # __init__ filters the targets
        try:
            credentials = await asyncio.to_thread(read_credentials, options)
        except SecretError as error:
            effect = "its traps are refused" if peer.credentials is None else "the credentials read before are used"
            return [Failure(peer.target.name, "credentials", f"{effect}: {error}")]
        before = peer.credentials
        if credentials != before:
            add_credentials(engine, credentials, options.engine_id)
            peer.credentials = credentials
            used = {one.credentials.community for one in self._peers if isinstance(one.credentials, Community)}
            if isinstance(before, Community) and before.community not in used:
                remove_community(engine, before)
        return ()

    def _update_senders(self) -> None:
        senders: dict[str, list[TrapSender]] = {}
        for peer in self._peers:
            for address in peer.addresses:
                senders.setdefault(address, []).append(peer.sender())
        self._senders = senders
        self._buckets = {address: bucket for address, bucket in self._buckets.items() if address in senders}

    # --- receiving -----------------------------------------------------------------------------------------------

    def _on_datagram(self, address: str, datagram: bytes, decode: Callable[[], None]) -> None:
        """Count a datagram, whatever becomes of it; `decode` passes it to pysnmp, and returns once it is processed."""
        reason = self._refusal(address, datagram)
        if reason is not None:
            self._refused[reason] += 1
            return
        self._is_counted = False
        with suppress(Exception):  # pysnmp raises various exceptions on malformed messages, and drops others
            decode()
        if not self._is_counted:
            self._refused[MALFORMED] += 1

    def _refusal(self, address: str, datagram: bytes) -> str | None:
        """Return why a datagram is refused before pysnmp gets it: what costs nothing comes first.

        A datagram with other credentials takes no tokens, so that it keeps none out that has the right ones.
        """
        senders, engine = self._senders.get(address), self._engine
        if senders is None or engine is None:
            return UNKNOWN_SENDER
        reason = refusal(datagram, senders, bytes(engine.snmpEngineID))
        if reason is not None:
            return reason
        now = monotonic()
        if not self._buckets.setdefault(address, TokenBucket()).take(now):
            return RATE_LIMITED
        pieces = -(-len(datagram) // PIECE_BYTES)
        return None if self._bucket_of_all.take(now, pieces) else OVERLOAD

    def _on_security_failure(self, _engine: SnmpEngine, _point: str, variables: Mapping[str, Any], _: object) -> None:
        """Process one message whose credentials pysnmp refuses."""
        status = variables["statusInformation"]
        error = str(status.get("errorIndication", ""))
        is_reported = "oid" in status
        self._is_counted = error != str(errind.parseError)
        if self._is_counted and not (is_reported and error in DISCOVERY):
            self._refused[CREDENTIALS] += 1

    def _on_notification(self, engine: SnmpEngine, _: int, *rest: Any) -> None:  # noqa: ANN401  # as pysnmp calls it
        """Process one trap or inform that pysnmp has decoded and authenticated by a user or community."""
        self._is_counted = True
        variables = rest[2]
        context: Mapping[str, Any] = engine.observer.get_execution_context("rfc3412.receiveMessage:request")
        address = _unmapped(context["transportAddress"])
        name, level = str(context["securityName"]), int(context["securityLevel"])
        senders = [
            one
            for one in self._senders.get(address, ())
            if one.security is not None and one.security.name == name and level >= one.security.level
        ]
        if not senders:
            self._refused[CREDENTIALS] += 1
            return
        values = {tuple(name): value for name, value in variables}
        event, port = event_of(values), port_of(values)
        target = senders[0].target
        self._counts[target, event] += 1
        if event in POLLING_EVENTS:
            self._poll_now(target, port)

    def _poll_now(self, target: str, port: str) -> None:
        now = monotonic()
        poll_now: Callable[[str], None] | None = self._registry.poll_callbacks.get(target)
        if poll_now is not None and now - self._polled_at.get(target, float("-inf")) >= MIN_POLL_SECONDS:
            self._polled_at[target] = now
            poll_now(port)


async def _update_addresses(peer: Peer) -> Sequence[Failure]:
    """Resolve the address of a target."""
    options = peer.target.snmp
    assert options is not None  # noqa: S101  # __init__ of the source filters the targets
    host, _ = parse_address(options.address or peer.target.address)
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:  # TimeoutError is one of OSError
        effect = "the addresses resolved before are used" if peer.addresses else "its traps are refused"
        reason = str(error) or f"the resolver did not answer within {LOOKUP_SECONDS:g} s"
        return [Failure(peer.target.name, "unreachable", f"{effect}: {host}: {reason}")]
    peer.addresses = tuple(dict.fromkeys(_unmapped(address) for *_, address in found))
    return ()


def _unmapped(address: Sequence[Any]) -> str:
    """Return the IP address of a socket's address; that of an IPv4 host also where it arrived at an IPv6 socket."""
    return str(address[0]).removeprefix("::ffff:")


class _Filter:
    """Passes each datagram to a function, with its address, that decides whether pysnmp gets it."""

    def __init__(
        self, on_datagram: Callable[[str, bytes, Callable[[], None]], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(loop=loop)  # type: ignore[call-arg]  # __init__ of pysnmp's class
        self._on_datagram = on_datagram
        self._decode: Callable[[Any, Any, bytes], None] | None = None

    def register_callback(self, decode: Callable[[Any, Any, bytes], None]) -> None:
        """Keep what pysnmp's dispatcher registers to receive datagrams."""
        super().register_callback(decode)  # type: ignore[misc]  # of pysnmp's class
        self._decode = decode

    def datagram_received(self, datagram: bytes, address: Any) -> None:  # noqa: ANN401  # of either family
        if self._decode is not None:
            self._on_datagram(_unmapped(address), datagram, partial(self._decode, self, address, datagram))


class _FilteredUdp(_Filter, udp.UdpAsyncioTransport):  # type: ignore[misc]  # untyped
    pass


class _FilteredUdp6(_Filter, udp6.Udp6AsyncioTransport):  # type: ignore[misc]  # untyped
    pass
