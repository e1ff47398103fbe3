"""Rows of the overview about switches and jobs."""

from joins import JOBS_OF, MISSING, PAUSED, PHYSICAL, RANK_INFO
from panels import FULL, HALF, THIRD, WAYS, Column, Limits, Panel, Query, lines, table_of, top_list


def switches() -> list[Panel]:
    """Return panels of the traffic and losses of switches."""
    return [
        table_of(
            "Ports of switches",
            "Ports with the link up, of all ports of the switch. If ports are down that should not be, check the"
            " machines behind them first. A switch that does not respond is not listed.",
            [
                Column("Ports up", "short", f"sum by (switch) (fabric_switch_link_up{{}} {PHYSICAL})"),
                Column("Ports", "short", f"count by (switch) (fabric_switch_link_up{{}} {PHYSICAL})"),
            ],
            labels=["switch"],
        ),
        lines(
            "Pauses by switch",
            "Pause frames per second. Frames that a switch transmits pause its peers: one of its own ports is"
            " congested. Frames that it receives come from a host or a switch that is overloaded: check that first.",
            "pps",
            [
                Query(
                    f"sum by (switch) (rate(fabric_switch_{way}_pfc_frames_total{{}}[$__rate_interval]) {PHYSICAL})"
                    f" or sum by (switch)"
                    f" (rate(fabric_switch_{way}_pause_frames_total{{}}[$__rate_interval]) {PHYSICAL})",
                    f"{{{{switch}}}} {way}",
                )
                for way in WAYS
            ],
            width=HALF,
        ),
        lines(
            "Traffic by switch",
            "Bytes per second transmitted and received by all ports of a switch, on the wire.",
            "Bps",
            [
                Query(
                    f"sum by (switch) (rate(fabric_switch_{way}_bytes_total{{}}[$__rate_interval]) {PHYSICAL})",
                    f"{{{{switch}}}} {way}",
                )
                for way in WAYS
            ],
        ),
        top_list(
            "Busiest ports, transmit",
            "Transmit utilization of a switch port; queues and drops occur there.",
            "percentunit",
            Query(
                f"max by (switch, port) (fabric_switch_transmit_utilization_ratio{{}} {PHYSICAL})",
                "{{switch}} {{port}}",
            ),
            Limits(0.8, 0.95),
        ),
        top_list(
            "Busiest ports, receive",
            "Receive utilization of a switch port.",
            "percentunit",
            Query(
                f"max by (switch, port) (fabric_switch_receive_utilization_ratio{{}} {PHYSICAL})", "{{switch}} {{port}}"
            ),
            Limits(0.8, 0.95),
        ),
        lines(
            "Errors by switch",
            "Packets per second that could not be transmitted or received because of an error: check cables and"
            " transceivers.",
            "pps",
            [
                Query(
                    f"sum by (switch) (rate(fabric_switch_{way}_errors_total{{}}[$__rate_interval]) {PHYSICAL})",
                    f"{{{{switch}}}} {way}",
                )
                for way in WAYS
            ],
        ),
        lines(
            "Discards by switch",
            "Packets per second dropped without an error, mostly for lack of buffers. A lossless fabric has none.",
            "pps",
            [
                Query(
                    f"sum by (switch) (rate(fabric_switch_{way}_discards_total{{}}[$__rate_interval]) {PHYSICAL})",
                    f"{{{{switch}}}} {way}",
                )
                for way in WAYS
            ],
        ),
        top_list(
            "Ports with most losses",
            "Packets per second that a port discarded, or received with errors, over 5 minutes.",
            "pps",
            Query(
                "sum by (switch, port) (rate(fabric_switch_transmit_discards_total{}[5m])"
                " + rate(fabric_switch_receive_discards_total{}[5m]) + rate(fabric_switch_receive_errors_total{}[5m])"
                f" {PHYSICAL})",
                "{{switch}} {{port}}",
            ),
            Limits(1, 100),
        ),
    ]


