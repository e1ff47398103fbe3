"""Rows of the overview about switches and jobs."""

from joins import JOBS_OF, PHYSICAL, RANK_INFO
from panels import ANY, FULL, THIRD, Limits, Panel, Query, lines
from tables import Column, table_of, top_list
from training_joins import port_faults


def switches() -> list[Panel]:
    """Return panels of the traffic and losses of switches."""
    return [
        table_of(
            "Ports that went down",
            "Ports of switches whose link is down, and was up within the last hour. Check the machines behind them"
            " first. A switch that does not respond is not listed.",
            [
                Column(
                    "Link",
                    "short",
                    "((fabric_switch_link_up{} == 0 and max_over_time(fabric_switch_link_up{}[1h]) == 1)"
                    f" {PHYSICAL}) + 1",
                    limits=ANY,
                )
            ],
            labels=["switch", "port"],
            absent="no port went down",
            width=THIRD,
        ),
        top_list(
            "Ports with most losses",
            "Packets per second that a port discarded, or received with errors, over 5 minutes.",
            "pps",
            "sum by (switch, port) (rate(fabric_switch_transmit_discards_total{}[5m])"
            " + rate(fabric_switch_receive_discards_total{}[5m]) + rate(fabric_switch_receive_errors_total{}[5m])"
            f" {PHYSICAL})",
            Limits(1, 100),
            labels=["switch", "port"],
        ),
        lines(
            "Pause frames by switch (PFC, 802.3x)",
            "Pause frames per second that a switch sends to its peers, as one of its own ports is congested: the eight"
            " switches with most.",
            "pps",
            [
                Query(
                    "topk(8, sum by (switch) (rate(fabric_switch_transmit_pfc_frames_total{}[$__rate_interval])"
                    f" {PHYSICAL}) or sum by (switch)"
                    f" (rate(fabric_switch_transmit_pause_frames_total{{}}[$__rate_interval]) {PHYSICAL}))",
                    "{{switch}}",
                )
            ],
        ),
    ]


def jobs() -> list[Panel]:
    """Return panels of training jobs that wait for the network."""
    return [
        table_of(
            "Jobs on hosts with faults",
            "Hosts of each job with a straggler, a port that is down or missing, slower than expected, paused by"
            " the network or pausing it for more than 1 % of the last 5 minutes. For a slow job that is not listed"
            " check the switches next, then causes outside the network.",
            [
                Column(
                    "Stragglers",
                    "none",
                    f"sum by (train_job, host) (fabric_nccl_straggler{{}} * {RANK_INFO}) > 0",
                    limits=ANY,
                ),
                *port_faults(JOBS_OF),
            ],
            labels=["train_job", "host"],
            absent="no job on a host with a fault",
            width=FULL,
        ),
    ]
