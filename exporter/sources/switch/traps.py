"""Traps and informs: a switch that tells of a link makes us poll it at once, and the event is counted.

Anybody can send a datagram to the trap port. It is heeded only from the address of a target, by that target's own
credentials, at the level of security that it has, and no more often than a switch has something to say.
"""

import asyncio
import hashlib
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
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
from exporter.sources.switch.credentials import credentials_of
from exporter.sources.switch.metrics import TRAPS, TRAPS_REFUSED
from exporter.sources.switch.options import Target, Traps
from exporter.sources.switch.registry import Roster

INTERVAL = 5.0
"""Seconds between two readings of what was counted."""

RESOLVE_EVERY = 300.0
"""Seconds after which the addresses of targets are looked up again."""

BURST, RATE = 20.0, 2.0
"""Datagrams that one address may send at once, and each second from then on."""

LEAST_NUDGE = 2.0
"""Seconds between two polls of a switch for the sake of traps: a flapping link has many."""

OTHER = "other"
EVENTS = {
    (1, 3, 6, 1, 6, 3, 1, 1, 5, 1): "cold_start",
    (1, 3, 6, 1, 6, 3, 1, 1, 5, 2): "warm_start",
    (1, 3, 6, 1, 6, 3, 1, 1, 5, 3): "link_down",
    (1, 3, 6, 1, 6, 3, 1, 1, 5, 4): "link_up",
    (1, 3, 6, 1, 6, 3, 1, 1, 5, 5): "authentication_failure",
    (1, 3, 6, 1, 2, 1, 47, 2, 0, 1): "inventory_changed",  # entConfigChange
    (1, 0, 8802, 1, 1, 2, 0, 0, 1): "neighbours_changed",  # lldpRemTablesChange
    (1, 3, 111, 2, 802, 1, 1, 13, 0, 0, 1): "neighbours_changed",  # lldpV2RemTablesChange
}
"""Notifications to the word that is their label (SNMPv2-MIB, IF-MIB, ENTITY-MIB, LLDP-MIB, LLDP-V2-MIB)."""

POLLED_FOR = frozenset(EVENTS.values()) - {"authentication_failure"}
"""Events that make us poll the switch at once."""

TRAP_OID = (1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0)
PORT_NAMES = ((1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 1), (1, 3, 6, 1, 2, 1, 2, 2, 1, 2))  # ifName, ifDescr
MAX_NAME = 256

_AUTHENTICATION = {
    None: config.USM_AUTH_NONE,
    Authentication.MD5: config.USM_AUTH_HMAC96_MD5,
    Authentication.SHA: config.USM_AUTH_HMAC96_SHA,
    Authentication.SHA224: config.USM_AUTH_HMAC128_SHA224,
    Authentication.SHA256: config.USM_AUTH_HMAC192_SHA256,
    Authentication.SHA384: config.USM_AUTH_HMAC256_SHA384,
    Authentication.SHA512: config.USM_AUTH_HMAC384_SHA512,
}
_PRIVACY = {
    None: config.USM_PRIV_NONE,
    Privacy.DES: config.USM_PRIV_CBC56_DES,
    Privacy.AES: config.USM_PRIV_CFB128_AES,
    Privacy.AES192: config.USM_PRIV_CFB192_AES_BLUMENTHAL,
    Privacy.AES256: config.USM_PRIV_CFB256_AES_BLUMENTHAL,
    Privacy.AES192C: config.USM_PRIV_CFB192_AES,
    Privacy.AES256C: config.USM_PRIV_CFB256_AES,
}
"""What pysnmp calls the algorithms; those of longer keys without a name are Reeder's there."""


class Sender(NamedTuple):
    """A target whose traps are heeded: its name, and who it must be in pysnmp's words."""

    target: str
    security_name: str
    level: int


