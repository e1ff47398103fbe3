"""The dashboard of training jobs: verdicts, stragglers, the network, step budgets and the timings they are based on.

Verdicts come from collectors, or from each host if there is none. The host of a rank comes from the exporter there in
either case, so the two are joined by job and rank, for any instance.
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
    info_table,
    lines,
    number,
    table_of,
    top_list,
    where,
)

ANY = Limits(1, 1)
"""For counts that should be 0."""

LOST = Limits(0.01, 0.05)
"""Shares of timings that are lost; above the latter there is an alert."""

LATE = Limits(0.02, 0.1)
"""Shares of time that a rank is late."""

EXCESS = Limits(1.5, 3)
"""Ratio of a step's network time to its minimum: latency and other overhead is below the first."""

JOBS = where('train_job=~"$train_job"')

LOST_TIME = f"rate(fabric_nccl_lost_gpu_seconds_total{JOBS}[$__rate_interval])"
"""Of hosts for their own ranks, of collectors for all ranks of a job."""

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


def now() -> list[Panel]:
    """Return panels of the verdicts on jobs."""
    return [
        number("Jobs", "Jobs with timings of collectives.", f"count({_by_job('fabric_nccl_verdict_seconds')})"),
        _verdict_count(
            "Hanging", "hang", "Jobs in which no collective completes any more. Check the log of the job.", ANY
        ),
        _verdict_count(
            "Waiting for a rank", "straggler", "Jobs that wait for the same ranks, which the next row lists.", ANY
        ),
        _verdict_count(
            "Bound by the network",
            "network_bound",
            "Jobs whose collectives are slow even for the rank that does not wait. Check the ports of their hosts"
            " and the switches.",
            ANY,
        ),
        _verdict_count(
            "Imbalanced work",
            "imbalanced_work",
            "Jobs whose ranks wait for each other alternately: the cause is the job.",
        ),
        _verdict_count("Fine", "fine", "Jobs without a delay in their timings."),
        _verdict_count(
            "Not enough data",
            "not_enough_data",
            "Jobs with timings of the same collectives from too few ranks for a verdict; see the row Timings.",
        ),
        number(
            "Stragglers",
            "Ranks that delay their job.",
            f"sum(max by (train_job, rank) (fabric_nccl_straggler{JOBS}))",
            ANY,
        ),
        table_of(
            "Verdicts",
            "What delays each job, for how long, and the evidence: time lost to stragglers, or else waited by the"
            " median rank; bandwidth between nodes relative to the expected one; ranks that could be compared.",
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
            "Jobs by their verdict.",
            "short",
            [
                Query(
                    f"sum by (verdict) (max by (train_job, verdict) (fabric_nccl_verdict{JOBS}))",
                    "{{verdict}}",
                )
            ],
            width=HALF,
        ),
        lines(
            "GPUs lost",
            "GPU-seconds lost per second, by the verdict that names the loss; at most, where the network is slow.",
            "short",
            [
                Query(
                    f"max by (train_job, cause) ({LOST_TIME} and on (job, instance) fabric_collector_connected{{}})"
                    f" or sum by (train_job, cause) ({LOST_TIME})",
                    "{{train_job}} {{cause}}",
                )
            ],
            width=FULL,
        ),
    ]


