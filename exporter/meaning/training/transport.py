"""Whether a job reaches the network by RDMA, and by how many ports, without any log of it.

The bytes that its collectives have to move between this host and other nodes are compared with those that the RDMA
ports of the host counted meanwhile. The former are a lower bound for every algorithm
(`collectives.least_network_bytes`), and ports are counted for longer than the collectives, so that neither a late
report nor a slow counter makes RDMA look like TCP. Nothing is returned where something is unknown (the nodes of a
communicator, a counter), or where there is little traffic.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from exporter.core import vocabulary
from exporter.core.collectives import least_network_bytes
from exporter.core.table import Metric, RowKeeper, Samples, Schema, Table, TableBuilder
from exporter.core.vocabulary import gauge
from exporter.meaning.ports.rdma_bytes import Counted, PortHistory, read
from exporter.meaning.training.jobs import LABELS as TIMING_LABELS
from exporter.meaning.training.jobs import TIMING_COLUMNS

WINDOW_SECONDS = 60.0
"""Time over which collectives are added up."""

LEAD_SECONDS = 30.0
"""Ports are counted from so long before the first of them: records arrive after the traffic."""

SETTLE_SECONDS = 5.0
"""Ports are counted until so long after the last of them: drivers refresh counters at an interval."""

MIN_BYTES = 1 << 30
"""Bytes that have to be moved in a window for the job to be judged."""

RDMA_SHARE = 0.1
"""Share of the bytes below which they were not moved by RDMA."""

LEAST_SHARE = 0.1
"""Share of an equal part of the bytes from which a rank communicates with other nodes, and a port is used."""

MAX_COMMUNICATORS = 4096
"""Communicators of all jobs of a host."""

MAX_RANKS = 1024
"""Ranks of a job on one host: of eight runs of a job with 128 processes."""

KEPT_SECONDS = WINDOW_SECONDS + LEAD_SECONDS + SETTLE_SECONDS
"""Seconds for which counts of ports are kept, and half of those for which collectives are."""

_LABELS = ("train_job", "host")
_TIMINGS = ("coll_perf", "ops")
_PORTS = ("port_rcv_data", "port_xmit_data")

SCHEMA = vocabulary.schema(
    "fabric_job_",
    _LABELS,
    own={
        "network_bytes_per_second": gauge(
            "Bytes per second that the job's collectives have to send from this host to other nodes and receive from"
            " them at least, whatever the algorithm, over the last minute. Absent below 1 GiB per minute, and where the"
            " nodes of communicators are unknown."
        ),
        "network_ranks": gauge(
            "Ranks of the job on this host with at least a tenth of an equal share of what its collectives have to move"
            " between nodes in the last minute."
        ),
        "rdma_ratio": gauge(
            "Bytes that all RDMA ports of this host received and transmitted (IBTA PortCountersExtended PortRcvData,"
            " PortXmitData; without IPoIB), over those that the job's collectives have to move at least. Above 1 is"
            " normal; below 0.1 the job does not use RDMA. Other jobs on this host increase it."
        ),
        "rdma_ports_used": gauge(
            "RDMA ports of this host that counted at least a tenth of an equal share of what the job's collectives have"
            " to move. Absent where the job does not use RDMA, and where several jobs use the network."
        ),
    },
    origins={
        "network_bytes_per_second": _TIMINGS,
        "network_ranks": _TIMINGS,
        "rdma_ratio": (*_TIMINGS, *_PORTS),
        "rdma_ports_used": (*_TIMINGS, *_PORTS),
    },
)


class Moved(NamedTuple):
    """Bytes of collectives that were reported at one time."""

    time: float
    size: float


@dataclass(slots=True)
class JobTraffic:
    """Collectives of a job between nodes: their bytes by rank, by the time of the report."""

    moved: dict[str, deque[Moved]] = field(default_factory=dict)

    def add(self, rank: str, now: float, size: float) -> None:
        """Add bytes that a rank reported now; beyond MAX_RANKS, new ones are ignored."""
        if rank not in self.moved and len(self.moved) >= MAX_RANKS:
            return
        of_rank = self.moved.setdefault(rank, deque())
        before = of_rank.pop().size if of_rank and of_rank[-1].time == now else 0.0
        of_rank.append(Moved(now, before + size))

    def between(self, begin: float, end: float) -> list[float]:
        """Return for each rank the bytes that were reported after one time, and not after another."""
        return [sum(one.size for one in of_rank if begin < one.time <= end) for of_rank in self.moved.values()]

    def expire(self, before: float) -> None:
        """Drop what was reported before a time."""
        for of_rank in self.moved.values():
            while of_rank and of_rank[0].time < before:
                of_rank.popleft()
        self.moved = {rank: of_rank for rank, of_rank in self.moved.items() if of_rank}


@dataclass(slots=True)
class TransportState:
    """State of this step; changed in place.

    Attributes:
        ports: Counts of the ports.
        jobs: Collectives between nodes, by job.
        members: By job and communicator, the last report of each local rank.
        keeper: Rows of the resulting table.
    """

    ports: PortHistory = field(default_factory=PortHistory)
    jobs: dict[str, JobTraffic] = field(default_factory=dict)
    members: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    keeper: RowKeeper = field(default_factory=lambda: RowKeeper(_LABELS))


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` adds to tables of a schema."""
    return list(SCHEMA.metrics.values()) if _has_timings(schema) else []


