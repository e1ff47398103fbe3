"""Rows of the overview about what lies beyond the hosts: switches, and the jobs that feel it all."""

from joins import JOBS_OF, MISSING, PAUSED, RANK_INFO
from panels import FULL, HALF, THIRD, WAYS, Column, Limits, Panel, Query, lines, listing, worst


def switches() -> list[Panel]:
    """Show what the ports of switches carry and lose."""
    return [
        listing(
            "Ports of switches",
            "Ports that carry traffic, of all that the switch has. Where ports are down that should not be, look at the"
            " machines behind them first. A switch that does not answer is not listed.",
            [
                Column("Ports up", "short", "sum by (switch) (fabric_switch_link_up{})"),
                Column("Ports", "short", "count by (switch) (fabric_switch_link_up{})"),
            ],
            labels=["switch"],
        ),
        lines(
            "Pauses by switch",
            "Pause frames a second. Those that a switch sends stop its peers: one of its own ports is congested. Those"
            " that it receives come from a host or a switch that cannot take more: look there first.",
            "pps",
            [
                Query(
                    f"sum by (switch) (rate(fabric_switch_{way}_pfc_frames_total{{}}[$__rate_interval]))"
                    f" or sum by (switch) (rate(fabric_switch_{way}_pause_frames_total{{}}[$__rate_interval]))",
                    f"{{{{switch}}}} {way}",
                )
                for way in WAYS
            ],
            width=HALF,
        ),
        lines(
            "Traffic by switch",
            "Bytes that all ports of a switch sent and received a second, on the wire.",
            "Bps",
            [
                Query(
                    f"sum by (switch) (rate(fabric_switch_{way}_bytes_total{{}}[$__rate_interval]))",
                    f"{{{{switch}}}} {way}",
                )
                for way in WAYS
            ],
        ),
        worst(
            "Busiest ports to send",
            "Share of its speed that a port of a switch uses to send; queues and drops are made there.",
            "percentunit",
            Query("max by (switch, port) (fabric_switch_transmit_utilization_ratio{})", "{{switch}} {{port}}"),
            Limits(0.8, 0.95),
        ),
        worst(
            "Busiest ports to receive",
            "Share of its speed that a port of a switch receives.",
            "percentunit",
            Query("max by (switch, port) (fabric_switch_receive_utilization_ratio{})", "{{switch}} {{port}}"),
            Limits(0.8, 0.95),
        ),
        lines(
            "Errors by switch",
            "Packets a second that could not be sent or received for an error: cables and transceivers.",
            "pps",
            [
                Query(
                    f"sum by (switch) (rate(fabric_switch_{way}_errors_total{{}}[$__rate_interval]))",
                    f"{{{{switch}}}} {way}",
                )
                for way in WAYS
            ],
        ),
        lines(
            "Discards by switch",
            "Packets a second that had no error and were dropped, mostly for lack of room. A lossless fabric has none.",
            "pps",
            [
                Query(
                    f"sum by (switch) (rate(fabric_switch_{way}_discards_total{{}}[$__rate_interval]))",
                    f"{{{{switch}}}} {way}",
                )
                for way in WAYS
            ],
        ),
        worst(
            "Ports that lose most",
            "Packets of the last 5 minutes that a port discarded, or had errors in, a second.",
            "pps",
            Query(
                "sum by (switch, port) (rate(fabric_switch_transmit_discards_total{}[5m])"
                " + rate(fabric_switch_receive_discards_total{}[5m]) + rate(fabric_switch_receive_errors_total{}[5m]))",
                "{{switch}} {{port}}",
            ),
            Limits(1, 100),
        ),
    ]


def collectives() -> list[Panel]:
    """Show what the jobs feel of it."""
    return [
        listing(
            "Jobs on troubled hosts",
            "Hosts of each job on which a rank holds up others, a port is down (unused ones included), missing or"
            " slower than expected, or was paused by the network for more than 2 % of the last 5 minutes. For a slow"
            " job that is not listed look at the switches next, then beyond the network.",
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
            "Bandwidth of large collectives as nccl-tests counts it, from the rank that comes last: the slowest and the"
            " median of those that judge a job, hosts or a collector, by job and kind.",
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
            "Share of the time that the ranks of a job spend in collectives, and in waiting there for the last rank;"
            " the mean of all ranks.",
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
            "Rate of collectives",
            "Collectives a second, all ranks together. A line that falls to 0 while the job runs is a hang.",
            "ops",
            [
                Query(
                    "sum by (train_job, collective) (rate(fabric_nccl_collectives_total{}[$__rate_interval]))",
                    "{{train_job}} {{collective}}",
                )
            ],
        ),
        worst(
            "Latest ranks",
            "Share of the last 5 minutes by which a rank came after the middle one of its communicator.",
            "percentunit",
            Query(
                f"max by (train_job, rank, host) (rate(fabric_nccl_lateness_seconds_total{{}}[5m]) * {RANK_INFO})",
                "{{train_job}} rank {{rank}} on {{host}}",
            ),
            Limits(0.02, 0.1),
        ),
        lines(
            "Lateness of the latest rank",
            "Share of the time by which the latest rank of each job came after the middle one of its communicator.",
            "percentunit",
            [
                Query(
                    "max by (train_job) (rate(fabric_nccl_lateness_seconds_total{}[$__rate_interval]))", "{{train_job}}"
                )
            ],
        ),
        listing(
            "Ranks that hold up others",
            "Ranks that the others of their job keep waiting for. The board of training jobs tells more.",
            [Column("Straggler", "short", f"fabric_nccl_straggler{{}} * {RANK_INFO} == 1")],
            labels=["train_job", "rank", "host"],
            width=THIRD,
        ),
    ]