def ranks() -> list[Panel]:
    """Return panels of stragglers and waiting ranks."""
    return [
        table_of(
            "Stragglers by host",
            "Ranks that the others wait for, and the share of time that each is late. If a port of the host has a"
            " fault, start there; else with the GPU, the CPUs and the input data.",
            [
                Column("Late", "percentunit", _with_host(f"fabric_nccl_straggler_loss_ratio{JOBS}")),
            ],
            labels=["train_job", "rank", "host", "gpu"],
        ),
        top_list(
            "Latest ranks",
            "Share of the last 5 minutes by which a rank was later than the median rank of its communicators. A rank"
            " that waits for another group is late as well: the stragglers are the origin.",
            "percentunit",
            Query(
                f"max by (train_job, rank, host) ({_with_host(f'rate(fabric_nccl_lateness_seconds_total{JOBS}[5m])')})",
                "{{train_job}} rank {{rank}} on {{host}}",
            ),
            LATE,
            width=HALF,
        ),
        lines(
            "Waiting",
            "Share of time lost to stragglers, or else waited by the median rank.",
            "percentunit",
            [Query(f"max by (train_job) (fabric_nccl_waited_ratio{JOBS})", "{{train_job}}")],
            width=HALF,
        ),
        lines(
            "Time in collectives of jobs",
            "Share of time that the mean rank of a job spends in collectives, waiting included.",
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
        table_of(
            "All ranks",
            "Each rank with its host, its GPU and the nearest NICs, as far as they are known: shares of the last 5"
            " minutes that it was late, and that it waited for others.",
            [
                Column("Late", "percentunit", _with_host(f"rate(fabric_nccl_lateness_seconds_total{JOBS}[5m])")),
                Column("Waited", "percentunit", _with_host(f"rate(fabric_nccl_wait_seconds_total{JOBS}[5m])")),
            ],
            labels=["train_job", "rank", "host", "gpu", "nic"],
            width=FULL,
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
                )
            ],
            labels=["train_job", "cause", "name", "port", "peer", "peer_port"],
            width=FULL,
        ),
        lines(
            "Bus bandwidth of jobs",
            "Bus bandwidth of collectives of 1 MiB and more as in nccl-tests, of the last rank, which does not wait;"
            " the slowest of each job and kind.",
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
            "Share of the expected bandwidth",
            "Bus bandwidth between nodes over that of a baseline, of the links, or else the best of the job itself."
            " Below 0.6, without a straggler, a job is bound by the network.",
            "percentunit",
            [Query(f"min by (train_job) (fabric_nccl_network_ratio{JOBS})", "{{train_job}}")],
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
            " that was paused by the network for more than 2 % of the last 5 minutes. For a job that is bound by the"
            " network and not listed check the dashboard of switches.",
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
    """Return panels of training steps, for jobs in the configuration, compared with their expected times."""
    return [
        lines(
            "Step",
            "Time of a training step, derived from the bytes transferred, and as marked by the job.",
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
            "Time of the data-parallel collectives of a step, without waiting, and the minimum by the configured"
            " model and links.",
            "s",
            [
                Query(_by_job("fabric_nccl_step_network_seconds"), "{{train_job}}"),
                Query(_by_job("fabric_nccl_step_network_expected_seconds"), "{{train_job}} minimum"),
            ],
            width=HALF,
        ),
        top_list(
            "Network time over its minimum",
            "Far above 1 the network is slower than its links; near 1 the time is what the job needs.",
            "short",
            Query(_by_job("fabric_nccl_step_network_excess_ratio"), "{{train_job}}"),
            EXCESS,
            width=HALF,
        ),
        lines(
            "Compute share of a step, lower bound",
            "Rest of a step if computation hides none of the network's time, or the share of the peak if that is"
            " more. Below 0.5 is bad, below 0.2 severe, as far as the network is not hidden. Needs timings of nine"
            " tenths of the ranks, so only collectors have it.",
            "percentunit",
            [Query(_by_job("fabric_nccl_step_utilization_least_ratio"), "{{train_job}}")],
            top=1,
            width=HALF,
        ),
        lines(
            "Model FLOPs utilization (MFU)",
            "From the operations or tokens that the job marks with its steps, else from the configured tokens of a"
            " step and its measured time. 0.55 to 0.70 is good; check the job if it is below the wanted value.",
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
            "Time for computation, lower bound",
            "Time of a step that is left for computation if none of the network's time is hidden behind it.",
            "s",
            [Query(_by_job("fabric_nccl_step_exposed_compute_seconds"), "{{train_job}}")],
            width=HALF,
        ),
    ]


def timings() -> list[Panel]:
    """Return panels of the completeness of timings, on which verdicts depend."""
    return [
        lines(
            "Ranks compared",
            "Share of the ranks of a job in collectives that could be compared. Below 0.9 there is no verdict.",
            "percentunit",
            [Query(f"min by (train_job) (fabric_nccl_matched_ranks_ratio{JOBS})", "{{train_job}}")],
            top=1,
            width=HALF,
        ),
        lines(
            "Collectives compared",
            "Collectives per second: matched have timings of all ranks, partial of enough ranks, unmatched of too"
            " few; dropped exceeded limits or were late.",
            "ops",
            [
                Query(f"sum(rate(fabric_nccl_{word}_collectives_total{JOBS}[$__rate_interval]))", word)
                for word in ("matched", "partial", "unmatched", "dropped")
            ],
            width=HALF,
        ),
    ]


def delivery() -> list[Panel]:
    """Return panels of the delivery of timings: from the jobs to the hosts, and by the broker to collectors."""
    return [
        number("Collectors", "Collectors.", "count(fabric_collector_connected{})", width=QUARTER),
        number(
            "Collectors disconnected",
            "Collectors without a connection to their broker: no verdicts on their jobs.",
            "sum(1 - fabric_collector_connected{})",
            ANY,
            width=EIGHTH,
        ),
        number(
            "Hosts disconnected",
            "Hosts without a connection to their broker: their ranks are missing in verdicts.",
            "sum(1 - fabric_exporter_mqtt_connected{})",
            ANY,
            width=EIGHTH,
        ),
        number(
            "Batches lost",
            "Share of the batches of timings of the last 5 minutes that were lost on the way to the collectors, or"
            " rejected there.",
            _share("fabric_collector_batches_total", 'outcome!~"taken|duplicate"', 'outcome!="duplicate"'),
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
        number(
            "Hosts sending",
            "Hosts that collectors receive timings from, counted for each job.",
            "sum(fabric_collector_hosts{})",
        ),
        number(
            "Streams",
            "Streams of timings that collectors receive: one for each rank, communicator and kind.",
            "sum(fabric_collector_streams{})",
        ),
        lines(
            "Batches at collectors",
            "Batches of timings per second by outcome: accepted, lost on the way, duplicate, dropped, over a limit,"
            " and rejected ones by reason.",
            "cps",
            [Query("sum by (outcome) (rate(fabric_collector_batches_total{}[$__rate_interval]))", "{{outcome}}")],
        ),
        lines(
            "Batches at hosts",
            "Batches of timings per second by outcome at the hosts.",
            "cps",
            [Query("sum by (outcome) (rate(fabric_exporter_mqtt_batches_total{}[$__rate_interval]))", "{{outcome}}")],
        ),
        lines(
            "Timings lost at hosts",
            "Timings per second that Inspector overwrote in its ring buffer, and losses of fabric_timing.py by reason.",
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
    """Return panels of NCCL's transport, from its logs."""
    return [
        info_table(
            "How jobs reach the network",
            "From NCCL's log: the network and its provider, GPUDirect RDMA, SHARP and NVLS. Sockets despite RDMA"
            " adapters, or no GPUDirect RDMA, explain a job that is bound by the network.",
            f"fabric_nccl_transport_info{PLACES}",
            labels=["train_job", "host", "version", "network", "provider", "gdr", "sharp", "nvls"],
        ),
        info_table(
            "Adapters of jobs",
            "From NCCL's log: the adapters that it may use, and whether it uses them.",
            f"fabric_nccl_hca_info{PLACES}",
            labels=["train_job", "host", "device", "port", "link_layer", "used", "gdr"],
        ),
    ]


def _by_job(metric: str) -> str:
    return f"max by (train_job) ({metric}{JOBS})"


def _verdict_count(title: str, verdict: str, description: str, limits: Limits | None = None) -> Panel:
    """Return a panel that counts the jobs with a verdict, each once even if several exporters have it."""
    chosen = where(f'train_job=~"$train_job", verdict="{verdict}"')
    return number(title, description, f"sum(max by (train_job) (fabric_nccl_verdict{chosen}))", limits)


def _with_verdict(metric: str) -> str:
    """Join the verdict to a value of a job."""
    return f"{metric}{JOBS} * on (job, instance, train_job) group_left (verdict) (fabric_nccl_verdict{JOBS} == 1)"


def _with_host(expr: str) -> str:
    """Join the host of ranks; a rank without a known host is kept without it."""
    return f"({expr} * {HOST} or on (job, instance, train_job, rank) {expr})"


def _share(metric: str, part: str, whole: str) -> str:
    of = where(whole) if whole else "{}"
    return f"sum(rate({metric}{where(part)}[5m])) / sum(rate({metric}{of}[5m]))"


ROWS = {
    "Jobs now": now,
    "Stragglers and waiting": ranks,
    "Network of jobs": network,
    "Budget of a step": budgets,
    "Timings": timings,
    "Delivery of timings": delivery,
    "NCCL transport": transport,
}
