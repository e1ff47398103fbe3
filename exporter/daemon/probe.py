"""Probes: a switch is asked when somebody asks for it, as Prometheus does with `/probe?target=…`.

A probe carries credentials to where a stranger says, so it goes only to switches of the configuration that are not
polled anyway, and to what `probe.allow` allows; and it goes to the very address that was checked. Whoever asks while
another one waits for the same switch shares its answer. What was learnt of a switch is kept for a while: the next
probe has rates, and asks for counters alone.
"""

import asyncio
import ipaddress
import re
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from time import monotonic
from typing import Any, TypeAlias

import msgspec

from exporter.config.errors import RuleError, check_patterns
from exporter.core import vocabulary
from exporter.core.poller import Poller, Step
from exporter.core.source import Reading, SourceError
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.core.vocabulary import gauge
from exporter.snmp.client import parse_address
from exporter.sources.switch.metrics import FAMILIES
from exporter.sources.switch.options import PROTOCOLS, Snmp, Target
from exporter.sources.switch.source import (
    REGISTRY,
    SwitchSource,
    import_readers,
    make_source,
)
from exporter.sources.switch.targets import CommonOptions, SwitchOptions, resolve_targets

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

DEFAULT_TIMEOUT = 10.0
"""Seconds that a probe may take where the one who asks does not say."""

LONGEST_TIMEOUT = 120.0

ANEW = "the configuration was read anew meanwhile; ask again"

MARGIN = 0.5
"""Seconds less than the one who asks waits, so that the answer, also one of failure, still reaches him."""

MOST_AT_ONCE = 100
"""Probes under way; who comes then is turned away."""

MOST_KEPT = 1000
IDLE = 600.0
"""Switches of which what was learnt is kept, and seconds after their last probe."""

Key: TypeAlias = tuple[str, str, str]
"""Target, module and auth: probes that have the same share what is kept."""

EVERYTHING = ("*", "0.0.0.0/0", "::/0")
"""All names and all networks."""

MAX_TARGET = 255
MAX_LINES = 200

