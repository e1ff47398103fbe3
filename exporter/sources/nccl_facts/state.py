"""What the lines of NCCL's logs add up to: how each process reaches the others, and how often what went wrong.

How a process is connected is said once, at its start, and holds until its file is gone; what goes wrong is counted
from when it is first seen happening. All of it is written by jobs, so everything is bounded, and names that become
labels come from tables.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from exporter.core.collectives import OTHER, known_kind
from exporter.core.table import LabelValues
from exporter.nccl import log_facts as facts
from exporter.nccl.log_facts import Entry

MAX_JOBS = 32
"""Jobs that are told apart."""

MAX_HOSTS = 256
"""Hosts of all jobs together: a log may hold the lines of a whole job."""

MAX_PROCESSES = 4096
"""Processes of all jobs together."""

MAX_ADAPTERS = 64
"""Adapters and ports of one process."""

MAX_COUNTED = 2048
"""Rows of one kind of counter."""

MAX_COMMUNICATORS = 256
"""Communicators that are remembered of one process."""

RESTARTED = 600.0
"""Seconds by which a process is younger than others of its log and host from which on it belongs to a new start."""

TCP = frozenset({"Socket", "FastSocket"})

PORT_EVENTS = (
    ("port error", "port_error"),
    ("port active", "port_active"),
    ("GID table change", "gid_change"),
    ("work queue catastrophic", "queue_pair_fatal"),
    ("SRQ catastrophic", "queue_pair_fatal"),
    ("local catastrophic", "device_fatal"),
    ("access violation", "queue_pair_access"),
    ("invalid request", "queue_pair_request"),
    ("path migra", "path_migration"),
    ("LID change", "lid_change"),
    ("P_Key change", "pkey_change"),
    ("SM change", "subnet_manager_change"),
    ("client reregist", "reregistration"),
    ("CQ error", "completion_queue_error"),
)
"""What is in libibverbs' text of an event, and what the event is called here."""

STATUSES = {
    1: "local_length",
    2: "local_queue_pair",
    4: "local_protection",
    6: "memory_window",
    7: "bad_response",
    8: "local_access",
    9: "remote_invalid_request",
    10: "remote_access",
    11: "remote_operation",
    12: "retries_exceeded",
    13: "receiver_not_ready",
    16: "remote_abort",
    19: "fatal",
    20: "response_timeout",
    21: "general",
}
"""Numbers of libibverbs for why a transfer failed. 5, flushed, is none: it follows from another."""

UNREACHABLE = 12

CALLS = frozenset(
    {
        "ibv_modify_qp",
        "ibv_create_qp",
        "ibv_create_cq",
        "ibv_create_srq",
        "ibv_alloc_pd",
        "ibv_reg_mr",
        "ibv_reg_mr_iova2",
        "ibv_reg_dmabuf_mr",
        "ibv_open_device",
        "ibv_query_device",
        "ibv_query_port",
        "ibv_query_gid",
        "ibv_post_send",
        "ibv_post_recv",
        "ibv_poll_cq",
    }
)

ERRORS = (
    ("timed out", "timed_out"),
    ("unreachable", "unreachable"),
    ("Cannot allocate memory", "no_memory"),
    ("Invalid argument", "invalid_argument"),
    ("not permitted", "not_permitted"),
    ("Permission denied", "not_permitted"),
    ("not supported", "not_supported"),
    ("Bad address", "bad_address"),
    ("No such device", "no_device"),
)
"""What is in the system's text of an error, and what the error is called here."""

WATCHED = frozenset(
    {"NCCL_IB_DISABLE", "NCCL_IB_TIMEOUT", "NCCL_NET_GDR_LEVEL", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}
)
"""Variables whose values are kept."""


def _named(text: str, names: Iterable[tuple[str, str]]) -> str:
    return next((name for part, name in names if part in text), OTHER)


class Communicator(NamedTuple):
    """A communicator of a process: rank, ranks, hash, whether it is made, and when it was heard of as news."""

    rank: int
    n_ranks: int
    comm_id: str
    complete: bool
    heard: float | None


