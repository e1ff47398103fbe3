"""The simulated fabric and its exporters in virtual time, as fast as this machine computes.

    async with VirtualFabric(folder, faults=["late-rank:5@300s"]) as fabric:
        async for scrape in fabric.scrapes(range(30, 930, 30)):
            ...

Everything between devices and pages is that of the daemons: files, agents and APIs of the simulated devices, sources,
pollers with their steps, verdicts and causes, rendering. Only the clock differs, which the pollers are given, and what
hosts publish is passed to the collector without a broker.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from exporter.config.shard import Shard
from exporter.core.clock import Clock
from exporter.core.definition import Context, SourceSteps
from exporter.core.poller import Poller
from exporter.core.source import Host, Reading
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.daemon import transports
from exporter.daemon.health import Health
from exporter.daemon.host_states import HostStates
from exporter.daemon.judge import Judge
from exporter.daemon.loading import load_config
from exporter.daemon.pipeline import Expectation, steps
from exporter.daemon.prepared import ConfiguredSource, Prepared, prepare
from exporter.daemon.relay import batches
from exporter.meaning.ports import expectations
from exporter.meaning.training.jobs import TIMING_COLUMNS, JobKnowledge
from exporter.mqtt.states import Presence, StateKey, StateMessage, make_state, port_with_job
from exporter.nccl.batch import Batch
from exporter.outputs.text import Renderer
from exporter.simulator.fabric.cluster import FabricCluster
from exporter.simulator.fabric.job import Job
from exporter.simulator.training.data_parallel import FullyShardedDataParallel
from exporter.sources.collector.metrics import COLLECTOR
from exporter.sources.nccl.streams import StreamTableBuilder
from exporter.sources.switch.source import SwitchSource

INTERVAL = 30.0
"""Seconds between two scrapes, and between two reads of hosts and switches."""

SLOW_INTERVAL = 60.0
"""Seconds between two reads of the neighbours of switches, of PCI functions and of optical modules."""

EPOCH = 0.0
"""Unix time at the start of the model, as promtool has it."""

UPTIME = 86_400.0
"""Seconds for which the exporters had run then."""

DEADLINE, SILENT_DEADLINE = 30.0, 0.3
"""Real seconds after which a device is given up: of one that responds, on a busy machine, and of a silent one."""

COMPUTE, LAYERS, LAYER_BYTES = 1.64, 2, 57_600 << 20
"""A job with the load of the cluster's own job, and a part of its collectives: they are most of the work."""


class Scrape(NamedTuple):
    """What Prometheus reads at one time.

    Attributes:
        time: Virtual seconds since the start.
        pages: Lines of each instance; None where it cannot be scraped.
        states: Name, port and kind of each active state of a port that is published.
    """

    time: float
    pages: Mapping[str, Sequence[str] | None]
    states: Sequence[StateKey]


class _Levels:
    """Best levels of jobs: none are kept."""

    def of(self, job: str) -> Mapping[str, float] | None:  # noqa: ARG002  # the same for all
        return None

    def keep(self, levels: Mapping[str, Mapping[str, float]]) -> None:
        pass


