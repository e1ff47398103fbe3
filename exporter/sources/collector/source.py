"""The collector source: timings of all ranks of jobs, and settings of hosts, which hosts publish by MQTT.

It owns slots of jobs, so that all hosts of a job are received by one collector, and returns the timings as an internal
table, from which verdicts on whole jobs are computed. A rank is named by its rank in the job; where that is not known,
or several processes claim it, by host and process.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from exporter.config.errors import RuleError
from exporter.core.definition import Context, Definition, SourceSteps
from exporter.core.source import (
    Reading,
    Source,
)
from exporter.core.supervision import Supervisor
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.mqtt.options import SECTION, MqttOptions
from exporter.nccl.batch import Batch, Operation, Stream
from exporter.sources.collector.fleet_settings import FleetSettingTables
from exporter.sources.collector.metrics import BATCHES, COLLECTOR, SETTINGS, UNUSUAL, USUAL
from exporter.sources.collector.options import CollectorOptions
from exporter.sources.nccl.metrics import STREAMS
from exporter.sources.nccl.streams import StreamTableBuilder

if TYPE_CHECKING:
    from exporter.mqtt.retained_state import RetainedState
    from exporter.mqtt.subscriber import Subscriber

MAX_LOST = 1 << 40
"""Lost timings that one sender can report."""

MAX_OPERATIONS = 262_144
"""Operations received between two reads, some 70 MB; further batches wait in the queue, where they take a twentieth."""

MAX_DISPUTED = 65_536
"""Ranks of communicators that are claimed by several processes; the oldest is found again if it still is."""

PROGRESS_COST = 8
"""Operations that take as much memory as one row of progress."""

MAX_SENDERS = 65_536
"""Senders whose number of lost timings is kept."""

MAX_HOST_SENDERS = 4096
"""The same on one host, whose oldest is forgotten first: its processes, where each publishes itself."""

COMPARE_INTERVAL = 60.0
"""Seconds between two comparisons of the settings of hosts, which rarely change."""

COMPARE_WAIT = 0.25
"""Share of the interval that a read waits for a comparison: it may take seconds, and a later read has its result."""

Sender = tuple[str, str, str]
"""Job, host and epoch of a sequence of batches."""

RankClaim = tuple[str, str, int]
"""Job, communicator and rank in the job that a process claims."""


class CollectorSource:
    """Receives the timings of jobs."""

    name = "collector"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: CollectorOptions, broker: MqttOptions, supervisor: Supervisor) -> None:
        """Create the source; it connects at the first read.

        Args:
            options: Which jobs are received.
            broker: The broker.
            supervisor: Runs the task that receives.
        """
        self.interval = float(options.interval)
        self.settings = (options, broker)
        self._options, self._broker = options, broker
        self._subscriber: Subscriber | None = None
        self._supervisor = supervisor
        self._stack = AsyncExitStack()
        self._streams = StreamTableBuilder()
        self._waiting = 0
        self._accepted = self._dropped = 0
        self._has_room = asyncio.Event()
        self._lost: dict[Sender, int] = {}
        self._senders: OrderedDict[str, dict[Sender, None]] = OrderedDict()
        self._lost_of_forgotten = 0
        self._claimants: dict[RankClaim, tuple[str, int]] = {}
        self._disputed: dict[RankClaim, None] = {}
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (BATCHES, COLLECTOR)}
        self._fleet = FleetSettingTables()
        self._compared: list[Table] = []
        self._compare_at = float("-inf")
        self._comparison: asyncio.Task[list[Table]] | None = None

    @property
    def retained_state(self) -> "RetainedState | None":
        """State of the retained messages; None before the first read."""
        return None if self._subscriber is None else self._subscriber.retained

    async def applies(self) -> bool:
        """Return true: a configured collector is always read."""
        return True

    async def read(self) -> Reading:
        """Return what was received since the last read."""
        subscriber = self._subscriber or await self._start()
        now = monotonic()
        streams, self._streams, self._waiting, self._claimants = self._streams, StreamTableBuilder(), 0, {}
        self._has_room.set()
        own = [streams.table(now), self._batch_table(subscriber, now), self._collector_table(subscriber, now)]
        return Reading([*own, *await self._setting_tables(subscriber)])

    async def close(self) -> None:
        """Disconnect from the broker."""
        if self._comparison is not None:
            self._comparison.cancel()
        self._subscriber = None
        await self._stack.aclose()

    async def _start(self) -> "Subscriber":
        from exporter.mqtt.subscriber import Subscriber  # noqa: PLC0415  # imports paho-mqtt, for collectors only

        subscriber = Subscriber(self._broker, self._options.slots or "00-ff", supervisor=self._supervisor)
        self._subscriber = await self._stack.enter_async_context(subscriber)
        receiving = self._supervisor.start("collector batches", partial(self._receive, subscriber))
        self._stack.push_async_callback(receiving.stop)
        return subscriber

    async def _receive(self, subscriber: "Subscriber") -> None:
        async for batch in subscriber.batches():
            while self._waiting and self._waiting + _cost(batch) > MAX_OPERATIONS:  # the next read takes them
                self._has_room.clear()
                await self._has_room.wait()
            self._add_batch(batch)

    def _add_losses(self, batch: Batch) -> None:
        """Keep the number of timings that a sender lost; that of one that is forgotten is added to the others'."""
        sender = (batch.job, batch.host, batch.epoch)
        self._lost[sender] = min(max(batch.dropped, self._lost.get(sender, 0)), MAX_LOST)
        own = self._senders.setdefault(batch.host, {})
        own.pop(sender, None)
        own[sender] = None  # at the end: the first is the least recently received one
        self._senders.move_to_end(batch.host)
        if len(own) > MAX_HOST_SENDERS or len(self._lost) > MAX_SENDERS:
            host = batch.host if len(own) > MAX_HOST_SENDERS else next(iter(self._senders))
            forgotten = next(iter(self._senders[host]))
            self._lost_of_forgotten += self._lost.pop(forgotten)
            del self._senders[host][forgotten]
            if not self._senders[host]:
                del self._senders[host]

    def _add_batch(self, batch: Batch) -> None:
        self._add_losses(batch)
        if not self._options.matches(batch.job):
            return
        for stream, operations in batch.streams:
            room = MAX_OPERATIONS - self._waiting
            self._dropped += max(0, len(operations) - room)
            accepted = operations[:room]
            self._waiting += len(accepted)
            self._accepted += len(accepted)
            self._add(stream, accepted)
        for stream, begun, ended in batch.progress:
            if self._waiting < MAX_OPERATIONS:  # the next batch has newer progress
                self._waiting += PROGRESS_COST
                self._add(stream, (), (begun, ended))

    def _add(self, stream: Stream, operations: Sequence[Operation], progress: tuple[int, int] | None = None) -> None:
        self._streams.add_published(stream, self._rank_name(stream), operations, progress)

    def _rank_name(self, stream: Stream) -> str:
        """Return the rank in the job; host and process where it is unknown or claimed by several in a communicator."""
        if stream.world_rank is None:
            return f"{stream.host}/{stream.pid}"
        claim, claimant = (stream.job, stream.communicator, stream.world_rank), (stream.host, stream.pid)
        if self._claimants.setdefault(claim, claimant) != claimant and claim not in self._disputed:
            self._disputed[claim] = None
            if len(self._disputed) > MAX_DISPUTED:
                del self._disputed[next(iter(self._disputed))]
        return f"{stream.host}/{stream.pid}" if claim in self._disputed else str(stream.world_rank)

    async def _setting_tables(self, subscriber: "Subscriber") -> list[Table]:
        """Return the tables of the last comparison that has ended; one at a time."""
        now = monotonic()
        if self._comparison is None and now >= self._compare_at:
            self._compare_at, retained = now + COMPARE_INTERVAL, subscriber.retained
            compare = asyncio.to_thread(lambda: self._fleet.tables(retained.settings(), now))
            self._comparison = asyncio.ensure_future(compare)
        if self._comparison is not None:
            await asyncio.wait([self._comparison], timeout=self.interval * COMPARE_WAIT)
            if self._comparison.done():
                ended, self._comparison = self._comparison, None
                self._compared = ended.result()
        return self._compared

    def _batch_table(self, subscriber: "Subscriber", now: float) -> Table:
        built = TableBuilder(BATCHES)
        losses = subscriber.deduplicator.losses
        counts = {
            "accepted": subscriber.accepted,
            "lost": losses.batches,
            "duplicate": losses.duplicate_batches,
            "dropped": subscriber.dropped,
            "too_many_jobs": losses.jobs,
            "too_many_hosts": losses.hosts,
            **subscriber.refused,
        }
        for outcome, count in counts.items():
            built.row((outcome,), {"batches_total": count})
        return built.table(self._keepers[BATCHES], now)

    def _collector_table(self, subscriber: "Subscriber", now: float) -> Table:
        jobs, hosts, streams = subscriber.deduplicator.sizes()
        built = TableBuilder(COLLECTOR)
        built.row(
            (),
            {
                "connected": int(subscriber.subscribed),
                "reconnects_total": subscriber.status.reconnects,
                "jobs": jobs,
                "evicted_jobs_total": subscriber.deduplicator.losses.evicted,
                "hosts": hosts,
                "streams": streams,
                "operations_total": self._accepted,
                "duplicate_operations_total": subscriber.deduplicator.losses.duplicate_operations,
                "dropped_operations_total": self._dropped,
                "lost_operations_total": self._lost_of_forgotten + sum(self._lost.values()),
                "dropped_states_total": subscriber.retained.dropped,
            },
        )
        return built.table(self._keepers[COLLECTOR], now)


def _cost(batch: Batch) -> int:
    """Return how many operations take as much memory as a batch."""
    return batch.operations() + PROGRESS_COST * len(batch.progress)


def _build(options: CollectorOptions, context: Context) -> list[Source]:
    """Create the collector if slots are configured.

    Raises:
        RuleError: No broker is configured.
    """
    if options.slots is None:
        return []
    broker: MqttOptions = context.sections[SECTION.name]
    if broker.broker is None:
        raise RuleError(["slots"], "need a broker; set mqtt.broker")
    return [CollectorSource(options, broker, context.supervisor)]


def _steps(source: CollectorSource, context: Context) -> SourceSteps:
    return SourceSteps(verdicts=context.judge(lambda: source.retained_state), in_thread=True)


DEFINITION = Definition(
    "collector",
    CollectorOptions,
    (STREAMS, BATCHES, COLLECTOR, SETTINGS, UNUSUAL, USUAL),
    _build,
    section="collector",
    steps=_steps,
)
