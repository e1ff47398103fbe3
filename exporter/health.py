"""How the exporter itself and each of its sources are doing, as tables like any other."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from exporter import __version__, vocabulary
from exporter.poller import Poller
from exporter.table import RowKeeper, Schema, Table, TableBuilder
from exporter.vocabulary import counter, gauge, info

SOURCE = vocabulary.schema(
    "fabric_source_",
    ("source", "target"),
    own={
        "up": gauge("Whether the last read was good (1) or not (0); absent while there is nothing to read."),
        "last_success_timestamp_seconds": gauge("When the last good read ended, as Unix time."),
        "read_duration_seconds": gauge("How long the last read took."),
        "reads_total": counter("Reads begun."),
        "overruns_total": counter("Reads that were skipped because the one before took too long."),
        "rows": gauge("Rows in the tables of the last good read."),
    },
)

FAILURE = vocabulary.schema(
    "fabric_source_",
    ("source", "target", "device", "reason"),
    own={"failures_total": counter("What could not be read, by device and reason; nothing else was lost by it.")},
)

BUILD = vocabulary.schema(
    "fabric_exporter_",
    (),
    own={
        "build_info": info("The running program.", "version", "python"),
        "config_last_reload_successful": gauge(
            "Whether the last reading of the configuration was good (1) or not (0)."
        ),
        "config_last_reload_success_timestamp_seconds": gauge("When the configuration in use was read, as Unix time."),
        "event_loop_lag_seconds": gauge("Longest time in the last minute that the program was late to what was due."),
    },
)

REQUEST = vocabulary.schema(
    "fabric_exporter_",
    ("path", "code"),
    own={"http_requests_total": counter("HTTP requests answered, by path and status.")},
)

SCHEMAS: tuple[Schema, ...] = (SOURCE, FAILURE, BUILD, REQUEST)


@dataclass(slots=True)
class Reloads:
    """How the reading of the configuration went."""

    good: bool = True
    good_at: float = 0.0


class Health:
    """Makes the tables about the exporter itself."""

    def __init__(self) -> None:
        """Start without rows."""
        self._keepers = {schema: RowKeeper(schema.labels) for schema in SCHEMAS}

    def tables(
        self, pollers: Iterable[Poller], reloads: Reloads, requests: Mapping[tuple[str, int], int], lag: float | None
    ) -> Sequence[Table]:
        """Give the tables as of now."""
        sources, failures = TableBuilder(SOURCE), TableBuilder(FAILURE)
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
                    "rows": sum(len(table.rows) for table in poller.tables),
                },
            )
            for (device, reason), count in list(status.failures.items()):
                failures.row((*key, device, reason), {"failures_total": count})
        build = TableBuilder(BUILD)
        build.row(
            (),
            {
                "build_info": (__version__, platform.python_version()),
                "config_last_reload_successful": int(reloads.good),
                "config_last_reload_success_timestamp_seconds": reloads.good_at,
                "event_loop_lag_seconds": lag,
            },
        )
        answered = TableBuilder(REQUEST)
        for (path, code), count in list(requests.items()):
            answered.row((path, str(code)), {"http_requests_total": count})
        now = monotonic()
        return [one.table(self._keepers[one.schema], now) for one in (sources, failures, build, answered)]
