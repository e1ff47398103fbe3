"""The exporter's own metrics: sources, polls of switches, HTTP requests, the event loop and the process."""

import os
import platform
import resource
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime, monotonic, time

from exporter import __version__
from exporter.core import vocabulary
from exporter.core.poller import Poller
from exporter.core.table import (
    RowKeeper,
    Schema,
    Table,
    TableBuilder,
    Value,
)
from exporter.core.vocabulary import counter, gauge, info
from exporter.linux.cached_file import PAGE_SIZE, open_cached

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

BUILD = vocabulary.schema(
    "fabric_exporter_",
    (),
    own={
        "build_info": info("Version of the running exporter and of Python.", "version", "python"),
        "config_last_reload_successful": gauge(
            "Whether the last load of the configuration succeeded (1) or failed (0)."
        ),
        "config_last_reload_success_timestamp_seconds": gauge(
            "Unix time of the last successful load of the configuration."
        ),
        "event_loop_lag_seconds": gauge("Maximum delay of a scheduled poll in the last minute."),
    },
)

REQUEST = vocabulary.schema(
    "fabric_exporter_",
    ("path", "code"),
    own={"http_requests_total": counter("HTTP responses sent, by path and status code.")},
)

REFUSAL = vocabulary.schema(
    "fabric_exporter_",
    ("reason",),
    own={
        "http_refused_total": counter(
            "Connections and requests refused, by reason: too many connections, a failed TLS handshake, a client"
            " certificate whose name is not allowed, a malformed request, a timeout, or a failed authentication."
        )
    },
)

PROCESS = vocabulary.schema(
    "process_",
    (),
    own={
        "cpu_seconds_total": counter("Total user and system CPU time spent in seconds."),
        "virtual_memory_bytes": gauge("Virtual memory size in bytes."),
        "resident_memory_bytes": gauge("Resident memory size in bytes."),
        "start_time_seconds": gauge("Start time of the process since unix epoch in seconds."),
        "open_fds": gauge("Number of open file descriptors."),
        "max_fds": gauge("Maximum number of open file descriptors."),
    },
)
"""Metrics of the process, with the names and texts of the Prometheus client libraries."""

SCHEMAS: tuple[Schema, ...] = (SOURCE, FAILURE, SWITCH, BUILD, REQUEST, REFUSAL, PROCESS)

_PAGE = resource.getpagesize()


class Process:
    """Reads the metrics of this process from procfs, which is done at each scrape."""

    def __init__(self) -> None:
        """Read the start time of the process."""
        stat = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()  # the name may contain blanks
        self._start = time() - clock_gettime(CLOCK_BOOTTIME) + int(stat[19]) / os.sysconf("SC_CLK_TCK")
        self._memory = open_cached("/proc/self/statm")

    def values(self) -> dict[str, Value | None]:
        """Return the values by the ending of their metric."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        size, resident = os.pread(self._memory, PAGE_SIZE, 0).split()[:2]
        return {
            "cpu_seconds_total": used.ru_utime + used.ru_stime,
            "virtual_memory_bytes": int(size) * _PAGE,
            "resident_memory_bytes": int(resident) * _PAGE,
            "start_time_seconds": self._start,
            # Since Linux 6.2 the size of this directory is the number of descriptors; before, it is 0.
            "open_fds": os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")),  # noqa: PTH116, PTH208
            "max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        }


@dataclass(slots=True)
class Reloads:
    """Result of the last load of the configuration, and the Unix time of the last successful one."""

    good: bool = True
    good_at: float = 0.0


class Health:
    """Builds the tables of the exporter's own metrics."""

    def __init__(self) -> None:
        self._keepers = {schema: RowKeeper(schema.labels) for schema in SCHEMAS}
        self._process = Process()

    def tables(
        self,
        pollers: Iterable[Poller],
        reloads: Reloads,
        requests: Mapping[tuple[str, int], int],
        refused: Mapping[str, int],
        lag: float | None,
    ) -> Sequence[Table]:
        """Return the current tables.

        Args:
            pollers: Of all sources.
            reloads: Result of the last load of the configuration.
            requests: Responses by path and status code.
            refused: Refused connections and requests by reason.
            lag: Maximum event loop lag in seconds; None where nothing was measured.
        """
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
        responses = TableBuilder(REQUEST)
        for (path, code), count in list(requests.items()):
            responses.row((path, str(code)), {"http_requests_total": count})
        refusals = TableBuilder(REFUSAL)
        for reason, count in refused.items():
            refusals.row((reason,), {"http_refused_total": count})
        process = TableBuilder(PROCESS)
        process.row((), self._process.values())
        now = monotonic()
        builders = (sources, failures, switches, build, responses, refusals, process)
        return [one.table(self._keepers[one.schema], now) for one in builders]
