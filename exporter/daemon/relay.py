"""Relay from the daemon to its MQTT publisher: timings of the ranks of this host, and states of its ports.

With a broker, verdicts on timings are computed by collectors, which receive all ranks of a job, and not on the host.
"""

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING

from exporter.core import vocabulary
from exporter.core.table import (
    RowKeeper,
    Samples,
    Table,
    TableBuilder,
)
from exporter.core.vocabulary import counter, gauge
from exporter.meaning.ports.states import PortState
from exporter.meaning.training.jobs import TIMING_COLUMNS, progress
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.states import make_state, port_with_job
from exporter.nccl.batch import (
    Batch,
    Operation,
    Progress,
    Stream,
)

if TYPE_CHECKING:
    from exporter.mqtt.publisher import Publisher

BROKER = vocabulary.schema(
    "fabric_exporter_mqtt_",
    (),
    own={
        "connected": gauge("Whether the broker is connected (1) or not (0)."),
        "reconnects_total": counter("Connections to the broker after the first."),
        "failures_total": counter("Connections to the broker that ended or could not be established."),
        "refused_messages_total": counter(
            "Messages that the broker refused with a PUBACK reason code: batches, port states, presence of the host."
        ),
        "queued_batches": gauge("Batches of timings in the queue to the broker."),
        "states": gauge("Active states of ports that are published."),
        "omitted_states": gauge(
            "Active states of ports that are not published: beyond the limit, or with names that no topic can contain."
        ),
    },
)

BATCHES = vocabulary.schema(
    "fabric_exporter_mqtt_",
    ("outcome",),
    own={
        "batches_total": counter(
            "Batches of timings by outcome: sent; dropped from the queue, since the broker was unavailable too long;"
            " refused by the broker; invalid, whose names cannot be encoded."
        )
    },
)

SCHEMAS = (BROKER, BATCHES)

_DROPPED = "dropped_collectives_total"


class Relay:
    """Passes the timings and port states of this host to a publisher, from `start` to `stop`."""

    def __init__(self, options: MqttOptions, host: str, dropped: int = 0) -> None:
        """Create a relay that is not connected.

        Args:
            options: The broker.
            host: Name of this host.
            dropped: Batches dropped by relays to earlier brokers.
        """
        self.options = options
        self.host = host
        self.dropped = dropped
        self._publisher: Publisher | None = None
        self._stack = AsyncExitStack()
        self._states = 0
        self._since: dict[tuple[str, str, str, float], float] = {}
        self._lost: dict[str, int] = {}
        self._lost_by_rank: dict[tuple[str, ...], int] = {}
        self._keepers = {schema: RowKeeper(schema.labels) for schema in SCHEMAS}

    async def start(self) -> None:
        """Start the publisher, which connects and reconnects."""
        from exporter.mqtt.publisher import Publisher  # noqa: PLC0415  # imports paho-mqtt, with a broker only

        self._publisher = await self._stack.enter_async_context(Publisher(self.options, self.host))

    async def stop(self) -> None:
        """Publish that the daemon is gone, and disconnect; batches left in the queue count as dropped."""
        publisher, self._publisher = self._publisher, None
        await self._stack.aclose()
        if publisher is not None:
            self.dropped += publisher.dropped + publisher.queued[0]

    def step(self, state: object, table: Table) -> tuple[object, Sequence[Table]]:
        """Publish tables of timings and remove them from the pipeline; other tables pass unchanged."""
        if _DROPPED in table.schema.metrics:
            self._count_losses(table)
        if not table.schema.internal or any(ending not in table.schema.metrics for ending in TIMING_COLUMNS):
            return state, (table,)
        for batch in batches(table, self.host):
            if self._publisher is None:  # while the broker is being replaced
                self.dropped += 1
            else:
                self._publisher.publish(replace(batch, dropped=self._lost.get(batch.job, 0)))
        return state, ()

    def _count_losses(self, table: Table) -> None:
        """Add up the timings that ranks lost, by job; a rank that ended or restarted does not decrease the sum."""
        now: dict[tuple[str, ...], int] = {}
        for key, value in zip(table.rows.keys, table.values(_DROPPED) or (), strict=False):
            if isinstance(value, int):
                before = self._lost_by_rank.get(key, 0)
                self._lost[key[0]] = self._lost.get(key[0], 0) + (value - before if value >= before else value)
                now[key] = value
        jobs = {key[0] for key in now}
        self._lost = {job: count for job, count in self._lost.items() if job in jobs}
        self._lost_by_rank = now

    def publish_states(self, active: Iterable[PortState]) -> None:
        """Set the active states of ports; those that are not among them ended."""
        clock = time() - monotonic()
        # The offset of the clocks varies slightly; a state that continues keeps its first Unix time.
        since: dict[tuple[str, str, str, float], float] = {}
        messages = []
        for one in active:
            port = port_with_job(one.port.port, one.job)
            key = (one.port.name, port, one.kind, one.since)
            since[key] = self._since.get(key, one.since + clock)
            messages.append(((key[0], key[1]), make_state(one.kind, since[key], one.number, one.value, one.detail)))
        self._since = since
        self._states = len(messages)
        if self._publisher is not None:
            self._publisher.set_states(messages)

    def tables(self) -> list[Table]:
        """Return the tables about the publisher; none while it is not started."""
        publisher, now = self._publisher, monotonic()
        if publisher is None:
            return []
        broker = TableBuilder(BROKER)
        broker.row(
            (),
            {
                "connected": int(publisher.status.connected),
                "reconnects_total": publisher.status.reconnects,
                "failures_total": publisher.status.failures,
                "refused_messages_total": publisher.status.refused,
                "queued_batches": publisher.queued[0],
                "states": self._states - publisher.omitted_states,
                "omitted_states": publisher.omitted_states,
            },
        )
        sent = TableBuilder(BATCHES)
        counts = {
            "sent": publisher.sent,
            "dropped": self.dropped + publisher.dropped,
            "refused": publisher.refused,
            "invalid": publisher.invalid,
        }
        for outcome, count in counts.items():
            sent.row((outcome,), {"batches_total": count})
        return [broker.table(self._keepers[BROKER], now), sent.table(self._keepers[BATCHES], now)]


def batches(table: Table, host: str) -> list[Batch]:
    """Convert an internal table of timings into one batch per job."""
    found: dict[str, tuple[list[tuple[Stream, list[Operation]]], list[Progress]]] = {}
    columns = (table.values(ending) or () for ending in TIMING_COLUMNS)
    rows = zip(table.rows.keys, *columns, progress(table), strict=True)
    for (job, communicator, kind, _), samples, info, rank_progress in rows:
        if not isinstance(samples, Samples) or not isinstance(info, tuple):
            continue
        ranks, nodes, _, _, place, pid, gpu, world_rank, ports = info
        stream = Stream(
            job,
            communicator,
            kind,
            int(place or 0),
            int(ranks),
            int(nodes) if nodes else None,
            int(world_rank) if world_rank else None,
            host,
            int(pid or 0),
            gpu,
            ports,
        )
        operations = [
            Operation(int(one[0]), int(one[1]), one[2], bool(one[3]) if len(one) > 3 else None)
            for one in sorted(samples.taken)
        ]
        streams, progress_rows = found.setdefault(job, ([], []))
        if operations:
            streams.append((stream, operations))
        if rank_progress is not None:
            progress_rows.append(Progress(stream, *rank_progress))
    return [Batch(job, host, streams, progress=progress_rows) for job, (streams, progress_rows) in found.items()]
