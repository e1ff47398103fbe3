"""Evaluation of NCCL's RAS status: what changed since the previous poll, and which ranks are behind."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.core.table import LabelValues
from exporter.nccl.ras import (
    RasRank,
    RasReport,
    count_mismatches,
    is_stalled,
)

MAX_BEHIND = 64
"""Ranks behind that are exported."""

MAX_COMMUNICATORS = 4096
"""Communicators that are compared with the next status."""

IN_PROGRESS = 7
"""ncclInProgress: the communicator is being initialised, or an operation is pending."""


@dataclass(frozen=True, slots=True)
class RasStatus:
    """The last status, compared with the previous one.

    Attributes:
        report: The report.
        at: Monotonic time of the poll.
        stalled_since: Monotonic time of the first status since which nothing was launched.
        initialising: Whether a communicator was being initialised.
        values: Values of `metrics.RAS_JOB` by ending.
        behind: Ranks behind: rank in the largest communicator, host and GPU.
    """

    report: RasReport
    at: float
    stalled_since: float
    initialising: bool
    values: Mapping[str, float | None]
    behind: tuple[LabelValues, ...]


def evaluate(report: RasReport, before: RasStatus | None, now: float) -> RasStatus:
    """Compare a report with the previous status: unequal counts in a single report are normal while counts increase."""
    previous = {}
    if before is not None:
        previous = {(one.hash, one.secondary_hash): one for one in before.report.communicators[:MAX_COMMUNICATORS]}
    stalled: list[bool] = []
    behind: dict[tuple[str, int], RasRank] = {}
    for one in report.communicators[:MAX_COMMUNICATORS]:
        earlier = previous.get((one.hash, one.secondary_hash))
        unchanged = None if earlier is None else is_stalled(earlier, one)
        if unchanged is not None:
            stalled.append(unchanged)
        if unchanged:
            names = {rank for mismatch in count_mismatches(one) for rank in mismatch.behind}
            behind |= {(rank.host, rank.pid): rank for rank in one.ranks if rank.rank in names}
    since = before.stalled_since if before is not None and stalled and all(stalled) else now
    ranks = [rank for one in report.communicators for rank in one.ranks]
    missing = [rank for one in report.communicators for rank in one.missing_ranks]
    good = {0, IN_PROGRESS}
    values = {
        "communicators": len(report.communicators),
        "ranks": len({(rank.host, rank.pid) for rank in ranks}),
        "missing_ranks": len(missing),
        "dead_ranks": sum(rank.status.considered_dead for rank in missing),
        "failed_ranks": sum(not {rank.status.init_state, rank.status.async_error} <= good for rank in ranks),
        "ranks_behind": len(behind) if stalled else None,
        "stalled_seconds": now - since if stalled else None,
        "collection_seconds": report.ras.collection_time_sec,
        "partial": int(report.ras.timeouts_count > 0),
    }
    initialising = any(rank.status.init_state == IN_PROGRESS for rank in ranks)
    return RasStatus(report, now, since, initialising, values, _behind_rows(report, behind))


def _behind_rows(report: RasReport, behind: Mapping[tuple[str, int], RasRank]) -> tuple[LabelValues, ...]:
    """Return label values of ranks, named by the rank in their largest communicator as in other sources."""
    largest: dict[tuple[str, int], tuple[int, int]] = {}
    for one in report.communicators:
        for rank in one.ranks:
            process = (rank.host, rank.pid)
            if process in behind and (process not in largest or largest[process][0] < one.size):
                largest[process] = (one.size, rank.rank)
    rows = {
        (str(largest[process][1]), rank.host, str(rank.nvml_dev) if rank.nvml_dev >= 0 else "")
        for process, rank in behind.items()
    }
    return tuple(sorted(rows, key=lambda row: (int(row[0]), row))[:MAX_BEHIND])


def listening_inodes(tables: Iterable[str], port: int) -> frozenset[str]:
    """Return the inodes of the sockets that listen on a port, from the text of /proc/net/tcp and tcp6."""
    end = f":{port:04X}"
    rows = (line.split() for text in tables for line in text.splitlines()[1:] if end in line)
    return frozenset(words[9] for words in rows if len(words) > 9 and words[3] == "0A" and words[1].endswith(end))
