"""What `fabric_timing.py` tells from within a job: datagrams at this host's socket.

Its times are comparable whether they are those of events on the GPU or those of the host's clock, which are all that
gloo has. Its communicators have names of their own, so what it tells is never put together with another feed's.
"""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from exporter.core import vocabulary
from exporter.core.blocking import BlockingCalls, HungError
from exporter.core.collectives import COMMON, known_kind
from exporter.core.source import Failure
from exporter.core.table import (
    Column,
    RowKeeper,
    Schema,
    Table,
)
from exporter.core.vocabulary import counter, gauge
from exporter.nccl.datagram import Datagram
from exporter.sources.common.failures import failure_of
from exporter.sources.nccl.identity import world_rank
from exporter.sources.nccl.readers.feed import (
    Facts,
    Heard,
    Membership,
    Progress,
    Said,
    Unused,
)
from exporter.sources.nccl.readers.files import CALL_DEADLINE, off_loop
from exporter.sources.nccl.timing_socket import (
    OUTCOMES,
    SOCKET,
    Received,
    TimingSocket,
)

MAX_NUMBERS = 1024
"""Processes of which the numbers of datagrams are remembered; more than send at a time."""

LOSSES = ("dropped", "untimed", "faults", "missing")

DATAGRAMS = vocabulary.schema(
    "fabric_nccl_timing_",
    ("outcome",),
    own={
        "datagrams_total": counter(
            "Datagrams of fabric_timing.py by what became of them: accepted; too_long, malformed, invalid and version"
            " (of a later form), no_sender (the kernel does not tell who), foreign_job (of another job than it says),"
            " rate, senders and queue (too many), all of which are lost."
        )
    },
    origins={"datagrams_total": ["datagrams of fabric_timing.py"]},
)

RECORDS = vocabulary.schema(
    "fabric_nccl_timing_",
    ("reason",),
    own={
        "lost_total": counter(
            "Losses that processes with fabric_timing.py tell: records dropped, collectives untimed, faults of the hook"
            " itself; and datagrams missing by their numbers."
        )
    },
    origins={"lost_total": ["dropped, untimed, faults and n of datagrams"]},
)

UNUSED = vocabulary.schema(
    "fabric_nccl_timing_",
    ("outcome",),
    own={
        "collectives_total": counter(
            "Collectives that fabric_timing.py told, by what became of them: used, duplicate (told by Inspector too),"
            " over_limit (too many processes), excluded (of a job that is)."
        )
    },
    origins={"collectives_total": ["ops of datagrams"]},
)

SENDERS = vocabulary.schema(
    "fabric_nccl_timing_",
    (),
    own={"senders": gauge("Processes that sent datagrams of fabric_timing.py within the last minutes.")},
    origins={"senders": ["credentials on the socket"]},
)

_USES = ("used", "duplicate", "over_limit", "excluded")


@dataclass(slots=True)
class _Numbers:
    """What a process told last: the number of its datagram, and its losses so far."""

    last: int = -1
    losses: Counter[str] = field(default_factory=Counter)


class _Look(NamedTuple):
    """Whether there is a folder for the socket, and whether the socket is there."""

    folder: bool
    socket: bool


