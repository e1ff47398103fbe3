"""The dashboard of training jobs: its rows of ranks and of the network, and the modules of its other rows."""

from panels import FULL, HALF, THIRD, Panel, Query, lines
from tables import Column, table_of, top_list
from training_joins import ACTIVE, BANDWIDTH_NOW, JOBS, LATE, ON_HOSTS, PLACES, by_job, port_faults, with_host
from training_now import CLOCK, NO_TIMINGS, now
from training_timings import budgets, delivery, timings, transport


def ranks() -> list[Panel]:
    """Return panels of late and waiting ranks."""
    return [
        top_list(
            "Latest ranks",
            "Share of the last 5 minutes by which a rank was later than the median rank of its communicators. A rank"
            " that waits for another group is late as well: the stragglers are the origin.",
            "percentunit",
            f"max by (train_job, rank, host) ({with_host(f'rate(fabric_nccl_lateness_seconds_total{JOBS}[5m])')})",
            LATE,
            labels=["train_job", "rank", "host"],
            when="of time",
        ),
        lines(
            "Waiting, of time",
            "Share of time lost to stragglers, or else waited by the median rank.",
            "percentunit",
            [Query(by_job("fabric_nccl_waited_ratio"), "{{train_job}}")],
            top=1,
            width=THIRD,
            decimals=0,
            absent=NO_TIMINGS,
        ),
        lines(
            "Time in collectives, of all time",
            "Share of time that the mean rank of a job spends in collectives, waiting included.",
            "percentunit",
            [
                Query(
                    "avg by (train_job) (sum by (job, instance, train_job, rank)"
                    f" (rate(fabric_nccl_collective_duration_seconds_total{JOBS}[$__rate_interval])))",
                    "{{train_job}}",
                )
            ],
            top=1,
            width=THIRD,
            absent=NO_TIMINGS,
        ),
        table_of(
            "All ranks",
            "Each rank with its host, its GPU and the nearest NICs, as far as they are known: shares of the last 5"
            " minutes that it was late, and that it waited for others.",
            [
                Column(
                    "Late, of time",
                    "percentunit",
                    with_host(f"rate(fabric_nccl_lateness_seconds_total{JOBS}[5m])"),
                    limits=LATE,
                    decimals=1,
                ),
                Column(
                    "Waited, of time",
                    "percentunit",
                    with_host(f"rate(fabric_nccl_wait_seconds_total{JOBS}[5m])"),
                    decimals=1,
                ),
            ],
            labels=["train_job", "rank", "host", "gpu", "nic"],
            worst=("Late, of time", "Waited, of time"),
            absent=NO_TIMINGS,
            width=FULL,
            height=11,
        ),
    ]


def network() -> list[Panel]:
    """Return panels of the bandwidth of jobs, likely causes, and hosts with faults."""
    return [
        table_of(
            "Jobs side by side",
            "Bus bandwidth by kind of collective, with the ranks and nodes of each job: jobs of one shape should have"
            " about the same. The share of the expected one is relative to the job's own best if no baseline and no"
            " link speed is known, so a job that began slow has 100 %.",
            [
                Column(
                    "Bus bandwidth",
                    "Bps",
                    f"min by (train_job, collective) (fabric_nccl_bus_bandwidth_bytes_per_second{JOBS}) {_SHAPE}",
                ),
            ],
            labels=["ranks", "nodes", "collective", "train_job"],
            worst=("-nodes", "-ranks", "-collective", "-Bus bandwidth"),
            absent="no collectives of 1 MiB and more",
        ),
        lines(
            "Bandwidth between nodes, of the expected one",
            "Bus bandwidth between nodes over that of a baseline, of the links, or else the best of the job itself."
            " Below 0.6, without a straggler, a job is bound by the network. None of jobs that hang, or without enough"
            " data.",
            "percentunit",
            [Query(BANDWIDTH_NOW, "{{train_job}}")],
            width=HALF,
            absent="no expected bandwidth is known yet",
        ),
        lines(
            "Times of collectives",
            "Time that 99 of 100 collectives take at most, from the start of the last rank, by kind and size class:"
            " small below 1 MiB, large from 64 MiB.",
            "s",
            [
                Query(
                    "histogram_quantile(0.99, sum by (train_job, collective, size_class, le)"
                    f" (rate(fabric_nccl_collective_transfer_seconds_bucket{JOBS}[$__rate_interval])))",
                    "{{train_job}} {{collective}} {{size_class}}",
                )
            ],
            width=HALF,
            absent=NO_TIMINGS,
        ),
        lines(
            "Longest collective over the mean",
            "Of collectives of 1 MiB and more of one kind, size, ranks and nodes, in the last minute. An alert fires if"
            " it stays above 5.",
            "short",
            [
                Query(
                    "max by (train_job, collective) (fabric_nccl_collective_longest_ratio"
                    f'{JOBS[:-1]},size_class!="small"}})',
                    "{{train_job}} {{collective}}",
                )
            ],
            width=HALF,
            absent="no collectives of 1 MiB and more",
        ),
        table_of(
            "Hosts of jobs with faults",
            "Hosts of each job with an alert, a port that is down (unused ones included), missing or slower than"
            " expected, or that for more than 1 % of the last 5 minutes was paused by its switch, or paused it. The"
            " alert is the oldest, causes before consequences. For a job that is bound by the network and not listed"
            " check the dashboard of switches.",
            [
                Column("Since", CLOCK, f"1000 * min by (train_job, host) ({_FIRST_ALERT})", width=85),
                *port_faults(ON_HOSTS),
            ],
            labels=["train_job", "host"],
            more=[(f'label_replace({_FIRST_ALERT}, "alert", "$1", "alertname", "(.+)")', ("alert",))],
            worst=("-Since", "-host"),
            absent="no host of a job with a fault",
            width=FULL,
        ),
    ]


_ON_JOBS = 'on (host) group_left (train_job) host:fabric_nccl_job:info{train_job=~"$train_job"}'


def _first_alert(matchers: str) -> str:
    alerts = f'{ACTIVE}{{host!=""{matchers}}} * {_ON_JOBS}'
    return f"bottomk by (train_job, host) (1, min by (train_job, host, alertname) ({alerts}))"


_FIRST_ALERT = " or on (train_job, host) ".join(map(_first_alert, (', role="cause"', "")))
"""The oldest alert about each host of a job, causes before consequences."""

_SHAPE = (
    "* on (train_job) group_left (ranks, nodes) topk by (train_job) (1, max by (train_job, ranks, nodes)"
    f" (fabric_nccl_rank_info{PLACES}))"
)
"""Joins the ranks and nodes of a job."""


ROWS = {
    "Jobs now": now,
    "Ranks": ranks,
    "Network of jobs": network,
    "Budget of a step (jobs in the configuration: docs/budget.md)": budgets,
    "Timings": timings,
    "Delivery of timings (hosts and collectors with a broker: docs/training.md)": delivery,
    "NCCL transport (logs of NCCL: docs/training.md)": transport,
}
