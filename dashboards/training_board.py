"""The board of training jobs: what holds each up, by which rank or how slow a network, and how much is known of it.

Verdicts come of collectors, or of each host where there are none; where a rank runs is told by the exporter of its host
in either case, so the two are joined by job and rank, whatever instances are selected.
"""

from joins import MISSING, PAUSED
from panels import (
    EIGHTH,
    FULL,
    HALF,
    QUARTER,
    Column,
    Limits,
    Panel,
    Query,
    facts,
    lines,
    listing,
    number,
    where,
    worst,
)

ANY = Limits(1, 1)
"""For counts of what should not be."""

LOST = Limits(0.01, 0.05)
"""Shares of timings that are lost; from the latter on there is an alert."""

LATE = Limits(0.02, 0.1)
"""Shares of the time that a rank is late."""

EXCESS = Limits(1.5, 3)
"""Times of a step's network over what it needs at least: latency and what comes on top is within the first."""

JOBS = where('train_job=~"$train_job"')

PLACES = '{job=~".+", instance=~".+", train_job=~"$train_job"}'
"""Where ranks run is told by other instances than those of collectors."""

HOST = (
    "on (train_job, rank) group_left (host, gpu, nic) topk by (train_job, rank) (1, fabric_nccl_rank_info"
    + PLACES
    + ")"
)
"""Names the host of a rank. A join that finds two of one rank, as soon after a restart elsewhere, fails for all."""

ON_HOSTS = f"max by (job, instance, train_job, host) (fabric_nccl_rank_info{PLACES}) * on (job, instance) group_left"
"""Carries what is true of a host to the jobs that run on it."""


def now() -> list[Panel]:
    """Show what holds up the jobs."""
    return [
        number("Jobs", "Jobs whose collectives are heard of.", f"count({_by_job('fabric_nccl_verdict_seconds')})"),
        _held_up("Standing still", "hang", "Jobs of which no collective ends any more. See the log of the job.", ANY),
        _held_up(
            "Waiting for a rank", "straggler", "Jobs that wait for the same ranks, which the next row names.", ANY
        ),
        _held_up(
            "Bound by the network",
            "network_bound",
            "Jobs whose collectives are slow also for the rank that waits for nobody. Look at the ports of their hosts"
            " and at the switches.",
            ANY,
        ),
        _held_up(
            "Imbalanced work", "imbalanced_work", "Jobs whose ranks wait for each other in turns: a matter of the job."
        ),
        _held_up("Fine", "fine", "Jobs that nothing holds up, as far as their timings tell."),
        _held_up(
            "Not enough data",
            "not_enough_data",
            "Jobs of which too few ranks told the times of the same collectives for a verdict; see the row Timings.",
        ),
        number(
            "Ranks waited for",
            "Ranks that hold up their job.",
            f"sum(max by (train_job, rank) (fabric_nccl_straggler{JOBS}))",
            ANY,
        ),
        listing(
            "Verdicts",
            "What holds up each job, for how long, and what that rests on: time lost to the ranks that are waited for,"
            " or else waited by the mean rank; bandwidth between nodes of what it should be; ranks that could be"
            " compared.",
            [
                Column("Since", "s", _with_verdict("fabric_nccl_verdict_seconds")),
                Column("Waited", "percentunit", _with_verdict("fabric_nccl_waited_ratio")),
                Column("Network", "percentunit", _with_verdict("fabric_nccl_network_ratio")),
                Column("Ranks compared", "percentunit", _with_verdict("fabric_nccl_matched_ranks_ratio")),
            ],
            labels=["train_job", "verdict"],
        ),
        lines(
            "Jobs by verdict",
            "Jobs that have each verdict.",
            "short",
            [
                Query(
                    f"sum by (verdict) (max by (train_job, verdict) (fabric_nccl_verdict{JOBS}))",
                    "{{verdict}}",
                )
            ],
            width=HALF,
        ),
    ]


