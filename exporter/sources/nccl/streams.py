"""The internal table of collective timings: a row per rank, communicator and kind."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from exporter.core.table import (
    Column,
    LabelValues,
    Rows,
    Samples,
    Table,
    Value,
)
from exporter.nccl.batch import Operation, Stream
from exporter.sources.nccl.metrics import STREAM_LABELS, STREAMS

_UNPRINTED = "{}"
"""Label text of the rows: internal tables are not printed, and formatting labels would cost more than all else."""


@dataclass(slots=True)
class _Row:
    """A row: values of its info, operations by sequence number, and collectives begun and completed, if known."""

    info: LabelValues
    operations: dict[int, tuple[float | None, ...]] = field(default_factory=dict)
    progress: tuple[int | None, int | None] = (None, None)


@dataclass(slots=True)
class StreamTableBuilder:
    """Builds the table; of an operation that is added twice, the first is used."""

    _rows: dict[LabelValues, _Row] = field(default_factory=dict)

    def add(
        self,
        key: LabelValues,
        operations: Iterable[Sequence[float | bool | None]],
        *,
        progress: tuple[int, int] | None = None,
        ranks: int,
        nodes: int | None,
        host: str,
        expected: int | None = None,
        place: int | None = None,
        pid: int | None = None,
        gpu: str = "",
        ports: str = "",
        world_rank: int | None = None,
    ) -> None:
        """Add operations of a rank.

        Args:
            key: Job, communicator, kind and exported rank.
            operations: Sequence number, bytes as nccl-tests counts them, microseconds, whether timed on the GPU, and
                microseconds for which it waited behind the previous one, which may be left out; None for what is
                unknown of the last two.
            progress: Collectives begun, and completed; None if unknown.
            ranks: Number of ranks of the communicator.
            nodes: Number of nodes of the communicator; None if unknown.
            host: Host of the process.
            expected: Ranks of the communicator whose timings are expected here; None for those that are present.
            place: Rank in the communicator.
            pid: Process ID.
            gpu: GPU of the process.
            ports: RDMA ports nearest to the GPU, with all their names.
            world_rank: Rank in the job.
        """
        row = self._rows.get(key)
        if row is None:
            numbers = (expected, place, pid)
            info = (str(ranks), _text(nodes), host, *map(_text, numbers), gpu, _text(world_rank), ports)
            row = self._rows[key] = _Row(info)
        row.progress = progress or row.progress
        found = row.operations
        for one in operations:
            sequence, size, microseconds, timed, queued = one if len(one) == 5 else (*one, None)
            assert sequence is not None and size is not None and microseconds is not None  # noqa: S101, PT018  # the others may be
            number = int(sequence)
            if queued is not None:
                found.setdefault(number, (number, size, microseconds, timed, queued))
            elif timed is not None:
                found.setdefault(number, (number, size, microseconds, int(timed)))
            else:
                found.setdefault(number, (number, size, microseconds))

    def add_published(
        self, stream: Stream, rank: str, operations: Sequence[Operation], progress: tuple[int, int] | None = None
    ) -> None:
        """Add operations of a batch; those of all ranks of the communicator are expected where it is received.

        Args:
            stream: Rank, communicator and kind.
            rank: Exported rank.
            operations: Collectives of the rank.
            progress: Collectives begun, and completed; None if unknown.
        """
        key = (stream.job, stream.communicator, stream.kind, rank)
        row = self._rows.get(key)
        if row is None:
            ranks = str(stream.ranks)
            info = (ranks, _text(stream.nodes), stream.host, ranks, "", "", "", "", stream.ports)
            row = self._rows[key] = _Row(info)
        row.progress = progress or row.progress
        found = row.operations
        for one in operations:
            found.setdefault(one.sequence, one)

    def table(self, now: float) -> Table:
        """Return the table."""
        rows = self._rows.values()
        values: dict[str, list[Value | None]] = {
            "operations": [Samples(tuple(one.operations.values())) for one in rows],
            "begun": [one.progress[0] for one in rows],
            "ended": [one.progress[1] for one in rows],
            "stream_info": [one.info for one in rows],
        }
        columns = {ending: Column(STREAMS.metrics[ending], cells) for ending, cells in values.items()}
        return Table(STREAMS, Rows(STREAM_LABELS, self._rows, dict.fromkeys(self._rows, _UNPRINTED)), columns, now)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