class HookFeed:
    """Listens at the socket."""

    name = "hook"
    schemas = (DATAGRAMS, RECORDS, UNUSED, SENDERS)

    def __init__(self, path: str, procfs: Path) -> None:
        """Take where to listen, and where to ask about processes."""
        self._path = Path(path)
        self._serial = BlockingCalls("timing", CALL_DEADLINE)
        self._socket = TimingSocket(path, procfs)
        self._open = False
        self._numbers: dict[str, _Numbers] = {}
        self._lost: Counter[str] = Counter()
        self._uses: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Tell whether there is a folder for the socket."""
        return (await off_loop(self._serial, self._look)).folder

    async def hear(self) -> Heard:
        """Give what came since the last time; a socket that cannot be made, or is gone, is made at the next poll."""
        failures: list[Failure] = []
        look = await off_loop(self._serial, self._look)
        if self._open and not look.socket:
            await self._socket.close()  # somebody removed it, so nobody can send to it
            self._open = False
        if not self._open and look.folder:
            try:
                await self._socket.open()
                self._open = True
            except FileExistsError as error:
                failures.append(Failure("", "in_use", str(error)))
            except (OSError, HungError) as error:
                failures.append(failure_of("", error, self._path))
        said: dict[str, Said] = {}
        for one in await self._socket.take():
            self._take(one, said)
        return Heard(list(said.values()), failures=failures)

    def unused(self, said: Said, why: Unused) -> None:
        """Count the collectives as what became of them."""
        self._uses["used"] -= said.count
        self._uses[why] += said.count

    def tables(self, now: float) -> list[Table]:
        """Give what became of datagrams and collectives; nothing while the socket was never there."""
        if not self._open and not self._uses:
            return []
        return [
            self._counts(DATAGRAMS, "datagrams_total", OUTCOMES, self._socket.counts, now),
            self._counts(RECORDS, "lost_total", LOSSES, self._lost, now),
            self._counts(UNUSED, "collectives_total", _USES, self._uses, now),
            Table(
                SENDERS,
                self._keepers[SENDERS].rows([()]),
                {"senders": Column(SENDERS.metrics["senders"], [self._socket.senders])},
                now,
            ),
        ]

    async def close(self) -> None:
        """Take the socket away, where it is this one's."""
        self._serial.close()
        self._open = False
        await self._socket.close()

    def _look(self) -> _Look:
        """Look for the folder and the socket; runs in the thread.

        A folder at the usual place that may not be written to is as good as none: nobody prepared it for this. Where
        another place is configured, that fails, and so is told.
        """
        folder = self._path.parent
        usual = str(self._path) == SOCKET
        ready = folder.is_dir() and (not usual or os.access(folder, os.W_OK | os.X_OK))
        return _Look(ready, self._path.exists())

    def _counts(self, schema: Schema, ending: str, names: tuple[str, ...], counts: Counter[str], now: float) -> Table:
        rows = self._keepers[schema].rows([(name,) for name in names])
        return Table(schema, rows, {ending: Column(schema.metrics[ending], [counts[name] for name in names])}, now)

    def _take(self, one: Received, heard: dict[str, Said]) -> None:
        """Add a datagram to what its process said."""
        told, sender = one.datagram, one.sender
        # Behind user and number of what cannot be seen there may be several; what they say of themselves tells them.
        speaker = f"{sender.pid or f'{sender.uid}:{told.host}:{told.pid}'}:{one.job}"
        self._note(speaker, told)
        said = heard.get(speaker)
        if said is None:
            said = heard[speaker] = Said(speaker, _facts(one))
        places = [Membership(group.rank, group.size, group.nodes) for group in told.groups]
        for place in places:
            said.meets(place)
        for done in told.operations:
            said.did(
                told.groups[done.communicator].id,
                places[done.communicator],
                known_kind(done.kind),
                done.sequence,
                done.message_bytes,
                done.microseconds,
                timed=True if done.timing == "gpu" else None,
            )
        for count in told.counts:
            group = told.groups[count.communicator]
            if count.kind in COMMON:  # by its own name alone: of two names for one kind each has its own count
                said.progress[group.id, count.kind] = Progress(places[count.communicator], count.begun, count.ended)
        for step in told.steps:
            said.steps["steps"] += 1
            said.steps["tokens"] += step.tokens or 0
            said.steps["flops"] += round(step.flops or 0)
        self._uses["used"] += len(told.operations)

    def _note(self, speaker: str, told: Datagram) -> None:
        """Add what was lost on the way, and what the process says that it lost since it said so last."""
        losses = Counter(dropped=told.dropped, untimed=told.untimed, faults=told.faults)
        before = self._numbers.pop(speaker, None)
        if before is None and told.number:
            before = _Numbers(told.number - 1, losses)  # it began before this program did: that is no news
        if before is None or told.number < before.last:
            before = _Numbers(told.number - 1)
        self._numbers[speaker] = before
        if len(self._numbers) > MAX_NUMBERS:
            del self._numbers[next(iter(self._numbers))]
        self._lost["missing"] += max(0, told.number - before.last - 1)
        before.last = told.number
        self._lost += losses - before.losses
        before.losses = losses


def _facts(one: Received) -> Facts:
    told, sender = one.datagram, one.sender
    return Facts(
        one.job,
        pid=told.pid,
        host=told.host,
        host_pid=sender.pid,
        uid=sender.uid,
        world_rank=world_rank(told.env) if told.rank is None else told.rank,
        gpu=told.gpu.pci or told.gpu.uuid,
        pod=told.env.get("POD_NAME", "") or sender.owner.pod,
    )