def ranks() -> list[Panel]:
    """Show for whom the others wait."""
    return [
        listing(
            "Ranks that hold up their job",
            "Ranks that the others wait for, and the share of the time that each is late. Where the host has a fault of"
            " its ports begin there; else with the GPU, the CPUs and the input.",
            [
                Column("Late", "percentunit", _placed(f"fabric_nccl_straggler_loss_ratio{JOBS}")),
            ],
            labels=["train_job", "rank", "host", "gpu"],
        ),
        worst(
            "Latest ranks",
            "Share of the last 5 minutes by which a rank came after the middle one of its communicators. One that waits"
            " for another group comes late as well: the list beside names where it begins.",
            "percentunit",
            Query(
                f"max by (train_job, rank, host) ({_placed(f'rate(fabric_nccl_lateness_seconds_total{JOBS}[5m])')})",
                "{{train_job}} rank {{rank}} on {{host}}",
            ),
            LATE,
            width=HALF,
        ),
        lines(
            "Waiting",
            "Share of the time lost to the ranks that are waited for, or else waited by the mean rank.",
            "percentunit",
            [Query(f"max by (train_job) (fabric_nccl_waited_ratio{JOBS})", "{{train_job}}")],
            width=HALF,
        ),
        lines(
            "Time in collectives of jobs",
            "Share of the time that the mean rank of a job spends in collectives, waiting included.",
            "percentunit",
            [
                Query(
                    "avg by (train_job) (sum by (job, instance, train_job, rank)"
                    f" (rate(fabric_nccl_collective_duration_seconds_total{JOBS}[$__rate_interval])))",
                    "{{train_job}}",
                )
            ],
            width=HALF,
        ),
        listing(
            "All ranks",
            "Each rank with its host, its GPU and the nearest NICs, as far as anything tells them: shares of the last 5"
            " minutes that it came late to others, and that it waited for them.",
            [
                Column("Late", "percentunit", _placed(f"rate(fabric_nccl_lateness_seconds_total{JOBS}[5m])")),
                Column("Waited", "percentunit", _placed(f"rate(fabric_nccl_wait_seconds_total{JOBS}[5m])")),
            ],
            labels=["train_job", "rank", "host", "gpu", "nic"],
            width=FULL,
        ),
    ]


def network() -> list[Panel]:
    """Show whether the network gives what it should, and which hosts of a job have a fault."""
    return [
        listing(
            "Likely causes",
            "What a collector puts verdicts down to, by the states of ports and what NCCL's logs say: name is the host"
            " or switch. From 0.6 on strong, from 0.3 on likely, below that possible. Its log has the evidence.",
            [
                Column(
                    "Confidence",
                    "percentunit",
                    f"max by (train_job, cause, name, port) (fabric_nccl_cause_confidence{JOBS})",
                )
            ],
            labels=["train_job", "cause", "name", "port"],
            width=FULL,
        ),
        lines(
            "Bus bandwidth of jobs",
            "Bandwidth of collectives of 1 MiB and more as nccl-tests counts it, of the rank that comes last and waits"
            " for nobody; the slowest that is told of a job and kind.",
            "Bps",
            [
                Query(
                    f"min by (train_job, collective) (fabric_nccl_bus_bandwidth_bytes_per_second{JOBS})",
                    "{{train_job}} {{collective}}",
                )
            ],
            width=HALF,
        ),
        lines(
            "Share of what the network should give",
            "Bus bandwidth between nodes over that of a baseline, of the links, or else the best that the job itself"
            " had. Below 0.6, with no rank to blame, a job is bound by the network.",
            "percentunit",
            [Query(f"min by (train_job) (fabric_nccl_network_ratio{JOBS})", "{{train_job}}")],
            width=HALF,
        ),
        listing(
            "Troubled hosts of jobs",
            "Hosts of each job with a port that is down (unused ones included), missing or slower than expected, or"
            " that was paused by the network for more than 2 % of the last 5 minutes. For a job that is bound by the"
            " network and not listed look at the board of switches.",
            [
                Column("Ports down", "short", f"{ON_HOSTS} sum by (job, instance) (1 - fabric_rdma_link_up{{}}) > 0"),
                Column("Ports missing", "short", f"{ON_HOSTS} max by (job, instance) ({MISSING}) > 0"),
                Column(
                    "Links degraded", "short", f"{ON_HOSTS} sum by (job, instance) (fabric_rdma_link_degraded{{}}) > 0"
                ),
                Column("Paused", "percentunit", f"{ON_HOSTS} max by (job, instance) ({PAUSED}) > 0.02"),
            ],
            labels=["train_job", "host"],
            width=FULL,
        ),
    ]


