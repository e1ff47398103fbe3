"""Rows of the dashboard of training jobs: budgets of steps, and the timings and logs that verdicts are based on."""

from panels import ANY, HALF, SIXTH, Limits, Panel, Query, lines, number, where
from tables import info_table, top_list
from training_joins import JOBS, PLACES, by_job

LOST = Limits(0.01, 0.05)
"""Shares of timings that are lost; above the latter there is an alert."""

EXCESS = Limits(1.5, 3)
"""Ratio of a step's network time to its minimum: latency and other overhead is below the first."""

COLLECTOR = "needs a collector"
BUDGET = "needs jobs in the configuration (docs/budget.md)"


def budgets() -> list[Panel]:
    """Return panels of training steps, for jobs in the configuration, compared with their expected times."""
    return [
        lines(
            "Step",
            "Time of a training step: by the bytes transferred, else by how collectives repeat; and as marked by the"
            " job.",
            "s",
            [
                Query(
                    f"{by_job('fabric_nccl_step_seconds')} or {by_job('fabric_nccl_step_interval_seconds')}",
                    "{{train_job}}",
                ),
                Query(
                    f"1 / max by (train_job) (rate(fabric_nccl_steps_total{JOBS}[$__rate_interval]) > 0)",
                    "{{train_job}} as marked",
                ),
            ],
            width=HALF,
            absent="no steps in the timings",
        ),
        lines(
            "Network of a step",
            "Time of the data-parallel collectives of a step, without waiting, and the minimum by the configured"
            " model and links.",
            "s",
            [
                Query(by_job("fabric_nccl_step_network_seconds"), "{{train_job}}"),
                Query(by_job("fabric_nccl_step_network_expected_seconds"), "{{train_job}} minimum"),
            ],
            width=HALF,
            absent=BUDGET,
        ),
        top_list(
            "Network time over its minimum",
            "Far above 1 the network is slower than its links; near 1 the time is what the job needs.",
            "short",
            by_job("fabric_nccl_step_network_excess_ratio"),
            EXCESS,
            width=HALF,
            labels=["train_job"],
        ).no_value(BUDGET),
        lines(
            "Compute share of a step, lower bound",
            "Rest of a step if computation hides none of the network's time, or the share of the peak if that is"
            " more. Below 0.5 is bad, below 0.2 severe, as far as the network is not hidden. Needs timings of nine"
            " tenths of the ranks, so only collectors have it.",
            "percentunit",
            [Query(by_job("fabric_nccl_step_utilization_least_ratio"), "{{train_job}}")],
            top=1,
            width=HALF,
            absent=BUDGET,
        ),
        lines(
            "Model FLOPs utilization (MFU), of the peak",
            "From the operations or tokens that the job marks with its steps, else from the configured tokens of a"
            " step and its measured time. 0.55 to 0.70 is good; check the job if it is below the wanted value.",
            "percentunit",
            [
                Query(
                    f"max by (train_job) (rate(fabric_nccl_step_operations_total{JOBS}[$__rate_interval]))"
                    f" / {by_job('fabric_nccl_peak_operations_per_second')}"
                    f" or max by (train_job) (rate(fabric_nccl_step_tokens_total{JOBS}[$__rate_interval]))"
                    f" * {by_job('fabric_nccl_model_operations_per_token')}"
                    f" / {by_job('fabric_nccl_peak_operations_per_second')}"
                    f" or {by_job('fabric_nccl_model_flops_utilization_ratio')}",
                    "{{train_job}}",
                ),
                Query(by_job("fabric_nccl_model_flops_utilization_wanted_ratio"), "{{train_job}} wanted"),
            ],
            top=1,
            width=HALF,
            absent=BUDGET,
        ),
        lines(
            "Time for computation, lower bound",
            "Time of a step that is left for computation if none of the network's time is hidden behind it.",
            "s",
            [Query(by_job("fabric_nccl_step_exposed_compute_seconds"), "{{train_job}}")],
            width=HALF,
            absent=BUDGET,
        ),
    ]


def timings() -> list[Panel]:
    """Return panels of the completeness of timings, on which verdicts depend."""
    return [
        lines(
            "Ranks compared, of all ranks",
            "Share of the ranks of a job in collectives that could be compared. Below 0.9 there is no verdict.",
            "percentunit",
            [Query(f"min by (train_job) (fabric_nccl_matched_ranks_ratio{JOBS})", "{{train_job}}")],
            top=1,
            width=HALF,
            absent="no job reports timings",
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
        number("Collectors", "Collectors.", "count(fabric_collector_connected{})", width=SIXTH, absent=COLLECTOR),
        number(
            "Collectors offline",
            "Collectors without a connection to their broker: no verdicts on their jobs.",
            "sum(1 - fabric_collector_connected{})",
            ANY,
            absent=COLLECTOR,
        ),
        number(
            "Hosts offline",
            "Hosts without a connection to their broker: their ranks are missing in verdicts.",
            "sum(1 - fabric_exporter_mqtt_connected{})",
            ANY,
            absent=COLLECTOR,
        ),
        number(
            "Lost, of batches",
            "Share of the batches of timings of the last 5 minutes that were lost on the way to the collectors, or"
            " rejected there.",
            _share("fabric_collector_batches_total", 'outcome!~"accepted|duplicate"', 'outcome!="duplicate"'),
            LOST,
            unit="percentunit",
            width=SIXTH,
            absent=COLLECTOR,
        ),
        number(
            "Not sent, of batches",
            "Share of the batches of timings of the last 5 minutes that hosts could not send.",
            _share("fabric_exporter_mqtt_batches_total", 'outcome!="sent"', ""),
            LOST,
            unit="percentunit",
            width=SIXTH,
            absent=COLLECTOR,
        ),
        number(
            "Hosts sending",
            "Hosts that collectors receive timings from, counted for each job.",
            "sum(fabric_collector_hosts{})",
            absent=COLLECTOR,
        ),
        number(
            "Streams",
            "Streams of timings that collectors receive: one for each rank, communicator and kind.",
            "sum(fabric_collector_streams{})",
            absent=COLLECTOR,
        ),
        lines(
            "Batches at collectors",
            "Batches of timings per second by outcome: accepted, lost on the way, duplicate, dropped, over a limit,"
            " and rejected ones by reason.",
            "cps",
            [Query("sum by (outcome) (rate(fabric_collector_batches_total{}[$__rate_interval]))", "{{outcome}}")],
            absent=COLLECTOR,
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
            worst=("-train_job", "-host"),
            absent="no log of NCCL (docs/training.md)",
        ),
        info_table(
            "Adapters of jobs",
            "From NCCL's log: the adapters that it may use, and whether it uses them.",
            f"fabric_nccl_hca_info{PLACES}",
            labels=["train_job", "host", "device", "port", "link_layer", "used", "gdr"],
            worst=("-train_job", "-host", "-device"),
            absent="no log of NCCL (docs/training.md)",
        ),
    ]


def _share(metric: str, part: str, whole: str) -> str:
    of = where(whole) if whole else "{}"
    return f"sum(rate({metric}{where(part)}[5m])) / sum(rate({metric}{of}[5m]))"
