"""Tables of NCCL's logs: a row per host of a job, NIC port, problem, and kind of error or event."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from exporter.core.table import (
    LabelValues,
    RowKeeper,
    Schema,
    Table,
    TableBuilder,
)
from exporter.sources.nccl_facts.log_process import LoggedProcess
from exporter.sources.nccl_facts.log_state import LogState
from exporter.sources.nccl_facts.metrics import (
    ADAPTERS,
    COUNTERS,
    EVENTS,
    FILES,
    LINES,
    LOG_SCHEMAS,
    PROBLEMS,
    TRANSPORT,
)
from exporter.sources.nccl_facts.problems import PROBLEMS as KNOWN_PROBLEMS

MIXED = "mixed"
"""Value where processes of one host differ."""

MAX_ADAPTER_ROWS = 4096
"""Rows of NIC ports."""

OUTCOMES = ("fact", "other", "too_long", "over_limit")


class LogTables:
    """Builds the tables of logs, and caches their rows."""

    def __init__(self) -> None:
        self._keepers = {schema: RowKeeper(schema.labels) for schema in LOG_SCHEMAS}

    def tables(self, state: LogState, lines: Counter[str], ages: Mapping[str, float], now: float) -> list[Table]:
        """Return all tables.

        Args:
            state: State of the logs.
            lines: Lines by outcome.
            ages: Seconds since the last write to each log that is followed, by path.
            now: Monotonic time.
        """
        hosts: dict[LabelValues, list[LoggedProcess]] = {}
        for (job, _, host), group in state.groups.items():
            hosts.setdefault((job, host), []).extend(group.values())
        builders = [
            _transport(hosts, state, ages),
            _adapters(hosts),
            _problems(hosts),
            *(_counter_rows(schema, state.counts.get(kind, {})) for kind, schema in COUNTERS.items()),
            _events(hosts, state),
        ]
        builders = [one for one in builders if one.keys]
        builders += [
            _counter_rows(LINES, {(one,): lines[one] for one in OUTCOMES}),
            _counter_rows(FILES, {(): len(ages)}),
        ]
        return [one.table(self._keepers[one.schema], now) for one in builders]


def _common(values: Iterable[str], otherwise: str = MIXED) -> str:
    """Return the only value that is not empty, or `otherwise` if there are several."""
    known = set(values) - {""}
    return next(iter(known), "") if len(known) <= 1 else otherwise


def _versions(processes: Sequence[LoggedProcess], state: LogState) -> tuple[str, str]:
    known = [(one.library, one.version) for one in processes if one.version]
    if not known:
        of_logs = (state.versions.get(one.path) for one in processes)
        known = [(one.library, one.version) for one in of_logs if one is not None]
    return _common(library for library, _ in known), _common(version for _, version in known)


def _transport(
    hosts: Mapping[LabelValues, list[LoggedProcess]], state: LogState, ages: Mapping[str, float]
) -> TableBuilder:
    builder = TableBuilder(TRANSPORT)
    for key, processes in hosts.items():
        values = (
            *_versions(processes, state),
            _common(one.effective_network for one in processes),
            _common(one.provider for one in processes),
            _common((one.gdr for one in processes), "partial"),
            _common(one.sharp for one in processes),
            _common(one.nvls for one in processes),
            _common("" if one.pxn is None else ("yes" if one.pxn else "no") for one in processes),
        )
        failed = sum(len(one.failed) for one in processes)
        crossing = [one.crosses_nodes for one in processes if one.crosses_nodes is not None]
        builder.row(
            key,
            {
                "transport_info": values,
                "logged_processes": len(processes),
                "network_processes": sum(crossing) if crossing else None,
                "log_age_seconds": min((ages[one.path] for one in processes if one.path in ages), default=None),
                "failed_adapters": failed,
            },
        )
    return builder


def _adapters(hosts: Mapping[LabelValues, list[LoggedProcess]]) -> TableBuilder:
    builder = TableBuilder(ADAPTERS)
    for key, processes in hosts.items():
        links: dict[tuple[str, int], list[str]] = {}
        used: set[tuple[str, int]] = set()
        for process in processes:
            for adapter in process.adapters or ():
                port = (adapter.device, adapter.port)
                links.setdefault(port, []).append(adapter.link)
                if adapter.index in process.used:
                    used.add(port)
        usage_known = any(process.used for process in processes)
        for port, of_port in links.items():
            if len(builder.keys) >= MAX_ADAPTER_ROWS:
                return builder
            device, number = port
            gdr = _common(
                "on" if one.gdr_adapters[device] else "off" for one in processes if device in one.gdr_adapters
            )
            use = ("yes" if port in used else "no") if usage_known else ""
            builder.row((*key, device, str(number)), {"hca_info": (_common(of_port), use, gdr)})
    return builder


def _problems(hosts: Mapping[LabelValues, list[LoggedProcess]]) -> TableBuilder:
    builder = TableBuilder(PROBLEMS)
    for key, processes in hosts.items():
        for problem in KNOWN_PROBLEMS:
            answers = [answer for process in processes if (answer := problem.check(process)) is not None]
            if answers:
                builder.row((*key, problem.name), {"problem_processes": sum(answers)})
    return builder


def _counter_rows(schema: Schema, rows: Mapping[LabelValues, int]) -> TableBuilder:
    builder = TableBuilder(schema)
    (ending,) = schema.metrics
    for key, count in rows.items():
        builder.row(key, {ending: count})
    return builder


def _events(hosts: Iterable[LabelValues], state: LogState) -> TableBuilder:
    """Build the counters of hosts; they start at 0 where there is a log."""
    builder = TableBuilder(EVENTS)
    rows = {ending: state.counts.get(ending.removesuffix("_total"), {}) for ending in EVENTS.metrics}
    for key in dict.fromkeys((*hosts, *(key for counts in rows.values() for key in counts))):
        builder.row(key, {ending: counts.get(key, 0) for ending, counts in rows.items()})
    return builder