@dataclass(slots=True)
class Process:
    """How one process reaches the others, as far as it is told; what is not, is empty or None.

    Attributes:
        path: Its log.
        host: Its host, as the log tells it.
        born: Monotonic time at which it was first heard of.
        version: Of NCCL.
        library: NCCL or RCCL.
        network: The network that was chosen.
        via: Networks that channels go through.
        provider: Of libfabric.
        adapters: Those that it may use; None where it does not say.
        missing: Why it has none.
        used: Numbers of those that its channels use.
        received: Channels that receive through an adapter, by whether with GPUDirect RDMA.
        sent: Likewise of those that send, or do not tell which.
        ring_gdr: Whether rings use GPUDirect RDMA.
        gdr_adapters: By device, whether it can.
        gdr_pairs: Whether it is done, of pairs of GPU and adapter.
        too_far: Whether a GPU is farther from its adapter than GPUDirect RDMA is done.
        pxn: Whether other GPUs' adapters are used.
        nvls: `used`, `unused` or `unavailable`.
        sharp: `used` or `unused`.
        far: Whether the best path from a GPU to an adapter crosses a processor.
        ece: Whether enhanced connection establishment is used.
        protection_errors: Whether a transfer failed for the protection of memory, 4 with the vendor's 81.
        settings: Values of `WATCHED`.
        failed: Adapters that it gave up.
        nodes: Nodes of its largest communicator.
        communicators: By their address in the process.
    """

    path: str
    host: str
    born: float
    version: str = ""
    library: str = ""
    network: str = ""
    via: set[str] = field(default_factory=set)
    provider: str = ""
    adapters: tuple[facts.Adapter, ...] | None = None
    missing: str = ""
    used: set[int] = field(default_factory=set)
    received: Counter[bool] = field(default_factory=Counter)
    sent: Counter[bool] = field(default_factory=Counter)
    ring_gdr: bool | None = None
    gdr_adapters: dict[str, bool] = field(default_factory=dict)
    gdr_pairs: set[bool] = field(default_factory=set)
    too_far: bool | None = None
    pxn: bool | None = None
    nvls: str = ""
    sharp: str = ""
    far: bool | None = None
    ece: bool | None = None
    protection_errors: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    nodes: int | None = None
    communicators: dict[str, Communicator] = field(default_factory=dict)

    @property
    def chosen(self) -> str:
        """Give the network: the one chosen, or that which all channels go through; empty where not told."""
        return self.network or (next(iter(self.via)) if len(self.via) == 1 else "")

    @property
    def tcp(self) -> bool | None:
        """Tell whether it reaches other nodes by TCP; None where not told."""
        return self.chosen in TCP if self.chosen else None

    @property
    def gdr(self) -> str:
        """Tell whether GPUDirect RDMA is `on`, `off` or on `partly`; empty where not told, and over TCP.

        What receives decides: that sends go through the host's memory is normal with GPUs of some ages.
        """
        if self.tcp:
            return ""
        channels = self.received or self.sent
        if channels:
            return "partly" if len(channels) > 1 else ("on" if True in channels else "off")
        if self.ring_gdr is not None and self.nodes != 1:
            return "on" if self.ring_gdr else "off"
        able = {*self.gdr_adapters.values(), *self.gdr_pairs}
        return "off" if able == {False} else ""


def _version(process: Process, fact: facts.Version) -> None:
    process.version, process.library = fact.version, fact.library


def _adapters(process: Process, fact: facts.Adapters) -> None:
    process.adapters = fact.adapters[:MAX_ADAPTERS]


def _no_adapters(process: Process, fact: facts.NoAdapters) -> None:
    process.missing = fact.why


def _network(process: Process, fact: facts.Network) -> None:
    process.network = fact.name


def _provider(process: Process, fact: facts.Provider) -> None:
    process.provider = fact.name


def _channel(process: Process, fact: facts.Channel) -> None:
    if fact.transport != "NET" or fact.gdr is None:
        return
    if len(process.via) < 4:
        process.via.add(fact.network)
    if fact.network in TCP:
        return
    (process.received if fact.direction == "receive" else process.sent)[fact.gdr] += 1
    if fact.adapter is not None and fact.adapter < MAX_ADAPTERS:
        process.used.add(fact.adapter)
    if fact.proxy_rank is not None:
        process.pxn = True


def _rings(process: Process, fact: facts.RingSummary) -> None:
    if fact.gdr is not None:
        process.ring_gdr = fact.gdr
    if fact.pxn is not None and process.pxn is None:
        process.pxn = fact.pxn


def _adapter_gdr(process: Process, fact: facts.AdapterGdr) -> None:
    if len(process.gdr_adapters) < MAX_ADAPTERS or fact.device in process.gdr_adapters:
        process.gdr_adapters[fact.device] = fact.enabled


def _gpu_gdr(process: Process, fact: facts.GpuGdr) -> None:
    process.gdr_pairs.add(fact.enabled)
    process.too_far = bool(process.too_far) or (not fact.enabled and fact.distance > fact.limit)


