"""What the logs of jobs say of a host or an adapter, as states that are told like those of ports, each of one job.

How a job reaches the others is so as long as its log stands; what went wrong counts for a quarter of an hour, which is
longer than NCCL tries again, or until the adapter is told to be well.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.core.table import LabelValues, Table
from exporter.meaning.ports.states import Port, PortState

PREFIX = "fabric_nccl_"

FORGET = 120.0
"""Seconds without a reading after which nothing is said."""

LASTS = 900.0
"""Seconds for which something that went wrong is told."""

Key = tuple[Port, str, str]
"""Where, of which job, and of which kind."""


class LogRule(NamedTuple):
    """When a row of a table is a state.

    Attributes:
        kind: Of `cause_rules.LOG_RULES`.
        ending: Of the column.
        labels: Values that labels of the row may have.
        lasting: Whether the column tells what is so; else its rises tell what went wrong.
    """

    kind: str
    ending: str
    labels: Mapping[str, Sequence[str]]
    lasting: bool = False


def _problem(kind: str, *problems: str) -> LogRule:
    return LogRule(kind, "problem_processes", {"problem": problems}, lasting=True)


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
    LogRule("port_error", "port_events_total", {"event": ("port_error",)}),
    LogRule("adapter_fatal", "port_events_total", {"event": ("device_fatal", "queue_pair_fatal")}),
    LogRule("adapter_fatal", "fatal_errors_total", {}),
    LogRule("peer_unreachable", "completion_errors_total", {"status": ("retries_exceeded",)}),
    LogRule(
        "path_not_made", "verbs_failures_total", {"call": ("ibv_modify_qp",), "error": ("timed_out", "unreachable")}
    ),
)
"""Rows that are states."""

WELL = LogRule("port_error", "port_events_total", {"event": ("port_active",)})
"""Rows whose rises end a state of the port."""


TEXTS = ("transport_info", "hca_info")
"""Columns of texts that tell of states too."""

ENDINGS = frozenset({*TEXTS, *(rule.ending for rule in RULES)})
"""Columns of the tables that are of logs."""


@dataclass(slots=True)
class Memory:
    """What is remembered.

    Attributes:
        read: When logs were read last.
        states: What was active then.
        counters: By ending and row.
        risen: When each thing that went wrong was told last.
        begun: When each state that is active began.
        numbers: How often each began.
    """

    read: float = float("-inf")
    states: list[PortState] = field(default_factory=list)
    counters: dict[tuple[str, LabelValues], int] = field(default_factory=dict)
    risen: dict[Key, float] = field(default_factory=dict)
    begun: dict[Key, float] = field(default_factory=dict)
    numbers: dict[Key, int] = field(default_factory=dict)


class _Row(NamedTuple):
    """A row that a rule fits: the state that it is, its counter, and how much."""

    rule: LogRule
    key: Key
    counter: tuple[str, LabelValues]
    value: int


def step(memory: Memory, tables: Iterable[Table], host: str, now: float) -> list[PortState]:
    """Take what logs told, and give the states that are active.

    Args:
        memory: Of before; changed.
        tables: Of any kind; those of no log are passed over.
        host: The name of this host, whose logs may write it short.
        now: The tables' time.
    """
    found = [one for one in tables if one.schema.prefix == PREFIX and not ENDINGS.isdisjoint(one.schema.metrics)]
    if not found:
        if now - memory.read > FORGET:
            memory.states, memory.counters, memory.risen, memory.begun, memory.numbers = [], {}, {}, {}, {}
        return memory.states
    first, memory.read = now - memory.read > FORGET, now  # what stood there before is no news
    jobs = {key[table.schema.labels.index("train_job")] for table in found for key in table.rows.keys}
    here = _here(found, host)
    values: dict[Key, float] = dict(_adapters(found, host, here))
    counters: dict[tuple[str, LabelValues], int] = {}
    for row in _rows(found, host, here):
        if row.rule.lasting:
            values[row.key] = row.value
            continue
        counters[row.counter] = row.value
        if row.value > memory.counters.get(row.counter, 0) and not first:
            if row.rule is not WELL:
                memory.risen[row.key] = now
            elif memory.risen.get(row.key, now) != now:
                del memory.risen[row.key]
    memory.counters = counters
    memory.risen = {key: told for key, told in memory.risen.items() if now - told <= LASTS and key[1] in jobs}
    active = {**dict.fromkeys(memory.risen, 1.0), **values}
    memory.numbers = {key: number for key, number in memory.numbers.items() if key[1] in jobs}
    for key in active.keys() - memory.begun.keys():
        memory.numbers[key] = memory.numbers.get(key, 0) + 1
    memory.begun = {key: memory.begun.get(key, now) for key in active}
    memory.states = [
        PortState(key[2], key[0], memory.begun[key], memory.numbers[key], value, job=key[1])
        for key, value in active.items()
    ]
    return memory.states


def _rows(tables: Iterable[Table], host: str, here: set[tuple[str, str]]) -> Iterator[_Row]:
    """Give the rows of this host that are states."""
    for table in tables:
        for rule in (*RULES, WELL):
            for key, labels, count in _column(table, rule.ending, here):
                fits = all(labels.get(name) in wanted for name, wanted in rule.labels.items())
                if fits and isinstance(count, int) and count > 0:
                    at = (_port(labels, host), labels["train_job"], rule.kind)
                    yield _Row(rule, at, (rule.ending, key), count)


def _adapters(tables: Iterable[Table], host: str, here: set[tuple[str, str]]) -> Iterator[tuple[Key, float]]:
    """Give what is told in texts: adapters that no channel uses, and transfers by those of other GPUs."""
    unused: dict[Key, int] = {}
    used: set[Key] = set()
    for table in tables:
        for ending in TEXTS:
            for _, labels, told in _column(table, ending, here):
                if not isinstance(told, tuple):
                    continue
                facts = dict(zip(table.schema.metrics[ending].extra, told, strict=True))
                place = Port(host, "")
                if ending == "transport_info" and facts.get("pxn") == "yes":
                    yield (place, labels["train_job"], "proxied"), 1.0
                if ending == "hca_info":
                    at = (place, labels["train_job"], "adapters_unused")
                    unused[at] = unused.get(at, 0) + (facts.get("used") == "no")
                    used |= {at} if facts.get("used") == "yes" else set()
    yield from ((at, float(count)) for at, count in unused.items() if count and at in used)


def _column(
    table: Table, ending: str, here: set[tuple[str, str]]
) -> Iterator[tuple[LabelValues, Mapping[str, str], object]]:
    """Give the rows of this host in a column, if there is one: key, labels and value."""
    for key, value in zip(table.rows.keys, table.values(ending) or (), strict=False):
        labels = dict(zip(table.schema.labels, key, strict=True))
        if (labels["train_job"], labels.get("host", "")) in here:
            yield key, labels, value


def _here(tables: Iterable[Table], host: str) -> set[tuple[str, str]]:
    """Give jobs and the names of this host in their logs.

    A log may write it short or long, or as that of a pod. Logs of a whole job have the names of other hosts too, which
    tell of themselves.
    """
    names: dict[str, set[str]] = {}
    for table in tables:
        for key in table.rows.keys:
            labels = dict(zip(table.schema.labels, key, strict=True))
            names.setdefault(labels["train_job"], set()).add(labels.get("host", ""))
    found = set()
    for job, told in names.items():
        ours = {one for one in told if not one or _short(one) == _short(host)}
        others = told - ours
        found |= {(job, one) for one in (others if len(others) == 1 and ours <= {""} else set()) | ours}
    return found


def _short(name: str) -> str:
    """Give the name of a host without its domain; addresses stay."""
    first = name.partition(".")[0]
    return name if first.isdecimal() else first


def _port(labels: Mapping[str, str], host: str) -> Port:
    """Give the adapter's port that a row is about: where no port is told the first, without an adapter the host."""
    device = labels.get("device", "")
    return Port(host, f"{device}:{labels.get('port') or 1}" if device else "")
