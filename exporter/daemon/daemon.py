"""The daemon: the only file that knows all parts. It builds them, starts, reloads and stops them."""

import asyncio
import gc
import json
import logging
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, time

from exporter import __version__
from exporter.config import jobs as configured_jobs
from exporter.config import schema as config
from exporter.config import yaml_reader
from exporter.config.errors import RuleError
from exporter.config.schema import Config
from exporter.config.shard import Shard
from exporter.config.yaml_reader import ConfigError
from exporter.core.poller import Poller, Step
from exporter.core.source import (
    Definition,
    Host,
    Source,
    is_exported,
)
from exporter.core.table import Metric, Schema, Table
from exporter.daemon import (
    discovery,
    health,
    log,
    probe,
    runtime,
    validation,
)
from exporter.daemon.judge import CAUSES, Judge
from exporter.daemon.pipeline import (
    MEANINGS,
    Expectation,
    expected_of,
    steps,
)
from exporter.daemon.relay import SCHEMAS as RELAY_SCHEMAS
from exporter.daemon.relay import Relay
from exporter.meaning.ports import expectations, log_states, states
from exporter.meaning.training import jobs, plans
from exporter.meaning.training.baseline import baseline
from exporter.mqtt import options as mqtt
from exporter.outputs import page, text
from exporter.outputs.negotiation import Format
from exporter.outputs.web import (
    Handlers,
    ProbeAsked,
    Probed,
    WebServer,
)
from exporter.sources.bursts import source as bursts
from exporter.sources.collector import source as collector
from exporter.sources.ibfabric import source as ibfabric
from exporter.sources.lldp import source as lldp
from exporter.sources.nccl import baseline as nccl_baseline
from exporter.sources.nccl import source as nccl
from exporter.sources.nccl_facts import source as nccl_facts
from exporter.sources.nic import source as nic
from exporter.sources.optics import source as optics
from exporter.sources.pci import source as pci
from exporter.sources.rdma import source as rdma
from exporter.sources.switch import source as switch
from exporter.sources.switch.targets import resolve_targets

logger = logging.getLogger(__name__)

SOURCES: tuple[Definition, ...] = (
    rdma.DEFINITION,
    bursts.DEFINITION,
    nic.DEFINITION,
    pci.DEFINITION,
    optics.DEFINITION,
    lldp.DEFINITION,
    switch.DEFINITION,
    ibfabric.DEFINITION,
    nccl.DEFINITION,
    nccl_facts.DEFINITION,
    collector.DEFINITION,
)
"""Every kind of source there is: a new one adds its line here."""

SECTIONS: tuple[config.Section, ...] = (*SOURCES, probe.Section(), mqtt.SECTION)
"""All parts of the configuration."""

READY_AFTER = 10.0
"""Seconds after which a source that has not been read yet no longer keeps the daemon from being ready."""

STOP_GRACE = 3.0
"""Seconds that answers under way and sources have to end."""

STATES_INTERVAL = 5.0
"""Seconds between looks at which states of ports are the case."""

MOST_THREADS = 128
"""Single blocking calls at a time (threads that are called `process.THREADS`): while a name server is silent, the
switches that need it must not hold up the others."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says; see the flags there."""

    config_file: Path | None = None
    listen_addresses: tuple[str, ...] = (":10315",)
    telemetry_path: str = "/metrics"
    web_config_file: Path | None = None
    max_requests: int = 40
    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    nic_replay: Path | None = None
    shard: Shard = field(default_factory=Shard)


def load_config(path: Path | None) -> Config:
    """Read the configuration file, or give the defaults where there is none.

    Raises:
        ConfigError: It cannot be used.
    """
    if path is None:
        return config.default(SECTIONS)
    loaded = config.load(path, SECTIONS)
    try:
        loaded = _completed(loaded, path.parent)
        _check_patterns(loaded)
        configured_jobs.check(loaded.jobs)
        validation.check_expectations(loaded, _host_name(loaded))
        validation.check_probe(loaded.sources["probe"], loaded.sources[switch.DEFINITION.name])
    except RuleError as error:
        raise yaml_reader.error_at(path, error.steps, error.text) from None
    return loaded