def collectives() -> list[Panel]:
    """Return panels of the jobs' collectives."""
    return [
        table_of(
            "Jobs on hosts with faults",
            "Hosts of each job with a straggler, a port that is down (unused ones included), missing or slower than"
            " expected, or paused by the network for more than 2 % of the last 5 minutes. For a slow job that is not"
            " listed check the switches next, then causes outside the network.",
            [
                Column(
                    "Stragglers", "short", f"sum by (train_job, host) (fabric_nccl_straggler{{}} * {RANK_INFO}) > 0"
                ),
                Column("Ports down", "short", f"{JOBS_OF} sum by (job, instance) (1 - fabric_rdma_link_up{{}}) > 0"),
                Column("Ports missing", "short", f"{JOBS_OF} max by (job, instance) ({MISSING}) > 0"),
                Column(
                    "Links degraded", "short", f"{JOBS_OF} sum by (job, instance) (fabric_rdma_link_degraded{{}}) > 0"
                ),
                Column("Paused", "percentunit", f"{JOBS_OF} max by (job, instance) ({PAUSED}) > 0.02"),
            ],
            labels=["train_job", "host"],
            width=FULL,
        ),
        lines(
            "Bus bandwidth",
            "Bus bandwidth of large collectives as in nccl-tests, measured at the last rank: the slowest and the"
            " median of the exporters that evaluate a job, hosts or a collector, by job and kind.",
            "Bps",
            [
                Query(
                    "min by (train_job, collective) (fabric_nccl_bus_bandwidth_bytes_per_second{})",
                    "{{train_job}} {{collective}} slowest",
                ),
                Query(
                    "quantile by (train_job, collective) (0.5, fabric_nccl_bus_bandwidth_bytes_per_second{})",
                    "{{train_job}} {{collective}} median",
                ),
            ],
        ),
        lines(
            "Time in collectives",
            "Share of time that the ranks of a job spend in collectives, and waiting there for the last rank; the"
            " mean of all ranks.",
            "percentunit",
            [
                Query(
                    "avg by (train_job) (sum by (train_job, job, instance, rank)"
                    " (rate(fabric_nccl_collective_duration_seconds_total{}[$__rate_interval])))",
                    "{{train_job}} in collectives",
                ),
                Query(
                    "avg by (train_job) (rate(fabric_nccl_wait_seconds_total{}[$__rate_interval]))",
                    "{{train_job}} waiting",
                ),
            ],
        ),
        lines(
            "Collectives per second",
            "Collectives per second, all ranks together. A line that falls to 0 while the job runs is a hang.",
            "ops",
            [
                Query(
                    "sum by (train_job, collective) (rate(fabric_nccl_collectives_total{}[$__rate_interval]))",
                    "{{train_job}} {{collective}}",
                )
            ],
        ),
        top_list(
            "Latest ranks",
            "Share of the last 5 minutes by which a rank was later than the median rank of its communicator.",
            "percentunit",
            Query(
                f"max by (train_job, rank, host) (rate(fabric_nccl_lateness_seconds_total{{}}[5m]) * {RANK_INFO})",
                "{{train_job}} rank {{rank}} on {{host}}",
            ),
            Limits(0.02, 0.1),
        ),
        lines(
            "Lateness of the latest rank",
            "Share of time by which the latest rank of each job was later than the median rank of its communicator.",
            "percentunit",
            [
                Query(
                    "max by (train_job) (rate(fabric_nccl_lateness_seconds_total{}[$__rate_interval]))", "{{train_job}}"
                )
            ],
        ),
        table_of(
            "Stragglers by host",
            "Ranks that the other ranks of their job wait for. See the dashboard of training jobs.",
            [Column("Straggler", "short", f"fabric_nccl_straggler{{}} * {RANK_INFO} == 1")],
            labels=["train_job", "rank", "host"],
            width=THIRD,
        ),
    ]
