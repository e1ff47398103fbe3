"""What is exported of the processes of training jobs, and the internal table of their single collectives."""

from collections.abc import Iterable, Sequence

from exporter.core import vocabulary
from exporter.core.table import Column, RowKeeper, Table
from exporter.core.vocabulary import counter, info
from exporter.sources.nccl.processes import Process
from exporter.sources.nccl.readers.feed import Said, Stream
from exporter.sources.nccl.streams import STREAMS, Streams

LABELS = ("train_job", "rank", "collective")
RANK_LABELS = ("train_job", "rank")

COLLECTIVES = vocabulary.schema(
    "fabric_nccl_",
    LABELS,
    own={
        "collectives_total": counter("Collectives that the rank took part in and that were recorded."),
        "collective_duration_seconds_total": counter(
            "Time of these collectives on the rank, with what it waited for others in them."
        ),
        "collective_bytes_total": counter(
            "Bytes of these collectives as nccl-tests counts them: for AllGather and ReduceScatter those of all ranks."
        ),
    },
    origins={
        "collectives_total": ["coll_perf", "ops", "entries"],
        "collective_duration_seconds_total": ["coll_perf.coll_exec_time_us", "ops.microseconds", "duration_ms"],
        "collective_bytes_total": [
            "coll_perf.coll_msg_size_bytes",
            "header.n_ranks",
            "ops.message_bytes",
            "input_sizes",
            "input_dtypes",
        ],
    },
)

RANKS = vocabulary.schema(
    "fabric_nccl_",
    RANK_LABELS,
    own={
        "rank_info": info(
            "Where the rank runs, the ranks and nodes of its largest communicator, and, as far as anything tells it:"
            " its GPU (PCI address, else UUID), the RDMA devices nearest to that, its process as the host numbers it,"
            " and its pod.",
            "host",
            "pid",
            "ranks",
            "nodes",
            "gpu",
            "nic",
            "host_pid",
            "job_pod",
        )
    },
    origins={
        "rank_info": [
            "header.rank",
            "header.n_ranks",
            "header.nnodes",
            "metadata.pid",
            "rank, groups and gpu of datagrams",
            "/proc/<pid>/{status,cgroup,environ}",
            "/sys/class/infiniband",
        ]
    },
)

LOSSES = vocabulary.schema(
    "fabric_nccl_inspector_",
    RANK_LABELS,
    own={
        "dropped_collectives_total": counter(
            "Collectives that Inspector overwrote in its ring before it wrote them; absent before its format v4.1."
        ),
        "dropped_point_to_point_total": counter(
            "Sends and receives that Inspector overwrote in its ring before it wrote them."
        ),
    },
    origins={
        "dropped_collectives_total": ["dump_stats.coll_dropped_since_last_dump"],
        "dropped_point_to_point_total": ["dump_stats.p2p_dropped_since_last_dump"],
    },
)

STEPS = vocabulary.schema(
    "fabric_nccl_",
    RANK_LABELS,
    own={
        "steps_total": counter("Steps of the training that the rank ended, where it marks them."),
        "step_tokens_total": counter("Tokens of these steps on all ranks together, so that each rank tells the same."),
        "step_operations_total": counter(
            "Floating-point operations of these steps on all ranks together, so that each rank tells the same."
        ),
    },
    origins={
        "steps_total": ["steps of datagrams"],
        "step_tokens_total": ["steps.tokens of datagrams"],
        "step_operations_total": ["steps.flops of datagrams"],
    },
)

SCHEMAS = (COLLECTIVES, RANKS, LOSSES, STEPS, STREAMS)


class Keepers:
    """Makes the tables, and keeps their rows from poll to poll."""

    def __init__(self, host: str) -> None:
        """Take the name of this host."""
        self._host = host
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (COLLECTIVES, RANKS, LOSSES, STEPS)}

    def tables(self, processes: Sequence[Process], now: float) -> list[Table]:
        """Give the tables of processes; none where there are none."""
        kinds = (self._collectives, self._ranks, self._losses, self._steps)
        made = [make(processes, now) for make in kinds]
        return [table for table in made if len(table.rows)]

    def _collectives(self, processes: Sequence[Process], now: float) -> Table:
        rows = [(one, kind, totals) for one in processes for kind, totals in one.totals.items()]
        metrics = COLLECTIVES.metrics
        columns = (
            Column(metrics["collectives_total"], [totals.count for _, _, totals in rows]),
            Column(
                metrics["collective_duration_seconds_total"],
                [totals.microseconds for _, _, totals in rows],
                divisor=1_000_000,
            ),
            Column(metrics["collective_bytes_total"], [totals.size for _, _, totals in rows]),
        )
        return Table(
            COLLECTIVES,
            self._keepers[COLLECTIVES].rows([(one.job, one.label, kind) for one, kind, _ in rows]),
            {column.metric.ending: column for column in columns},
            now,
            epochs=[one.number for one, _, _ in rows],
        )

    def _ranks(self, processes: Sequence[Process], now: float) -> Table:
        facts = [
            (
                self._host,
                str(one.facts.pid or ""),
                str(one.largest.ranks),
                str(one.largest.nodes or ""),
                one.facts.gpu,
                one.facts.nic,
                str(one.facts.host_pid or ""),
                one.facts.pod,
            )
            for one in processes
        ]
        rows = self._keepers[RANKS].rows([(one.job, one.label) for one in processes])
        return Table(RANKS, rows, {"rank_info": Column(RANKS.metrics["rank_info"], facts)}, now)

    def _losses(self, processes: Sequence[Process], now: float) -> Table:
        told = [(one, one.lost) for one in processes if one.lost is not None]
        columns = (
            Column(LOSSES.metrics["dropped_collectives_total"], [lost["collective"] for _, lost in told]),
            Column(LOSSES.metrics["dropped_point_to_point_total"], [lost["point_to_point"] for _, lost in told]),
        )
        return Table(
            LOSSES,
            self._keepers[LOSSES].rows([(one.job, one.label) for one, _ in told]),
            {column.metric.ending: column for column in columns},
            now,
            epochs=[one.number for one, _ in told],
        )

    def _steps(self, processes: Sequence[Process], now: float) -> Table:
        told = [one for one in processes if one.steps]
        counts = {"steps_total": "steps", "step_tokens_total": "tokens", "step_operations_total": "flops"}
        columns = {
            ending: Column(STEPS.metrics[ending], [one.steps[name] or None for one in told])
            for ending, name in counts.items()
        }
        rows = self._keepers[STEPS].rows([(one.job, one.label) for one in told])
        return Table(STEPS, rows, columns, now, epochs=[one.number for one in told])


def streams(said: Iterable[tuple[Process, Said]], host: str, now: float) -> Table:
    """Make the table of single collectives."""
    made = Streams()
    for process, one in said:
        facts = process.facts
        if not process.label:
            continue  # another process has taken its place
        told = {key: Stream(place, []) for key, (place, *_) in one.progress.items()} | one.streams
        for (communicator, kind), (place, records) in told.items():
            reached = one.progress.get((communicator, kind))
            made.add(
                (process.job, communicator, kind, process.label),
                records,
                progress=None if reached is None else (reached.begun, reached.ended),
                ranks=place.ranks,
                nodes=place.nodes or None,
                host=host,
                place=place.rank,
                pid=facts.pid or None,
                gpu=facts.gpu,
                ports=facts.ports,
                world_rank=None if process.doubted else facts.world_rank,
            )
    return made.table(now)
