"""The internal table of timings: a row for each rank in a communicator and kind, with what was heard of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    LabelValues,
    Rows,
    Samples,
    Table,
)
from exporter.core.vocabulary import gauge, info

LABELS = ("train_job", "communicator", "collective", "rank")

STREAMS = vocabulary.schema(
    "fabric_nccl_",
    LABELS,
    own={
        "operations": gauge("Single collectives: number, bytes, millionths of a second, whether timed by the kernel."),
        "begun": gauge("Collectives that the rank began; absent where that is not told, or nothing changed."),
        "ended": gauge("Of these, those that ended."),
        "stream_info": info(
            "Whose they are; of what is unknown nothing. `expected` is how many ranks are to be heard of here.",
            "ranks",
            "nodes",
            "host",
            "expected",
            "place",
            "pid",
            "gpu",
            "world_rank",
            "ports",
        ),
    },
    origins={"operations": ["coll_perf.coll_exec_time_us"], "begun": ["counts"], "ended": ["counts"]},
    internal=True,
)

_UNPRINTED = "{}"
"""Text of the rows of an internal table, which nobody prints: making it would cost more than all else."""


@dataclass(slots=True)
class Streams:
    """Collects the table; of an operation that is told twice the first counts."""

    _operations: dict[LabelValues, dict[int, tuple[float, ...]]] = field(default_factory=dict)
    _progress: dict[LabelValues, tuple[int, int]] = field(default_factory=dict)
    _about: dict[LabelValues, LabelValues] = field(default_factory=dict)

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
        """Add operations: number, bytes as nccl-tests counts them, microseconds, whether timed by the kernel.

        Args:
            key: Job, communicator, kind, and the rank's name in the job.
            operations: What it took part in.
            progress: How many it began, and how many of these ended; None where that is not told.
            ranks: Of the communicator.
            nodes: That it spans; None where unknown.
            host: Where the process runs.
            expected: Ranks of the communicator that are to be heard of here; None where those that are will do.
            place: Rank in the communicator.
            pid: The process.
            gpu: Its GPU.
            ports: Ports nearest to that, with all their names.
            world_rank: Its rank in the job.
        """
        found = self._operations.get(key)
        if found is None:
            found = self._operations[key] = {}
            numbers = (expected, place, pid)
            self._about[key] = (
                str(ranks),
                _text(nodes),
                host,
                *map(_text, numbers),
                gpu,
                _text(world_rank),
                ports,
            )
        if progress is not None:
            self._progress[key] = progress
        for sequence, size, microseconds, timed in operations:
            assert sequence is not None and size is not None and microseconds is not None  # noqa: S101, PT018  # only `timed` may be
            timing = (sequence, size, microseconds)
            found.setdefault(int(sequence), timing if timed is None else (*timing, int(timed)))

    def table(self, now: float) -> Table:
        """Finish."""
        metrics = STREAMS.metrics
        progress = [self._progress.get(key) for key in self._operations]
        columns = {
            "operations": Column(
                metrics["operations"], [Samples(tuple(one.values())) for one in self._operations.values()]
            ),
            **{
                ending: Column(metrics[ending], [told[place] if told else None for told in progress])
                for place, ending in enumerate(("begun", "ended"))
            },
            "stream_info": Column(metrics["stream_info"], list(self._about.values())),
        }
        rows = Rows(LABELS, self._operations, dict.fromkeys(self._operations, _UNPRINTED))
        return Table(STREAMS, rows, columns, now)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