@dataclass(slots=True)
class Bucket:
    """How many datagrams one address may still send."""

    tokens: float = BURST
    filled: float = field(default_factory=monotonic)

    def takes(self, now: float) -> bool:
        """Tell whether one more is allowed, and count it."""
        self.tokens = min(BURST, self.tokens + (now - self.filled) * RATE)
        self.filled = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class TrapSource:
    """Listens for the traps of all targets.

    Args:
        options: Where to listen.
        targets: Whose traps are heeded: those that are asked by SNMP.
        roster: By which they are polled, and called by their labels.
    """

    name = "traps"
    target = ""
    interval = INTERVAL
    changed: asyncio.Event | None = None

    def __init__(self, options: Traps, targets: Sequence[Target], roster: Roster) -> None:
        self.settings = (options, tuple((one.name, one.address, one.snmp) for one in targets))
        self._options = options
        self._targets = [target for target in targets if target.snmp is not None]
        self._roster = roster
        self._engine: SnmpEngine | None = None
        self._senders: dict[str, list[Sender]] = {}
        self._credentials: dict[str, tuple[str, int]] = {}
        self._resolved = float("-inf")
        self._buckets: dict[str, Bucket] = {}
        self._nudged: dict[str, float] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._refused: Counter[str] = Counter(stranger=0, limited=0, junk=0, credentials=0)
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (TRAPS, TRAPS_REFUSED)}

    async def applies(self) -> bool:
        """Tell that traps are listened for, since that was configured."""
        return True

    async def read(self) -> Reading:
        """Give what was counted; open the sockets where they are not.

        Raises:
            SourceError: One cannot be opened.
        """
        failures: list[Failure] = []
        if self._engine is None:
            self._engine, failures = await self._opened()
        if monotonic() - self._resolved >= RESOLVE_EVERY:
            failures += await self._resolve()
        events, refused = TableBuilder(TRAPS), TableBuilder(TRAPS_REFUSED)
        labels = self._roster.known
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
            await asyncio.sleep(0)  # the transports close in the next turn of the loop

    # --- opening -------------------------------------------------------------------------------------------------

    async def _opened(self) -> tuple[SnmpEngine, list[Failure]]:
        engine = SnmpEngine()
        failures = []
        for target in self._targets:
            assert target.snmp is not None  # noqa: S101  # these are all that are kept
            try:
                credentials = await asyncio.to_thread(credentials_of, target.snmp)
            except (SecretError, ValueError) as error:
                failures.append(Failure(target.name, "credentials", f"its traps are not heeded: {error}"))
                continue
            self._credentials[target.name] = _admit(engine, credentials, target.snmp.engine_id)
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
        ntfrcv.NotificationReceiver(engine, self._notified)
        return engine, failures

    async def _transport(self, address: str) -> tuple[tuple[int, ...], Any]:
        """Open a socket, and make of it what pysnmp wants."""
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
        kind: Any = _Guarded6 if family == socket.AF_INET6 else _Guarded
        made = kind(self._admits, self._junk, loop)
        made.open_server_mode(sock=sock)
        await made._lport  # noqa: SLF001  # until the loop has the socket, closing would lose it
        return (udp6.DOMAIN_NAME if family == socket.AF_INET6 else udp.DOMAIN_NAME), made

    async def _resolve(self) -> list[Failure]:
        """Look up which addresses are whose."""
        senders: dict[str, list[Sender]] = {}
        failures = []
        loop = asyncio.get_running_loop()
        for target in self._targets:
            if target.name not in self._credentials:
                continue
            assert target.snmp is not None  # noqa: S101  # these are all that are kept
            host, _ = parse_address(target.snmp.address or target.address)
            try:
                found = await loop.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
            except OSError as error:
                failures.append(Failure(target.name, "unreachable", f"its traps are not heeded: {host}: {error}"))
                continue
            for *_, address in found:
                senders.setdefault(str(address[0]), []).append(Sender(target.name, *self._credentials[target.name]))
        self._senders = senders
        self._resolved = monotonic()
        self._buckets = {address: bucket for address, bucket in self._buckets.items() if address in senders}
        return failures

    # --- hearing -------------------------------------------------------------------------------------------------

    def _admits(self, address: str) -> bool:
        """Tell whether a datagram from an address is looked at."""
        if address not in self._senders:
            self._refused["stranger"] += 1
            return False
        if not self._buckets.setdefault(address, Bucket()).takes(monotonic()):
            self._refused["limited"] += 1
            return False
        return True

    def _junk(self) -> None:
        self._refused["junk"] += 1

    def _notified(self, engine: SnmpEngine, _: int, *rest: Any) -> None:  # noqa: ANN401  # as pysnmp calls it
        """Take one trap or inform, which pysnmp has decoded and found signed by a user or community that it knows."""
        variables = rest[2]
        context: Mapping[str, Any] = engine.observer.get_execution_context("rfc3412.receiveMessage:request")
        address = str(context["transportAddress"][0])
        who, level = str(context["securityName"]), int(context["securityLevel"])
        senders = [one for one in self._senders.get(address, ()) if one.security_name == who and level >= one.level]
        if not senders:
            self._refused["credentials"] += 1
            return
        values = {tuple(name): value for name, value in variables}
        event = EVENTS.get(tuple(values.get(TRAP_OID, ())), OTHER)
        port = _port(values)
        target = senders[0].target
        self._counts[target, event] += 1
        if event in POLLED_FOR:
            self._nudge(target, port)

    def _nudge(self, target: str, port: str) -> None:
        now = monotonic()
        nudge: Callable[[str], None] | None = self._roster.nudges.get(target)
        if nudge is not None and now - self._nudged.get(target, float("-inf")) >= LEAST_NUDGE:
            self._nudged[target] = now
            nudge(port)


