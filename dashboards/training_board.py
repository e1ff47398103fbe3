"""The dashboard of training jobs: verdicts, stragglers and the network; training_timings.py has its other rows."""

from alert_tables import firing
from panels import ANY, ANY_WARNS, EIGHTH, FULL, HALF, THIRD, Limits, Panel, Query, lines, meaning, number, where
from tables import Column, table_of, top_list
from training_joins import (
    BANDWIDTH,
    JOBS,
    LATE,
    LOST_GPUS,
    LOW,
    LOW_BANDWIDTH,
    LOW_RATE,
    ON_HOSTS,
    PLACES,
    SLOWED,
    SLOWER,
    TIME_OVER_BEST,
    by_job,
    first_alert,
    first_cause,
    in_words,
    port_faults,
    with_host,
    with_verdict,
)
from training_timings import budgets, delivery, timings, transport

VERDICTS = meaning(
    {
        "hang": ("hang", "red"),
        "straggler": ("straggler", "red"),
        "network_bound": ("network_bound", "red"),
        "imbalanced_work": ("imbalanced_work", "orange"),
        "not_enough_data": ("not_enough_data", "orange"),
        SLOWER: ("fine, but slower", "orange"),
        LOW_RATE: ("fine, low bandwidth", "orange"),
        "fine": ("fine", "green"),
    }
)


def now() -> list[Panel]:
    """Return the panels of the first screen: verdicts, their first causes, and stragglers."""
    return [*_counts(), _verdicts(), _stragglers(), *_trends()]


def _counts() -> list[Panel]:
    return [
        _verdict_count(
            "Hanging", "hang", "Jobs in which no collective completes any more. Check the log of the job.", ANY, width=2
        ),
        _verdict_count(
            "Waiting for ranks", "straggler", "Jobs that wait for the same ranks, which the table lists.", ANY
        ),
        _verdict_count(
            "Network-bound",
            "network_bound",
            "Jobs whose collectives are slow even for the rank that does not wait. Check the ports of their hosts"
            " and the switches.",
            ANY,
        ),
        number(
            "Lowest bandwidth, of expected",
            "Bus bandwidth between nodes over the expected one, of the job with the lowest: that of a baseline, of the"
            " links, or else the job's own best. Below 80 % look for its first cause in the table; below 60 % the job"
            " is network-bound, unless it waits for ranks.",
            f"bottomk(1, {BANDWIDTH})",
            LOW,
            unit="percentunit",
            width=5,
            absent="not known yet",
            decimals=0,
            filled=True,
            name="{{train_job}}",
        ),
        number(
            "Slowed down",
            "Jobs that need more than 15 % longer for a step, or for their collectives, than in their own best ten"
            " minutes. One that began slow is not among them: compare the bandwidth of jobs of one shape.",
            f"sum({TIME_OVER_BEST} > bool 1.15)",
            ANY_WARNS,
            absent="not known yet",
            filled=True,
        ),
        _verdict_count(
            "Imbalanced work",
            "imbalanced_work",
            "Jobs whose ranks wait for each other alternately: the cause is the job.",
            ANY_WARNS,
        ),
        number(
            "Fine",
            "Jobs without a delay in their timings, not slower than they were, and with the expected bandwidth.",
            f"sum(({_jobs_with('fine')} unless on (train_job) ({SLOWED} or {LOW_BANDWIDTH}))"
            f" or 0 * {_jobs_with('fine')})",
            width=2,
            absent="no jobs",
            filled=True,
        ),
        _verdict_count(
            "Not enough data",
            "not_enough_data",
            "Jobs with timings of the same collectives from too few ranks for a verdict; see the row Timings.",
        ),
    ]


def _verdicts() -> Panel:
    return table_of(
        "Verdicts",
        "What delays each job, since when, and the evidence: GPUs lost (GPU-seconds per second), how much longer it"
        " needs than in its own best ten minutes, time lost to stragglers or else waited by the median rank, bandwidth"
        " between nodes relative to the expected one; and the likeliest first cause that a collector finds, or, for a"
        " job with a low bandwidth, the first alert about a port of its hosts. Fine, but slower, or low bandwidth:"
        " nothing in the timings delays the job, but it was faster, or its network should be.",
        [
            Column("GPUs lost", "short", with_verdict(f"sum by (train_job) ({LOST_GPUS})"), decimals=1, width=95),
            Column(
                "Over own best",
                "percentunit",
                with_verdict(f"({TIME_OVER_BEST} - 1)"),
                limits=Limits(0.15, 1_000_000),
                decimals=0,
                width=110,
            ),
            Column("Since", "s", with_verdict(by_job("fabric_nccl_verdict_seconds")), decimals=0, width=80),
            Column(
                "Waited, of time",
                "percentunit",
                with_verdict(by_job("fabric_nccl_waited_ratio")),
                limits=LATE,
                decimals=0,
                width=120,
            ),
            Column(
                "Of expected bandwidth",
                "percentunit",
                with_verdict(BANDWIDTH),
                limits=LOW,
                decimals=0,
                width=190,
            ),
        ],
        labels=["train_job", "verdict"],
        more=[(with_verdict(in_words(f"({first_cause()} or on (train_job) {first_alert()})")), ("first_cause",))],
        worst=("GPUs lost", "-Of expected bandwidth"),
        absent="no jobs",
        width=17,
        height=9,
        colors={"verdict": VERDICTS},
        widths={"train_job": 80, "verdict": 165},
    )


