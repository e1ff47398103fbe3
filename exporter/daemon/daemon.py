"""The daemon: builds, starts, reloads and stops all parts of the exporter."""

import asyncio
import logging
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic, time

from exporter import __version__
from exporter.config.errors import UserError
from exporter.core.blocking import Hardware
from exporter.core.definition import Context, SharedObjects
from exporter.core.source import Host
from exporter.core.supervision import SupervisedTask, Supervisor
from exporter.core.table import Table
from exporter.daemon import health, log, own_metrics, probe, runtime, service_discovery, sources, transports
from exporter.daemon.host_states import HostStates
from exporter.daemon.judge import Judge
from exporter.daemon.loading import host_name, load_config
from exporter.daemon.lookups import LookupLoop
from exporter.daemon.prepared import Prepared, prepare
from exporter.daemon.published_settings import published_settings
from exporter.daemon.relay import Relay
from exporter.daemon.running import READY_AFTER, RunningSources
from exporter.daemon.settings import Settings
from exporter.meaning.training import jobs
from exporter.outputs import page, text
from exporter.outputs.negotiation import Format
from exporter.outputs.web import (
    Handlers,
    ProbeAnswer,
    ProbeRequest,
    WebServer,
)

logger = logging.getLogger(__name__)

STOP_SECONDS = 3.0
"""Time limit of a stop: for responses in progress, and for sources to close."""

STOPPING = "the exporter is stopping"
"""Response to a reload that comes too late."""

STATES_INTERVAL = 5.0
"""Seconds between two evaluations of the states of ports."""

MAX_THREADS = 128
"""Maximum number of blocking calls at a time, in threads named `runtime.THREADS`; names are looked up in others."""


