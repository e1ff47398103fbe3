"""Shared parts of queries about training jobs.

Verdicts come from collectors, or from each host if there is none. The host of a rank comes from the exporter there in
either case, so the two are joined by job and rank, for any instance.
"""

from joins import MISSING, PAUSED
from panels import ANY, Limits, where
from tables import Column

JOBS = where('train_job=~"$train_job"')

PLACES = '{job=~".+", instance=~".+", train_job=~"$train_job"}'
"""Any instance: the hosts of ranks are exported by other instances than the collectors'."""

HOST = (
    "on (train_job, rank) group_left (host, gpu, nic) topk by (train_job, rank) (1, fabric_nccl_rank_info"
    + PLACES
    + ")"
)
"""Joins the host of a rank. A join that matches two series of a rank, as just after a restart elsewhere, fails."""

ON_HOSTS = f"max by (job, instance, train_job, host) (fabric_nccl_rank_info{PLACES}) * on (job, instance) group_left"
"""Joins a value of a host to the jobs that run on it."""

LATE = Limits(0.02, 0.1)
"""Shares of time that a rank is late, or a port in pause."""


def port_faults(on_hosts: str) -> list[Column]:
    """Return columns of faults of the ports of hosts, with a join of these to jobs."""
    slow = "sum by (job, instance) (fabric_rdma_link_degraded{})"
    paused = f"max by (job, instance) ({PAUSED})"
    return [
        Column("Ports not ready", "none", f"{on_hosts} max by (job, instance) ({MISSING}) > 0", limits=ANY),
        Column("Links degraded", "none", f"{on_hosts} {slow} > 0", limits=ANY),
        Column("Paused", "percentunit", f"{on_hosts} {paused} > 0.02", limits=LATE, decimals=0),
    ]


LOST_TIME = f"rate(fabric_nccl_lost_gpu_seconds_total{JOBS}[$__rate_interval])"
"""Of hosts for their own ranks, of collectors for all ranks of a job."""

LOST_GPUS = (
    f"(max by (train_job, cause) ({LOST_TIME} and on (job, instance) fabric_collector_connected{{}})"
    f" or sum by (train_job, cause) ({LOST_TIME}))"
)


def by_job(metric: str) -> str:
    """Return the query for a value of each job."""
    return f"max by (train_job) ({metric}{JOBS})"


def with_verdict(expr: str) -> str:
    """Join the verdict to a value of a job."""
    return f"{expr} * on (train_job) group_left (verdict) {VERDICT}"


WORST_FIRST = ("hang", "straggler", "network_bound", "imbalanced_work", "fine", "not_enough_data")


TIME_OVER_BEST = f"max by (train_job) (fabric_nccl_regression_ratio{JOBS})"
"""Time that each job needs, to that in its own best ten minutes."""

SLOWED = f"({TIME_OVER_BEST} > 1.15)"
"""Jobs that are slower than they were, as in the alert FabricJobSlower."""

SLOWER = "slower"
"""Beside the verdicts of the exporter: nothing in the timings delays the job, but it is slower than it was."""


def _given(verdict: str) -> str:
    chosen = where(f'train_job=~"$train_job", verdict="{verdict}"')
    return f"max by (train_job, verdict) (fabric_nccl_verdict{chosen} == 1)"


_WORST = f"({' or on (train_job) '.join(map(_given, WORST_FIRST))})"
_OF_SLOWED = f'label_replace({_WORST} and on (train_job) {SLOWED}, "verdict", "{SLOWER}", "verdict", "fine")'
VERDICT = f"({_OF_SLOWED} or on (train_job) {_WORST})"
"""The verdict on each job; the worst where hosts without a collector have different ones."""


def with_host(expr: str) -> str:
    """Join the host of ranks; a rank without a known host is kept without it."""
    return f"({expr} * {HOST} or on (job, instance, train_job, rank) {expr})"


def first_cause(selection: str = JOBS) -> str:
    """Return the query for the likeliest cause of each job.

    One that several places have alike, such as TCP on each host, is that of none.
    """
    confidence = f"fabric_nccl_cause_confidence{selection}"
    causes = f"max by (train_job, cause, name, port, peer) ({confidence})"
    likeliest = f"({causes} == on (train_job) group_left () max by (train_job) ({confidence}))"
    names = f"count by (train_job, cause) (count by (train_job, cause, name) ({likeliest}))"
    several = f'label_replace({names} > 1, "name", "several places", "", "")'
    return f"topk by (train_job) (1, {several} or on (train_job) {likeliest})"