def _stragglers() -> Panel:
    return table_of(
        "Stragglers",
        "Ranks that the others wait for, and the share of time that each is late. If a port of the host has a"
        " fault, start there; else with the GPU, the CPUs and the input data.",
        [
            Column(
                "Late, of time",
                "percentunit",
                with_host(f"(fabric_nccl_straggler_loss_ratio{JOBS} > 0)"),
                limits=LATE,
                decimals=0,
            )
        ],
        labels=["train_job", "rank", "host", "gpu"],
        worst=("Late, of time",),
        absent="no straggler",
        width=7,
        height=9,
    )


def _trends() -> list[Panel]:
    return [
        lines(
            "GPUs lost",
            "GPU-seconds lost per second, by the verdict that names the loss; at most, where the network is slow. The"
            " five jobs that lose most.",
            "short",
            [Query(f"topk(5, {LOST_GPUS} > 0)", "{{train_job}} {{cause}}")],
            height=7,
            width=5,
        ),
        lines(
            "Bus bandwidth between nodes",
            "Bus bandwidth of collectives of 1 MiB and more as in nccl-tests, of the last rank, which does not wait;"
            " the slowest kind of each job.",
            "Bps",
            [Query(f"min by (train_job) (fabric_nccl_bus_bandwidth_bytes_per_second{JOBS})", "{{train_job}}")],
            height=7,
            width=5,
        ),
        firing(
            "Alerts of jobs",
            ', train_job=~"$train_job"',
            details=("host", "place", "rank"),
            absent="no alert of a job fires; the overview has those of hosts",
            width=14,
            height=7,
        ),
    ]


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
            absent="no ranks",
            width=FULL,
            height=11,
        ),
    ]


def network() -> list[Panel]:
    """Return panels of the bandwidth of jobs, likely causes, and hosts with faults."""
    return [
        table_of(
            "Likely causes",
            "Causes that a collector finds for verdicts, from the states of ports and NCCL's logs: name is the host"
            " or switch. From 0.6 strong, from 0.3 likely, below that possible. Its log has the evidence.",
            [
                Column(
                    "Confidence",
                    "percentunit",
                    f"max by (train_job, cause, name, port, peer, peer_port) (fabric_nccl_cause_confidence{JOBS})",
                    decimals=0,
                )
            ],
            labels=["train_job", "cause", "name", "port", "peer", "peer_port"],
            worst=("Confidence",),
            absent="no cause found, or no collector (docs/training.md)",
        ),
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
            " Below 0.6, without a straggler, a job is bound by the network.",
            "percentunit",
            [Query(BANDWIDTH, "{{train_job}}")],
            width=HALF,
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
        ),
        table_of(
            "Hosts of jobs with faults",
            "Hosts of each job with a port that is down (unused ones included), missing or slower than expected, or"
            " that was paused by the network for more than 1 % of the last 5 minutes. For a job that is bound by the"
            " network and not listed check the dashboard of switches.",
            port_faults(ON_HOSTS),
            labels=["train_job", "host"],
            absent="no host with a fault",
            width=HALF,
        ),
    ]


_SHAPE = (
    "* on (train_job) group_left (ranks, nodes) topk by (train_job) (1, max by (train_job, ranks, nodes)"
    f" (fabric_nccl_rank_info{PLACES}))"
)
"""Joins the ranks and nodes of a job."""


def _verdict_count(
    title: str, verdict: str, description: str, limits: Limits | None = None, *, width: int = EIGHTH
) -> Panel:
    """Return a panel that counts the jobs with a verdict, each once even if several exporters have it."""
    query = f"sum({_jobs_with(verdict)})"
    return number(title, description, query, limits, width=width, absent="no jobs", filled=True)


def _jobs_with(verdict: str) -> str:
    """Return the query for 1 for each job with a verdict, else 0."""
    chosen = where(f'train_job=~"$train_job", verdict="{verdict}"')
    return f"max by (train_job) (fabric_nccl_verdict{chosen})"


ROWS = {
    "Jobs now": now,
    "Ranks": ranks,
    "Network of jobs": network,
    "Budget of a step": budgets,
    "Timings": timings,
    "Delivery of timings": delivery,
    "NCCL transport": transport,
}