class _Published:
    """What hosts and the poller of switches published last."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self.levels = _Levels()
        self.by_owner: dict[str, Mapping[StateKey, StateMessage]] = {}
        self._hosts = {host: Presence(version=1, state="up", since=EPOCH, number=1) for host in hosts}

    def states(self) -> Mapping[StateKey, StateMessage]:
        return {key: one for states in self.by_owner.values() for key, one in states.items()}

    def hosts(self) -> Mapping[str, Presence]:
        return self._hosts


class _Received:
    """Source of the collector: what hosts published since the last read."""

    name, target, interval, settings = "collector", "", INTERVAL, None
    changed: asyncio.Event | None = None

    def __init__(self, clock: Clock) -> None:
        self.connected = True
        self._clock = clock
        self._streams = StreamTableBuilder()
        self._keeper = RowKeeper(COLLECTOR.labels)

    def receive(self, batch: Batch) -> None:
        for stream, operations in batch.streams:
            self._streams.add_published(stream, _rank(stream.world_rank, stream.host, stream.pid), operations)
        for stream, begun, ended in batch.progress:
            rank = _rank(stream.world_rank, stream.host, stream.pid)
            self._streams.add_published(stream, rank, (), (begun, ended))

    async def applies(self) -> bool:
        return True

    async def read(self) -> Reading:
        now = self._clock.monotonic()
        streams, self._streams = self._streams, StreamTableBuilder()
        built = TableBuilder(COLLECTOR)
        built.row((), {"connected": int(self.connected)})
        return Reading([streams.table(now), built.table(self._keeper, now)])

    async def close(self) -> None:
        pass


def _rank(world_rank: int | None, host: str, pid: int) -> str:
    return f"{host}/{pid}" if world_rank is None else str(world_rank)


class _Switch:
    """A switch, which is given up early where its model is silent: the wait is real time."""

    def __init__(self, source: SwitchSource, is_silent: Callable[[], bool]) -> None:
        self.source = source
        self.name, self.target, self.interval, self.settings = "switch", source.target, source.interval, source.settings
        self.label = source.label
        self.changed: asyncio.Event | None = None
        self._is_silent = is_silent

    async def applies(self) -> bool:
        return True

    async def read(self) -> Reading:
        async with asyncio.timeout(SILENT_DEADLINE if self._is_silent() else DEADLINE):
            return await self.source.read()

    async def close(self) -> None:
        await self.source.close()


class _Running(NamedTuple):
    """A source with its poller."""

    configured: ConfiguredSource
    poller: Poller


class _Exporter:
    """The daemon of a host, or of all switches, or the collector."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._running: list[_Running] = []
        self._renderer = Renderer(openmetrics=False)
        self._health = Health()
        self._states = HostStates()
        self._slow_at = float("-inf")

    def add(self, configured: ConfiguredSource, verdicts: Callable[..., object] | None = None) -> None:
        """Add a source."""
        verdict_step = _pass_on if verdicts is None else verdicts
        pipeline = steps(configured.expected, configured.steps, verdict_step)  # type: ignore[arg-type]
        poller = Poller(
            configured.source,
            [self._stamp, *pipeline],
            drop=configured.drop,
            keep=configured.keep,
            deadline=DEADLINE + 1,
            clock=self._clock,
        )
        self._running.append(_Running(configured, poller))

    def _stamp(self, state: object, table: Table) -> tuple[object, Sequence[Table]]:
        """Give a table that was just read the virtual time."""
        return state, (replace(table, time=self._clock.monotonic(), times=None),)

    async def poll(self) -> None:
        """Read the sources that are due, the timings of collectives last: traffic is compared with them."""
        now = self._clock.monotonic()
        is_slow = now - self._slow_at >= SLOW_INTERVAL
        if is_slow:
            self._slow_at = now
            for one in self._running:
                if isinstance(one.poller.source, _Switch):
                    one.poller.source.source.poll_now()  # its reader would wait for a minute of real time
        due = [one for one in self._running if is_slow or one.poller.source.interval < SLOW_INTERVAL]
        await asyncio.gather(*(one.poller.poll() for one in due if one.poller.source.name != "nccl"))
        for one in due:
            if one.poller.source.name == "nccl":
                await one.poller.poll()

    def tables(self) -> list[Table]:
        """Return the fresh tables of all sources."""
        return [table for one in self._running for table in one.poller.fresh_tables()]

    def states(self) -> Mapping[StateKey, StateMessage]:
        """Return the active states, as they are published."""
        now, to_unix = self._clock.monotonic(), self._clock.unix() - self._clock.monotonic()
        return {
            (one.port.name, port_with_job(one.port.port, one.job), one.kind): make_state(
                one.kind, one.since + to_unix, one.number, one.value, one.detail
            )
            for one in self._states.step(self.tables(), self.name, now)
        }

    def page(self, own: Sequence[str]) -> list[str]:
        """Return the lines of its page; `own` are those of the exporter about itself."""
        tables = [*(table for one in self._running for table in self._of(one)), *self._health.tables(self._running)]
        text = b"".join(self._renderer.render(tables)).decode()
        return [*own, *(line for line in text.split("\n") if line and line[0] != "#")]

    def _of(self, one: _Running) -> Sequence[Table]:
        tables, ports = one.poller.fresh_tables(), one.configured.expected.ports
        return tables if ports is None else expectations.summed(ports, tables, self._clock.monotonic())


def _pass_on(state: object, table: Table) -> tuple[object, Sequence[Table]]:
    return state, (table,)


