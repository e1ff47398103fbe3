"""Relay from the daemon to its MQTT publisher: timings of ranks, states of ports and settings of this host.

With a broker, verdicts on timings are computed by collectors, which receive all ranks of a job, and not on the host.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING, NamedTuple

from exporter.core.supervision import Supervisor
from exporter.core.table import Samples, Table
from exporter.meaning.ports.states import PortState
from exporter.meaning.training.jobs import TIMING_COLUMNS, progress, timings
from exporter.mqtt.host_settings import Setting
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

_DROPPED = "dropped_collectives_total"


class RelayStatus(NamedTuple):
    """State of a relay.

    Attributes:
        connected: Whether the broker is connected.
        reconnects: Connections after the first.
        failures: Connections that ended or could not be established.
        refused_messages: Messages of all kinds that the broker refused.
        queued_batches: Batches in the queue to the broker.
        states: Active states of ports that are published.
        omitted_states: Active states of ports that are not published.
        batches: Batches by outcome.
    """

    connected: bool
    reconnects: int
    failures: int
    refused_messages: int
    queued_batches: int
    states: int
    omitted_states: int
    batches: Mapping[str, int]


class Relay:
    """Passes the timings and port states of this host to a publisher, from `start` to `stop`.

    Attributes:
        options: The broker.
        host: Name of this host.
        dropped: Batches dropped by this relay and those that it replaced.
        lost_by_rank: Timings that each rank has lost so far, by the labels of its row.
    """

    def __init__(
        self, options: MqttOptions, host: str, supervisor: Supervisor, previous: "Relay | None" = None
    ) -> None:
        """Create a relay that is not connected.

        Args:
            options: The broker.
            host: Name of this host.
            supervisor: Runs the task that publishes.
            previous: The relay that this one replaces: its count of dropped batches goes on, and timings that it
                counted as lost are not counted again.
        """
        self.options = options
        self.host = host
        self.dropped: int = 0 if previous is None else previous.dropped
        self._supervisor = supervisor
        self._publisher: Publisher | None = None
        self._stack = AsyncExitStack()
        self._states = 0
        self._since: dict[tuple[str, str, str, float], float] = {}
        self._lost: dict[str, int] = {}
        self.lost_by_rank: dict[tuple[str, ...], int] = {} if previous is None else previous.lost_by_rank

    async def start(self) -> None:
        """Start the publisher, which connects and reconnects."""
        from exporter.mqtt.publisher import Publisher  # noqa: PLC0415  # imports paho-mqtt, with a broker only

        self._publisher = await self._stack.enter_async_context(
            Publisher(self.options, self.host, supervisor=self._supervisor)
        )

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
                before = self.lost_by_rank.get(key, 0)
                self._lost[key[0]] = self._lost.get(key[0], 0) + (value - before if value >= before else value)
                now[key] = value
        jobs = {key[0] for key in now}
        self._lost = {job: count for job, count in self._lost.items() if job in jobs}
        self.lost_by_rank = now

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
            quiet = None if one.quiet_since is None else one.quiet_since + clock
            message = make_state(one.kind, since[key], one.number, one.value, one.detail, quiet)
            messages.append(((key[0], key[1]), message))
        self._since = since
        self._states = len(messages)
        if self._publisher is not None:
            self._publisher.set_states(messages)

    def publish_settings(self, settings: Iterable[Setting]) -> None:
        """Set the settings of this host."""
        if self._publisher is not None:
            self._publisher.set_settings(settings)

    def status(self) -> RelayStatus | None:
        """Return the state of the publisher; None while it is not started."""
        publisher = self._publisher
        if publisher is None:
            return None
        return RelayStatus(
            connected=publisher.status.connected,
            reconnects=publisher.status.reconnects,
            failures=publisher.status.failures,
            refused_messages=publisher.status.refused,
            queued_batches=publisher.queued[0],
            states=self._states - publisher.omitted_states,
            omitted_states=publisher.omitted_states,
            batches={
                "sent": publisher.sent,
                "dropped": self.dropped + publisher.dropped,
                "refused": publisher.refused,
                "invalid": publisher.invalid,
            },
        )


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
            Operation(
                int(one.sequence),
                int(one.size),
                one.microseconds,
                None if one.timed is None else bool(one.timed),
                one.queued,
            )
            for one in sorted(timings(samples))
        ]
        streams, progress_rows = found.setdefault(job, ([], []))
        if operations:
            streams.append((stream, operations))
        if rank_progress is not None:
            progress_rows.append(Progress(stream, *rank_progress))
    return [Batch(job, host, streams, progress=progress_rows) for job, (streams, progress_rows) in found.items()]