def budgets() -> list[Panel]:
    """Show steps of the jobs that the configuration tells of, as they are beside as they should be."""
    return [
        lines(
            "Step",
            "Time of a training step, told from the bytes that were moved, and as the job marks its steps.",
            "s",
            [
                Query(f"{_by_job('fabric_nccl_step_seconds')}", "{{train_job}}"),
                Query(
                    f"1 / max by (train_job) (rate(fabric_nccl_steps_total{JOBS}[$__rate_interval]) > 0)",
                    "{{train_job}} as marked",
                ),
            ],
            width=HALF,
        ),
        lines(
            "Network of a step",
            "Time of the data-parallel collectives of a step, without waiting, and the least that they need by the"
            " configured model and links.",
            "s",
            [
                Query(_by_job("fabric_nccl_step_network_seconds"), "{{train_job}}"),
                Query(_by_job("fabric_nccl_step_network_expected_seconds"), "{{train_job}} at least"),
            ],
            width=HALF,
        ),
        worst(
            "Time of the network over what it should be",
            "Far above 1 the network is slower than its links; near 1 the job asks for what it takes.",
            "short",
            Query(_by_job("fabric_nccl_step_network_excess_ratio"), "{{train_job}}"),
            EXCESS,
            width=HALF,
        ),
        lines(
            "Share of a step that GPUs compute, at least",
            "What is left of a step where computing hides none of the network's time, or the share of the peak where"
            " that is more. Below 0.5 is bad, below 0.2 severe, as far as the network is not hidden. Told where nine"
            " tenths of the ranks are heard, so by collectors.",
            "percentunit",
            [Query(_by_job("fabric_nccl_step_utilization_least_ratio"), "{{train_job}}")],
            top=1,
            width=HALF,
        ),
        lines(
            "Share of the GPUs' peak that the model gets (MFU)",
            "By the operations or tokens that the job marks with its steps, else by the configured tokens of a step and"
            " its measured time. 0.55 to 0.70 is good; below what is wanted something is wrong.",
            "percentunit",
            [
                Query(
                    f"max by (train_job) (rate(fabric_nccl_step_operations_total{JOBS}[$__rate_interval]))"
                    f" / {_by_job('fabric_nccl_peak_operations_per_second')}"
                    f" or max by (train_job) (rate(fabric_nccl_step_tokens_total{JOBS}[$__rate_interval]))"
                    f" * {_by_job('fabric_nccl_model_operations_per_token')}"
                    f" / {_by_job('fabric_nccl_peak_operations_per_second')}"
                    f" or {_by_job('fabric_nccl_model_flops_utilization_ratio')}",
                    "{{train_job}}",
                ),
                Query(_by_job("fabric_nccl_model_flops_utilization_wanted_ratio"), "{{train_job}} wanted"),
            ],
            top=1,
            width=HALF,
        ),
        lines(
            "Left for computing, at least",
            "Time of a step that is left for computing where none of the network's is hidden behind it.",
            "s",
            [Query(_by_job("fabric_nccl_step_exposed_compute_seconds"), "{{train_job}}")],
            width=HALF,
        ),
    ]


def timings() -> list[Panel]:
    """Show how much of the jobs is known, without which no verdict is worth anything."""
    return [
        lines(
            "Ranks compared",
            "Share of the ranks of a job that were seen in collectives that could be compared. Below 0.9 there is no"
            " verdict.",
            "percentunit",
            [Query(f"min by (train_job) (fabric_nccl_matched_ranks_ratio{JOBS})", "{{train_job}}")],
            top=1,
            width=HALF,
        ),
        lines(
            "Collectives compared",
            "Collectives a second: matched with the times of all ranks, partial of enough of them, unmatched of too"
            " few, dropped for limits or for coming late.",
            "ops",
            [
                Query(f"sum(rate(fabric_nccl_{word}_collectives_total{JOBS}[$__rate_interval]))", word)
                for word in ("matched", "partial", "unmatched", "dropped")
            ],
            width=HALF,
        ),
    ]