class VirtualFabric:
    """A fabric with exporters on its hosts, a poller of its switches and a collector.

    Attributes:
        cluster: The devices.
        now: Virtual seconds since the start.
    """

    def __init__(self, folder: Path, *, faults: Iterable[str] = (), seed: int = 1, logs: bool = False) -> None:
        """Create the fabric; `async with` starts it.

        Args:
            folder: Empty directory for all files.
            faults: As of `FabricModel`.
            seed: Seed of the run.
            logs: Whether the job writes NCCL's log, which is not NCCL's default.

        Raises:
            ValueError: A fault is invalid.
        """
        interval = f"{INTERVAL:g}s"
        self.cluster = FabricCluster(
            folder,
            faults=faults,
            seed=seed,
            interval=interval,
            switch_interval=interval,
            nccl_log=logs,
            dump_interval=2 * INTERVAL,  # a file is read when it is as it was at the last read
        )
        model = self.cluster.model
        layout = FullyShardedDataParallel(model.job.layout.ranks, COMPUTE, LAYERS, LAYER_BYTES)
        model.job = Job(model.plan, layout, seed=seed)
        self.now = 0.0
        self._clock = Clock(lambda: UPTIME + self.now, lambda: EPOCH + self.now)
        self._published = _Published(model.topology.hosts)
        self._received = _Received(self._clock)
        self._exporters: dict[str, _Exporter] = {}
        self._closing: list[ConfiguredSource] = []
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start the devices and build the exporters."""
        await self._open.enter_async_context(self.cluster)
        self._open.push_async_callback(self._close)
        await asyncio.to_thread(self._build)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all."""
        await self._open.aclose()

    async def scrapes(self, times: Iterable[float]) -> AsyncIterator[Scrape]:
        """Advance to one time after the other; yield what is scraped then."""
        for time in times:
            await self.cluster.advance(time - self.now)
            self.now = time
            conditions = self.cluster.model.conditions.monitoring
            self._received.connected = conditions.broker
            collector = self._exporters["collector"]
            others = [one for one in self._exporters.values() if one is not collector]
            await asyncio.gather(*(one.poll() for one in others if conditions.poller or one.name != "poller"))
            for one in others:
                self._published.by_owner[one.name] = one.states() if conditions.broker else {}
            await collector.poll()
            pages: dict[str, Sequence[str] | None] = {
                name: one.page(self._own(name)) for name, one in self._exporters.items()
            }
            if not conditions.poller:
                pages["poller"] = None
            yield Scrape(self.now, pages, sorted(self._published.states()))

    def _own(self, name: str) -> list[str]:
        broker = int(self._received.connected)
        return [
            'fabric_exporter_build_info{version="virtual"} 1',
            f"process_start_time_seconds {EPOCH - UPTIME:.0f}",
            *([f"fabric_exporter_mqtt_connected {broker}"] if name != "collector" else []),
        ]

    def _build(self) -> None:
        """Build the exporters; blocks."""
        knowledge = JobKnowledge()
        for name, paths in self.cluster.hosts.items():
            host = Host(name, paths.sysfs, paths.procfs, paths.recordings)
            one = self._exporters[name] = _Exporter(name, self._clock)
            context = Context(host, transport=transports.step_of(host, one.tables), publish=self._publish(name))
            prepared = self._add_all(one, prepare(load_config(paths.config), context, Shard()))
            knowledge = prepared.known
        switches = self._exporters["poller"] = _Exporter("poller", self._clock)
        nowhere = Host("poller", Path("/nonexistent"), Path("/nonexistent"))
        self._add_all(switches, prepare(load_config(self.cluster.poller_config), Context(nowhere), Shard()))
        judge = Judge(lambda: knowledge, lambda: self._published, switches.tables, self._clock)
        collector = self._exporters["collector"] = _Exporter("collector", self._clock)
        own = SourceSteps(verdicts=judge.step)
        collector.add(ConfiguredSource(self._received, None, own, Expectation(), (), (), ()))

    def _add_all(self, one: _Exporter, prepared: Prepared) -> Prepared:
        for configured in prepared.sources.values():
            self._closing.append(configured)
            if isinstance(configured.source, SwitchSource):
                name = configured.source.target
                one.add(configured._replace(source=_Switch(configured.source, partial(self._is_silent, name))))
            elif configured.source.name not in {"bursts", "lldp"}:  # they sample and receive in real time
                one.add(configured)
        return prepared

    def _publish(self, host: str) -> Callable[[object, Table], tuple[object, Sequence[Table]]]:
        def step(state: object, table: Table) -> tuple[object, Sequence[Table]]:
            if not table.schema.internal or any(ending not in table.schema.metrics for ending in TIMING_COLUMNS):
                return state, (table,)
            for batch in batches(table, host):
                if self._received.connected:
                    self._received.receive(batch)
            return state, ()

        return step

    def _is_silent(self, switch: str) -> bool:
        state = self.cluster.model.conditions.switch(switch)
        return not (state.answers and state.running)

    async def _close(self) -> None:
        for configured in self._closing:
            await configured.source.close()