def _counts(process: Process, fact: facts.ChannelCounts) -> None:
    # a small communicator may do without what a larger one of the same process uses
    if fact.nvls is not None and process.nvls != "used":
        process.nvls = "used" if fact.nvls else process.nvls or "unused"
    if fact.collnet is not None and process.sharp != "used":
        process.sharp = "used" if fact.collnet else "unused"


def _nvls_tree(process: Process, _fact: facts.NvlsTree) -> None:
    process.nvls = "used"


def _nvls_support(process: Process, fact: facts.NvlsSupport) -> None:
    if not fact.available and process.nvls != "used":
        process.nvls = "unavailable"


def _shape(process: Process, fact: facts.CommShape) -> None:
    process.nodes = max(process.nodes or 1, fact.n_nodes)


def _failover(process: Process, fact: facts.Failover) -> None:
    if fact.adapter < MAX_ADAPTERS:
        process.failed.add(fact.adapter)


def _recovered(process: Process, fact: facts.Recovered) -> None:
    process.failed.discard(fact.adapter)


def _setting(process: Process, fact: facts.Setting) -> None:
    if fact.name in WATCHED:
        process.settings[fact.name] = fact.value


def _ece(process: Process, fact: facts.Ece) -> None:
    process.ece = bool(process.ece) or fact.supported


def _paths(process: Process, fact: facts.Paths) -> None:
    if fact.origin.startswith("GPU/"):
        process.far = bool(process.far) or all(path.kind in {"PHB", "NODE", "SYS"} for path in fact.adapters)


def _completion(process: Process, fact: facts.Completion) -> None:
    process.protection_errors |= fact.status == 4 and fact.vendor in {81, 83}


_STATE: Mapping[type, Callable[[Process, Any], None]] = {
    facts.Version: _version,
    facts.Adapters: _adapters,
    facts.NoAdapters: _no_adapters,
    facts.Network: _network,
    facts.Provider: _provider,
    facts.Channel: _channel,
    facts.RingSummary: _rings,
    facts.AdapterGdr: _adapter_gdr,
    facts.GpuGdr: _gpu_gdr,
    facts.ChannelCounts: _counts,
    facts.NvlsTree: _nvls_tree,
    facts.NvlsSupport: _nvls_support,
    facts.CommShape: _shape,
    facts.Failover: _failover,
    facts.Recovered: _recovered,
    facts.Setting: _setting,
    facts.Ece: _ece,
    facts.Paths: _paths,
    facts.Completion: _completion,
}
"""What each kind of fact says of the process that wrote it."""


def _completions(host: str, fact: facts.Completion) -> Iterable[tuple[str, LabelValues]]:
    if fact.consequence:
        yield "flushed_completions", (host,)
        return
    yield "completion_errors", (host, fact.device, STATUSES.get(fact.status, OTHER))
    if fact.status == UNREACHABLE and fact.peer:
        yield "unreachable_peers", (fact.peer,)


def _port_event(host: str, fact: facts.AsyncEvent) -> Iterable[tuple[str, LabelValues]]:
    yield "port_events", (host, fact.device, _number(fact.port), _named(fact.event, PORT_EVENTS))


def _speed_change(host: str, fact: facts.SpeedChange) -> Iterable[tuple[str, LabelValues]]:
    yield "port_events", (host, fact.device, _number(fact.port), "speed_change")


def _verbs(host: str, fact: facts.VerbsFailure) -> Iterable[tuple[str, LabelValues]]:
    call = fact.call if fact.call in CALLS else OTHER
    yield "verbs_failures", (host, fact.device, call, _named(fact.error, ERRORS) if fact.error else "")


def _happening(kind: str) -> Callable[[str, Any], Iterable[tuple[str, LabelValues]]]:
    """Count facts of which nothing but the host matters."""
    return lambda host, _fact: ((kind, (host,)),)


_COUNTED: Mapping[type, Callable[[str, Any], Iterable[tuple[str, LabelValues]]]] = {
    facts.AsyncEvent: _port_event,
    facts.SpeedChange: _speed_change,
    facts.Completion: _completions,
    facts.VerbsFailure: _verbs,
    facts.WatchdogTimeout: lambda _host, fact: (("watchdog_timeouts", (known_kind(fact.operation),)),),
    facts.Failover: _happening("failovers"),
    facts.Recovered: _happening("recoveries"),
    facts.FatalError: _happening("fatal_errors"),
    facts.PeerClosed: _happening("peers_closed"),
}
"""What each kind of fact counts as: kinds of counters, and labels after the job's."""


