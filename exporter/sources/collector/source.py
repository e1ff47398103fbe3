"""The collector: timings of all ranks of some jobs, which the hosts publish by MQTT.

It owns slots of jobs, so that a job stays in one place, and gives the timings as an internal table, of which meaning
makes the verdicts on whole jobs. A rank goes by its rank in the job; where that is not known, or several
claim it, by host and process.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from exporter.config.errors import RuleError
from exporter.config.units import Duration
from exporter.core import vocabulary
from exporter.core.source import (
    Definition,
    Host,
    Options,
    Reading,
    Source,
)
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.core.vocabulary import counter, gauge
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.topics import parse_slots
from exporter.nccl.batch import Batch, Operation, Stream
from exporter.sources.nccl.metrics import STREAMS
from exporter.sources.nccl.streams import StreamTableBuilder

if TYPE_CHECKING:
    from exporter.mqtt.retained_state import Board
    from exporter.mqtt.subscriber import Subscriber

MAX_LOST = 1 << 40
"""Timings that one sender may say it lost."""

MAX_OPERATIONS = 2_000_000
"""Operations that wait for the next read; those of a minute of some thousand ranks."""

MAX_DOUBTED = 65_536
"""Ranks of communicators that several claim."""

PROGRESS_COST = 8
"""Operations that have room where one row of progress has."""

MAX_SENDERS = 65_536
"""Senders of which it is known how much they lost."""

Claim = tuple[str, str, int]
"""A rank in a job, by which a process goes in a communicator."""

BATCHES = vocabulary.schema(
    "fabric_collector_",
    ("outcome",),
    own={
        "batches_total": counter(
            "Batches of timings: taken; lost on the way, by gaps in their numbers; duplicate; dropped because too many"
            " waited; over_limit, of too many jobs or hosts; and refused ones by what was wrong with them."
        )
    },
    origins={"batches_total": ["fabric/v1/nccl"]},
)

_STATE = {
    "connected": gauge("Whether the broker is connected and grants the topics (1) or not (0)."),
    "reconnects_total": counter("Connections to the broker after the first."),
    "jobs": gauge("Jobs that are heard of."),
    "hosts": gauge("Hosts that are heard of, counted for each job."),
    "streams": gauge("Streams that are heard of: a rank in a communicator, by kind."),
    "operations_total": counter("Timings that were taken."),
    "duplicate_operations_total": counter("Timings that came again."),
    "dropped_operations_total": counter("Timings that were left out because too many waited."),
    "lost_operations_total": counter("Timings that hosts lost before they sent them."),
    "left_out_states_total": counter("States of ports and presences of hosts that came and there was no room for."),
}

STATE = vocabulary.schema("fabric_collector_", (), own=_STATE, origins={one: ["fabric/v1/nccl"] for one in _STATE})


class CollectorOptions(Options, frozen=True, kw_only=True):
    """Configuration of `collector`; include and exclude are names of jobs.

    Attributes:
        slots: Which of the slots 00 to ff are heard: ranges with commas between; none where not given. Collectors
            that share the load own different ones, and together all.
    """

    interval: Duration = Duration(2.0)
    slots: str | None = None

    def __post_init__(self) -> None:
        """See that slots are such.

        Raises:
            RuleError: They are not.
        """
        super().__post_init__()
        if self.slots is not None:
            try:
                parse_slots(self.slots)
            except ValueError as error:
                raise RuleError(["slots"], str(error)) from None


class CollectorSource:
    """Hears the timings of jobs."""

    name = "collector"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: CollectorOptions, broker: MqttOptions) -> None:
        """Take what to hear.

        Args:
            options: Which jobs.
            broker: Where.
        """
        self.interval = float(options.interval)
        self.settings = (options, broker)
        self._options, self._broker = options, broker
        self._subscriber: Subscriber | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._streams = StreamTableBuilder()
        self._waiting = 0
        self._taken = self._dropped = 0
        self._lost: dict[tuple[str, str, str], int] = {}
        self._lost_before = 0
        self._tellers: dict[Claim, tuple[str, int]] = {}
        self._doubted: dict[Claim, None] = {}
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (BATCHES, STATE)}

    @property
    def board(self) -> "Board | None":
        """Give what is the case at ports and daemons; None before anything is heard."""
        return None if self._subscriber is None else self._subscriber.board

    async def applies(self) -> bool:
        """Tell that a collector that was configured is to be read."""
        return True

    async def read(self) -> Reading:
        """Give what was heard since the last read."""
        if self._hearing is None or self._hearing.done():
            await self._begin()
        now = monotonic()
        heard, self._streams, self._waiting, self._tellers = self._streams, StreamTableBuilder(), 0, {}
        subscriber = self._subscriber
        if subscriber is None:
            return Reading([])
        return Reading([heard.table(now), self._batches(subscriber, now), self._state(subscriber, now)])

    async def close(self) -> None:
        """Leave the broker."""
        hearing, self._hearing = self._hearing, None
        if hearing is not None:
            hearing.cancel()
            with suppress(asyncio.CancelledError):
                await hearing

    async def _begin(self) -> None:
        from exporter.mqtt.subscriber import Subscriber  # noqa: PLC0415  # brings in the client, for collectors alone

        self._subscriber = Subscriber(self._broker, self._options.slots or "00-ff")
        self._hearing = asyncio.create_task(self._hear(self._subscriber), name="collector")

    async def _hear(self, subscriber: "Subscriber") -> None:
        async with subscriber:
            async for batch in subscriber.batches():
                self._take(batch)

    def _take(self, batch: Batch) -> None:
        sender = (batch.job, batch.host, batch.epoch)
        before = self._lost.pop(sender, 0)  # to the end, so that the first is the one that was silent longest
        self._lost[sender] = min(max(batch.dropped, before), MAX_LOST)
        if len(self._lost) > MAX_SENDERS:  # of one that is gone the count stays, and the sender is forgotten
            self._lost_before += self._lost.pop(next(iter(self._lost)))
        if not self._options.wants(batch.job):
            return
        for stream, operations in batch.streams:
            room = MAX_OPERATIONS - self._waiting
            self._dropped += max(0, len(operations) - room)
            taken = operations[:room]
            self._waiting += len(taken)
            self._taken += len(taken)
            self._add(stream, taken)
        for stream, begun, ended in batch.progress:
            if self._waiting < MAX_OPERATIONS:  # the next will say more
                self._waiting += PROGRESS_COST
                self._add(stream, (), (begun, ended))

    def _add(self, stream: Stream, operations: Sequence[Operation], progress: tuple[int, int] | None = None) -> None:
        self._streams.add(
            (stream.job, stream.communicator, stream.kind, self._rank(stream)),
            operations,
            progress=progress,
            ranks=stream.ranks,
            nodes=stream.nodes,
            host=stream.host,
            ports=stream.ports,
            expected=stream.ranks,
        )

    def _rank(self, stream: Stream) -> str:
        """Name a rank: by its rank in the job, unless that is not told, or several claim it in one communicator."""
        if stream.world_rank is None:
            return f"{stream.host}/{stream.pid}"
        claim, teller = (stream.job, stream.communicator, stream.world_rank), (stream.host, stream.pid)
        if self._tellers.setdefault(claim, teller) != teller and len(self._doubted) < MAX_DOUBTED:
            self._doubted[claim] = None
        return f"{stream.host}/{stream.pid}" if claim in self._doubted else str(stream.world_rank)

    def _batches(self, subscriber: "Subscriber", now: float) -> Table:
        built = TableBuilder(BATCHES)
        losses = subscriber.seen.losses
        counts = {
            "taken": subscriber.taken,
            "lost": losses.batches,
            "duplicate": losses.duplicate_batches,
            "dropped": subscriber.dropped,
            "over_limit": losses.jobs + losses.hosts,
            **subscriber.refused,
        }
        for outcome, count in counts.items():
            built.row((outcome,), {"batches_total": count})
        return built.table(self._keepers[BATCHES], now)

    def _state(self, subscriber: "Subscriber", now: float) -> Table:
        jobs, hosts, streams = subscriber.seen.sizes()
        built = TableBuilder(STATE)
        built.row(
            (),
            {
                "connected": int(subscriber.listening),
                "reconnects_total": subscriber.link.reconnects,
                "jobs": jobs,
                "hosts": hosts,
                "streams": streams,
                "operations_total": self._taken,
                "duplicate_operations_total": subscriber.seen.losses.duplicate_operations,
                "dropped_operations_total": self._dropped,
                "lost_operations_total": self._lost_before + sum(self._lost.values()),
                "left_out_states_total": subscriber.board.left_out,
            },
        )
        return built.table(self._keepers[STATE], now)


def build(options: CollectorOptions, broker: MqttOptions) -> list[Source]:
    """Make the collector, where slots are owned.

    Raises:
        ValueError: There is no broker to hear.
    """
    if options.slots is None:
        return []
    if broker.broker is None:
        raise ValueError("slots need a broker to be heard from; give mqtt.broker")
    return [CollectorSource(options, broker)]


def _alone(options: CollectorOptions, host: Host) -> list[Source]:  # noqa: ARG001  # as all sources are made
    return build(options, MqttOptions())


DEFINITION = Definition("collector", CollectorOptions, (STREAMS, BATCHES, STATE), _alone, section="collector")
