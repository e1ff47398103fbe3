"""Receiver of SNMP traps and informs: a trap about a link polls the switch at once, and each trap is counted.

Any host can send a datagram to the trap port. It is accepted only from the address of a target, with the credentials
and at least the security level of that target, and within a rate limit for each address.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple

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
from exporter.sources.switch.trap_credentials import (
    Security,
    add_credentials,
    remove_community,
    security_of,
)

INTERVAL = 5.0
"""Seconds between two readings of the counters."""

UPDATE_SECONDS = 300.0
"""Seconds after which the credentials of a target are read, and its address is resolved, again."""

LOOKUP_SECONDS = 1.5
"""Seconds for one answer of the resolver, and for all updates of one reading; it continues at the next one."""

BURST, RATE = 20.0, 2.0
"""Rate limit of one address: datagrams at once, and datagrams per second after that."""

MIN_POLL_SECONDS = 2.0
"""Minimum seconds between two polls of a switch by traps: a flapping link sends many."""

OTHER = "other"
EVENTS = MappingProxyType(
    {
        (1, 3, 6, 1, 6, 3, 1, 1, 5, 1): "cold_start",
        (1, 3, 6, 1, 6, 3, 1, 1, 5, 2): "warm_start",
        (1, 3, 6, 1, 6, 3, 1, 1, 5, 3): "link_down",
        (1, 3, 6, 1, 6, 3, 1, 1, 5, 4): "link_up",
        (1, 3, 6, 1, 6, 3, 1, 1, 5, 5): "authentication_failure",
        (1, 3, 6, 1, 2, 1, 47, 2, 0, 1): "inventory_changed",  # entConfigChange
        (1, 0, 8802, 1, 1, 2, 0, 0, 1): "neighbours_changed",  # lldpRemTablesChange
        (1, 3, 111, 2, 802, 1, 1, 13, 0, 0, 1): "neighbours_changed",  # lldpV2RemTablesChange
    }
)
"""Notifications to the value of the label `event` (SNMPv2-MIB, IF-MIB, ENTITY-MIB, LLDP-MIB, LLDP-V2-MIB)."""

POLLING_EVENTS = frozenset(EVENTS.values()) - {"authentication_failure"}
"""Events after which the switch is polled at once."""

TRAP_OID = (1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0)  # snmpTrapOID
PORT_NAMES = ((1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 1), (1, 3, 6, 1, 2, 1, 2, 2, 1, 2))  # ifName, ifDescr
MAX_NAME_BYTES = 256

SECURITY_FAILURES = ("rfc2576.prepareDataElements:sm-failure", "rfc3412.prepareDataElements:sm-failure")
"""Points at which pysnmp refuses the credentials of a message: those of versions 1 and 2c, and of version 3."""

DISCOVERY = frozenset({str(errind.unknownEngineID), str(errind.notInTimeWindow)})
"""Errors by which the sender of an inform discovers our engine and its time (RFC 3414, section 4)."""


class TrapSender(NamedTuple):
    """A target whose traps are accepted from an address, and its security; None as long as that cannot be read."""

    target: str
    security: Security | None


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


@dataclass(slots=True)
class TokenBucket:
    """Rate limit of one address."""

    tokens: float = BURST
    filled_at: float = field(default_factory=monotonic)

    def take(self, now: float) -> bool:
        """Take a token; return False if there is none."""
        self.tokens = min(BURST, self.tokens + (now - self.filled_at) * RATE)
        self.filled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
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
        self._polled_at: dict[str, float] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._refused: Counter[str] = Counter(unknown_sender=0, rate_limited=0, malformed=0, credentials=0)
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
            security = None if peer.credentials is None else security_of(peer.credentials)
            for address in peer.addresses:
                senders.setdefault(address, []).append(TrapSender(peer.target.name, security))
        self._senders = senders
        self._buckets = {address: bucket for address, bucket in self._buckets.items() if address in senders}

    # --- receiving -----------------------------------------------------------------------------------------------

    def _on_datagram(self, address: str, decode: Callable[[], None]) -> None:
        """Count a datagram, whatever becomes of it; `decode` passes it to pysnmp, and returns once it is processed."""
        if not self._is_accepted(address):
            return
        self._is_counted = False
        with suppress(Exception):  # pysnmp raises various exceptions on malformed messages, and drops others
            decode()
        if not self._is_counted:
            self._refused["malformed"] += 1

    def _is_accepted(self, address: str) -> bool:
        """Return whether to decode a datagram from an address; count it otherwise."""
        if address not in self._senders:
            self._refused["unknown_sender"] += 1
            return False
        if not self._buckets.setdefault(address, TokenBucket()).take(monotonic()):
            self._refused["rate_limited"] += 1
            return False
        return True

    def _on_security_failure(self, _engine: SnmpEngine, _point: str, variables: Mapping[str, Any], _: object) -> None:
        """Process one message whose credentials pysnmp refuses."""
        status = variables["statusInformation"]
        error = str(status.get("errorIndication", ""))
        is_reported = "oid" in status
        self._is_counted = error != str(errind.parseError)
        if self._is_counted and not (is_reported and error in DISCOVERY):
            self._refused["credentials"] += 1

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
            self._refused["credentials"] += 1
            return
        values = {tuple(name): value for name, value in variables}
        event = EVENTS.get(tuple(values.get(TRAP_OID, ())), OTHER)
        port = _port(values)
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
    peer.addresses = tuple(dict.fromkeys(str(address[0]) for *_, address in found))
    return ()


def _unmapped(address: Sequence[Any]) -> str:
    """Return the IP address of a socket's address; that of an IPv4 host also where it arrived at an IPv6 socket."""
    return str(address[0]).removeprefix("::ffff:")


def _port(values: Mapping[tuple[int, ...], Any]) -> str:
    """Return the name of the port in a trap's variable bindings, empty if there is none."""
    for column in PORT_NAMES:
        for name, value in values.items():
            if name[: len(column)] == column:
                return bytes(value)[:MAX_NAME_BYTES].decode("utf-8", "surrogateescape")
    return ""


class _Filter:
    """Passes each datagram to a function, with its address, that decides whether pysnmp gets it."""

    def __init__(self, on_datagram: Callable[[str, Callable[[], None]], None], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)  # type: ignore[call-arg]  # __init__ of pysnmp's class
        self._on_datagram = on_datagram
        self._decode: Callable[[Any, Any, bytes], None] | None = None

    def register_callback(self, decode: Callable[[Any, Any, bytes], None]) -> None:
        """Keep what pysnmp's dispatcher registers to receive datagrams."""
        super().register_callback(decode)  # type: ignore[misc]  # of pysnmp's class
        self._decode = decode

    def datagram_received(self, datagram: bytes, address: Any) -> None:  # noqa: ANN401  # of either family
        if self._decode is not None:
            self._on_datagram(_unmapped(address), partial(self._decode, self, address, datagram))


class _FilteredUdp(_Filter, udp.UdpAsyncioTransport):  # type: ignore[misc]  # untyped
    pass


class _FilteredUdp6(_Filter, udp6.Udp6AsyncioTransport):  # type: ignore[misc]  # untyped
    pass