def _number(port: int | None) -> str:
    return "" if port is None else str(port)


@dataclass(slots=True)
class Book:
    """All that logs told.

    Attributes:
        groups: Processes by their number (None where the log lacks it), by job, log and host.
        counts: By kind of counter and labels, the first of which is the job.
        versions: By log, what its bare line of the version says, which names no process.
        over_limit: Facts that were left out since there were too many jobs, hosts, processes or rows.
    """

    groups: dict[tuple[str, str, str], dict[int | None, Process]] = field(default_factory=dict)
    counts: dict[str, dict[LabelValues, int]] = field(default_factory=dict)
    versions: dict[str, facts.Version] = field(default_factory=dict)
    over_limit: int = 0
    _hosts: set[tuple[str, str]] = field(default_factory=set)
    _jobs: set[str] = field(default_factory=set)
    _size: int = 0

    def take(self, job: str, path: str, entry: Entry, now: float, *, history: bool) -> None:
        """Take one line.

        Args:
            job: Whose log it is.
            path: The log.
            entry: What the line says.
            now: Monotonic time.
            history: Whether the line was there before the start: it tells how things are, and counts for nothing.
        """
        fact = entry.fact
        if isinstance(fact, facts.Version) and entry.pid is None:
            self.versions[path] = fact
            return
        about = _STATE.get(type(fact))
        if about is not None or isinstance(fact, facts.CommInit):
            process = self._process(job, path, entry, now)
            if process is None:
                self.over_limit += 1
            elif isinstance(fact, facts.CommInit):
                _note_communicator(process, fact, None if history else now)
            elif about is not None:
                about(process, fact)
        counted = None if history else _COUNTED.get(type(fact))
        if counted is not None:
            for kind, labels in counted(entry.host, fact):
                self._count(kind, (job, *labels))

    def _count(self, kind: str, key: LabelValues) -> None:
        rows = self.counts.setdefault(kind, {})
        if key in rows or (len(rows) < MAX_COUNTED and self._has_room(key[0])):
            rows[key] = rows.get(key, 0) + 1
        else:
            self.over_limit += 1

    def forget(self, paths: Iterable[str], jobs: Iterable[str]) -> None:
        """Forget all but what these logs and jobs told."""
        kept, present = set(paths), set(jobs)
        self._keep({key: group for key, group in self.groups.items() if key[1] in kept})
        self.versions = {path: one for path, one in self.versions.items() if path in kept}
        for kind, rows in self.counts.items():
            self.counts[kind] = {key: count for key, count in rows.items() if key[0] in present}
        self._jobs = {key[0] for key in self.groups} | {key[0] for rows in self.counts.values() for key in rows}

    def restart(self, path: str) -> None:
        """Forget the processes of a log that was begun anew."""
        self._keep({key: group for key, group in self.groups.items() if key[1] != path})
        self.versions.pop(path, None)

    def _keep(self, groups: dict[tuple[str, str, str], dict[int | None, Process]]) -> None:
        self.groups = groups
        self._hosts = {(job, host) for job, _, host in groups}
        self._size = sum(len(group) for group in groups.values())

    def _process(self, job: str, path: str, entry: Entry, now: float) -> Process | None:
        """Give the process that wrote a line; None where it is new and there is no room for it."""
        group = self.groups.get((job, path, entry.host))
        if group is not None:
            known = group.get(entry.pid)
            if known is not None:
                return known
            if group and now - next(iter(group.values())).born >= RESTARTED:  # the first is the oldest
                for pid in [pid for pid, one in group.items() if now - one.born >= RESTARTED]:
                    del group[pid]
                    self._size -= 1
        full = (job, entry.host) not in self._hosts and len(self._hosts) >= MAX_HOSTS
        if full or self._size >= MAX_PROCESSES or not self._has_room(job):
            return None
        if group is None:
            group = self.groups[job, path, entry.host] = {}
        made = group[entry.pid] = Process(path, entry.host, now)
        self._hosts.add((job, entry.host))
        self._size += 1
        return made

    def _has_room(self, job: str) -> bool:
        """Tell whether a job is known, or take it up where there is room for one more."""
        if job not in self._jobs and len(self._jobs) < MAX_JOBS:
            self._jobs.add(job)
        return job in self._jobs


def _note_communicator(process: Process, fact: facts.CommInit, heard: float | None) -> None:
    if fact.comm in process.communicators or len(process.communicators) < MAX_COMMUNICATORS:
        complete = fact.phase != "START"
        process.communicators[fact.comm] = Communicator(fact.rank, fact.n_ranks, fact.comm_id, complete, heard)
