"""The files that NCCL Inspector writes on a host of the fabric: one for each rank, with the timings of the model."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from exporter.simulator.fabric.job import Job
from exporter.simulator.fabric.job_processes import communicator_hash, pid
from exporter.simulator.inspector import FACTORS, InspectorProcess, InspectorTiming, inspector_line
from exporter.simulator.training.engine import Ended

EPOCH = 1_700_000_000_000_000
"""Microseconds of the epoch at the start of the model."""

MAX_BYTES = 8 << 20
"""Bytes of a file above which a rank begins another one: the old one is removed, as users of Inspector do."""


class CollectiveFiles:
    """Writes the files of the ranks of one host."""

    def __init__(self, folder: Path, job: Job, host: str, ranks: Sequence[int], *, name: str = "demo") -> None:
        """Create the folder of the job.

        Args:
            folder: Folder of Inspector's files on the host.
            job: The job.
            host: Name of the host.
            ranks: World ranks on the host.
            name: Name of the job.

        Raises:
            OSError: The folder cannot be created.
        """
        self.folder = folder / f"nccl-inspector-{name}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._job, self._host, self._ranks = job, host, tuple(ranks)
        self._files: dict[int, tuple[int, Path]] = {}

    def write(self, ended: Iterable[Ended]) -> None:
        """Append the timings of collectives that ended.

        Raises:
            OSError: A file cannot be written.
        """
        lines: dict[int, bytearray] = defaultdict(bytearray)
        for one in ended:
            for rank in self._ranks:
                if rank in one.starts:
                    lines[rank] += self._line(one, rank)
        for rank, text in lines.items():
            with self._path(rank).open("ab") as file:
                file.write(text)

    def _path(self, rank: int) -> Path:
        """Return the file of a rank: another one after a restart of the job, and after many records."""
        run, path = self._files.get(rank, (0, self.folder))
        if run == self._job.runs and path.stat().st_size < MAX_BYTES:
            return path
        if run:
            path.unlink(missing_ok=True)
        part = 0 if run != self._job.runs else int(path.stem.rpartition("-")[2]) + 1
        new = self.folder / f"{self._host}-pid{pid(self._job.runs, rank)}-{part}.log"
        self._files[rank] = self._job.runs, new
        return new

    def _line(self, one: Ended, rank: int) -> bytes:
        layout = self._job.layout.communicators[one.communicator]
        ranks = len(layout.members)
        identity = communicator_hash(self._job.runs, one.communicator)
        process = InspectorProcess(
            identity, ranks, layout.nodes, layout.members.index(rank), pid(self._job.runs, rank), self._host
        )
        size = one.size * (1 if one.kind == "AllReduce" else ranks)
        factor = FACTORS.get(one.kind, 1.0) * (ranks - 1) / ranks
        microseconds = max(1, round((one.end - one.starts[rank]) * 1e6))
        timing = InspectorTiming(one.kind, one.sequence, one.size, size, factor, microseconds)
        return inspector_line(process, timing, EPOCH + round(one.end * 1e6))