def _completed(loaded: Config, folder: Path) -> Config:
    """Take in what stands in other files. Blocks.

    Raises:
        ConfigError: Something is wrong in one of them.
        RuleError: Something is wrong here that is seen only with them.
    """
    sources = dict(loaded.sources)
    for one in SOURCES:
        if one.complete is not None:
            try:
                sources[one.name] = one.complete(sources[one.name], folder)
            except RuleError as error:
                raise RuleError([*_steps_to(one), *error.steps], error.text) from None
    try:
        measured = nccl_baseline.load_baselines(sources[nccl.DEFINITION.name].baseline, folder)
    except RuleError as error:
        raise RuleError([*_steps_to(nccl.DEFINITION), *error.steps], error.text) from None
    return replace(loaded, sources=sources, measured=measured)


def _check_patterns(settings: Config) -> None:
    """See that the patterns of metrics fit some.

    Raises:
        RuleError: One fits none.
    """
    every = metrics()
    probed: tuple[config.Section, Sequence[Schema]] = (probe.Section(), switch.DEFINITION.schemas)
    for section, schemas in (*((one, one.schemas) for one in SOURCES), probed):
        drop, keep = _exported(section, settings)
        # What is dropped may be listed once for all sources; what is kept is kept of this one.
        validation.check_fits([*_steps_to(section), "drop"], drop, every, details=False)
        validation.check_fits([*_steps_to(section), "keep"], keep, _told(schemas), details=True)


def _host_name(settings: Config) -> str:
    """Give the name of this host."""
    return settings.host or os.environ.get("NODE_NAME") or socket.gethostname()


def check(config_file: Path | None, web_config_file: Path | None) -> list[str]:
    """Check configuration files without starting anything.

    Returns:
        A line for each file that is good.

    Raises:
        ConfigError: The configuration is wrong.
        WebConfigError: The web configuration is wrong.
    """
    lines = []
    if config_file is not None:
        settings = load_config(config_file)
        try:
            validation.check_classes(settings)
        except RuleError as error:
            raise yaml_reader.error_at(config_file, error.steps, error.text) from None
        host = Host(settings.host or "", Path("/sys"), Path("/proc"))
        sources = [source for definition in SOURCES for source in _built(definition, settings, host)]
        own = sum(not source.target for source in sources)
        switches = [target for target, _ in resolve_targets(settings.sources[switch.DEFINITION.name])]
        lines.append(f"{config_file}: good; {own} sources of this host, {validation.counted(switches)}")
        lines += [f"{config_file}: {line}" for line in plans.described(settings.jobs)]
    if web_config_file is not None:
        nothing = Handlers(lambda _: (), str, lambda: None, _no_reload)
        WebServer(nothing, (":0",), config_file=web_config_file)  # reads certificates and keys too
        lines.append(f"{web_config_file}: good")
    return lines


async def _no_reload() -> None:
    """Stand in for a reload where nothing runs."""


def metrics() -> list[Metric]:
    """List every metric that can be exported: those of the sources, what meaning makes of them, and our own."""
    found = _told([schema for definition in SOURCES for schema in definition.schemas])
    found += [
        metric
        for schema in (*health.SCHEMAS, *RELAY_SCHEMAS, CAUSES, probe.PROBE)
        for metric in schema.metrics.values()
    ]
    return list({metric.name: metric for metric in reversed(found)}.values())[::-1]


def _told(schemas: Sequence[Schema]) -> list[Metric]:
    """List what tables of these schemas can hold, and what meaning makes of them."""
    found = [metric for schema in schemas if not schema.internal for metric in schema.metrics.values()]
    return found + [metric for schema in schemas for meaning in MEANINGS for metric in meaning.outputs(schema)]


_Wanted = dict[tuple[str, str], tuple[Source, Definition, tuple[object, ...]]]
"""Sources by name and target, each with what it is made from."""


@dataclass(slots=True)
class _Running:
    """A poller at work, and what it was made from, so that a reload leaves it alone when that is the same.

    `ports` is how many its source should find, None where nothing is expected; `drop` are the patterns of metrics that
    are not exported.
    """

    poller: Poller
    made_from: tuple[object, ...]
    task: asyncio.Task[None]
    ports: int | None
    drop: tuple[str, ...]
    since: float = field(default_factory=monotonic)

    def tables(self) -> Sequence[Table]:
        """Give the fresh tables; where ports are expected, with their number, also when there is nothing to read."""
        tables = self.poller.fresh_tables()
        now = monotonic()
        begins = not self.poller.first_read.is_set() and now - self.since <= READY_AFTER
        if self.ports is None or begins:
            return tables
        *others, counted = expectations.summed(self.ports, tables, now)
        wanted = {
            ending: column for ending, column in counted.columns.items() if is_exported(column.metric, self.drop, ())
        }
        return [*others, replace(counted, columns=wanted)]


