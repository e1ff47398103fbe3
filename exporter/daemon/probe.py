"""Probes: a switch is polled when Prometheus requests `/probe?target=…`.

A probe sends credentials to a target that the client names. So a target is either a configured switch that is not
polled in the background, or allowed by `probe.allow`, and the address that was checked is the one that is used.
Concurrent probes of one target share one poll. The state of a target is cached: the next probe can compute rates, and
reads counters only.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeAlias

import msgspec

from exporter.config.schema import Config
from exporter.core import vocabulary
from exporter.core.closing import close_all
from exporter.core.definition import SharedObjects, SourceSteps
from exporter.core.poller import Poller, Step
from exporter.core.source import SourceError
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.core.vocabulary import gauge
from exporter.daemon.lookups import Lookups, UnknownNameError
from exporter.daemon.pipeline import Expectation, steps
from exporter.daemon.probe_options import (
    EVERYTHING,
    ProbeOptions,
    endpoints_of,
    is_allowed_address,
    is_allowed_name,
    networks_of,
    places_of,
)
from exporter.daemon.probe_report import describe
from exporter.daemon.probe_targets import (
    CachedTarget,
    RecordingSource,
    ResolvedTarget,
)
from exporter.snmp.client import parse_address
from exporter.sources.switch.metrics import SCHEMAS as SWITCH_SCHEMAS
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.source import import_readers, make_source
from exporter.sources.switch.targets import CommonOptions, SwitchOptions, resolve_targets

DEFAULT_TIMEOUT = 10.0
"""Seconds that a probe may take where the client does not state its timeout."""

MAX_TIMEOUT = 120.0

MARGIN = 0.5
"""Seconds by which a probe ends before the timeout of the client, so that a response, also of a failure, reaches it."""

MAX_PROBES = 100
"""Maximum number of probes at a time; further ones are refused."""

MAX_CACHED = 1000
CACHE_SECONDS = 600.0
"""Maximum number of targets whose state is cached, and seconds after their last probe that it is."""

MAX_TARGET_LENGTH = 255

RELOADED = "the configuration was reloaded in the meantime; try again"

Key: TypeAlias = tuple[str, str, str]
"""Target, module and auth of a probe: the key of the cache."""

PROBE = vocabulary.schema(
    "fabric_probe_",
    (),
    own={
        "success": gauge("Whether the probed switch could be read (1) or not (0)."),
        "duration_seconds": gauge("Duration of the probe."),
    },
)


SCHEMAS = SWITCH_SCHEMAS
"""The tables of a probed switch."""


class ProbeRefusedError(Exception):
    """A probe that is not made; `status` is the HTTP status code."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe.

    Attributes:
        success: Whether the switch could be read.
        tables: The metrics, those of the probe itself included.
        report: The course of the probe in words.
    """

    success: bool
    tables: Sequence[Table]
    report: str


def make_prober(config: Config, shared: SharedObjects, *, trusted: bool = False) -> "Prober":
    """Return a prober for a configuration; with `trusted` it accepts every target."""
    options, switches = config_of(config)
    registry = shared.get(SwitchRegistry)
    return Prober(options, switches, registry, lambda: steps(Expectation(), SourceSteps()), trusted=trusted)


def config_of(config: Config) -> tuple[ProbeOptions, SwitchOptions]:
    """Return the sections of the configuration that probes depend on."""
    return config.sources["probe"], config.sources["switch"]


class Prober:
    """Makes probes.

    Args:
        options: The section `probe`.
        switches: The section `switches`.
        registry: The switches of this process.
        steps: Returns new steps that compute metrics, for each target.
        trusted: Whether every target is accepted: for a user who can read the configuration anyway.
    """

    def __init__(
        self,
        options: ProbeOptions,
        switches: SwitchOptions,
        registry: SwitchRegistry,
        steps: Callable[[], Sequence[Step]],
        *,
        trusted: bool = False,
    ) -> None:
        self._options = msgspec.structs.replace(options, allow=EVERYTHING) if trusted else options
        self._trusted = trusted
        self._defaults = switches.defaults
        self._profiles = switches.profiles_or_builtin
        self._registry = registry
        self._configured = {target.name: target for target, _ in resolve_targets(switches)}
        polled = [target for target in self._configured.values() if target.poll and not trusted]
        self._polled = {
            (place, port): target.name
            for target in polled
            for host, port in endpoints_of(target)
            for place in places_of(host)
        }
        self._lookups = Lookups()
        self._steps = steps
        self._cache: OrderedDict[Key, CachedTarget] = OrderedDict()
        self._in_progress = 0
        self._closed = False
        self._rows = RowKeeper(PROBE.labels)
        self._closing: set[asyncio.Task[None]] = set()

    async def probe(self, target: str, module: str = "", auth: str = "", timeout: float | None = None) -> ProbeResult:  # noqa: ASYNC109  # that of the client
        """Poll a switch once.

        Args:
            target: Name of a configured switch, or host or host and port.
            module: Name of a module or of an SNMP profile; empty for the defaults of `switches`.
            auth: Name of credentials; empty for those of the module.
            timeout: Timeout of the client in seconds.

        Raises:
            ProbeRefusedError: The probe is refused; no packet was sent to the target.
        """
        in_progress = max(self._in_progress, sum(cached.running is not None for cached in self._cache.values()))
        if in_progress >= MAX_PROBES:
            raise ProbeRefusedError(503, f"{in_progress} probes are in progress; probe less often, or use more shards")
        limit = max(MARGIN, min(timeout or DEFAULT_TIMEOUT, MAX_TIMEOUT) - MARGIN)
        begun = monotonic()
        cached = None
        error_text = ""
        self._in_progress += 1
        try:
            async with asyncio.timeout(limit) as clock:
                cached = await self._cached((target, module, auth), limit)
                if cached.running is None:
                    cached.running = asyncio.create_task(cached.poller.poll())
                    cached.running.add_done_callback(lambda _: setattr(cached, "running", None))
                running = cached.running
                await asyncio.wait([running])  # at a timeout the poll continues: another probe may wait for it
                if running.cancelled():
                    error_text = RELOADED
        except TimeoutError:
            if not clock.expired():
                raise
            error_text = f"timeout: no response within {limit:g} s"
        except UnknownNameError as error:
            error_text = f"unreachable: {error}"
        finally:
            self._in_progress -= 1
        return self._result(cached, monotonic() - begun, error_text)

    def add_auth(self, snmp: Snmp) -> str:
        """Add credentials that are in no configuration, such as those of flags; returns their name."""
        name = "flags"
        self._options = msgspec.structs.replace(
            self._options, auths={**self._options.auths, name: CommonOptions(snmp=snmp)}
        )
        return name

    async def close(self) -> None:
        """Cancel all probes and close all switches; bounded in time."""
        self._closed = True
        cached, self._cache = list(self._cache.values()), OrderedDict()
        running = [one.running for one in cached if one.running is not None]
        for task in running:
            task.cancel()
        await close_all("probe", running)
        await close_all("probe", [*(one.source.close() for one in cached), *self._closing])

    # --- the cache -----------------------------------------------------------------------------------------------

    async def _cached(self, key: Key, limit: float) -> CachedTarget:
        """Return the cached state of a target, or a new one.

        A name is resolved again after a failed probe. A source that was built for a shorter time limit is replaced.
        """
        cached = self._cache.get(key)
        failed = cached is not None and cached.poller.status.up is False and bool(cached.resolved.addresses)
        if cached is None or (cached.running is None and (failed or cached.limit < limit)):
            target = await self._resolve(*key)
            if self._closed:
                raise ProbeRefusedError(503, RELOADED)
            cached = self._cache.get(key)  # another probe may have added it in the meantime
            if cached is not None and cached.running is None and (cached.resolved != target or cached.limit < limit):
                self._remove(key)
                cached = None
            if cached is None:
                cached = self._cache[key] = self._start(target, limit)
        cached.used = monotonic()
        self._cache.move_to_end(key)
        self._expire()
        return cached

    def _start(self, target: ResolvedTarget, limit: float) -> CachedTarget:
        switch, options = target.target, self._options
        source = RecordingSource(make_source(switch, self._registry, self._profiles, float(switch.interval or limit)))
        if target.addresses:
            self._registry.update(switch.name, address=switch.address)
        poller = Poller(source, self._steps(), drop=options.drop, keep=options.keep, deadline=MAX_TIMEOUT)
        return CachedTarget(target, limit, source, poller)

    def _expire(self) -> None:
        """Remove the targets that were not probed for a while, and the oldest where there are too many."""
        now = monotonic()
        for key, cached in list(self._cache.items()):
            if cached.running is not None or (now - cached.used < CACHE_SECONDS and len(self._cache) <= MAX_CACHED):
                break
            self._remove(key)

    def _remove(self, key: Key) -> None:
        cached = self._cache.pop(key)
        task = asyncio.create_task(cached.source.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        if all(name != key[0] for name, _, _ in self._cache):
            task.add_done_callback(lambda _: self._registry.remove(key[0]))

    # --- which target, and by which options ----------------------------------------------------------------------

    async def _resolve(self, target: str, module: str, auth: str) -> ResolvedTarget:
        """Return the switch to poll.

        Raises:
            ProbeRefusedError: The target is not allowed, or lacks options.
            UnknownNameError: The name cannot be resolved.
        """
        configured = self._configured.get(target)
        if configured is not None:
            if configured.poll and not self._trusted:
                raise ProbeRefusedError(
                    400, f"{target!r} is polled in the background: scrape /metrics, or give it `poll: false`"
                )
            if module or auth:
                raise ProbeRefusedError(400, f"{target!r} is polled as configured: remove module and auth")
            await asyncio.to_thread(import_readers, configured, self._profiles)
            return ResolvedTarget(configured)
        merged = await asyncio.to_thread(self._merge_options, module, auth)  # as profiles may have to be read
        address, found = await self._allowed_address(target)
        try:
            resolved_target = ResolvedTarget(Target(name=target, address=address, **merged), found)
        except ValueError as error:
            raise ProbeRefusedError(400, f"target {target!r}: {error}; give a module or auth that has one") from None
        await asyncio.to_thread(import_readers, resolved_target.target, self._profiles)
        return resolved_target

    def _merge_options(self, module: str, auth: str) -> dict[str, Any]:
        """Merge the defaults, the module, and the credentials. Blocks.

        Raises:
            ProbeRefusedError: There is no such module, or no such credentials.
        """
        options = self._options
        merged = self._defaults.explicit_options()
        if module in options.modules:
            merged |= options.modules[module].explicit_options()
        elif module:
            merged["profile"] = self._profile(module)
        if auth:
            if auth not in options.auths:
                raise ProbeRefusedError(400, f"there is no auth {auth!r}; probe.auths has {_list(options.auths)}")
            merged |= options.auths[auth].explicit_options()
        merged.pop("poll", None)
        return merged

    def _profile(self, module: str) -> str:
        names = self._profiles().names
        if module not in names:
            known = f"probe.modules has {_list(self._options.modules)}, and profiles are {_list(names)}"
            raise ProbeRefusedError(400, f"there is no module {module!r}; {known}")
        return module

    async def _allowed_address(self, target: str) -> tuple[str, tuple[str, ...]]:
        """Return the address of a target that is not configured, with its port, and all addresses of its name.

        Raises:
            ProbeRefusedError: The target is not allowed.
            UnknownNameError: Its name cannot be resolved.
        """
        if not target or len(target) > MAX_TARGET_LENGTH or not target.isprintable():
            raise ProbeRefusedError(400, "give target=HOST or target=HOST:PORT, or the name of a switch")
        try:
            host, port = parse_address(target)
        except ValueError as error:
            raise ProbeRefusedError(400, str(error)) from None
        refused = ProbeRefusedError(403, f"{target!r} is neither a configured switch nor allowed by probe.allow")
        networks = networks_of(self._options.allow)
        is_named = is_allowed_name(host, self._options.allow)
        if not (is_named or networks):
            raise refused  # without a DNS lookup
        addresses = await self._lookups.lookup(host)
        if not is_named and not all(is_allowed_address(one, networks) for one in addresses):
            raise refused
        found = tuple(map(str, addresses))
        for place in frozenset().union(*map(places_of, (host, *found))):
            if (place, port) in self._polled:
                name = self._polled[place, port]
                raise ProbeRefusedError(400, f"{target!r} is the switch {name!r}, which is polled in the background")
        chosen = f"[{found[0]}]" if addresses[0].version == 6 else found[0]
        return f"{chosen}:{port}" if ":" in target.rpartition("]")[2] else chosen, found

    def _result(self, cached: CachedTarget | None, seconds: float, error_text: str) -> ProbeResult:
        success = not error_text and cached is not None and cached.poller.status.up is True
        builder = TableBuilder(PROBE)
        builder.row((), {"success": int(success), "duration_seconds": seconds})
        tables = list(cached.poller.fresh_tables()) if cached is not None and success else []
        tables.append(builder.table(self._rows, monotonic()))
        lines = [f"{'success' if success else 'FAILURE'} after {seconds:.3f} s"]
        if error_text:
            lines.append(error_text)
        if cached is not None:
            last = cached.source.last
            result = None if error_text and not isinstance(last, SourceError) else last
            lines += describe(cached.resolved.target, cached.resolved.addresses, result)
        return ProbeResult(success, tables, "\n".join(lines))


def _list(names: Iterable[str] | Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"