class Daemon:
    """One running exporter."""

    def __init__(self, settings: Settings) -> None:
        """Load the configuration.

        Raises:
            ConfigError: The configuration or a flag is invalid.
            WebConfigError: The web configuration is invalid.
        """
        self._settings = settings
        self._shared = SharedObjects()
        self._supervisor = Supervisor()
        self._lag = runtime.LoopLag()
        self._sources = RunningSources(self._supervisor, self._lag)
        self._prepared = self._load()
        self._last_reload = own_metrics.LastReload(succeeded=True, succeeded_at=time())
        self._health = health.Health()
        self._renderers = {form: text.Renderer(openmetrics=form is Format.OPENMETRICS) for form in Format}
        self._reloading = asyncio.Lock()
        self._next_reload: asyncio.Task[str | None] | None = None
        self._started = monotonic()
        self._stopping = False
        self._prober = self._make_prober(self._prepared)
        self._relay: Relay | None = None
        self._background: list[SupervisedTask] = []
        self._host_states = HostStates()
        self.web = WebServer(
            Handlers(self._render, self._page, self._not_ready, self.reload, self._probe, self._discovery),
            settings.listen_addresses,
            telemetry_path=settings.telemetry_path,
            max_requests=settings.max_requests,
            config_file=settings.web_config_file,
            sockets=settings.sockets,
        )
        self._own = own_metrics.OwnMetrics(
            self.web.stats, self._lag, self._supervisor, lambda: self._last_reload, lambda: self._relay
        )

    # --- start and stop ------------------------------------------------------------------------------------------

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
        runtime.accept_hangups()
        await self.start()
        try:
            await stopping.wait()
            logger.info("stopping")
        finally:
            await self.stop()
            threads.shutdown(wait=False, cancel_futures=True)
            if isinstance(loop, LookupLoop):
                loop.threads.shutdown(wait=False, cancel_futures=True)
            await runtime.exit_despite_blocked_threads()

    async def start(self) -> None:
        """Listen and start polling."""
        runtime.raise_descriptor_limit()
        async with self._reloading:
            await self.web.start()
            await self._apply(self._prepared)
        runtime.spend_less_on_garbage()
        for host, port in self.web.addresses:
            logger.info("listening on %s", f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        runtime.warn_of_own_namespace(self._settings.procfs)
        self._background = [
            self._supervisor.start("first reads", self._log_first_reads),
            self._supervisor.start("port states", self._publish_states),
        ]

    async def stop(self) -> None:
        """Stop all parts within `STOP_SECONDS`; a reload in progress applies nothing any more."""
        self._stopping = True
        for task in self._background:
            task.cancel()
        stopping = [asyncio.create_task(self._sources.stop())]
        await self.web.stop(STOP_SECONDS / 2)
        stopping.append(asyncio.create_task(self._prober.close()))
        if self._relay is not None:
            stopping.append(asyncio.create_task(self._relay.stop()))
        await asyncio.wait(stopping, timeout=STOP_SECONDS / 2)

    # --- reload --------------------------------------------------------------------------------------------------

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
                prepared = await asyncio.to_thread(self._load)
                prober = self._make_prober(prepared)
            except UserError as error:
                self._last_reload.succeeded = False
                logger.error(  # noqa: TRY400  # the text is complete
                    "reload: %s; the previous configuration remains in use", error
                )
                return str(error)
            except Exception as error:
                if self._stopping:  # its threads have ended
                    return STOPPING
                self._last_reload.succeeded = False
                logger.exception("reload: error in this program; the previous configuration remains in use")
                return f"{type(error).__name__}: {error}"
            if self._stopping:
                return STOPPING
            previous, self._prepared = self._prepared, prepared
            try:
                await self._apply(prepared)
                await self._replace_prober(previous, prober)
            except Exception as error:
                self._last_reload.succeeded = False
                logger.exception(
                    "reload: error in this program while the configuration was applied; a part may not run"
                )
                return f"{type(error).__name__}: {error}"
            self._last_reload = own_metrics.LastReload(succeeded=True, succeeded_at=time())
            logger.info("configuration reloaded")
            return None

    def _load(self) -> Prepared:
        """Load the configuration and build what it needs; what runs is not changed. Blocks.

        Raises:
            ConfigError: The configuration is invalid, or a source cannot be built.
        """
        settings = self._settings
        config = load_config(settings.config_file)
        roots = settings.sysfs, settings.procfs, settings.nic_replay
        host = Host(host_name(config), *roots, self._shared.get(Hardware), settings.dev)
        context = Context(
            host,
            shared=self._shared,
            supervisor=self._supervisor,
            transport=transports.step_of(host, self._sources.tables),
            publish=self._publish,
            judge=lambda retained: Judge(lambda: self._prepared.known, retained, self._sources.tables).step,
        )
        return prepare(config, context, settings.shard)

    async def _apply(self, prepared: Prepared) -> None:
        """Stop the sources that are gone or changed and start the new ones; unchanged ones keep running.

        The broker comes last, as the end of a connection to one that does not respond takes a second.
        """
        await self._sources.stop_changed(prepared)
        if self._stopping:
            return
        for definition in sources.SOURCES:
            if definition.apply is not None:
                definition.apply(prepared.config.sources[definition.name], prepared.context)
        self._sources.start_missing(prepared, self._judge_timings)
        await self._connect(prepared)

    async def _connect(self, prepared: Prepared) -> None:
        """Connect to the broker of a configuration, if it has one, and leave the previous one.

        The previous relay disconnects first: the host's name is the client identifier, which can be connected once.
        """
        options, host = prepared.broker, prepared.context.host.name
        previous = self._relay
        if previous is not None:
            if (previous.options, previous.host) == (options, host):
                return
            await previous.stop()
        if self._stopping:
            return
        self._relay = Relay(options, host, self._supervisor, previous) if options.broker else None
        if self._relay is not None:
            await self._relay.start()

    def _make_prober(self, prepared: Prepared) -> probe.Prober:
        return probe.make_prober(prepared.config, self._shared)

    async def _replace_prober(self, previous: Prepared, prober: probe.Prober) -> None:
        """Use another prober if its options changed; otherwise the targets of the current one remain cached."""
        if probe.config_of(previous.config) != probe.config_of(self._prepared.config):
            replaced, self._prober = self._prober, prober
            await replaced.close()

    # --- steps of sources ----------------------------------------------------------------------------------------

    def _publish(self, state: object, table: Table) -> tuple[object, Sequence[Table]]:
        """Publish timings of ranks where there is a broker; see `Context.publish`."""
        return (state, (table,)) if self._relay is None else self._relay.step(state, table)

    def _judge_timings(
        self, state: jobs.TrainingState | None, table: Table
    ) -> tuple[jobs.TrainingState | None, Sequence[Table]]:
        """Compute verdicts on jobs from the timings of this host alone."""
        return jobs.step(self._prepared.known, state, table)

    # --- background tasks ----------------------------------------------------------------------------------------

    async def _publish_states(self) -> None:
        """Publish the states of ports and the settings of this host at an interval, where there is a broker."""
        while True:
            await asyncio.sleep(STATES_INTERVAL)
            relay = self._relay  # a reload may replace it while the states are computed
            if relay is not None:
                tables = self._sources.tables()
                relay.publish_states(await asyncio.to_thread(self._host_states.step, tables, relay.host, monotonic()))
                relay.publish_settings(published_settings(tables))

    async def _log_first_reads(self) -> None:
        """Log once what the first reads found: a wrong mount or a missing driver looks like a host without hardware."""
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_AFTER):
                await self._sources.wait_until_read()
        logger.info("%s", self._sources.describe_first_reads())

    # --- responses -----------------------------------------------------------------------------------------------

    def tables(self) -> list[Table]:
        """Return all current tables: those of the sources, and those about the sources."""
        running = self._sources.all()
        tables = [table for one in running for table in one.tables()]
        return [*tables, *self._health.tables(running)]

    def _render(self, form: Format) -> Iterator[bytes]:
        """Render all metrics, the exporter's own first; called in the web server's thread, one call at a time."""
        yield self._own.render(form)
        yield from self._renderers[form].render(self.tables())

    async def _probe(self, request: ProbeRequest, form: Format) -> ProbeAnswer:
        try:
            result = await self._prober.probe(request.target, request.module, request.auth, request.timeout)
        except probe.ProbeRefusedError as error:
            return ProbeAnswer(error.status, None, str(error))
        if request.debug:
            return ProbeAnswer(200, None, result.report)
        renderer = text.Renderer(openmetrics=form is Format.OPENMETRICS)  # not a shared one: it runs in a thread
        return ProbeAnswer(200, await asyncio.to_thread(lambda: list(renderer.render(result.tables))))

    def _discovery(self) -> bytes:
        """Return all known switches in the format of Prometheus's HTTP service discovery."""
        return service_discovery.response(self._prepared.config.sources, self._shared)

    def _page(self) -> str:
        return page.page(
            name="fabric-exporter",
            version=__version__,
            telemetry_path=self._settings.telemetry_path,
            sources=self._sources.statuses(),
        )

    def _not_ready(self) -> str | None:
        """Return why the daemon is not ready: sources whose first read has not ended, for `READY_AFTER` at most."""
        if monotonic() - self._started > READY_AFTER:
            return None
        waiting = self._sources.unread()
        return f"not read yet: {', '.join(waiting)}" if waiting else None
