"""Metrics of training jobs, as they are declared."""

from collections.abc import Mapping
from types import MappingProxyType

from exporter.core.vocabulary import Ending, counter, gauge, info

RANKS: Mapping[str, Ending] = MappingProxyType(
    {
        "wait_seconds_total": counter("Time that the rank waited in collectives for the last rank to start."),
        "lateness_seconds_total": counter("Time by which the rank started collectives after the median rank."),
        "straggler": gauge(
            "Whether the other ranks keep waiting for this rank (1) or not (0); absent without enough data."
        ),
        "straggler_loss_ratio": gauge("Seconds per second by which the rank is late, if it is a straggler."),
    }
)
"""By rank."""

JOBS: Mapping[str, Ending] = MappingProxyType(
    {
        "matched_collectives_total": counter("Collectives with the times of all ranks that report."),
        "partial_collectives_total": counter("Collectives that were compared without the times of some ranks."),
        "unmatched_collectives_total": counter("Collectives with the times of too few ranks to compare them."),
        "dropped_collectives_total": counter(
            "Timings dropped because of the limits on collectives, communicators and ranks, or because they were late."
        ),
        "matched_ranks_ratio": gauge("Share of the job's ranks with recent collectives that could be compared."),
        "job_runs": gauge("Number of jobs that report under this name, on different hosts; no verdict above 1."),
        "arrivals_ratio": gauge(
            "Share of the compared collectives for which ranks reported how long they were queued, over one minute."
            " Their lateness is that of the arrivals of ranks, not of durations alone."
        ),
        "verdict_seconds": gauge("Time since the verdict on the job last changed."),
        "waited_ratio": gauge("Seconds lost per second to stragglers, or else waited by the median rank."),
        "network_ratio": gauge(
            "Bus bandwidth of collectives between nodes over the expected one: from a baseline, the speed of the links,"
            " or the highest of the job itself; absent while that is unknown."
        ),
        "step_interval_seconds": gauge(
            "Time from one step to the next, by the pattern of the job's collectives, over a minute or 16 steps; absent"
            " while the job pauses."
        ),
        "job_info": info(
            "Kind of the job: its name without the number of its run, empty where nothing else is in it, and ranks and"
            " nodes of its largest communicator.",
            "job_kind",
            "ranks",
            "nodes",
        ),
    }
)
"""By job."""

VERDICTS: Mapping[str, Ending] = MappingProxyType(
    {"verdict": gauge("1 for the verdict on the job from the timings of its collectives, 0 for all others.")}
)
"""By job and verdict."""

KINDS: Mapping[str, Ending] = MappingProxyType(
    {
        "bus_bandwidth_bytes_per_second": gauge(
            "Bus bandwidth as nccl-tests defines it, from the time of the last rank to start, so without waiting, for"
            " collectives of 1 MiB and more, over one minute."
        )
    }
)
"""By job and kind of collective."""
