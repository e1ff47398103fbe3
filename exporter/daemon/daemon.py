"""The daemon: builds, starts, reloads and stops all parts of the exporter."""

import asyncio
import gc
import json
import logging
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic, time

from exporter import __version__
from exporter.config.schema import Config
from exporter.config.yaml_reader import ConfigError
from exporter.core.blocking import Hardware
from exporter.core.poller import Poller, Step
from exporter.core.source import Definition, Host, Source
from exporter.core.table import Table
from exporter.daemon import discovery, health, log, probe, runtime, sources
from exporter.daemon.judge import Judge
from exporter.daemon.loading import host_name, load_config
from exporter.daemon.pipeline import expected_of, steps
from exporter.daemon.relay import Relay
from exporter.daemon.running import (
    READY_AFTER,
    RunningSource,
    describe_first_reads,
    statuses,
    unread,
)
from exporter.daemon.settings import Settings
from exporter.daemon.sources import build_sources, export_patterns, section_name
from exporter.meaning.ports import log_states, states
from exporter.meaning.training import jobs, plans
from exporter.meaning.training.baseline import baseline
from exporter.mqtt import options as mqtt
from exporter.outputs import page, text
from exporter.outputs.negotiation import Format
from exporter.outputs.web import (
    Handlers,
    ProbeAnswer,
    ProbeRequest,
    WebServer,
)
from exporter.sources.collector import source as collector
from exporter.sources.nccl import source as nccl
from exporter.sources.switch import source as switch
from exporter.sources.switch.targets import resolve_targets

logger = logging.getLogger(__name__)

STOP_SECONDS = 3.0
"""Time limit of a stop: for responses in progress, and for sources to close."""

STATES_INTERVAL = 5.0
"""Seconds between two evaluations of the states of ports."""

MAX_THREADS = 128
"""Maximum number of blocking calls at a time, in threads named `runtime.THREADS`: while a name server does not answer,
the switches whose names it resolves must not delay the others."""


_ConfiguredSources = dict[tuple[str, str], tuple[Source, Definition, tuple[object, ...]]]
"""Sources by name and target, each with its definition and what it was built from."""