class Daemon:
    """One running exporter."""

    def __init__(self, settings: Settings) -> None:
        """Read the configuration and make ready.

        Raises:
            ConfigError: The configuration or a flag is wrong.
            WebConfigError: The web configuration is wrong.
        """
        self._settings = settings
        self._config = load_config(settings.config_file)
        self._running: dict[tuple[str, str], _Running] = {}
        self._reloads = health.Reloads(good=True, good_at=time())
        self._health = health.Health()
        self._renderers = {form: text.Renderer(openmetrics=form is Format.OPENMETRICS) for form in Format}
        self._lag = runtime.Lag()
        self._reloading = asyncio.Lock()
        self._next_reload: asyncio.Task[str | None] | None = None
        self._started = monotonic()
        self._prober = prober(self._config)
        self._relay: Relay | None = None
        self._port_states = states.PortStateMemory()
        self._log_states = log_states.LogStateMemory()
        self._known = jobs.JobKnowledge()
        self.web = WebServer(
            Handlers(self._render, self._page, self._not_ready, self.reload, self._probe, self._discovery),
            settings.listen_addresses,
            telemetry_path=settings.telemetry_path,
            max_requests=settings.max_requests,
            config_file=settings.web_config_file,
        )

    async def run(self) -> None:
        """Serve until told to stop by SIGTERM or SIGINT; SIGHUP reloads."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix=runtime.THREADS)
        loop.set_default_executor(threads)
        loop.set_exception_handler(log.LoopFaults())
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        reloads: set[asyncio.Task[str | None]] = set()

        def on_hangup() -> None:
            task = loop.create_task(self.reload())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        loop.add_signal_handler(signal.SIGHUP, on_hangup)
        await self.start()
        try:
            await stopping.wait()
            logger.info("stopping")
        finally:
            await self.stop()
            threads.shutdown(wait=False, cancel_futures=True)
            await runtime.leave_what_hangs()

    async def start(self) -> None:
        """Listen and begin to poll."""
        runtime.raise_descriptor_limit()
        await self.web.start()
        wanted = self._wanted(self._config)
        await self._connect(self._config)
        self._apply(self._config, wanted)
        gc.collect()
        gc.freeze()  # modules and declarations live for ever: the collector need not look at them again and again
        for host, port in self.web.addresses:
            logger.info("listening on %s", f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        runtime.warn_of_own_namespace(self._settings.procfs)
        self._announcing = asyncio.get_running_loop().create_task(self._announce())
        self._telling = asyncio.get_running_loop().create_task(self._tell_states())

    async def stop(self) -> None:
        """Stop all parts within `STOP_GRACE` seconds."""
        self._announcing.cancel()
        self._telling.cancel()
        tasks = [one.task for one in self._running.values()]
        for task in tasks:
            task.cancel()
        await self.web.stop(STOP_GRACE / 2)
        closing = [asyncio.create_task(self._prober.close())]
        if self._relay is not None:
            closing.append(asyncio.create_task(self._relay.stop()))
        await asyncio.wait([*closing, *tasks], timeout=STOP_GRACE / 2)
        self._running = {}

    async def reload(self) -> str | None:
        """Read the configuration anew; a wrong one changes nothing. All who ask while one waits share it.

        Returns:
            What is wrong with it, or None.
        """
        if self._next_reload is None:
            self._next_reload = asyncio.create_task(self._reload())
        return await asyncio.shield(self._next_reload)

    async def _reload(self) -> str | None:
        async with self._reloading:
            self._next_reload = None  # who asks from here on may mean a file that is newer than what is read now
            try:
                fresh = await asyncio.to_thread(load_config, self._settings.config_file)
                wanted = self._wanted(fresh)
            except ConfigError as error:
                logger.error("reload: %s; the configuration before stays in use", error)  # noqa: TRY400  # says it all
                self._reloads.good = False
                return str(error)
            await self._connect(fresh)
            self._apply(fresh, wanted)
            if _asked_by_probes(fresh) != _asked_by_probes(self._config):
                before, self._prober = self._prober, prober(fresh)
                await before.close()
            self._config = fresh
            self._reloads = health.Reloads(good=True, good_at=time())
            logger.info("configuration read")
            return None

    async def _connect(self, fresh: Config) -> None:
        """Have the broker of a configuration, or none.

        The relay before leaves first: a host is known to a broker by its name, and can be there once.
        """
        options, host = fresh.sources[mqtt.SECTION.name], _host_name(fresh)
        before = self._relay
        if before is not None:
            if (before.options, before.host) == (options, host):
                return
            await before.stop()
        self._relay = Relay(options, host, before.dropped if before else 0) if options.broker else None
        if self._relay is not None:
            await self._relay.start()

    async def _tell_states(self) -> None:
        """Publish now and then which states of ports are the case, where there is a broker."""
        while True:
            await asyncio.sleep(STATES_INTERVAL)
            relay = self._relay  # which may be another one when the states are known
            if relay is None:
                continue
            try:
                relay.publish_states(await asyncio.to_thread(self._states_of, self._own_tables(), relay.host))
            except Exception:
                logger.exception("the states of ports are not told this time")

    def _states_of(self, tables: list[Table], host: str) -> list[states.PortState]:
        """Give the states of ports, and what logs of jobs tell of them; in a thread, never twice at a time."""
        now = monotonic()
        of_ports = states.step(self._port_states, tables, host, now)
        return [*of_ports, *log_states.step(self._log_states, tables, host, now)]

    def tables(self) -> list[Table]:
        """Give all tables there are now: those of the sources, and those about the exporter itself."""
        running = list(self._running.values())
        tables = [table for one in running for table in one.tables()]
        pollers = [one.poller for one in running]
        stats = self.web.stats
        tables += self._health.tables(pollers, self._reloads, stats.requests, stats.refused(), self._lag.longest())
        return tables if self._relay is None else [*tables, *self._relay.tables()]

    def _wanted(self, fresh: Config) -> _Wanted:
        """Make the sources of a configuration; nothing is changed yet.

        Returns:
            Them by name and target, with what tells whether one that runs may stay.

        Raises:
            ConfigError: A source cannot be made.
        """
        host = Host(
            _host_name(fresh),
            self._settings.sysfs,
            self._settings.procfs,
            self._settings.nic_replay,
        )
        expected = fresh.expect.for_host(host.name)
        wanted: _Wanted = {}
        for definition in SOURCES:
            for source in _built(definition, fresh, host):
                if source.target and not self._settings.shard.owns(source.target):
                    continue
                key = (source.name, source.target)
                if key in wanted:
                    raise ConfigError(f"{_section(definition)}: {source.target!r} is named twice")
                wanted[key] = (
                    source,
                    definition,
                    (
                        source.settings,
                        host,
                        expected_of(definition.name, expected),
                        _exported(definition, fresh),
                    ),
                )
        return wanted

    def _apply(self, fresh: Config, wanted: _Wanted) -> None:
        """Start, stop and leave alone pollers, so that those that run are those of the configuration."""
        expected = fresh.expect.for_host(_host_name(fresh))
        for key, (source, definition, made_from) in list(wanted.items()):
            if definition is nccl.DEFINITION:  # with another broker, or none, it is another one
                wanted[key] = (source, definition, (*made_from, self._relay))
        for key, running in list(self._running.items()):
            if key not in wanted or wanted[key][2] != running.made_from:
                running.task.cancel()
                del self._running[key]
        loop = asyncio.get_running_loop()
        self._known = jobs.JobKnowledge(baseline(fresh.measured), plans.plans_of(fresh.jobs))
        for key, (source, definition, made_from) in wanted.items():
            if key not in self._running:
                drop, keep = _exported(definition, fresh)
                links_expected = expected_of(definition.name, expected)
                relay = self._relay if definition is nccl.DEFINITION else None
                made = steps(links_expected, relay, self._judging(source))
                aside = definition is collector.DEFINITION
                poller = Poller(source, made, drop=drop, keep=keep, on_late=self._lag.note, steps_in_thread=aside)
                task = loop.create_task(poller.run(), name=" ".join(key))
                self._running[key] = _Running(poller, made_from, task, links_expected.ports, drop)

    def _judging(self, source: Source) -> Step:
        """Give who judges the jobs that a source hears: a collector's has what others tell of ports beside it."""
        if isinstance(source, collector.CollectorSource):
            return Judge(lambda: self._known, lambda: source.retained_state, self._own_tables).step
        return lambda state, table: jobs.step(self._known, state, table)

    def _own_tables(self) -> list[Table]:
        """Give the tables of all sources; from any thread."""
        return [table for one in list(self._running.values()) for table in one.poller.fresh_tables()]

    def _render(self, form: Format) -> Iterator[bytes]:
        """Print everything; called in the web server's thread, never twice at a time."""
        return self._renderers[form].render(self.tables())

    async def _probe(self, asked: ProbeAsked, form: Format) -> Probed:
        """Answer a probe."""
        try:
            outcome = await self._prober.probe(asked.target, asked.module, asked.auth, asked.seconds)
        except probe.RefusedError as error:
            return Probed(error.status, None, str(error))
        if asked.debug:
            return Probed(200, None, outcome.story)
        renderer = text.Renderer(openmetrics=form is Format.OPENMETRICS)  # which is not shared: this is a thread
        return Probed(200, await asyncio.to_thread(lambda: list(renderer.render(outcome.tables))))

    def _discovery(self) -> bytes:
        """Give the switches that there are, as Prometheus's service discovery by HTTP has it."""
        known = switch.REGISTRY.known
        found = discovery.configured(resolve_targets(self._config.sources[switch.DEFINITION.name]), known)
        return json.dumps([*found, *discovery.discovered(known.values())]).encode()

    def _page(self) -> str:
        now = time()
        sources = []
        for (name, target), one in sorted(self._running.items()):
            status = one.poller.status
            failures: dict[str, int] = {}
            for (_, reason), count in status.failures.items():
                failures[reason] = failures.get(reason, 0) + count
            age = None if status.last_success is None else now - status.last_success
            sources.append(
                page.SourceStatus(name, target, status.up, age, one.poller.count_rows(), failures, status.detail)
            )
        return page.page(
            name="fabric-exporter",
            version=__version__,
            telemetry_path=self._settings.telemetry_path,
            sources=sources,
        )

    async def _announce(self) -> None:
        """Say once what the first reads found: a wrong mount or a lost driver looks like a host without hardware."""
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_AFTER):
                for one in list(self._running.values()):
                    await one.poller.first_read.wait()
        found: dict[str, list[str]] = {"reading": [], "nothing found for": [], "not readable": []}
        for key, one in self._running.items():
            poller = one.poller
            state = {True: "reading", None: "nothing found for", False: "not readable"}[poller.status.up]
            count = poller.count_rows()
            rows = f" ({count} {'row' if count == 1 else 'rows'})" if poller.status.up else ""
            found[state].append(f"{' '.join(key).strip()}{rows}")
        logger.info("%s", "; ".join(f"{state} {', '.join(names)}" for state, names in found.items() if names))

    def _not_ready(self) -> str | None:
        """Say what is waited for: the first read of each source, but not for ever."""
        if monotonic() - self._started > READY_AFTER:
            return None
        waiting = [" ".join(key).strip() for key, one in self._running.items() if not one.poller.first_read.is_set()]
        return f"not read yet: {', '.join(sorted(waiting))}" if waiting else None


