"""Dumps of PyTorch's Flight Recorder on a host of the fabric: written twice a minute while the job hangs, one a rank.

The form is that of torch's `_dump_nccl_trace_json` (schema 2.9) without TORCH_NCCL_ENABLE_TIMING, so without durations:
they are those of Inspector's files.
"""

import json
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType

from exporter.simulator.fabric.job import Job
from exporter.simulator.training.engine import Ended

EVERY = 30.0
"""Seconds of a hang after which the ranks write their dumps; the exporter believes a hang of a minute."""

KEPT = 16
"""Collectives of a communicator that ended, in a dump."""

OPERATIONS = MappingProxyType(
    {
        "AllGather": "nccl:_all_gather_base",
        "AllReduce": "nccl:all_reduce",
        "AlltoAll": "nccl:all_to_all",
        "ReduceScatter": "nccl:_reduce_scatter_base",
    }
)
"""Torch's names of collectives, by NCCL's."""


class RecorderDumps:
    """Writes the dumps of the ranks of one host."""

    def __init__(
        self, folder: Path, job: Job, ranks: Sequence[int], *, every: float = EVERY, name: str = "demo"
    ) -> None:
        """Create the folder of the job.

        Args:
            folder: Folder of the dumps of all jobs on the host.
            job: The job.
            ranks: World ranks on the host.
            every: Seconds of a hang after which they are written, again and again until it is over.
            name: Name of the job.

        Raises:
            OSError: The folder cannot be created.
        """
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self._job, self._ranks = job, tuple(ranks)
        self._run = 0
        self._every = self._due = every
        self._ended: dict[int, deque[tuple[int, Ended]]] = {}
        self._counts: Counter[int] = Counter()

    def write(self, ended: Iterable[Ended], now: float) -> None:
        """Record collectives that ended; write the dumps that are due.

        Args:
            ended: Collectives that ended since the last call.
            now: Time of the model.

        Raises:
            OSError: A file cannot be written.
        """
        if self._run != self._job.runs:
            self._run = self._job.runs
            self._ended.clear()
            self._counts.clear()
        for one in ended:
            self._counts[one.communicator] += 1
            kept = self._ended.setdefault(one.communicator, deque(maxlen=KEPT))
            kept.append((self._counts[one.communicator], one))
        since = min((max(one.starts.values(), default=now) for one in self._job.unfinished), default=now)
        if now - since < self._every:
            self._due = since + self._every
        elif now >= self._due:
            self._due = now + self._every
            for rank in self._ranks:
                text = json.dumps(self._dump(rank, now))
                (self.folder / f"nccl_trace_rank_{rank}.json").write_text(text, encoding="ascii")

    def _dump(self, rank: int, now: float) -> dict[str, object]:
        groups = {
            str(number): {"name": str(number), "desc": f"group {number}", "ranks": str(list(layout.members))}
            for number, layout in enumerate(self._job.layout.communicators)
            if rank in layout.members
        }
        entries = [one for _, one in sorted(self._entries(rank, now), key=itemgetter(0))]
        return {
            "version": "2.9",
            "pg_config": groups,
            "entries": [{"record_id": number, **one} for number, one in enumerate(entries)],
        }

    def _entries(self, rank: int, now: float) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield what the rank began, by its time: the last that ended, and what did not."""
        wall = time.time_ns()
        for number, one in (each for kept in self._ended.values() for each in kept):
            if rank in one.starts:
                created = wall - round((now - one.enqueued[rank]) * 1e9)
                yield created, _entry(one, number, "completed", created)
        numbers = Counter(self._counts)
        for one in sorted(self._job.unfinished, key=lambda one: min(one.reached.values())):
            numbers[one.communicator] += 1
            if rank in one.enqueued:
                created = wall - round((now - one.enqueued[rank]) * 1e9)
                state = "started" if rank in one.starts else "scheduled"
                yield created, _entry(one, numbers[one.communicator], state, created)


def _entry(one: Ended, number: int, state: str, created: int) -> dict[str, object]:
    return {
        "pg_id": one.communicator,
        "process_group": [str(one.communicator), f"group {one.communicator}"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": OPERATIONS.get(one.kind, f"nccl:{one.kind}"),
        "time_created_ns": created,
        "state": state,
        "time_discovered_started_ns": None if state == "scheduled" else created,
        "time_discovered_completed_ns": created if state == "completed" else None,
        "retired": state == "completed",
        "is_p2p": False,
    }