_LIKE_ADDRESS = re.compile(r"[\d.]*\d\.[\d.*?\[\]!-]*")
"""A pattern of addresses rather than names: it would fit names such as `10.0.example.com` as well."""

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
        allow: What may be probed beside switches of the configuration: names, as shell patterns, and networks. A name
            that no pattern fits may be probed if all its addresses are in the networks.
        modules: Ways of asking, by the name that stands in `module`; added to the defaults of `switches`.
        auths: Credentials, by the name that stands in `auth`; they replace those of the module.
        drop: Metric names, as shell patterns, that are not exported.
        keep: Names of details, as shell patterns, that are exported too.
    """

    allow: tuple[str, ...] = ()
    modules: dict[str, CommonOptions] = {}  # msgspec copies mutable defaults
    auths: dict[str, CommonOptions] = {}
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """See that networks are such, that credentials are nothing else, and that the target alone says who is asked.

        Raises:
            RuleError: Something is not so.
        """
        check_patterns("allow", self.allow)
        for place, pattern in enumerate(self.allow):
            try:
                _network(pattern)
            except ValueError as error:
                raise RuleError(["allow", place], str(error)) from None
        for name, auth in self.auths.items():
            others = auth.explicit_options().keys() - set(PROTOCOLS)
            if others:
                raise RuleError(["auths", name, min(others)], f"does not belong here; known are {', '.join(PROTOCOLS)}")
        for key, named in (("modules", self.modules), ("auths", self.auths)):
            for name, common in named.items():
                for way in PROTOCOLS:
                    if getattr(getattr(common, way), "address", None) is not None:
                        text = "does not belong here: it is the target of a probe that says who is asked"
                        raise RuleError([key, name, way, "address"], text)


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
class _Chosen:
    """Who is asked, and how.

    Attributes:
        target: The switch.
        found: All addresses of the name that was given; empty for a switch of the configuration.
    """

    target: Target
    found: tuple[str, ...] = ()


class _UnknownNameError(Exception):
    """A name that cannot be looked up."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a probe.

    Attributes:
        good: Whether the switch could be read.
        tables: What was read, and how it went.
        story: How it went in words, for people.
    """

    good: bool
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

    chosen: _Chosen
    limit: float
    source: _Remembering
    poller: Poller
    used: float = field(default_factory=monotonic)
    running: asyncio.Task[None] | None = None


class Prober:
    """Makes probes.

    Args:
        options: Configuration of `probe`.
        switches: Of `switches`.
        steps: The meanings, made anew for each switch.
        trusted: Whether every switch may be asked: for one who has the configuration himself.
    """

    def __init__(
        self,
        options: ProbeOptions,
        switches: SwitchOptions,
        steps: Callable[[], Sequence[Step]],
        *,
        trusted: bool = False,
    ) -> None:
        self._options = msgspec.structs.replace(options, allow=EVERYTHING) if trusted else options
        self._trusted = trusted
        self._defaults = switches.defaults
        self._configured = {target.name: target for target, _ in resolve_targets(switches)}
        polled = [target for target in self._configured.values() if target.poll and not trusted]
        self._polled = {place: target.name for target in polled for place in places_of(target)}
        self._steps = steps
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._at_once = 0
        self._closed = False
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
        under_way = max(self._at_once, sum(kept.running is not None for kept in self._kept.values()))
        if under_way >= MOST_AT_ONCE:
            raise RefusedError(503, f"{under_way} probes are under way; ask less often, or use more shards")
        limit = max(MARGIN, min(seconds or DEFAULT_TIMEOUT, LONGEST_TIMEOUT) - MARGIN)
        begun = monotonic()
        kept = None
        trouble = ""
        self._at_once += 1
        try:
            async with asyncio.timeout(limit) as clock:
                kept = await self._kept_of((target, module, auth), limit)
                if kept.running is None:
                    kept.running = asyncio.create_task(kept.poller.poll())
                    kept.running.add_done_callback(lambda _: setattr(kept, "running", None))
                running = kept.running
                await asyncio.wait([running])  # which goes on where this one gives up: another may wait for it
                if running.cancelled():
                    trouble = ANEW
        except TimeoutError:
            if not clock.expired():
                raise
            trouble = f"timeout: no answer within {limit:g} s"
        except _UnknownNameError as error:
            trouble = f"unreachable: {error}"
        finally:
            self._at_once -= 1
        return self._outcome(kept, monotonic() - begun, trouble)

    def add_auth(self, snmp: Snmp) -> str:
        """Take credentials that stand in no configuration, such as those of a command line; gives their name."""
        name = "flags"
        self._options = msgspec.structs.replace(
            self._options, auths={**self._options.auths, name: CommonOptions(snmp=snmp)}
        )
        return name

    async def close(self) -> None:
        """Let go of all switches; bounded in time."""
        self._closed = True
        kept, self._kept = list(self._kept.values()), OrderedDict()
        running = [one.running for one in kept if one.running is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(*(one.source.close() for one in kept), *self._closing, return_exceptions=True)

    # --- who may be asked ----------------------------------------------------------------------------------------

    async def _kept_of(self, key: Key, limit: float) -> _Kept:
        """Give what is kept of a switch, or begin; a name is looked up anew where what it led to did not answer.

        Args:
            key: The switch, and how it is asked.
            limit: Seconds that this probe may take: what is kept is begun anew where it was begun for fewer.
        """
        kept = self._kept.get(key)
        failed = kept is not None and kept.poller.status.up is False and bool(kept.chosen.found)
        if kept is None or (kept.running is None and (failed or kept.limit < limit)):
            chosen = await self._choose(*key)
            if self._closed:
                raise RefusedError(503, ANEW)
            kept = self._kept.get(key)  # another probe may have begun meanwhile
            if kept is not None and kept.running is None and (kept.chosen != chosen or kept.limit < limit):
                self._let_go(key)
                kept = None
            if kept is None:
                kept = self._kept[key] = self._begun(chosen, limit)
        kept.used = monotonic()
        self._kept.move_to_end(key)
        self._tidy()
        return kept

    def _begun(self, chosen: _Chosen, limit: float) -> _Kept:
        target, options = chosen.target, self._options
        source = _Remembering(make_source(target, float(target.interval or limit)))
        if chosen.found:
            REGISTRY.update(target.name, address=target.address)
        poller = Poller(source, self._steps(), drop=options.drop, keep=options.keep, deadline=LONGEST_TIMEOUT)
        return _Kept(chosen, limit, source, poller)

    async def _choose(self, target: str, module: str, auth: str) -> _Chosen:
        """Say who is asked, and how.

        Raises:
            RefusedError: It must not be asked, or nobody knows how.
            _UnknownNameError: Nobody knows where it is.
        """
        configured = self._configured.get(target)
        if configured is not None:
            if configured.poll and not self._trusted:
                raise RefusedError(
                    400, f"{target!r} is polled in the background: scrape /metrics, or give it `poll: false`"
                )
            if module or auth:
                raise RefusedError(400, f"{target!r} is asked as the configuration says: leave module and auth away")
            await asyncio.to_thread(import_readers, configured)
            return _Chosen(configured)
        said = await asyncio.to_thread(self._said, module, auth)  # as profiles may have to be read
        address, found = await self._allowed(target)
        try:
            chosen = _Chosen(Target(name=target, address=address, **said), found)
        except ValueError as error:
            raise RefusedError(400, f"target {target!r}: {error}; give a module or auth that has one") from None
        await asyncio.to_thread(import_readers, chosen.target)
        return chosen

    def _said(self, module: str, auth: str) -> dict[str, Any]:
        """Put together how to ask: the defaults, the module, and the credentials. Blocks.

        Raises:
            RefusedError: There is no such module, or no such credentials.
        """
        options = self._options
        said = self._defaults.explicit_options()
        if module in options.modules:
            said |= options.modules[module].explicit_options()
        elif module:
            said["profile"] = self._profile(module)
        if auth:
            if auth not in options.auths:
                raise RefusedError(400, f"there is no auth {auth!r}; probe.auths has {_listed(options.auths)}")
            said |= options.auths[auth].explicit_options()
        said.pop("poll", None)
        return said

    def _profile(self, module: str) -> str:
        from exporter.sources.switch.readers.snmp.profile import active_profiles  # noqa: PLC0415  # only where there are switches

        names = active_profiles().names
        if module not in names:
            known = f"probe.modules has {_listed(self._options.modules)}, and profiles are {_listed(names)}"
            raise RefusedError(400, f"there is no module {module!r}; {known}")
        return module

    async def _allowed(self, target: str) -> tuple[str, tuple[str, ...]]:
        """Give the one address that a target that is not configured is asked at, and all that it has.

        Raises:
            RefusedError: It is not allowed.
            _UnknownNameError: Its name cannot be looked up.
        """
        if not target or len(target) > MAX_TARGET or not target.isprintable():
            raise RefusedError(400, "give target=HOST or target=HOST:PORT, or the name of a switch")
        try:
            host, port = parse_address(target)
        except ValueError as error:
            raise RefusedError(400, str(error)) from None
        refused = RefusedError(403, f"{target!r} is neither a switch of the configuration nor allowed by probe.allow")
        networks = [network for pattern in self._options.allow if (network := _network(pattern)) is not None]
        named = _is_named(host, self._options.allow)
        if not (named or networks):
            raise refused  # also without a question to the name server
        addresses = await _addresses(host)
        if not named and not all(any(one in network for network in networks) for one in addresses):
            raise refused
        found = tuple(map(str, addresses))
        for place in (host.lower(), *found):
            if (place, port) in self._polled:
                name = self._polled[place, port]
                raise RefusedError(400, f"{target!r} is the switch {name!r}, which is polled in the background")
        chosen = f"[{found[0]}]" if addresses[0].version == 6 else found[0]
        return f"{chosen}:{port}" if ":" in target.rpartition("]")[2] else chosen, found

    def _tidy(self) -> None:
        """Let go of those that nobody asked for in a while, and of the oldest where there are too many."""
        now = monotonic()
        for key, kept in list(self._kept.items()):
            if kept.running is not None or (now - kept.used < IDLE and len(self._kept) <= MOST_KEPT):
                break
            self._let_go(key)

    def _let_go(self, key: Key) -> None:
        kept = self._kept.pop(key)
        task = asyncio.create_task(kept.source.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        if all(name != key[0] for name, _, _ in self._kept):
            task.add_done_callback(lambda _: REGISTRY.remove(key[0]))

    # --- what came of it -----------------------------------------------------------------------------------------

    def _outcome(self, kept: _Kept | None, seconds: float, trouble: str) -> Outcome:
        good = not trouble and kept is not None and kept.poller.status.up is True
        built = TableBuilder(PROBE)
        built.row((), {"success": int(good), "duration_seconds": seconds})
        tables = list(kept.poller.fresh_tables()) if kept is not None and good else []
        tables.append(built.table(self._rows, monotonic()))
        head = f"{'success' if good else 'FAILURE'} after {seconds:.3f} s"
        return Outcome(good, tables, "\n".join([head, *_told(kept, trouble)]))


def _told(kept: _Kept | None, trouble: str) -> Iterator[str]:
    """Tell how a probe went, line by line; of a switch that says much, the beginning."""
    if trouble:
        yield trouble
    if kept is None:
        return
    target = kept.chosen.target
    if kept.chosen.found:
        yield f"{target.name} has the addresses {', '.join(kept.chosen.found)}"
    protocols = ", ".join(target.protocols())
    yield f"asked {target.address} by {protocols}, profile {target.profile or 'as it says what it is'}"
    last = kept.source.last
    if isinstance(last, SourceError):
        yield f"{last.reason}: {last}"
    elif last is not None and not trouble:
        yield from _read(last)


def _read(reading: Reading) -> Iterator[str]:
    """Tell what was read: what failed, what the switch counts, and of each column how many values came."""
    yield f"{len(reading.failures)} failures beside what was read"
    for one in reading.failures[:MAX_LINES]:
        yield f"  {one.device or 'switch'}: {one.reason}: {one.detail}"
    for table in reading.tables:
        for column in table.columns.values() if table.schema is FAMILIES else ():
            for key, value in zip(table.rows.keys, column.values, strict=True):
                yield f"{key[-1]}: {', '.join(value) if isinstance(value, tuple) else value}"
    for table in reading.tables:
        way = f" by {table.part}" if table.part else ""
        rows = "1 row" if len(table.rows) == 1 else f"{len(table.rows)} rows"
        yield f"{rows} of {', '.join(table.schema.labels)}{way}"
        for ending, column in sorted(table.columns.items()):
            yield f"  {ending}: {sum(value is not None for value in column.values)}"


def places_of(target: Target) -> Iterator[tuple[str, int]]:
    """Give the hosts and ports that a switch is asked at; what is no such place is left out.

    Args:
        target: The switch.
    """
    addresses = [
        target.address,
        *(str(own) for way in target.protocols().values() if (own := getattr(way, "address", ""))),
    ]
    for address in addresses:
        try:
            host, port = parse_address(address.rpartition("://")[2].rstrip("/"))
        except ValueError:
            continue  # the path of a socket, of which no probe asks
        yield host.lower(), port


def is_allowed(host: str, allow: Iterable[str]) -> bool:
    """Tell whether a host, as it is written, is allowed by a list of names and networks.

    Args:
        host: A name or an address.
        allow: Shell patterns of names, and networks.
    """
    patterns = list(allow)
    if _is_named(host, patterns):
        return True
    address = _address(host)
    networks = [network for pattern in patterns if (network := _network(pattern)) is not None]
    return address is not None and any(address in network for network in networks)


def _is_named(host: str, allow: Iterable[str]) -> bool:
    """Tell whether a name fits a pattern; an address is allowed by networks alone."""
    if _address(host) is not None:
        return False
    return any(fnmatchcase(host.lower(), pattern.lower()) for pattern in allow if _network(pattern) is None)


async def _addresses(host: str) -> list[Address]:
    """Look a host up.

    Raises:
        _UnknownNameError: It has no address.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise _UnknownNameError(f"the name {host!r} cannot be looked up: {error}") from None
    return [ipaddress.ip_address(str(address[0]).partition("%")[0]) for *_, address in found]


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _network(pattern: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Read a network or an address; None for the pattern of a name.

    Raises:
        ValueError: It looks like a network and is none.
    """
    try:
        return ipaddress.ip_network(pattern)
    except ValueError as error:
        if "/" in pattern:
            raise ValueError(f"is no network: {error}") from None
        if ":" in pattern or _LIKE_ADDRESS.fullmatch(pattern):
            raise ValueError(f"{pattern!r} is no name; write addresses as a network, such as 192.0.2.0/24") from None
        return None


def _listed(names: Iterable[str] | Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"
