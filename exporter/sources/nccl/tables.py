"""Tables of the processes of training jobs, and of their single collectives."""

from collections.abc import Iterable, Sequence

from exporter.core.table import Column, RowKeeper, Table
from exporter.sources.nccl.metrics import COLLECTIVES, LOSSES, RANKS, STEPS
from exporter.sources.nccl.processes import TrainingProcess
from exporter.sources.nccl.readers.feed import CollectiveStream, ProcessReport
from exporter.sources.nccl.streams import StreamTableBuilder


class ProcessTables:
    """Builds the tables of processes, and caches their rows from poll to poll."""

    def __init__(self, host: str) -> None:
        """Take the name of this host."""
        self._host = host
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (COLLECTIVES, RANKS, LOSSES, STEPS)}

    def tables(self, processes: Sequence[TrainingProcess], now: float) -> list[Table]:
        """Return the tables with rows."""
        builders = (self._collectives, self._ranks, self._losses, self._steps)
        tables = [build(processes, now) for build in builders]
        return [table for table in tables if len(table.rows)]

    def _collectives(self, processes: Sequence[TrainingProcess], now: float) -> Table:
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

    def _ranks(self, processes: Sequence[TrainingProcess], now: float) -> Table:
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

    def _losses(self, processes: Sequence[TrainingProcess], now: float) -> Table:
        losses = [(one, one.lost) for one in processes if one.lost is not None]
        columns = (
            Column(LOSSES.metrics["dropped_collectives_total"], [lost["collective"] for _, lost in losses]),
            Column(LOSSES.metrics["dropped_point_to_point_total"], [lost["point_to_point"] for _, lost in losses]),
        )
        return Table(
            LOSSES,
            self._keepers[LOSSES].rows([(one.job, one.label) for one, _ in losses]),
            {column.metric.ending: column for column in columns},
            now,
            epochs=[one.number for one, _ in losses],
        )

    def _steps(self, processes: Sequence[TrainingProcess], now: float) -> Table:
        marking = [one for one in processes if one.steps]
        counts = {"steps_total": "steps", "step_tokens_total": "tokens", "step_operations_total": "flops"}
        columns = {
            ending: Column(STEPS.metrics[ending], [one.steps[name] or None for one in marking])
            for ending, name in counts.items()
        }
        rows = self._keepers[STEPS].rows([(one.job, one.label) for one in marking])
        return Table(STEPS, rows, columns, now, epochs=[one.number for one in marking])


def stream_table(reports: Iterable[tuple[TrainingProcess, ProcessReport]], host: str, now: float) -> Table:
    """Return the internal table of single collectives."""
    builder = StreamTableBuilder()
    for process, report in reports:
        facts = process.facts
        if not process.label:
            continue  # another process took over its rank
        streams = {
            key: CollectiveStream(membership, []) for key, (membership, *_) in report.progress.items()
        } | report.streams
        for (communicator, kind), (membership, records) in streams.items():
            progress = report.progress.get((communicator, kind))
            builder.add(
                (process.job, communicator, kind, process.label),
                records,
                progress=None if progress is None else (progress.begun, progress.ended),
                ranks=membership.ranks,
                nodes=membership.nodes or None,
                host=host,
                place=membership.rank,
                pid=facts.pid or None,
                gpu=facts.gpu,
                ports=facts.ports,
                world_rank=None if process.rank_conflict else facts.world_rank,
            )
    return builder.table(now)
