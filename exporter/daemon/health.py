"""The state of sources: their last reads, failures by device and reason, and polls of switches."""

from collections.abc import Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from exporter.core import vocabulary
from exporter.core.table import RowKeeper, Schema, Table, TableBuilder
from exporter.core.vocabulary import counter, gauge

if TYPE_CHECKING:
    from exporter.core.poller import Poller
    from exporter.daemon.prepared import ConfiguredSource

SOURCE = vocabulary.schema(
    "fabric_source_",
    ("source", "target"),
    own={
        "up": gauge(
            "Whether the last read of the source succeeded (1) or failed (0); absent where no device is found."
        ),
        "last_success_timestamp_seconds": gauge("Unix time at which the last successful read ended."),
        "read_duration_seconds": gauge("Duration of the last read."),
        "reads_total": counter("Reads started."),
        "overruns_total": counter("Reads skipped because the previous one took longer than the interval."),
        "rows": gauge("Rows exported now; 0 once the last successful read is two intervals old."),
    },
)

FAILURE = vocabulary.schema(
    "fabric_source_",
    ("source", "target", "device", "reason"),
    own={"failures_total": counter("Failed reads of single devices, files or objects, by device and reason.")},
)

SCHEMAS: tuple[Schema, ...] = (SOURCE, FAILURE)


class PolledSource(Protocol):
    """A source with its poller."""

    @property
    def configured(self) -> "ConfiguredSource":
        """The source, and what it was configured with."""

    @property
    def poller(self) -> "Poller":
        """Its poller."""


class Health:
    """Builds the tables about sources and polls."""

    def __init__(self) -> None:
        self._keepers = {schema: RowKeeper(schema.labels) for schema in SCHEMAS}

    def tables(self, running: Iterable[PolledSource]) -> Sequence[Table]:
        """Return the current tables about these sources."""
        sources, failures = TableBuilder(SOURCE), TableBuilder(FAILURE)
        polls: dict[Schema, TableBuilder] = {}
        for one in running:
            poller = one.poller
            status = poller.status
            key = (poller.source.name, poller.source.target)
            up = None if status.up is None else int(status.up)
            sources.row(
                key,
                {
                    "up": up,
                    "last_success_timestamp_seconds": status.last_success,
                    "read_duration_seconds": status.duration,
                    "reads_total": status.reads,
                    "overruns_total": status.overruns,
                    "rows": poller.count_rows(),
                },
            )
            of_kind = one.configured.polls
            if of_kind is not None and poller.source.target:
                values = {"up": up, "poll_duration_seconds": status.duration, "overruns_total": status.overruns}
                builder = polls.setdefault(of_kind.schema, TableBuilder(of_kind.schema))
                builder.row(of_kind.labels(poller.source), values)
            for (device, reason), count in list(status.failures.items()):
                failures.row((*key, device, reason), {"failures_total": count})
        now = monotonic()
        builders = (sources, failures, *polls.values())
        return [one.table(self._keepers.setdefault(one.schema, RowKeeper(one.schema.labels)), now) for one in builders]
