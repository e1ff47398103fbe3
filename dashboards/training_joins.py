"""Shared parts of queries about training jobs.

Verdicts come from collectors, or from each host if there is none. The host of a rank comes from the exporter there in
either case, so the two are joined by job and rank, for any instance.
"""

from collections.abc import Sequence

from joins import MISSING, PAUSE_SHARES, PAUSED_HOSTS, PAUSING_HOSTS
from panels import ANY, Limits, where
from tables import Column

JOBS = where('train_job=~"$train_job"')

ANY_TARGET = '{job=~".+", instance=~".+"}'
"""Hosts have their ports, collectors the causes, and pollers the switches."""

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
"""Shares of time that a rank is late."""


def port_faults(on_hosts: str) -> list[Column]:
    """Return columns of faults of the ports of hosts, with a join of these to jobs."""
    slow = "sum by (job, instance) (fabric_rdma_link_degraded{})"
    return [
        Column("Ports not ready", "none", f"{on_hosts} max by (job, instance) ({MISSING}) > 0", limits=ANY),
        Column("Links degraded", "none", f"{on_hosts} {slow} > 0", limits=ANY),
        *(
            Column(
                f"{name}, of time",
                "percentunit",
                f"{on_hosts} max by (job, instance) ({share}) > {PAUSE_SHARES.warning}",
                limits=PAUSE_SHARES,
                decimals=0,
            )
            for name, share in (("Paused", PAUSED_HOSTS), ("Pausing", PAUSING_HOSTS))
        ),
    ]


LOST_TIME = f"avg_over_time(rate(fabric_nccl_lost_gpu_seconds_total{JOBS}[$__rate_interval])[1m:10s])"
"""Of hosts for their own ranks, of collectors for all ranks of a job. Each adds the loss every few seconds, so that the
rate between scrapes alternates: its mean does not."""

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

_STEPS, _NETWORK = (
    f'(max by (train_job) (fabric_nccl_regression_ratio{JOBS[:-1]}, measure="{one}"}}) > 1.15)'
    for one in ("step_time", "bus_bandwidth")
)
STEPS_ALONE = f"({_STEPS} unless on (train_job) {_NETWORK})"
STEPS_OF_ALL = STEPS_ALONE.replace(JOBS[:-1], ANY_TARGET[:-1])
"""Jobs whose steps are slower, and whose network is not; the same on boards without a choice of jobs."""

SYMPTOMS = "FabricStraggler|FabricJob(Hang|NetworkBound|CollectivesUneven|Utilization.+|MfuLow|Slower.*)"
"""Alerts of jobs that are no causes."""

LIKELY = 0.3
"""Confidence from which on a cause is likely; below that it is possible, and alerts are listed too."""

STEPS_NOT_NETWORK = "its steps, not the network"
"""The first cause of these, if no other one is known."""

BANDWIDTH = f"min by (train_job) (fabric_nccl_network_ratio{JOBS})"
"""Bus bandwidth between nodes of each job, over the expected one."""

LOW = Limits(0.8, 0.6, below=True)
"""Shares of the expected bandwidth; below the latter a job without a straggler is network-bound."""

LOW_BANDWIDTH = f"({BANDWIDTH} < {LOW.warning})"
"""Jobs whose bandwidth is low, whatever the verdict."""

ACTIVE = "alert:fabric_active:since"
"""When alerts that fire or are pending began, recorded."""

OWN_ALERTS = (
    f'{ACTIVE}{{train_job=~"$train_job", role="cause", alertname=~"FabricJob.+|FabricStraggler|FabricUplinkOverloaded'
    '|FabricOversubscription"}'
)
"""Alerts about a job, or about uplinks that it crosses, that are no consequences of others."""

ALERTED = f"min by (train_job) ({OWN_ALERTS})"
"""When the first of these began."""

CRITICAL_ALERTED = f'(min by (train_job) ({OWN_ALERTS[:-1]}, severity="critical"}}))'
"""The same of those that are critical."""

SLOWER, LOW_RATE, WITH_ALERT, WITH_CRITICAL = "slower", "low_bandwidth", "alert", "critical_alert"
"""Beside the verdicts of the exporter: nothing in the timings delays the job, but it is slower than it was, its
bandwidth is low, or an alert names it, as of a job on TCP that was never faster."""


def _given(verdict: str) -> str:
    chosen = where(f'train_job=~"$train_job", verdict="{verdict}"')
    return f"max by (train_job, verdict) (fabric_nccl_verdict{chosen} == 1)"