def _built(definition: Definition, settings: Config, host: Host) -> Sequence[Source]:
    """Make the sources of one kind, none where it is switched off.

    Raises:
        ConfigError: They cannot be made from their options.
    """
    options = settings.sources[definition.name]
    if not getattr(options, "enabled", True):
        return []
    try:
        if definition is collector.DEFINITION:  # which needs the broker of another part
            return collector.build(options, settings.sources[mqtt.SECTION.name])
        return definition.build(options, host)
    except ValueError as error:
        raise ConfigError(f"{_section(definition)}: {error}") from None


def prober(settings: Config, *, trusted: bool = False) -> probe.Prober:
    """Make what makes probes.

    Args:
        settings: The configuration.
        trusted: Whether every switch may be asked.
    """
    options, switches = settings.sources["probe"], settings.sources[switch.DEFINITION.name]
    return probe.Prober(options, switches, lambda: steps(Expectation()), trusted=trusted)


def _asked_by_probes(settings: Config) -> tuple[object, ...]:
    """Give what decides how probes are made."""
    return settings.sources["probe"], settings.sources[switch.DEFINITION.name]


def _steps_to(definition: config.Section) -> list[str | int]:
    """Give the keys that lead to a kind of source's part of the configuration."""
    return [definition.section] if definition.section else ["sources", definition.name]


def _section(definition: config.Section) -> str:
    """Name a kind of source's place in the configuration."""
    return ".".join(map(str, _steps_to(definition)))


def _exported(definition: config.Section, settings: Config) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the patterns of one kind of source: of metrics that are not wanted, and of details that are."""
    options = settings.sources[definition.name]
    return options.drop, options.keep


def check_roots(settings: Settings) -> None:
    """See that the file systems are where they are said to be: without them a host looks like one without hardware.

    Raises:
        ConfigError: One is not.
    """
    for flag, folder in (("--path.sysfs", settings.sysfs / "class"), ("--path.procfs", settings.procfs)):
        if not folder.is_dir():
            raise ConfigError(f"{flag}: there is no folder {folder}; check the flag, and in a container the mount")
