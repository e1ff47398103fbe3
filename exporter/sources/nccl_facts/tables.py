"""Tables of what NCCL's logs told: one row a host of a job, an adapter, a problem, and a thing that went wrong."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from exporter.core import vocabulary
from exporter.core.table import (
    LabelValues,
    RowKeeper,
    Schema,
    Table,
    TableBuilder,
)
from exporter.core.vocabulary import counter, gauge, info
from exporter.sources.nccl_facts.problems import CAUSES
from exporter.sources.nccl_facts.state import Book, Process

PREFIX = "fabric_nccl_"
HOST_LABELS = ("train_job", "host")
LOG = ["NCCL_DEBUG"]
"""Origin of all this."""

MIXED = "mixed"
"""What is shown where processes of one host say different things."""

MOST_ADAPTERS = 4096
"""Rows of adapters."""

SINCE = " Counted are lines written since this exporter runs, of each process that writes one."


def _schema(labels: tuple[str, ...], own: Mapping[str, vocabulary.Ending]) -> Schema:
    return vocabulary.schema(PREFIX, labels, own=own, origins=dict.fromkeys(own, LOG))


TRANSPORT = _schema(
    HOST_LABELS,
    {
        "transport_info": info(
            "How the job's processes on a host reach others, by NCCL's log: the network chosen; the provider of"
            " libfabric; gdr, GPUDirect RDMA of what is received, on, off or partly; sharp and nvls, reduction by"
            " switches of the fabric and of NVLink, used, unused or (nvls) unavailable; pxn, whether other GPUs'"
            " adapters are used. What the log does not tell is absent; mixed where processes differ.",
            "library",
            "version",
            "network",
            "provider",
            "gdr",
            "sharp",
            "nvls",
            "pxn",
        ),
        "logged_processes": gauge("Processes of the job on the host that its logs tell of."),
        "failed_adapters": gauge(
            "Adapters that processes gave up and did not get back, summed over processes: the job goes on with less"
            " bandwidth."
        ),
    },
)

ADAPTERS = _schema(
    (*HOST_LABELS, "device", "port"),
    {
        "hca_info": info(
            "Adapters that NCCL may use: the link layer, whether a channel in the logs uses it (absent where no log has"
            " channels between nodes), and whether it can do GPUDirect RDMA.",
            "link_layer",
            "used",
            "gdr",
        )
    },
)

PROBLEMS = _schema(
    (*HOST_LABELS, "problem"),
    {
        "problem_processes": gauge(
            "Processes whose log shows what has slowed jobs elsewhere, absent where none tells. Processes "
            + "; ".join(f"{cause.meaning} ({cause.name})" for cause in CAUSES)
            + "."
        )
    },
)

COUNTERS: dict[str, Schema] = {
    "port_events": _schema(
        (*HOST_LABELS, "device", "port", "event"),
        {
            "port_events_total": counter(
                "Events that adapters reported by themselves. Up to 2.18 NCCL does not tell the adapter." + SINCE
            )
        },
    ),
    "completion_errors": _schema(
        (*HOST_LABELS, "device", "status"),
        {
            "completion_errors_total": counter(
                "Transfers that failed, by the reason of libibverbs; not those that were flushed after another. Up to"
                " 2.22 NCCL does not tell the adapter." + SINCE
            )
        },
    ),
    "unreachable_peers": _schema(
        ("train_job", "peer"),
        {
            "unreachable_peer_errors_total": counter(
                "Transfers that failed since the peer did not answer after all retries, by its address in the log."
                + SINCE
            )
        },
    ),
    "verbs_failures": _schema(
        (*HOST_LABELS, "device", "call", "error"),
        {"verbs_failures_total": counter("Calls of libibverbs that failed." + SINCE)},
    ),
    "watchdog_timeouts": _schema(
        ("train_job", "collective"),
        {"watchdog_timeouts_total": counter("Collectives that PyTorch's watchdog gave up." + SINCE)},
    ),
}
"""Schemas with a column each, by the kind of counter."""

EVENTS = _schema(
    HOST_LABELS,
    {
        "flushed_completions_total": counter(
            "Transfers that were flushed: a consequence of another error, never a cause." + SINCE
        ),
        "failovers_total": counter("Times that an adapter was given up and the job went on with others." + SINCE),
        "recoveries_total": counter("Times that an adapter that was given up was used again." + SINCE),
        "fatal_errors_total": counter("Errors of adapters that a process could not survive." + SINCE),
        "peers_closed_total": counter("TCP connections that the other end closed: look there for the reason." + SINCE),
    },
)

LINES = _schema(
    ("outcome",),
    {
        "log_lines_total": counter(
            "Lines of NCCL's logs by what became of them: fact (used), other (passed over), too_long and over_limit"
            " (lost)."
        )
    },
)

FILES = _schema((), {"log_files": gauge("Logs that are followed, also those that no process writes any more.")})

SCHEMAS = (TRANSPORT, ADAPTERS, PROBLEMS, *COUNTERS.values(), EVENTS, LINES, FILES)

OUTCOMES = ("fact", "other", "too_long", "over_limit")


class LogTables:
    """Makes tables of what logs told."""

    def __init__(self) -> None:
        self._keepers = {schema: RowKeeper(schema.labels) for schema in SCHEMAS}

    def tables(self, book: Book, lines: Counter[str], files: int, now: float) -> list[Table]:
        """Make all tables."""
        hosts: dict[LabelValues, list[Process]] = {}
        for (job, _, host), group in book.groups.items():
            hosts.setdefault((job, host), []).extend(group.values())
        made = [
            _transport(hosts, book),
            _adapters(hosts),
            _problems(hosts),
            *(_counted(schema, book.counts.get(kind, {})) for kind, schema in COUNTERS.items()),
            _events(hosts, book),
        ]
        made = [one for one in made if one.keys]
        made += [_counted(LINES, {(one,): lines[one] for one in OUTCOMES}), _counted(FILES, {(): files})]
        return [one.table(self._keepers[one.schema], now) for one in made]


def _same(words: Iterable[str], otherwise: str = MIXED) -> str:
    """Give what all say that say anything, or a word where they differ."""
    told = set(words) - {""}
    return next(iter(told), "") if len(told) <= 1 else otherwise


def _versions(processes: Sequence[Process], book: Book) -> tuple[str, str]:
    told = [(one.library, one.version) for one in processes if one.version]
    if not told:
        bare = (book.versions.get(one.path) for one in processes)
        told = [(one.library, one.version) for one in bare if one is not None]
    return _same(library for library, _ in told), _same(version for _, version in told)


def _transport(hosts: Mapping[LabelValues, list[Process]], book: Book) -> TableBuilder:
    made = TableBuilder(TRANSPORT)
    for key, processes in hosts.items():
        about = (
            *_versions(processes, book),
            _same(one.chosen for one in processes),
            _same(one.provider for one in processes),
            _same((one.gdr for one in processes), "partly"),
            _same(one.sharp for one in processes),
            _same(one.nvls for one in processes),
            _same("" if one.pxn is None else ("yes" if one.pxn else "no") for one in processes),
        )
        failed = sum(len(one.failed) for one in processes)
        made.row(key, {"transport_info": about, "logged_processes": len(processes), "failed_adapters": failed})
    return made


def _adapters(hosts: Mapping[LabelValues, list[Process]]) -> TableBuilder:
    made = TableBuilder(ADAPTERS)
    for key, processes in hosts.items():
        links: dict[tuple[str, int], list[str]] = {}
        used: set[tuple[str, int]] = set()
        for process in processes:
            for adapter in process.adapters or ():
                place = (adapter.device, adapter.port)
                links.setdefault(place, []).append(adapter.link)
                if adapter.index in process.used:
                    used.add(place)
        told = any(process.used for process in processes)
        for place, of_place in links.items():
            if len(made.keys) >= MOST_ADAPTERS:
                return made
            device, port = place
            able = _same("on" if one.gdr_adapters[device] else "off" for one in processes if device in one.gdr_adapters)
            use = ("yes" if place in used else "no") if told else ""
            made.row((*key, device, str(port)), {"hca_info": (_same(of_place), use, able)})
    return made


def _problems(hosts: Mapping[LabelValues, list[Process]]) -> TableBuilder:
    made = TableBuilder(PROBLEMS)
    for key, processes in hosts.items():
        for cause in CAUSES:
            answers = [answer for process in processes if (answer := cause.holds(process)) is not None]
            if answers:
                made.row((*key, cause.name), {"problem_processes": sum(answers)})
    return made


def _counted(schema: Schema, rows: Mapping[LabelValues, int]) -> TableBuilder:
    made = TableBuilder(schema)
    (ending,) = schema.metrics
    for key, count in rows.items():
        made.row(key, {ending: count})
    return made


def _events(hosts: Iterable[LabelValues], book: Book) -> TableBuilder:
    """Give what happened on hosts; nothing is told as 0 where there is a log that would tell."""
    made = TableBuilder(EVENTS)
    rows = {ending: book.counts.get(ending.removesuffix("_total"), {}) for ending in EVENTS.metrics}
    for key in dict.fromkeys((*hosts, *(key for counts in rows.values() for key in counts))):
        made.row(key, {ending: counts.get(key, 0) for ending, counts in rows.items()})
    return made
