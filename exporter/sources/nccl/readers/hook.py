"""Feed of `fabric_timing.py`: datagrams from within jobs, received on this host's socket.

Its times can be compared across ranks, whether measured by CUDA events or by the host clock (all that gloo has). Its
communicators have identifiers of their own, so its collectives are never combined with those of another feed.
"""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter.core.blocking import BlockingCalls, HungError, Turns
from exporter.core.collectives import COMMON, POINT_TO_POINT, known_kind
from exporter.core.source import Failure
from exporter.core.table import (
    Column,
    RowKeeper,
    Schema,
    Table,
)
from exporter.sources.common.blocking_call import make_call
from exporter.sources.common.failures import failure_of
from exporter.sources.common.job_files import TIMING_SOCKET
from exporter.sources.common.job_readers import CALL_TIMEOUT_SECONDS
from exporter.sources.nccl.identity import world_rank
from exporter.sources.nccl.metrics import (
    TIMING_COLLECTIVES,
    TIMING_DATAGRAMS,
    TIMING_LOSSES,
    TIMING_SENDERS,
)
from exporter.sources.nccl.readers.feed import (
    CollectiveProgress,
    FeedReport,
    Membership,
    ProcessFacts,
    ProcessReport,
    UnusedReason,
)
from exporter.sources.nccl.timing_socket import (
    OUTCOMES,
    Received,
    TimingSocket,
)

MAX_TRACKED_PROCESSES = 1024
"""Processes whose datagram numbers are tracked; more than can send at a time."""

EXPIRY_SECONDS = 3600.0
"""Time without a datagram after which a process is no longer tracked."""

LOSSES = ("dropped", "untimed", "faults", "missing")

_USES = ("used", "duplicate", "over_limit", "excluded")


@dataclass(slots=True)
class _Numbering:
    """State of a process: number of its last datagram, its losses so far, and the monotonic time of that datagram."""

    last: int = -1
    losses: Counter[str] = field(default_factory=Counter)
    at: float = 0.0


class _Paths(NamedTuple):
    """Whether the socket's folder, and the socket itself, exist."""

    folder: bool
    socket: bool


