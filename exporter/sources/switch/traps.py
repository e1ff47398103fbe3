"""Receiver of SNMP traps and informs: a trap about a link polls the switch at once, and each trap is counted.

Any host can send a datagram to the trap port. It is accepted only from the address of a target, with the credentials
and at least the security level of that target, and within a rate limit for each address.
"""

import asyncio
import hashlib
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple

from pysnmp.carrier.asyncio.dgram import udp, udp6
from pysnmp.entity import config
from pysnmp.entity.engine import SnmpEngine
from pysnmp.entity.rfc3413 import ntfrcv
from pysnmp.proto.rfc1902 import OctetString

from exporter.config.secret import SecretError
from exporter.core.source import Failure, Reading, SourceError
from exporter.core.table import RowKeeper, TableBuilder
from exporter.snmp.client import parse_address
from exporter.snmp.security import (
    Authentication,
    Community,
    Credentials,
    Privacy,
    User,
)
from exporter.sources.switch.credentials import read_credentials
from exporter.sources.switch.metrics import TRAPS, TRAPS_REFUSED
from exporter.sources.switch.options import Target, Traps
from exporter.sources.switch.registry import SwitchRegistry

INTERVAL = 5.0
"""Seconds between two readings of the counters."""

RESOLVE_SECONDS = 300.0
"""Seconds after which the addresses of targets are resolved again."""

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

_AUTHENTICATION = MappingProxyType(
    {
        None: config.USM_AUTH_NONE,
        Authentication.MD5: config.USM_AUTH_HMAC96_MD5,
        Authentication.SHA: config.USM_AUTH_HMAC96_SHA,
        Authentication.SHA224: config.USM_AUTH_HMAC128_SHA224,
        Authentication.SHA256: config.USM_AUTH_HMAC192_SHA256,
        Authentication.SHA384: config.USM_AUTH_HMAC256_SHA384,
        Authentication.SHA512: config.USM_AUTH_HMAC384_SHA512,
    }
)
_PRIVACY = MappingProxyType(
    {
        None: config.USM_PRIV_NONE,
        Privacy.DES: config.USM_PRIV_CBC56_DES,
        Privacy.AES: config.USM_PRIV_CFB128_AES,
        Privacy.AES192: config.USM_PRIV_CFB192_AES_BLUMENTHAL,
        Privacy.AES256: config.USM_PRIV_CFB256_AES_BLUMENTHAL,
        Privacy.AES192C: config.USM_PRIV_CFB192_AES,
        Privacy.AES256C: config.USM_PRIV_CFB256_AES,
    }
)
"""Algorithms to their constants in pysnmp; those of longer keys without a name in them are Reeder's there."""


class TrapSender(NamedTuple):
    """A target whose traps are accepted: its name, and its pysnmp security name and minimum security level."""

    target: str
    security_name: str
    level: int


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
        self._senders: dict[str, list[TrapSender]] = {}
        self._credentials: dict[str, tuple[str, int]] = {}
        self._resolved_at = float("-inf")
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
        failures: list[Failure] = []
        if self._engine is None:
            self._engine, failures = await self._open()
        if monotonic() - self._resolved_at >= RESOLVE_SECONDS:
            failures += await self._resolve()
        events, refused = TableBuilder(TRAPS), TableBuilder(TRAPS_REFUSED)
        labels = self._registry.known
        for (target, event), count in sorted(self._counts.items()):
            if target in labels:
                events.row((labels[target].label, event), {"traps_total": count})
        for reason, count in self._refused.items():
            refused.row((reason,), {"traps_refused_total": count})
        now = monotonic()
        return Reading([one.table(self._keepers[one.schema], now) for one in (events, refused)], failures)

    async def close(self) -> None:
        """Close the sockets."""
        if self._engine is not None:
            self._engine.close_dispatcher()
            self._engine = None
            await asyncio.sleep(0)  # the transports close in the next iteration of the loop

    # --- opening -------------------------------------------------------------------------------------------------

    async def _open(self) -> tuple[SnmpEngine, list[Failure]]:
        engine = SnmpEngine()
        failures = []
        for target in self._targets:
            assert target.snmp is not None  # noqa: S101  # __init__ filters the targets
            try:
                credentials = await asyncio.to_thread(read_credentials, target.snmp)
            except SecretError as error:
                failures.append(Failure(target.name, "credentials", f"its traps are refused: {error}"))
                continue
            self._credentials[target.name] = _add_credentials(engine, credentials, target.snmp.engine_id)
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
        return engine, failures

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
        transport = kind(self._is_accepted, self._count_malformed, loop)
        await loop.create_datagram_endpoint(lambda: transport, sock=sock)  # open_server_mode could not be awaited
        return (udp6.DOMAIN_NAME if family == socket.AF_INET6 else udp.DOMAIN_NAME), transport

    async def _resolve(self) -> list[Failure]:
        """Resolve the addresses of the targets."""
        senders: dict[str, list[TrapSender]] = {}
        failures = []
        loop = asyncio.get_running_loop()
        for target in self._targets:
            if target.name not in self._credentials:
                continue
            assert target.snmp is not None  # noqa: S101  # __init__ filters the targets
            host, _ = parse_address(target.snmp.address or target.address)
            try:
                found = await loop.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
            except OSError as error:
                failures.append(Failure(target.name, "unreachable", f"its traps are refused: {host}: {error}"))
                continue
            for *_, address in found:
                sender = TrapSender(target.name, *self._credentials[target.name])
                senders.setdefault(str(address[0]), []).append(sender)
        self._senders = senders
        self._resolved_at = monotonic()
        self._buckets = {address: bucket for address, bucket in self._buckets.items() if address in senders}
        return failures

    # --- receiving -----------------------------------------------------------------------------------------------

    def _is_accepted(self, address: str) -> bool:
        """Return whether to decode a datagram from an address; count it otherwise."""
        if address not in self._senders:
            self._refused["unknown_sender"] += 1
            return False
        if not self._buckets.setdefault(address, TokenBucket()).take(monotonic()):
            self._refused["rate_limited"] += 1
            return False
        return True

    def _count_malformed(self) -> None:
        self._refused["malformed"] += 1

    def _on_notification(self, engine: SnmpEngine, _: int, *rest: Any) -> None:  # noqa: ANN401  # as pysnmp calls it
        """Process one trap or inform that pysnmp has decoded and authenticated by a user or community."""
        variables = rest[2]
        context: Mapping[str, Any] = engine.observer.get_execution_context("rfc3412.receiveMessage:request")
        address = str(context["transportAddress"][0])
        name, level = str(context["securityName"]), int(context["securityLevel"])
        senders = [one for one in self._senders.get(address, ()) if one.security_name == name and level >= one.level]
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


