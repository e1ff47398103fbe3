"""States of hosts and adapters from the logs of jobs, published like those of ports, each for one job.

The transport that a job uses is valid as long as its log exists. An error is active for a quarter of an hour, which is
longer than NCCL retries, or until the port is reported active again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from exporter.core.table import LabelValues, Table
from exporter.meaning.ports.states import PortLocation, PortState

PREFIX = "fabric_nccl_"

FORGET_SECONDS = 120.0
"""Seconds without a reading after which all states are dropped."""

ERROR_SECONDS = 900.0
"""Seconds for which an error is active."""

Key = tuple[PortLocation, str, str]
"""PortLocation, job and kind of a state."""


class LogRule(NamedTuple):
    """When a row of a table is a state.

    Attributes:
        kind: Kind of the state, as in `cause_rules.LOG_RULES`.
        ending: Ending of the column.
        labels: Accepted values of labels of the row.
        lasting: Whether the value is a condition that holds now; else the column counts errors, and an increase is one.
    """

    kind: str
    ending: str
    labels: Mapping[str, Sequence[str]]
    lasting: bool = False


def _problem(kind: str, *problems: str) -> LogRule:
    return LogRule(kind, "problem_processes", MappingProxyType({"problem": problems}), lasting=True)


def _errors(kind: str, ending: str, **labels: Sequence[str]) -> LogRule:
    return LogRule(kind, ending, MappingProxyType(labels))


RULES: tuple[LogRule, ...] = (
    _problem("tcp_only", "tcp", "no_adapter", "no_libibverbs"),
    _problem("wrong_provider", "provider_tcp"),
    _problem("gdr_off", "gdr_off", "gdr_disabled"),
    _problem("gdr_partly", "gdr_partial"),
    _problem("gdr_too_far", "gdr_too_far"),
    _problem("adapters_mixed", "mixed_link_layers"),
    _problem("failed_over", "adapter_failed"),
    _problem("enhanced_connections", "ece"),
    _problem("memory_protection", "protection_errors"),
    _problem("short_timeout", "short_timeout"),
    _errors("port_error", "port_events_total", event=("port_error",)),
    _errors("adapter_fatal", "port_events_total", event=("device_fatal", "queue_pair_fatal")),
    _errors("adapter_fatal", "fatal_errors_total"),
    _errors("peer_unreachable", "completion_errors_total", status=("retries_exceeded",)),
    _errors("path_not_made", "verbs_failures_total", call=("ibv_modify_qp",), error=("timed_out", "unreachable")),
)
"""Rows that are states."""

PORT_RECOVERED = _errors("port_error", "port_events_total", event=("port_active",))
"""Rows whose increase ends the error state of a port."""


INFO_COLUMNS = ("transport_info", "hca_info")
"""Info columns that contain states."""

ENDINGS = frozenset({*INFO_COLUMNS, *(rule.ending for rule in RULES)})
"""Columns of tables made from logs."""


@dataclass(slots=True)
class LogStateMemory:
    """States and counters of the last readings.

    Attributes:
        read: Time at which logs were last read.
        states: States that were active then.
        counters: Values by ending and row.
        last_errors: Time at which each error was last counted.
        begun: Time at which each active state began.
        numbers: Number of times that each state began.
    """

    read: float = float("-inf")
    states: list[PortState] = field(default_factory=list)
    counters: dict[tuple[str, LabelValues], int] = field(default_factory=dict)
    last_errors: dict[Key, float] = field(default_factory=dict)
    begun: dict[Key, float] = field(default_factory=dict)
    numbers: dict[Key, int] = field(default_factory=dict)


class _Row(NamedTuple):
    """A row that matches a rule: the state, its counter, and its value."""

    rule: LogRule
    key: Key
    counter: tuple[str, LabelValues]
    value: int


def step(memory: LogStateMemory, tables: Iterable[Table], host: str, now: float) -> list[PortState]:
    """Process the tables of logs and return the active states.

    Args:
        memory: State of this step; changed.
        tables: Tables of any kind; those not made from logs are skipped.
        host: Name of this host; logs may contain its short form.
        now: Time of the tables.
    """
    found = [one for one in tables if one.schema.prefix == PREFIX and not ENDINGS.isdisjoint(one.schema.metrics)]
    if not found:
        if now - memory.read > FORGET_SECONDS:
            memory.states, memory.counters, memory.last_errors, memory.begun, memory.numbers = [], {}, {}, {}, {}
        return memory.states
    # Counts from before the first reading are not new errors.
    first, memory.read = now - memory.read > FORGET_SECONDS, now
    jobs = {key[table.schema.labels.index("train_job")] for table in found for key in table.rows.keys}
    names_here = _names_of_host(found, host)
    values: dict[Key, float] = dict(_adapters(found, host, names_here))
    counters: dict[tuple[str, LabelValues], int] = {}
    for row in _rows(found, host, names_here):
        if row.rule.lasting:
            values[row.key] = row.value
            continue
        counters[row.counter] = row.value
        if row.value > memory.counters.get(row.counter, 0) and not first:
            if row.rule is not PORT_RECOVERED:
                memory.last_errors[row.key] = now
            elif memory.last_errors.get(row.key, now) != now:
                del memory.last_errors[row.key]
    memory.counters = counters
    memory.last_errors = {
        key: at for key, at in memory.last_errors.items() if now - at <= ERROR_SECONDS and key[1] in jobs
    }
    active = {**dict.fromkeys(memory.last_errors, 1.0), **values}
    memory.numbers = {key: number for key, number in memory.numbers.items() if key[1] in jobs}
    for key in active.keys() - memory.begun.keys():
        memory.numbers[key] = memory.numbers.get(key, 0) + 1
    memory.begun = {key: memory.begun.get(key, now) for key in active}
    memory.states = [
        PortState(key[2], key[0], memory.begun[key], memory.numbers[key], value, job=key[1])
        for key, value in active.items()
    ]
    return memory.states


def _rows(tables: Iterable[Table], host: str, names_here: set[tuple[str, str]]) -> Iterator[_Row]:
    """Yield the rows of this host that match a rule."""
    for table in tables:
        for rule in (*RULES, PORT_RECOVERED):
            for key, labels, count in _column(table, rule.ending, names_here):
                fits = all(labels.get(name) in wanted for name, wanted in rule.labels.items())
                if fits and isinstance(count, int) and count > 0:
                    at = (_port(labels, host), labels["train_job"], rule.kind)
                    yield _Row(rule, at, (rule.ending, key), count)


def _adapters(tables: Iterable[Table], host: str, names_here: set[tuple[str, str]]) -> Iterator[tuple[Key, float]]:
    """Yield the states of info columns: adapters that no channel uses, and transfers through those of other GPUs."""
    unused: dict[Key, int] = {}
    used: set[Key] = set()
    for table in tables:
        for ending in INFO_COLUMNS:
            for _, labels, values in _column(table, ending, names_here):
                if not isinstance(values, tuple):
                    continue
                facts = dict(zip(table.schema.metrics[ending].extra, values, strict=True))
                place = PortLocation(host, "")
                if ending == "transport_info" and facts.get("pxn") == "yes":
                    yield (place, labels["train_job"], "proxied"), 1.0
                if ending == "hca_info":
                    at = (place, labels["train_job"], "adapters_unused")
                    unused[at] = unused.get(at, 0) + (facts.get("used") == "no")
                    used |= {at} if facts.get("used") == "yes" else set()
    yield from ((at, float(count)) for at, count in unused.items() if count and at in used)


def _column(
    table: Table, ending: str, names_here: set[tuple[str, str]]
) -> Iterator[tuple[LabelValues, Mapping[str, str], object]]:
    """Yield key, labels and value of the rows of this host in a column, if there is one."""
    for key, value in zip(table.rows.keys, table.values(ending) or (), strict=False):
        labels = dict(zip(table.schema.labels, key, strict=True))
        if (labels["train_job"], labels.get("host", "")) in names_here:
            yield key, labels, value


def _names_of_host(tables: Iterable[Table], host: str) -> set[tuple[str, str]]:
    """Return pairs of a job and the name of this host in its log.

    A log may contain the short or the long name, or that of a pod. Logs of a whole job contain the names of other hosts
    too, which report their own states.
    """
    names: dict[str, set[str]] = {}
    for table in tables:
        for key in table.rows.keys:
            labels = dict(zip(table.schema.labels, key, strict=True))
            names.setdefault(labels["train_job"], set()).add(labels.get("host", ""))
    found = set()
    for job, names_in_log in names.items():
        ours = {one for one in names_in_log if not one or _short(one) == _short(host)}
        others = names_in_log - ours
        found |= {(job, one) for one in (others if len(others) == 1 and ours <= {""} else set()) | ours}
    return found


def _short(name: str) -> str:
    """Return a host name without its domain; addresses are returned unchanged."""
    first = name.partition(".")[0]
    return name if first.isdecimal() else first


def _port(labels: Mapping[str, str], host: str) -> PortLocation:
    """Return the adapter port of a row: port 1 if none is named, and the host if no adapter is."""
    device = labels.get("device", "")
    return PortLocation(host, f"{device}:{labels.get('port') or 1}" if device else "")