class HookFeed:
    """Receives from the socket."""

    name = "hook"
    schemas = (TIMING_DATAGRAMS, TIMING_LOSSES, TIMING_COLLECTIVES, TIMING_SENDERS)

    def __init__(self, path: str, procfs: Path, turns: Turns) -> None:
        """Create the feed for a socket path, the procfs to identify senders with, and the turns of its calls."""
        self._path = Path(path)
        self._serial = BlockingCalls("timing", CALL_TIMEOUT_SECONDS)
        self._socket = TimingSocket(path, procfs, turns)
        self._open = False
        self._numberings: dict[str, _Numbering] = {}
        self._lost: Counter[str] = Counter()
        self._uses: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Return whether the socket's folder exists."""
        return (await make_call(self._serial, "socket", self._check_paths)).folder

    async def poll(self) -> FeedReport:
        """Return the reports since the last poll; a socket that is missing is recreated at the next poll."""
        failures: list[Failure] = []
        paths = await make_call(self._serial, "socket", self._check_paths)
        if self._open and not paths.socket:
            await self._socket.close()  # it was removed, so no process can send to it
            self._open = False
        if not self._open and paths.folder:
            try:
                await self._socket.open()
                self._open = True
            except FileExistsError as error:
                failures.append(Failure("", "in_use", str(error)))
            except (OSError, HungError) as error:
                failures.append(failure_of("", error, self._path))
        reports: dict[str, ProcessReport] = {}
        self._expire(monotonic())
        for one in await self._socket.take():
            self._add_datagram(one, reports)
        return FeedReport(list(reports.values()), failures=failures)

    def mark_unused(self, report: ProcessReport, reason: UnusedReason) -> None:
        """Move the report's collectives to another outcome."""
        self._uses["used"] -= report.count
        self._uses[reason] += report.count

    def tables(self, now: float) -> list[Table]:
        """Return outcomes of datagrams and collectives; nothing if the socket was never open."""
        if not self._open and not self._uses:
            return []
        return [
            self._counts(TIMING_DATAGRAMS, "datagrams_total", OUTCOMES, self._socket.counts, now),
            self._counts(TIMING_LOSSES, "lost_total", LOSSES, self._lost, now),
            self._counts(TIMING_COLLECTIVES, "collectives_total", _USES, self._uses, now),
            Table(
                TIMING_SENDERS,
                self._keepers[TIMING_SENDERS].rows([()]),
                {"senders": Column(TIMING_SENDERS.metrics["senders"], [self._socket.senders])},
                now,
            ),
        ]

    async def close(self) -> None:
        """Close the socket, and remove it if it is ours."""
        self._serial.close()
        self._open = False
        await self._socket.close()

    def _check_paths(self) -> _Paths:
        """Return whether folder and socket exist; runs in the thread.

        The default folder counts as missing where it is not writable: it was not created for the socket. A configured
        folder that is not writable is an error when the socket is opened.
        """
        folder = self._path.parent
        default = str(self._path) == TIMING_SOCKET
        ready = folder.is_dir() and (not default or os.access(folder, os.W_OK | os.X_OK))
        return _Paths(ready, self._path.exists())

    def _counts(self, schema: Schema, ending: str, names: tuple[str, ...], counts: Counter[str], now: float) -> Table:
        rows = self._keepers[schema].rows([(name,) for name in names])
        return Table(schema, rows, {ending: Column(schema.metrics[ending], [counts[name] for name in names])}, now)

    def _add_datagram(self, one: Received, reports: dict[str, ProcessReport]) -> None:
        """Add a datagram to the report of its process."""
        received, sender = one.datagram, one.sender
        # Processes whose PIDs are not visible here share a sender; host and PID in their datagrams differ.
        key = f"{sender.pid or f'{sender.uid}:{received.host}:{received.pid}'}:{one.job}"
        self._count_losses(key, one)
        report = reports.get(key)
        if report is None:
            report = reports[key] = ProcessReport(key, _facts(one))
        memberships = [Membership(group.rank, group.size, group.nodes) for group in received.groups]
        for membership in memberships:
            report.add_membership(membership)
        for operation in received.operations:
            report.add_collective(
                received.groups[operation.communicator].id,
                memberships[operation.communicator],
                known_kind(operation.kind),
                operation.sequence,
                operation.message_bytes,
                operation.microseconds,
                timed=True if operation.timing == "gpu" else None,
                queued=operation.queued,
            )
        for count in received.counts:
            group = received.groups[count.communicator]
            if count.kind in COMMON | POINT_TO_POINT:  # not its aliases: each alias has its own count
                report.progress[group.id, count.kind] = CollectiveProgress(
                    memberships[count.communicator], count.begun, count.ended
                )
        for step in received.steps:
            report.steps["steps"] += 1
            report.steps["tokens"] += step.tokens or 0
            report.steps["flops"] += round(step.flops or 0)
        self._uses["used"] += len(received.operations)

    def _expire(self, now: float) -> None:
        """Stop tracking processes that sent nothing for long; they are ordered by their last datagram."""
        for key, one in list(self._numberings.items()):
            if now - one.at < EXPIRY_SECONDS:
                return
            del self._numberings[key]

    def _count_losses(self, key: str, one: Received) -> None:
        """Count datagrams lost in transit, and the increase of the losses that the process reports."""
        received = one.datagram
        losses = Counter(dropped=received.dropped, untimed=received.untimed, faults=received.faults)
        before = self._numberings.pop(key, None)
        if before is None and received.number:
            before = _Numbering(received.number - 1, losses)  # started before the exporter: not new losses
        if before is None or received.number < before.last:
            before = _Numbering(received.number - 1)
        self._numberings[key] = before
        if len(self._numberings) > MAX_TRACKED_PROCESSES:
            del self._numberings[next(iter(self._numberings))]
        self._lost["missing"] += max(0, received.number - before.last - 1)
        before.last, before.at = received.number, one.at
        self._lost += losses - before.losses
        before.losses = losses


def _facts(one: Received) -> ProcessFacts:
    received, sender = one.datagram, one.sender
    return ProcessFacts(
        one.job,
        pid=received.pid,
        host=received.host,
        host_pid=sender.pid,
        uid=sender.uid,
        world_rank=world_rank(received.env) if received.rank is None else received.rank,
        gpu=received.gpu.pci or received.gpu.uuid,
        pod=received.env.get("POD_NAME", "") or sender.owner.pod,
    )