def _add_credentials(engine: SnmpEngine, credentials: Credentials, engine_id: str | None) -> tuple[str, int]:
    """Add a target's credentials to pysnmp; return their security name and security level."""
    if isinstance(credentials, Community):
        name = hashlib.sha256(credentials.community).hexdigest()[:32]  # one name for all targets with the community
        config.add_v1_system(engine, name, OctetString(credentials.community), securityName=name)
        return name, 1
    level = 1 + (credentials.authentication is not None) + (credentials.privacy is not None)
    _add_user(engine, credentials, None)  # for informs, our own engine is authoritative
    if engine_id is not None:
        _add_user(engine, credentials, OctetString(hexValue=engine_id.removeprefix("0x")))
    return credentials.name, level


def _add_user(engine: SnmpEngine, user: User, engine_id: OctetString | None) -> None:
    config.add_v3_user(
        engine,
        user.name,
        _AUTHENTICATION[user.authentication],
        OctetString(user.authentication_password) if user.authentication else None,
        _PRIVACY[user.privacy],
        OctetString(user.privacy_password) if user.privacy else None,
        securityEngineId=engine_id,
    )


def _port(values: Mapping[tuple[int, ...], Any]) -> str:
    """Return the name of the port in a trap's variable bindings, empty if there is none."""
    for column in PORT_NAMES:
        for name, value in values.items():
            if name[: len(column)] == column:
                return bytes(value)[:MAX_NAME_BYTES].decode("utf-8", "surrogateescape")
    return ""


class _Filter:
    """Passes only accepted datagrams to pysnmp, and counts those that it cannot decode."""

    def __init__(
        self, is_accepted: Callable[[str], bool], on_malformed: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(loop=loop)  # type: ignore[call-arg]  # __init__ of pysnmp's class
        self._is_accepted = is_accepted
        self._on_malformed = on_malformed
        self._decode: Callable[[Any, Any, bytes], None] | None = None

    def register_callback(self, decode: Callable[[Any, Any, bytes], None]) -> None:
        """Keep what pysnmp's dispatcher registers to receive datagrams."""
        super().register_callback(decode)  # type: ignore[misc]  # of pysnmp's class
        self._decode = decode

    def datagram_received(self, datagram: bytes, address: Any) -> None:  # noqa: ANN401  # of either family
        if not self._is_accepted(str(address[0])) or self._decode is None:
            return
        try:
            self._decode(self, address, datagram)
        except Exception:  # noqa: BLE001  # pysnmp raises various exceptions on malformed messages
            self._on_malformed()


class _FilteredUdp(_Filter, udp.UdpAsyncioTransport):  # type: ignore[misc]  # untyped
    pass


class _FilteredUdp6(_Filter, udp6.Udp6AsyncioTransport):  # type: ignore[misc]  # untyped
    pass