def _if_fine(jobs: str, verdict: str) -> str:
    return f'label_replace({_WORST} and on (train_job) {jobs}, "verdict", "{verdict}", "verdict", "fine")'


_WORST = f"({' or on (train_job) '.join(map(_given, WORST_FIRST))})"
_BUT_FINE = {
    CRITICAL_ALERTED: WITH_CRITICAL,
    SLOWED: SLOWER,
    LOW_BANDWIDTH: LOW_RATE,
    ALERTED: WITH_ALERT,
}
VERDICT = f"({' or on (train_job) '.join([*(_if_fine(*one) for one in _BUT_FINE.items()), _WORST])})"
"""The verdict on each job; the worst where hosts without a collector have different ones."""


def jobs_with(verdict: str, which: str = "") -> str:
    """Return the query for 1 for each job of which this is the worst verdict, of `which` of them, else 0."""
    worse = WORST_FIRST[: WORST_FIRST.index(verdict)]
    found = f"{_any_of([verdict])} unless on (train_job) {_any_of(worse)}" if worse else _any_of([verdict])
    return f"(({found}) {which} or 0 * {by_job('fabric_nccl_verdict')})"


def _any_of(verdicts: Sequence[str]) -> str:
    chosen = where(f'train_job=~"$train_job", verdict=~"{"|".join(verdicts)}"')
    return f"max by (train_job) (fabric_nccl_verdict{chosen} == 1)"


_LATE = _any_of(WORST_FIRST[:4])
FAULTY = (
    f"(({SLOWED} or {LOW_BANDWIDTH} or {ALERTED}) and on (train_job) {_any_of(['fine'])} unless on (train_job) {_LATE})"
)
"""Jobs that are fine by their timings, but slower than they were, with a low bandwidth or an alert."""

DELAYED = f"({_LATE} or {FAULTY})"
"""These, and those with a verdict that names a delay."""

UNMEASURED = (
    f"({_any_of(['hang'])} or {_any_of(['not_enough_data'])} unless on (train_job) {_any_of(WORST_FIRST[:-1])})"
)
"""Jobs without a bandwidth of now: nothing completes any more, or too little is known."""

BANDWIDTH_NOW = f"({BANDWIDTH} unless on (train_job) {UNMEASURED})"
BANDWIDTH_OF_ALL = BANDWIDTH_NOW.replace(', train_job=~"$train_job"', "")
"""The same on boards without a choice of jobs."""

UNJUDGED = f"({_any_of(['not_enough_data'])} unless on (train_job) {DELAYED})"
"""Jobs of which it is not known whether they are delayed."""

MAY_BE_NETWORK = f"({_any_of(['hang', 'network_bound'])} or {FAULTY})"
"""Those of them that a port of a host may delay: late ranks and uneven work are more often before the network."""

SEEN = "6h:30s"
"""How far back, and how exactly, the begin of something is found that has no metric of its age."""

_SEEN_SECONDS = 6 * 3600 - 60

JUDGED_SINCE = f"(time() - {by_job('fabric_nccl_verdict_seconds')})"
"""When the verdict on each job changed."""


def _last_without(good: str, jobs: str) -> str:
    return (
        f"(max_over_time(timestamp({good})[{SEEN}]) and on (train_job) {_any_of(['fine'])} and on (train_job) {jobs})"
    )


SINCE = (
    f"({_last_without(f'{TIME_OVER_BEST} <= 1.15', SLOWED)}"
    f" or on (train_job) {_last_without(f'{BANDWIDTH} >= {LOW.warning}', LOW_BANDWIDTH)}"
    f" or on (train_job) ({ALERTED} and on (train_job) {_any_of(['fine'])})"
    f" or on (train_job) {JUDGED_SINCE})"
)
"""When the delay of each job began: of one that is slower, or has a low bandwidth, the last time that it was not so."""


def seen_since(metric: str, by: str) -> str:
    """Return the query for when each present series was first seen, or for the time of the verdict if that is later."""
    first = f"min by ({by}) (min_over_time(timestamp({metric})[{SEEN}]) and {metric})"
    later = f"({first} > on (train_job) group_left () {JUDGED_SINCE} > time() - {_SEEN_SECONDS})"
    return f"({later} or on ({by}) (0 * max by ({by}) ({metric}) + on (train_job) group_left () {JUDGED_SINCE}))"


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


def in_words(causes: str) -> str:
    """Return the query for causes with a text of all their labels in `first_cause`."""
    joined = f'label_join({causes}, "first_cause", " ", "cause", "name", "port", "peer")'
    return f'label_replace({joined}, "first_cause", "$1", "first_cause", "(.*?) *")'