def _admit(engine: SnmpEngine, credentials: Credentials, engine_id: str | None) -> tuple[str, int]:
    """Make a target's credentials known to pysnmp; give the name and the level of security by which it then goes."""
    if isinstance(credentials, Community):
        name = hashlib.sha256(credentials.community).hexdigest()[:32]  # one name a community, whoever has it
        config.add_v1_system(engine, name, OctetString(credentials.community), securityName=name)
        return name, 1
    level = 1 + (credentials.authentication is not None) + (credentials.privacy is not None)
    _admit_user(engine, credentials, None)  # of informs, our own engine is the authority
    if engine_id is not None:
        _admit_user(engine, credentials, OctetString(hexValue=engine_id.removeprefix("0x")))
    return credentials.name, level


def _admit_user(engine: SnmpEngine, user: User, engine_id: OctetString | None) -> None:
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
    """Give the name of the port that a trap tells of, empty where it names none."""
    for column in PORT_NAMES:
        for name, value in values.items():
            if name[: len(column)] == column:
                return bytes(value)[:MAX_NAME].decode("utf-8", "surrogateescape")
    return ""


class _Guard:
    """Lets only admitted datagrams through to pysnmp, and no fault of its decoding out."""

    def __init__(
        self, admits: Callable[[str], bool], on_junk: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(loop=loop)  # type: ignore[call-arg]  # that of pysnmp's class beside
        self._admits = admits
        self._on_junk = on_junk

    def datagram_received(self, datagram: bytes, address: Any) -> None:  # noqa: ANN401  # of either family
        if not self._admits(str(address[0])):
            return
        try:
            self._callback_function(self, address, datagram)  # type: ignore[attr-defined]  # of pysnmp's class
        except Exception:  # noqa: BLE001  # pysnmp raises what it likes on bytes that it does not understand
            self._on_junk()


class _Guarded(_Guard, udp.UdpAsyncioTransport):  # type: ignore[misc]  # of no known type
    pass


class _Guarded6(_Guard, udp6.Udp6AsyncioTransport):  # type: ignore[misc]  # likewise
    pass