def _has_timings(schema: Schema) -> bool:
    return schema.internal and schema.labels == TIMING_LABELS and all(one in schema.metrics for one in TIMING_COLUMNS)


def step(
    host: str, tables: Callable[[], Iterable[Table]], state: TransportState | None, table: Table
) -> tuple[TransportState | None, Sequence[Table]]:
    """Add a table of jobs to the internal table of timings of this host; other tables pass unchanged.

    Args:
        host: Name of this host.
        tables: Returns the tables of all sources of this host, for the counters of ports.
        state: The previous state.
        table: Any table.
    """
    if not _has_timings(table.schema):
        return state, (table,)
    state = TransportState() if state is None else state
    state.ports.add(read(tables()), KEPT_SECONDS)
    _add(state, table)
    _expire(state, table.time - 2 * KEPT_SECONDS)
    found = _judged(state, host, table.time)
    return state, (table, found) if len(found.rows) else (table,)


class _Stream(NamedTuple):
    """Collectives of one rank in a communicator that spans nodes."""

    job: str
    communicator: str
    kind: str
    rank: str
    n_ranks: int
    nodes: int
    samples: Samples


def _streams(table: Table) -> Iterator[_Stream]:
    columns = (table.values(ending) or () for ending in TIMING_COLUMNS)
    for key, samples, about in zip(table.rows.keys, *columns, strict=True):
        if isinstance(samples, Samples) and isinstance(about, tuple):
            n_ranks, nodes = int(about[0]), int(about[1] or 0)
            if 1 < nodes <= n_ranks:
                yield _Stream(*key, n_ranks, nodes, samples)  # type: ignore[call-arg]  # of TIMING_LABELS


def _add(state: TransportState, table: Table) -> None:
    """Add the collectives between nodes."""
    streams = list(_streams(table))
    for one in streams:
        place = (one.job, one.communicator)
        if place in state.members or len(state.members) < MAX_COMMUNICATORS:
            state.members.setdefault(place, {})[one.rank] = table.time
    for one in streams:
        # The ranks of one node may be on several hosts (multi-node NVLink), or not all of them report: both reduce what
        # is expected of this host.
        local = max(len(state.members.get((one.job, one.communicator), ())), ceil(one.n_ranks / one.nodes))
        # Only those that were timed on the GPU: those of the CPU (gloo) use TCP by design.
        size = sum(
            least_network_bytes(one.kind, values[1], one.n_ranks, local)
            for values in one.samples.taken
            if len(values) > 3 and values[3] == 1
        )
        if size > 0:
            state.jobs.setdefault(one.job, JobTraffic()).add(one.rank, table.time, size / local)


def _expire(state: TransportState, before: float) -> None:
    """Drop collectives and ranks that were reported before a time."""
    for traffic in state.jobs.values():
        traffic.expire(before)
    state.jobs = {job: traffic for job, traffic in state.jobs.items() if traffic.moved}
    members = ((key, {rank: at for rank, at in of.items() if at >= before}) for key, of in state.members.items())
    state.members = {key: of for key, of in members if of}


def _judged(state: TransportState, host: str, now: float) -> Table:
    """Return the table of the jobs with enough traffic."""
    built = TableBuilder(SCHEMA)
    counts = state.ports.counts
    begin, end = (counts[0].time + LEAD_SECONDS, counts[-1].time - SETTLE_SECONDS) if counts else (now, now)
    begin = max(begin, end - WINDOW_SECONDS)  # what was reported before the ports were counted is not compared
    counted = state.ports.since(begin - LEAD_SECONDS)
    for job, traffic in state.jobs.items():
        by_rank = traffic.between(now - WINDOW_SECONDS, now)
        recent = sum(by_rank)
        if recent < MIN_BYTES:
            continue
        ranks = sum(size >= LEAST_SHARE * recent / len(by_rank) for size in by_rank)
        values = {"network_bytes_per_second": recent / WINDOW_SECONDS, "network_ranks": ranks}
        compared = sum(traffic.between(begin, end))
        if counted is not None and compared >= MIN_BYTES:
            values |= _compared(counted, compared, ranks, alone=len(state.jobs) == 1)
        built.row((job, host), values)
    return built.table(state.keeper, now)


def _compared(counted: Counted, size: float, ranks: int, *, alone: bool) -> dict[str, float]:
    """Return what the bytes of the ports show, compared with those of a job whose ranks may use one port each."""
    ratio = sum(counted.ports.values()) / size
    if ratio < RDMA_SHARE or not alone:
        return {"rdma_ratio": ratio}
    share = size / max(1, min(counted.up, ranks))
    used = sum(moved >= LEAST_SHARE * share for moved in counted.ports.values())
    return {"rdma_ratio": ratio, "rdma_ports_used": used}
