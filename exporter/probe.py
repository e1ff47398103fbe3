"""Probes: a switch is asked when somebody asks for it, as Prometheus does with `/probe?target=…`.

A probe carries credentials to where a stranger says, so it goes only to switches of the configuration that are not
polled anyway, and to what `probe.allow` allows; and it goes to the very address that was checked. Whoever asks while
another one waits for the same switch shares its answer. What was learnt of a switch is kept for a while: the next
probe has rates, and asks for counters alone.
"""

import asyncio
import ipaddress
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from time import monotonic
from typing import Any

import msgspec

from exporter import vocabulary
from exporter.poller import Poller, Step
from exporter.snmp.client import parse_address
from exporter.source import Reading, SourceError
from exporter.sources.switch import SwitchSource, source_of
from exporter.sources.switches.options import WAYS, Target
from exporter.sources.switches.targets import Common, SwitchOptions, resolved
from exporter.table import RowKeeper, Table, TableBuilder
from exporter.vocabulary import gauge

DEFAULT_TIMEOUT = 10.0
"""Seconds that a probe may take where the one who asks does not say."""

LONGEST_TIMEOUT = 120.0

MARGIN = 0.5
"""Seconds less than the one who asks waits, so that the answer, also one of failure, still reaches him."""

MOST_AT_ONCE = 100
"""Probes under way; who comes then is turned away."""

MOST_KEPT = 1000
IDLE = 600.0
"""Switches of which what was learnt is kept, and seconds after their last probe."""

MAX_TARGET = 255
MAX_LINES = 200

PROBE = vocabulary.schema(
    "fabric_probe_",
    (),
    own={
        "success": gauge("Whether the switch of this probe could be read (1) or not (0)."),
        "duration_seconds": gauge("How long the probe took."),
    },
)


class ProbeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of `probe`.

    Attributes:
        allow: What may be probed beside switches of the configuration: names, as shell patterns, and networks.
        modules: Ways of asking, by the name that stands in `module`; added to the defaults of `switches`.
        auths: Credentials, by the name that stands in `auth`; they replace those of the module.
        drop: Metric names, as shell patterns, that are not exported.
        keep: Names of details, as shell patterns, that are exported too.
    """

    allow: tuple[str, ...] = ()
    modules: dict[str, Common] = {}  # msgspec copies mutable defaults
    auths: dict[str, Common] = {}
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """See that networks are such, and that credentials are nothing else."""
        for pattern in self.allow:
            _network(pattern)
        for name, auth in self.auths.items():
            others = auth.said().keys() - set(WAYS)
            if others:
                raise ValueError(f"auths.{name} says {min(others)}; it can have {', '.join(WAYS)} alone")


@dataclass(frozen=True, slots=True)
class Section:
    """What the configuration needs to know of this part."""

    name: str = "probe"
    section: str = "probe"
    options: type[msgspec.Struct] = ProbeOptions


class RefusedError(Exception):
    """A probe that is not made; `status` is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a probe.

    Attributes:
        tables: What was read, and how it went.
        story: How it went in words, for people.
    """

    tables: Sequence[Table]
    story: str


class _Remembering:
    """A source that remembers its last reading, for those who want to know why."""

    def __init__(self, source: SwitchSource) -> None:
        self.name, self.target, self.interval = source.name, source.target, source.interval
        self.changed: asyncio.Event | None = None
        self.settings: object = source.settings
        self.source = source
        self.last: Reading | SourceError | None = None

    async def applies(self) -> bool:
        return True

    async def read(self) -> Reading:
        self.last = None
        try:
            self.last = await self.source.read()
        except SourceError as error:
            self.last = error
            raise
        return self.last

    async def close(self) -> None:
        await self.source.close()


@dataclass(slots=True)
class _Kept:
    """What is kept of one switch between its probes."""

    source: _Remembering
    poller: Poller
    asked: str
    used: float = field(default_factory=monotonic)
    running: asyncio.Task[None] | None = None


class Prober:
    """Makes probes.

    Args:
        options: Configuration of `probe`.
        switches: Of `switches`.
        steps: The meanings, made anew for each switch.
    """

    def __init__(self, options: ProbeOptions, switches: SwitchOptions, steps: Callable[[], Sequence[Step]]) -> None:
        self._options = options
        self._defaults = switches.defaults
        self._configured = {target.name: target for target, _ in resolved(switches)}
        self._steps = steps
        self._kept: OrderedDict[tuple[str, str, str], _Kept] = OrderedDict()
        self._at_once = 0
        self._rows = RowKeeper(PROBE.labels)
        self._closing: set[asyncio.Task[None]] = set()

    async def probe(self, target: str, module: str = "", auth: str = "", seconds: float | None = None) -> Outcome:
        """Ask a switch once.

        Args:
            target: Name of a switch of the configuration, or host or host and port.
            module: Name of a way of asking, or of a profile of SNMP; empty for the defaults of `switches`.
            auth: Name of credentials; empty for those of the module.
            seconds: That the one who asks waits.

        Raises:
            RefusedError: It is not made: nothing was sent to the target.
        """
        if self._at_once >= MOST_AT_ONCE:
            raise RefusedError(503, f"{MOST_AT_ONCE} probes are under way; ask less often, or use more shards")
        limit = max(MARGIN, min(seconds or DEFAULT_TIMEOUT, LONGEST_TIMEOUT) - MARGIN)
        begun = monotonic()
        self._at_once += 1
        try:
            async with asyncio.timeout(limit) as clock:
                kept = await self._kept_of(target, module, auth)
                if kept.running is None:
                    kept.running = asyncio.create_task(kept.poller.poll())
                    kept.running.add_done_callback(lambda _: setattr(kept, "running", None))
                await asyncio.shield(kept.running)
        except TimeoutError:
            if not clock.expired():
                raise
            return self._outcome(None, monotonic() - begun, f"no answer within {limit:g} s")
        finally:
            self._at_once -= 1
        return self._outcome(kept, monotonic() - begun, "")

    async def close(self) -> None:
        """Let go of all switches; bounded in time."""
        kept, self._kept = list(self._kept.values()), OrderedDict()
        for one in kept:
            if one.running is not None:
                one.running.cancel()
        await asyncio.gather(*(one.source.close() for one in kept), *self._closing, return_exceptions=True)

    # --- who may be asked ----------------------------------------------------------------------------------------

    async def _kept_of(self, target: str, module: str, auth: str) -> _Kept:
        """Give what is kept of a switch, or begin."""
        key = (target, module, auth)
        kept = self._kept.get(key)
        if kept is None:
            wanted = await self._target(target, module, auth)
            source = _Remembering(source_of(wanted, DEFAULT_TIMEOUT))
            options = self._options
            poller = Poller(source, self._steps(), drop=options.drop, keep=options.keep, deadline=LONGEST_TIMEOUT)
            kept = self._kept.setdefault(key, _Kept(source, poller, wanted.address))
        kept.used = monotonic()
        self._kept.move_to_end(key)
        self._tidy()
        return kept

    async def _target(self, target: str, module: str, auth: str) -> Target:
        """Say what is asked, and how.

        Raises:
            RefusedError: It must not be asked, or nobody knows how.
        """
        configured = self._configured.get(target)
        if configured is not None:
            if configured.poll:
                raise RefusedError(
                    400, f"{target!r} is polled in the background: scrape /metrics, or give it `poll: false`"
                )
            if module or auth:
                raise RefusedError(400, f"{target!r} is asked as the configuration says: leave module and auth away")
            return configured
        said = self._said(module, auth)
        address = await self._allowed(target)
        try:
            return Target(name=target, address=address, **said)
        except ValueError as error:
            raise RefusedError(400, f"target {target!r}: {error}; give a module or auth that has one") from None

    def _said(self, module: str, auth: str) -> dict[str, Any]:
        """Put together how to ask: the defaults, the module, and the credentials."""
        options = self._options
        said = self._defaults.said()
        if module in options.modules:
            said |= options.modules[module].said()
        elif module:
            said["profile"] = self._profile(module)
        if auth:
            if auth not in options.auths:
                raise RefusedError(400, f"there is no auth {auth!r} among {_listed(options.auths)} of probe.auths")
            said |= options.auths[auth].said()
        said.pop("poll", None)
        said.pop("interval", None)
        return said

    def _profile(self, module: str) -> str:
        from exporter.sources.switches.snmp_profiles import used  # noqa: PLC0415  # only where there are switches

        names = used().names
        if module not in names:
            known = f"{_listed(self._options.modules)} of probe.modules, and the profiles {_listed(names)}"
            raise RefusedError(400, f"there is no module {module!r} among {known}")
        return module

    async def _allowed(self, target: str) -> str:
        """Give the one address that a target that is not configured is asked at.

        Raises:
            RefusedError: It is not allowed.
        """
        if not target or len(target) > MAX_TARGET or not target.isprintable():
            raise RefusedError(400, "give target=HOST or target=HOST:PORT, or the name of a switch")
        try:
            host, port = parse_address(target)
        except ValueError as error:
            raise RefusedError(400, str(error)) from None
        refused = RefusedError(403, f"{target!r} is neither a switch of the configuration nor allowed by probe.allow")
        networks = [network for pattern in self._options.allow if (network := _network(pattern)) is not None]
        patterns = [pattern for pattern in self._options.allow if _network(pattern) is None]
        by_name = any(fnmatchcase(host, pattern) for pattern in patterns)
        if not (by_name or networks):
            raise refused  # also without a question to the name server
        addresses = await self._addresses(host)
        if not by_name and not all(any(one in network for network in networks) for one in addresses):
            raise refused
        for one in self._configured.values():
            if one.poll and one.address in {target, host, *map(str, addresses)}:
                raise RefusedError(400, f"{target!r} is {one.name}, which is polled in the background")
        chosen = f"[{addresses[0]}]" if addresses[0].version == 6 else str(addresses[0])
        return f"{chosen}:{port}" if ":" in target.rpartition("]")[2] else chosen

    async def _addresses(self, host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError) as error:
            raise RefusedError(400, f"the name {host!r} cannot be looked up: {error}") from None
        return [ipaddress.ip_address(str(address[0]).partition("%")[0]) for *_, address in found]

    def _tidy(self) -> None:
        """Let go of those that nobody asked for in a while, and of the oldest where there are too many."""
        now = monotonic()
        for key, kept in list(self._kept.items()):
            if kept.running is not None or (now - kept.used < IDLE and len(self._kept) <= MOST_KEPT):
                break
            del self._kept[key]
            task = asyncio.create_task(kept.source.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    # --- what came of it -----------------------------------------------------------------------------------------

    def _outcome(self, kept: _Kept | None, seconds: float, trouble: str) -> Outcome:
        good = kept is not None and kept.poller.status.up is True
        built = TableBuilder(PROBE)
        built.row((), {"success": int(good), "duration_seconds": seconds})
        tables = list(kept.poller.fresh_tables()) if kept is not None and good else []
        tables.append(built.table(self._rows, monotonic()))
        return Outcome(tables, _story(kept, good=good, seconds=seconds, trouble=trouble))


def _story(kept: _Kept | None, *, good: bool, seconds: float, trouble: str) -> str:
    """Tell how a probe went, line by line."""
    lines = [f"{'success' if good else 'FAILURE'} after {seconds:.3f} s"]
    if kept is None:
        return "\n".join([*lines, trouble])
    lines.append(f"asked {kept.asked}")
    last = kept.source.last
    if isinstance(last, SourceError):
        lines.append(f"{last.reason}: {last}")
    elif last is None:
        lines.append(trouble or kept.poller.status.reason)
    else:
        lines.append(f"{len(last.failures)} failures beside what was read")
        lines += [f"  {one.device or 'switch'}: {one.reason}: {one.detail}" for one in last.failures[:MAX_LINES]]
        lines.append("tables")
        for table in last.tables:
            columns = ", ".join(sorted(table.columns))
            way = f" by {table.part}" if table.part else ""
            lines.append(f"  {len(table.rows)} rows of {','.join(table.schema.labels)}{way}: {columns}")
    return "\n".join(lines)


def is_allowed(host: str, allow: Iterable[str]) -> bool:
    """Tell whether a host, as it is written, is allowed by a list of names and networks.

    Args:
        host: A name or an address.
        allow: Shell patterns of names, and networks.
    """
    try:
        address: ipaddress.IPv4Address | ipaddress.IPv6Address | None = ipaddress.ip_address(host)
    except ValueError:
        address = None
    for pattern in allow:
        network = _network(pattern)
        if fnmatchcase(host, pattern) or (network is not None and address is not None and address in network):
            return True
    return False


def _network(pattern: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Read a network or an address; None for the pattern of a name.

    Raises:
        ValueError: It looks like a network and is none.
    """
    try:
        return ipaddress.ip_network(pattern)
    except ValueError as error:
        if "/" in pattern:
            raise ValueError(f"allow has {pattern!r}, which is no network: {error}") from None
        return None


def _listed(names: Iterable[str] | Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"
