"""What this host tells by MQTT: the timings of its ranks, and which states of its ports are the case.

Where there is a broker, timings are judged by collectors, who see all ranks of a job, and not here as well.
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
from exporter.mqtt.states import port_of_job, state
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
        "failures_total": counter("Connections to the broker that ended or could not be made."),
        "refused_messages_total": counter(
            "Messages of all kinds that the broker refused: batches, states of ports, whether this host is there."
        ),
        "waiting_batches": gauge("Batches of timings that wait to be sent."),
        "states": gauge("States of ports that are told of."),
        "left_out_states": gauge("States of ports that are not: there are too many, or their names cannot be told."),
    },
)

BATCHES = vocabulary.schema(
    "fabric_exporter_mqtt_",
    ("outcome",),
    own={
        "batches_total": counter(
            "Batches of timings: sent; dropped, since the broker was away for too long; refused by the broker; invalid,"
            " whose names cannot be told."
        )
    },
)

SCHEMAS = (BROKER, BATCHES)

_LOST = "dropped_collectives_total"


class Relay:
    """Publishes for this host, from `start` to `stop`."""

    def __init__(self, options: MqttOptions, host: str, dropped: int = 0) -> None:
        """Take the broker.

        Args:
            options: Where it is.
            host: Name of this host.
            dropped: Batches that were dropped on the way to brokers before.
        """
        self.options = options
        self.host = host
        self.dropped = dropped
        self._publisher: Publisher | None = None
        self._stack = AsyncExitStack()
        self._states = 0
        self._since: dict[tuple[str, str, str, float], float] = {}
        self._lost: dict[str, int] = {}
        self._lost_of: dict[tuple[str, ...], int] = {}
        self._keepers = {schema: RowKeeper(schema.labels) for schema in SCHEMAS}

    async def start(self) -> None:
        """Connect, and stay connected."""
        from exporter.mqtt.publisher import Publisher  # noqa: PLC0415  # brings in the client, where there is a broker

        self._publisher = await self._stack.enter_async_context(Publisher(self.options, self.host))

    async def stop(self) -> None:
        """Say that this host is gone, and leave; what could not be sent counts as dropped."""
        publisher, self._publisher = self._publisher, None
        await self._stack.aclose()
        if publisher is not None:
            self.dropped += publisher.dropped + publisher.waiting[0]

    def step(self, state: object, table: Table) -> tuple[object, Sequence[Table]]:
        """Take tables of timings, which then nobody judges here; others pass."""
        if _LOST in table.schema.metrics:
            self._note_losses(table)
        if not table.schema.internal or any(ending not in table.schema.metrics for ending in TIMING_COLUMNS):
            return state, (table,)
        for batch in batches(table, self.host):
            if self._publisher is None:  # it leaves its broker for another one
                self.dropped += 1
            else:
                self._publisher.offer(replace(batch, dropped=self._lost.get(batch.job, 0)))
        return state, ()

    def _note_losses(self, table: Table) -> None:
        """Add up what the ranks of each job lost; a rank that is gone takes nothing away, and one begun anew adds."""
        now: dict[tuple[str, ...], int] = {}
        for key, value in zip(table.rows.keys, table.values(_LOST) or (), strict=False):
            if isinstance(value, int):
                before = self._lost_of.get(key, 0)
                self._lost[key[0]] = self._lost.get(key[0], 0) + (value - before if value >= before else value)
                now[key] = value
        there = {key[0] for key in now}
        self._lost = {job: count for job, count in self._lost.items() if job in there}
        self._lost_of = now

    def show(self, active: Iterable[PortState]) -> None:
        """Say which states of ports are the case; what is not among them is over."""
        clock = time() - monotonic()
        # The clocks differ by a little more or less each time; a state that goes on must not look like another one.
        since: dict[tuple[str, str, str, float], float] = {}
        states = []
        for one in active:
            port = port_of_job(one.port.port, one.job)
            key = (one.port.name, port, one.kind, one.since)
            since[key] = self._since.get(key, one.since + clock)
            states.append(((key[0], key[1]), state(one.kind, since[key], one.number, one.value, one.detail)))
        self._since = since
        self._states = len(states)
        if self._publisher is not None:
            self._publisher.show(states)

    def tables(self) -> list[Table]:
        """Tell how it goes."""
        publisher, now = self._publisher, monotonic()
        if publisher is None:
            return []
        about = TableBuilder(BROKER)
        about.row(
            (),
            {
                "connected": int(publisher.link.connected),
                "reconnects_total": publisher.link.reconnects,
                "failures_total": publisher.link.failures,
                "refused_messages_total": publisher.link.refused,
                "waiting_batches": publisher.waiting[0],
                "states": self._states - publisher.left_out,
                "left_out_states": publisher.left_out,
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
        return [about.table(self._keepers[BROKER], now), sent.table(self._keepers[BATCHES], now)]


def batches(table: Table, host: str) -> list[Batch]:
    """Turn an internal table of timings into a batch for each job."""
    found: dict[str, tuple[list[tuple[Stream, list[Operation]]], list[Progress]]] = {}
    columns = (table.values(ending) or () for ending in TIMING_COLUMNS)
    rows = zip(table.rows.keys, *columns, progress(table), strict=True)
    for (job, communicator, kind, _), samples, about, told in rows:
        if not isinstance(samples, Samples) or not isinstance(about, tuple):
            continue
        ranks, nodes, _, _, place, pid, gpu, world_rank, ports = about
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
        streams, reached = found.setdefault(job, ([], []))
        if operations:
            streams.append((stream, operations))
        if told is not None:
            reached.append(Progress(stream, *told))
    return [Batch(job, host, streams, progress=reached) for job, (streams, reached) in found.items()]
