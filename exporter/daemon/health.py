"""The state of sources: their last reads, failures by device and reason, and polls of switches."""

from collections.abc import Iterable, Sequence
from time import monotonic

from exporter.core import vocabulary
from exporter.core.poller import Poller
from exporter.core.table import RowKeeper, Schema, Table, TableBuilder
from exporter.core.vocabulary import counter, gauge

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

SWITCH = vocabulary.schema(
    "fabric_switch_",
    ("switch", "target"),
    own={
        "up": gauge(
            "Whether the last poll of the switch succeeded (1) or failed (0); target is its name in the configuration,"
            " switch is the label of its ports."
        ),
        "poll_duration_seconds": gauge("Duration of the last poll of the switch, successful or not."),
        "overruns_total": counter(
            "Polls of the switch that were skipped because the previous poll was still in progress."
        ),
    },
)
"""The polls of a switch; these rows remain while it is down and its ports are not exported."""

SCHEMAS: tuple[Schema, ...] = (SOURCE, FAILURE, SWITCH)


class Health:
    """Builds the tables about sources and polls."""

    def __init__(self) -> None:
        self._keepers = {schema: RowKeeper(schema.labels) for schema in SCHEMAS}

    def tables(self, pollers: Iterable[Poller]) -> Sequence[Table]:
        """Return the current tables about these pollers."""
        sources, failures, switches = TableBuilder(SOURCE), TableBuilder(FAILURE), TableBuilder(SWITCH)
        for poller in pollers:
            status = poller.status
            key = (poller.source.name, poller.source.target)
            sources.row(
                key,
                {
                    "up": None if status.up is None else int(status.up),
                    "last_success_timestamp_seconds": status.last_success,
                    "read_duration_seconds": status.duration,
                    "reads_total": status.reads,
                    "overruns_total": status.overruns,
                    "rows": poller.count_rows(),
                },
            )
            label = getattr(poller.source, "label", "")  # only switches have one: the label of their ports
            if label:
                up = None if status.up is None else int(status.up)
                values = {"up": up, "poll_duration_seconds": status.duration, "overruns_total": status.overruns}
                switches.row((label, poller.source.target), values)
            for (device, reason), count in list(status.failures.items()):
                failures.row((*key, device, reason), {"failures_total": count})
        now = monotonic()
        builders = (sources, failures, switches)
        return [one.table(self._keepers[one.schema], now) for one in builders]