class Daemon:
    """One running exporter."""

    def __init__(self, settings: Settings) -> None:
        """Load the configuration.

        Raises:
            ConfigError: The configuration or a flag is invalid.
            WebConfigError: The web configuration is invalid.
        """
        self._settings = settings
        self._config = load_config(settings.config_file)
        self._running: dict[tuple[str, str], RunningSource] = {}
        self._reloads = health.Reloads(good=True, good_at=time())
        self._health = health.Health()
        self._renderers = {form: text.Renderer(openmetrics=form is Format.OPENMETRICS) for form in Format}
        self._lag = runtime.LoopLag()
        self._reloading = asyncio.Lock()
        self._next_reload: asyncio.Task[str | None] | None = None
        self._started = monotonic()
        self._hardware = Hardware()
        self._prober = probe.make_prober(self._config)
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

    # --- start, reload, stop -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; SIGHUP reloads."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix=runtime.THREADS)
        loop.set_default_executor(threads)
        loop.set_exception_handler(log.LoopErrorHandler())
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
            await runtime.exit_despite_blocked_threads()

    async def start(self) -> None:
        """Listen and start polling."""
        runtime.raise_descriptor_limit()
        await self.web.start()
        configured = self._build_all(self._config)
        await self._connect(self._config)
        self._apply(self._config, configured)
        gc.collect()
        gc.freeze()  # modules and declarations are never freed: the collector need not traverse them
        for host, port in self.web.addresses:
            logger.info("listening on %s", f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        runtime.warn_of_own_namespace(self._settings.procfs)
        loop = asyncio.get_running_loop()
        self._background = [loop.create_task(self._log_first_reads()), loop.create_task(self._publish_states())]

    async def stop(self) -> None:
        """Stop all parts within `STOP_SECONDS`."""
        for task in self._background:
            task.cancel()
        tasks = [one.task for one in self._running.values()]
        for task in tasks:
            task.cancel()
        await self.web.stop(STOP_SECONDS / 2)
        closing = [asyncio.create_task(self._prober.close())]
        if self._relay is not None:
            closing.append(asyncio.create_task(self._relay.stop()))
        await asyncio.wait([*closing, *tasks], timeout=STOP_SECONDS / 2)
        self._running = {}

    async def reload(self) -> str | None:
        """Load the configuration again; an invalid one changes nothing. Concurrent requests share one reload.

        Returns:
            The error, or None.
        """
        if self._next_reload is None:
            self._next_reload = asyncio.create_task(self._reload())
        return await asyncio.shield(self._next_reload)

    async def _reload(self) -> str | None:
        async with self._reloading:
            self._next_reload = None  # a request from here on may refer to a newer file, so it starts another reload
            try:
                config = await asyncio.to_thread(load_config, self._settings.config_file)
                configured = self._build_all(config)
            except ConfigError as error:
                logger.error(  # noqa: TRY400  # the text is complete
                    "reload: %s; the previous configuration remains in use", error
                )
                self._reloads.good = False
                return str(error)
            await self._connect(config)
            self._apply(config, configured)
            if probe.config_of(config) != probe.config_of(self._config):
                previous, self._prober = self._prober, probe.make_prober(config)
                await previous.close()
            self._config = config
            self._reloads = health.Reloads(good=True, good_at=time())
            logger.info("configuration reloaded")
            return None

    async def _connect(self, config: Config) -> None:
        """Connect to the broker of a configuration, if it has one, and leave the previous one.

        The previous relay disconnects first: the host's name is the client identifier, which can be connected once.
        """
        options, host = config.sources[mqtt.SECTION.name], host_name(config)
        previous = self._relay
        if previous is not None:
            if (previous.options, previous.host) == (options, host):
                return
            await previous.stop()
        self._relay = Relay(options, host, previous.dropped if previous else 0) if options.broker else None
        if self._relay is not None:
            await self._relay.start()

    def _build_all(self, config: Config) -> _ConfiguredSources:
        """Build the sources of a configuration; the running ones are not changed.

        Raises:
            ConfigError: A source cannot be built.
        """
        roots = self._settings.sysfs, self._settings.procfs, self._settings.nic_replay
        host = Host(host_name(config), *roots, self._hardware)
        expected = config.expect.for_host(host.name)
        configured: _ConfiguredSources = {}
        for definition in sources.SOURCES:
            for source in build_sources(definition, config, host):
                if source.target and not self._settings.shard.owns(source.target):
                    continue
                key = (source.name, source.target)
                if key in configured:
                    raise ConfigError(f"{section_name(definition)}: {source.target!r} is named twice")
                built_from = (
                    source.settings,
                    host,
                    expected_of(definition.name, expected),
                    export_patterns(definition, config),
                )
                configured[key] = (source, definition, built_from)
        return configured

    def _apply(self, config: Config, configured: _ConfiguredSources) -> None:
        """Stop the sources that are gone or changed and start the new ones; unchanged ones keep running."""
        expected = config.expect.for_host(host_name(config))
        for key, (source, definition, built_from) in list(configured.items()):
            if definition is nccl.DEFINITION:  # it is restarted when the broker changes
                configured[key] = (source, definition, (*built_from, self._relay))
        for key, running in list(self._running.items()):
            if key not in configured or configured[key][2] != running.built_from:
                running.task.cancel()
                del self._running[key]
        loop = asyncio.get_running_loop()
        self._known = jobs.JobKnowledge(baseline(config.measured), plans.plans_of(config.jobs))
        for key, (source, definition, built_from) in configured.items():
            if key not in self._running:
                drop, keep = export_patterns(definition, config)
                links_expected = expected_of(definition.name, expected)
                relay = self._relay if definition is nccl.DEFINITION else None
                pipeline = steps(links_expected, relay, self._verdicts_of(source))
                aside = definition is collector.DEFINITION
                poller = Poller(source, pipeline, drop=drop, keep=keep, on_late=self._lag.note, steps_in_thread=aside)
                task = loop.create_task(poller.run(), name=" ".join(key))
                self._running[key] = RunningSource(poller, built_from, task, links_expected.ports, drop)

    def _verdicts_of(self, source: Source) -> Step:
        """Return the step that computes verdicts on the jobs of a source; a collector's also uses states of ports."""
        if isinstance(source, collector.CollectorSource):
            return Judge(lambda: self._known, lambda: source.retained_state, self._source_tables).step
        return lambda state, table: jobs.step(self._known, state, table)

    # --- background tasks ----------------------------------------------------------------------------------------

    async def _publish_states(self) -> None:
        """Publish the states of ports at an interval, where there is a broker."""
        while True:
            await asyncio.sleep(STATES_INTERVAL)
            relay = self._relay  # a reload may replace it while the states are computed
            if relay is None:
                continue
            try:
                relay.publish_states(await asyncio.to_thread(self._states, self._source_tables(), relay.host))
            except Exception:
                logger.exception("the states of ports are not published this time")

    def _states(self, tables: list[Table], host: str) -> list[states.PortState]:
        """Return the states of ports, and those found in logs of jobs. Runs in a thread, one call at a time."""
        now = monotonic()
        of_ports = states.step(self._port_states, tables, host, now)
        return [*of_ports, *log_states.step(self._log_states, tables, host, now)]

    async def _log_first_reads(self) -> None:
        """Log once what the first reads found: a wrong mount or a missing driver looks like a host without hardware."""
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_AFTER):
                for one in list(self._running.values()):
                    await one.poller.first_read.wait()
        logger.info("%s", describe_first_reads(self._running))

    # --- responses -----------------------------------------------------------------------------------------------

    def tables(self) -> list[Table]:
        """Return all current tables: those of the sources, and those about the exporter itself."""
        running = list(self._running.values())
        tables = [table for one in running for table in one.tables()]
        pollers = [one.poller for one in running]
        stats = self.web.stats
        tables += self._health.tables(pollers, self._reloads, stats.requests, stats.refused(), self._lag.longest())
        return tables if self._relay is None else [*tables, *self._relay.tables()]

    def _source_tables(self) -> list[Table]:
        """Return the tables of all sources; may be called from any thread."""
        return [table for one in list(self._running.values()) for table in one.poller.fresh_tables()]

    def _render(self, form: Format) -> Iterator[bytes]:
        """Render all metrics; called in the web server's thread, one call at a time."""
        return self._renderers[form].render(self.tables())

    async def _probe(self, request: ProbeRequest, form: Format) -> ProbeAnswer:
        try:
            result = await self._prober.probe(request.target, request.module, request.auth, request.timeout)
        except probe.RefusedError as error:
            return ProbeAnswer(error.status, None, str(error))
        if request.debug:
            return ProbeAnswer(200, None, result.report)
        renderer = text.Renderer(openmetrics=form is Format.OPENMETRICS)  # not a shared one: it runs in a thread
        return ProbeAnswer(200, await asyncio.to_thread(lambda: list(renderer.render(result.tables))))

    def _discovery(self) -> bytes:
        """Return all known switches in the format of Prometheus's HTTP service discovery."""
        known = switch.REGISTRY.known
        found = discovery.configured(resolve_targets(self._config.sources[switch.DEFINITION.name]), known)
        return json.dumps([*found, *discovery.discovered(known.values())]).encode()

    def _page(self) -> str:
        return page.page(
            name="fabric-exporter",
            version=__version__,
            telemetry_path=self._settings.telemetry_path,
            sources=statuses(self._running, time()),
        )

    def _not_ready(self) -> str | None:
        """Return why the daemon is not ready: sources whose first read has not ended, for `READY_AFTER` at most."""
        if monotonic() - self._started > READY_AFTER:
            return None
        waiting = unread(self._running)
        return f"not read yet: {', '.join(waiting)}" if waiting else None