def ways() -> list[Panel]:
    """Show how timings come here: from the jobs to the hosts, and by the broker to collectors."""
    return [
        number("Collectors", "Collectors that there are.", "count(fabric_collector_connected{})", width=QUARTER),
        number(
            "Collectors away from the broker",
            "Collectors that do not hear their broker: no verdicts on their jobs.",
            "sum(1 - fabric_collector_connected{})",
            ANY,
            width=EIGHTH,
        ),
        number(
            "Hosts away from the broker",
            "Hosts that do not reach their broker: their ranks are missing in verdicts.",
            "sum(1 - fabric_exporter_mqtt_connected{})",
            ANY,
            width=EIGHTH,
        ),
        number(
            "Batches lost",
            "Share of the batches of timings of the last 5 minutes that were lost on the way to the collectors, or"
            " refused there.",
            _share("fabric_collector_batches_total", 'outcome!~"accepted|duplicate"', 'outcome!="duplicate"'),
            LOST,
            unit="percentunit",
            width=EIGHTH,
        ),
        number(
            "Batches not sent",
            "Share of the batches of timings of the last 5 minutes that hosts could not send.",
            _share("fabric_exporter_mqtt_batches_total", 'outcome!="sent"', ""),
            LOST,
            unit="percentunit",
            width=EIGHTH,
        ),
        number("Hosts heard", "Hosts that collectors hear of, counted for each job.", "sum(fabric_collector_hosts{})"),
        number(
            "Streams", "A rank in a communicator, by kind, of which collectors hear.", "sum(fabric_collector_streams{})"
        ),
        lines(
            "Batches at collectors",
            "Batches of timings a second by what became of them: taken, lost on the way, duplicate, dropped,"
            " over_limit, and refused ones by what was wrong with them.",
            "cps",
            [Query("sum by (outcome) (rate(fabric_collector_batches_total{}[$__rate_interval]))", "{{outcome}}")],
        ),
        lines(
            "Batches at hosts",
            "Batches of timings a second by what became of them at the hosts.",
            "cps",
            [Query("sum by (outcome) (rate(fabric_exporter_mqtt_batches_total{}[$__rate_interval]))", "{{outcome}}")],
        ),
        lines(
            "Lost before they were read",
            "Timings a second that Inspector overwrote in its ring, and losses of fabric_timing.py by reason.",
            "cps",
            [
                Query(
                    f"sum(rate(fabric_nccl_inspector_dropped_collectives_total{JOBS}[$__rate_interval]))", "Inspector"
                ),
                Query("sum by (reason) (rate(fabric_nccl_timing_lost_total{}[$__rate_interval]))", "hook: {{reason}}"),
            ],
        ),
    ]


def transport() -> list[Panel]:
    """Show what NCCL's logs say of the way to the network."""
    return [
        facts(
            "How jobs reach the network",
            "By NCCL's log: the network and its provider, GPUDirect RDMA, SHARP and NVLS. Sockets where there are"
            " adapters, or no GPUDirect RDMA, explain a job that is bound by the network.",
            f"fabric_nccl_transport_info{PLACES}",
            labels=["train_job", "host", "version", "network", "provider", "gdr", "sharp", "nvls"],
        ),
        facts(
            "Adapters of jobs",
            "By NCCL's log: the adapters that it may use, and whether it does.",
            f"fabric_nccl_hca_info{PLACES}",
            labels=["train_job", "host", "device", "port", "link_layer", "used", "gdr"],
        ),
    ]


def _by_job(metric: str) -> str:
    return f"max by (train_job) ({metric}{JOBS})"


def _held_up(title: str, verdict: str, description: str, limits: Limits | None = None) -> Panel:
    """Count the jobs that have a verdict, each once however many tell of it."""
    chosen = where(f'train_job=~"$train_job", verdict="{verdict}"')
    return number(title, description, f"sum(max by (train_job) (fabric_nccl_verdict{chosen}))", limits)


def _with_verdict(metric: str) -> str:
    """Name the verdict beside a value of a job."""
    return f"{metric}{JOBS} * on (job, instance, train_job) group_left (verdict) (fabric_nccl_verdict{JOBS} == 1)"


def _placed(expr: str) -> str:
    """Name the host of ranks; one of which no host tells stays, without."""
    return f"({expr} * {HOST} or on (job, instance, train_job, rank) {expr})"


def _share(metric: str, part: str, whole: str) -> str:
    of = where(whole) if whole else "{}"
    return f"sum(rate({metric}{where(part)}[5m])) / sum(rate({metric}{of}[5m]))"


ROWS = {
    "Jobs now": now,
    "Ranks that are waited for": ranks,
    "Network of jobs": network,
    "Budget of a step": budgets,
    "Timings": timings,
    "Ways of timings": ways,
    "Ways to the network": transport,
}
