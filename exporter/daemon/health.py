"""How the exporter itself and each of its sources are doing, as tables like any other."""

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
        "up": gauge("Whether the last read was good (1) or not (0); absent while there is nothing to read."),
        "last_success_timestamp_seconds": gauge("When the last good read ended, as Unix time."),
        "read_duration_seconds": gauge("How long the last read took."),
        "reads_total": counter("Reads begun."),
        "overruns_total": counter("Reads that were skipped because the one before took too long."),
        "rows": gauge("Rows that are exported now; none once the last good read is two intervals old."),
    },
)

FAILURE = vocabulary.schema(
    "fabric_source_",
    ("source", "target", "device", "reason"),
    own={"failures_total": counter("What could not be read, by device and reason; nothing else was lost by it.")},
)

SWITCH = vocabulary.schema(
    "fabric_switch_",
    ("switch", "target"),
    own={
        "up": gauge(
            "Whether the last poll of the switch was good (1) or not (0); target is its name in the configuration, and"
            " switch the label that its ports have."
        ),
        "poll_duration_seconds": gauge("How long the last poll of the switch took, good or bad."),
        "overruns_total": counter(
            "Polls of the switch that were left out, as the one before was still under way or began late."
        ),
    },
)
"""How each switch is doing; there while a switch is down too, when its ports have gone."""

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

REFUSAL = vocabulary.schema(
    "fabric_exporter_",
    ("reason",),
    own={
        "http_refused_total": counter(
            "Clients that were turned away: too many connections, a client certificate of a name that is not allowed,"
            " a malformed request, too slow, or a wrong password."
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
"""The process's own metrics, under the names and texts that every Prometheus client library gives them."""

SCHEMAS: tuple[Schema, ...] = (SOURCE, FAILURE, SWITCH, BUILD, REQUEST, REFUSAL, PROCESS)

_PAGE = resource.getpagesize()


class Process:
    """Reads what the kernel tells of this process; cheaply, since it is asked at each scrape."""

    def __init__(self) -> None:
        """Find out when the process started."""
        stat = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()  # after the name: it may hold blanks
        self._start = time() - clock_gettime(CLOCK_BOOTTIME) + int(stat[19]) / os.sysconf("SC_CLK_TCK")
        self._memory = open_cached("/proc/self/statm")

    def values(self) -> dict[str, Value | None]:
        """Give the values by ending."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        size, resident = os.pread(self._memory, PAGE_SIZE, 0).split()[:2]
        return {
            "cpu_seconds_total": used.ru_utime + used.ru_stime,
            "virtual_memory_bytes": int(size) * _PAGE,
            "resident_memory_bytes": int(resident) * _PAGE,
            "start_time_seconds": self._start,
            # Since Linux 6.2 the folder's size is the number of descriptors; before, it is 0.
            "open_fds": os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")),  # noqa: PTH116, PTH208
            "max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        }


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
        self._process = Process()

    def tables(
        self,
        pollers: Iterable[Poller],
        reloads: Reloads,
        requests: Mapping[tuple[str, int], int],
        refused: Mapping[str, int],
        lag: float | None,
    ) -> Sequence[Table]:
        """Give the tables as of now.

        Args:
            pollers: Of every source.
            reloads: How the reading of the configuration went.
            requests: Answers by path and status.
            refused: Clients that were turned away, by reason.
            lag: Seconds that the event loop was late at most; None where nothing was due.
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
            label = getattr(poller.source, "label", "")  # of a switch alone: it is known by it in other tables
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
        answered = TableBuilder(REQUEST)
        for (path, code), count in list(requests.items()):
            answered.row((path, str(code)), {"http_requests_total": count})
        away = TableBuilder(REFUSAL)
        for reason, count in refused.items():
            away.row((reason,), {"http_refused_total": count})
        process = TableBuilder(PROCESS)
        process.row((), self._process.values())
        now = monotonic()
        builders = (sources, failures, switches, build, answered, away, process)
        return [one.table(self._keepers[one.schema], now) for one in builders]
