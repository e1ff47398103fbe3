"""Build the Grafana board: `python dashboards/build.py` writes fabric-overview.json beside this file.

The board is data: rows of panels, each with its queries. Every panel must stay readable for thousands of ports: lines
are drawn by rail, priority, switch or job, and single ports appear only where they are the worst few.
"""

import json
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from panels import DATASOURCE, FULL, HALF, THIRD, Limits, Panel, Query, lines, listing, number, worst

TARGET = Path(__file__).resolve().parent / "fabric-overview.json"

PORT_INFO = "on (job, instance, device, port) group_left (host, rail, netdev) fabric_rdma_info{}"
NIC_INFO = "on (job, instance, device) group_left (host) fabric_nic_info{}"
RANK_INFO = "on (job, instance, train_job, rank) group_left (host) fabric_nccl_rank_info{}"
JOBS_OF = "max by (job, instance, train_job, host) (fabric_nccl_rank_info{}) * on (job, instance) group_left"
"""Carries what is true of a host to the jobs that run on it; what follows has one series an exporter."""

DEGRADED = "on (job, instance, device, port) fabric_rdma_link_degraded{} == 1"
DOWN = "on (job, instance, device, port) fabric_rdma_link_up{} == 0"
PAUSED = "fabric_nic_receive_pfc_paused_seconds_total{}"

ANY = Limits(1, 1)
"""For counts of what should not be."""


def health() -> list[Panel]:
    """Show whether all that should be measured is."""
    return [
        number("Exporters", "Exporters that answer Prometheus.", "count(fabric_exporter_build_info{})"),
        number(
            "Sources failing",
            "Sources whose last read failed: the ports of a host, or a switch. Their metrics are missing.",
            "sum(1 - fabric_source_up{})",
            ANY,
        ),
        number(
            "RDMA ports down",
            "RDMA ports of hosts that carry no traffic, unused ones included.",
            "sum(1 - fabric_rdma_link_up{})",
            ANY,
        ),
        number(
            "Links degraded",
            "RDMA ports that run below the speed expected of them.",
            "sum(fabric_rdma_link_degraded{})",
            ANY,
        ),
        number("Switch ports up", "Ports of all switches that carry traffic.", "sum(fabric_switch_link_up{})"),
        number(
            "Stragglers", "Ranks that the others of their host keep waiting for.", "sum(fabric_nccl_straggler{})", ANY
        ),
        listing(
            "Sources",
            "Each source of each exporter; for switches the target is the name in the configuration.",
            [
                ("State", "short", "fabric_source_up{}"),
                ("Last good read", "s", "time() - fabric_source_last_success_timestamp_seconds{}"),
                ("Duration", "s", "fabric_source_read_duration_seconds{}"),
            ],
            labels=["instance", "source", "target"],
            verdicts=["State"],
        ),
        lines(
            "Failures",
            "What could not be read, by source and reason, a second. Nothing else is lost by a failure.",
            "cps",
            [
                Query(
                    "sum by (source, reason) (rate(fabric_source_failures_total{}[$__rate_interval]))",
                    "{{source}}: {{reason}}",
                )
            ],
            width=6,
        ),
        lines(
            "Time to read",
            "The longest read of each kind of source, and how late the exporters were to what was due.",
            "s",
            [
                Query("max by (source) (fabric_source_read_duration_seconds{})", "{{source}}"),
                Query("max(fabric_exporter_event_loop_lag_seconds{})", "lag"),
            ],
            width=6,
        ),
    ]


def rails() -> list[Panel]:
    """Show what the RDMA ports of hosts carry, rail by rail, and which of them are not as they should be."""
    return [
        lines(
            "Traffic by rail",
            "Bytes that all RDMA ports of a rail sent and received a second. RDMA alone on Ethernet.",
            "Bps",
            [
                Query(
                    f"sum by (rail) (rate(fabric_rdma_{way}_bytes_total{{}}[$__rate_interval]) * {PORT_INFO})",
                    f"rail {{{{rail}}}} {way}",
                )
                for way in ("transmit", "receive")
            ],
        ),
        lines(
            "Highest utilisation by rail",
            "Share of its speed that the busiest RDMA port of each rail uses in either direction.",
            "percentunit",
            [
                Query(
                    f"max by (rail) (fabric_rdma_{way}_utilization_ratio{{}} * {PORT_INFO})",
                    f"rail {{{{rail}}}} {way}",
                )
                for way in ("transmit", "receive")
            ],
            top=1,
        ),
        worst(
            "Busiest RDMA ports",
            "Share of its speed that a port uses to send.",
            "percentunit",
            Query(
                f"max by (host, device, port) (fabric_rdma_transmit_utilization_ratio{{}} * {PORT_INFO})",
                "{{host}} {{device}}/{{port}}",
            ),
            Limits(0.8, 0.95),
        ),
        lines(
            "Imbalance of rails",
            "How far the busiest port of a host is above the mean of its like: the worst host, and the median of all.",
            "percentunit",
            [
                query
                for way in ("transmit", "receive")
                for query in (
                    Query(f"max(fabric_rdma_{way}_imbalance_ratio{{}})", f"{way}, worst host"),
                    Query(f"quantile(0.5, fabric_rdma_{way}_imbalance_ratio{{}})", f"{way}, median"),
                )
            ],
        ),
        worst(
            "Most unbalanced hosts",
            "How far the busiest port of a host is above the mean of its like; over 20 % something steers the traffic.",
            "percentunit",
            Query(
                "max by (host) (fabric_rdma_transmit_imbalance_ratio{}"
                " * on (job, instance) group_left (host) max by (job, instance, host) (fabric_rdma_info{}))",
                "{{host}}",
            ),
            Limits(0.2, 0.5),
        ),
        lines(
            "Link failures",
            "Times a second that links of RDMA ports went down, and packets that came out of order, were not"
            " acknowledged in time, or found no buffer.",
            "cps",
            [
                Query("sum(rate(fabric_rdma_link_down_total{}[$__rate_interval]))", "link down"),
                Query("sum(rate(fabric_rdma_out_of_sequence_total{}[$__rate_interval]))", "out of sequence"),
                Query("sum(rate(fabric_rdma_local_ack_timeouts_total{}[$__rate_interval]))", "ack timeouts"),
                Query("sum(rate(fabric_rdma_out_of_buffer_total{}[$__rate_interval]))", "out of buffer"),
            ],
        ),
        worst(
            "Ports with bit errors",
            "Symbols a second that a port could not read, over 5 minutes: a dirty, bent or dying cable or transceiver.",
            "cps",
            Query(
                f"max by (host, device, port) (rate(fabric_rdma_symbol_errors_total{{}}[5m]) * {PORT_INFO})",
                "{{host}} {{device}}/{{port}}",
            ),
            Limits(0.1, 10),
            width=HALF,
        ),
        worst(
            "Links that flap",
            "Times that the link of a port went down in the last hour.",
            "short",
            Query(
                f"max by (host, device, port) (increase(fabric_rdma_link_down_total{{}}[1h]) * {PORT_INFO})",
                "{{host}} {{device}}/{{port}}",
            ),
            Limits(1, 3),
            width=HALF,
        ),
        listing(
            "Links slower than expected",
            "RDMA ports below the speed that the configuration, or else the best of their like, lets expect.",
            [
                (
                    name,
                    "bps",
                    f"8 * fabric_rdma_link_{ending}_bytes_per_second{{}} * {PORT_INFO} and {DEGRADED}",
                )
                for name, ending in (("Speed", "speed"), ("Expected", "expected_speed"))
            ],
            labels=["host", "device", "port", "rail", "netdev"],
        ),
        listing(
            "RDMA ports that are down",
            "The physical state tells how far the link comes: 2 polling (no signal), 3 disabled, 4 training."
            " Ports that nobody uses are listed too.",
            [
                (
                    "Physical state",
                    "short",
                    f"fabric_rdma_port_physical_state{{}} * {PORT_INFO} and {DOWN}",
                )
            ],
            labels=["host", "device", "port", "rail", "netdev"],
        ),
    ]


def congestion() -> list[Panel]:
    """Show where traffic is stopped or slowed."""
    return [
        lines(
            "Longest pauses by priority",
            "Share of the time that the most paused port of each priority was stopped: 'receive' by its switch,"
            " 'transmit' is a host that stopped its switch.",
            "percentunit",
            [
                Query(
                    f"max by (priority) (rate(fabric_nic_{way}_pfc_paused_seconds_total{{}}[$__rate_interval]))",
                    f"priority {{{{priority}}}} {way}",
                )
                for way in ("receive", "transmit")
            ],
            top=1,
        ),
        worst(
            "Ports most paused by the network",
            "Share of the last 5 minutes that a priority was stopped by the switch.",
            "percentunit",
            Query(
                f"max by (host, device, priority) (rate({PAUSED}[5m]) * {NIC_INFO})",
                "{{host}} {{device}} priority {{priority}}",
            ),
            Limits(0.02, 0.1),
        ),
        worst(
            "Hosts that pause the network most",
            "Share of the last 5 minutes that a host stopped its switch: it cannot take what it is sent.",
            "percentunit",
            Query(
                "max by (host, device, priority)"
                f" (rate(fabric_nic_transmit_pfc_paused_seconds_total{{}}[5m]) * {NIC_INFO})",
                "{{host}} {{device}} priority {{priority}}",
            ),
            Limits(0.02, 0.1),
        ),
        lines(
            "Packets marked for congestion",
            "Share of the RoCE packets received that carried the mark (ECN CE), by rail.",
            "percentunit",
            [
                Query(
                    f"sum by (rail) (rate(fabric_rdma_ecn_marked_packets_total{{}}[$__rate_interval]) * {PORT_INFO})"
                    f" / sum by (rail) (rate(fabric_rdma_receive_packets_total{{}}[$__rate_interval]) * {PORT_INFO})",
                    "rail {{rail}}",
                )
            ],
        ),
        lines(
            "Congestion notifications",
            "CNPs that receivers sent, and that senders obeyed or ignored. Marks without CNPs: congestion control is"
            " off. CNPs sent but not handled: they get lost.",
            "pps",
            [
                Query(f"sum(rate(fabric_rdma_cnp_{what}_total{{}}[$__rate_interval]))", what)
                for what in ("sent", "handled", "ignored")
            ],
        ),
        lines(
            "Drops at hosts",
            "Packets that network devices dropped: for lack of room, and because PCIe was slower than the wire.",
            "pps",
            [
                Query("sum(rate(fabric_nic_receive_discards_total{}[$__rate_interval]))", "received, no room"),
                Query("sum(rate(fabric_nic_transmit_discards_total{}[$__rate_interval]))", "to be sent, no room"),
                Query("sum(rate(fabric_nic_pci_buffer_overflows_total{}[$__rate_interval]))", "PCIe too slow"),
            ],
        ),
    ]


def switches() -> list[Panel]:
    """Show what the ports of switches carry and lose."""
    return [
        lines(
            "Traffic by switch",
            "Bytes that all ports of a switch sent and received a second, on the wire.",
            "Bps",
            [
                Query(
                    f"sum by (switch) (rate(fabric_switch_{way}_bytes_total{{}}[$__rate_interval]))",
                    f"{{{{switch}}}} {way}",
                )
                for way in ("transmit", "receive")
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
                for way in ("transmit", "receive")
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
                for way in ("transmit", "receive")
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
            "Hosts of each job on which a rank holds up others, a port is down (unused ones included), a link is slower"
            " than expected, or a port was paused by the network for more than 2 % of the last 5 minutes. For a slow"
            " job that is not listed look at the switches next, then beyond the network.",
            [
                ("Stragglers", "short", f"{JOBS_OF} sum by (job, instance) (fabric_nccl_straggler{{}}) > 0"),
                ("Ports down", "short", f"{JOBS_OF} sum by (job, instance) (1 - fabric_rdma_link_up{{}}) > 0"),
                ("Links degraded", "short", f"{JOBS_OF} sum by (job, instance) (fabric_rdma_link_degraded{{}}) > 0"),
                (
                    "Paused",
                    "percentunit",
                    f"{JOBS_OF} max by (job, instance) (rate({PAUSED}[5m])) > 0.02",
                ),
            ],
            labels=["train_job", "host"],
            width=FULL,
        ),
        lines(
            "Bus bandwidth",
            "Bandwidth of large collectives as nccl-tests counts it, from the fastest rank of a host: the slowest and"
            " the median host of each job and kind.",
            "Bps",
            [
                Query(
                    "min by (train_job, collective) (fabric_nccl_bus_bandwidth_bytes_per_second{})",
                    "{{train_job}} {{collective}} slowest host",
                ),
                Query(
                    "quantile by (train_job, collective) (0.5, fabric_nccl_bus_bandwidth_bytes_per_second{})",
                    "{{train_job}} {{collective}} median",
                ),
            ],
        ),
        lines(
            "Time in collectives",
            "Share of the time that the ranks of a job spend in collectives, and in waiting there for the last rank of"
            " their host; the mean of all ranks.",
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
            "Share of the last 5 minutes by which a rank came after the first rank of its host.",
            "percentunit",
            Query(
                f"max by (train_job, rank, host) (rate(fabric_nccl_lateness_seconds_total{{}}[5m]) * {RANK_INFO})",
                "{{train_job}} rank {{rank}} on {{host}}",
            ),
            Limits(0.02, 0.1),
        ),
        lines(
            "Lateness of the latest rank",
            "Share of the time by which the latest rank of each job came after the first rank of its host.",
            "percentunit",
            [
                Query(
                    "max by (train_job) (rate(fabric_nccl_lateness_seconds_total{}[$__rate_interval]))", "{{train_job}}"
                )
            ],
        ),
        listing(
            "Ranks that hold up others",
            "Ranks that the others of their host kept waiting for over the last minute.",
            [("Straggler", "short", f"fabric_nccl_straggler{{}} * {RANK_INFO} == 1")],
            labels=["train_job", "rank", "host"],
            width=THIRD,
        ),
    ]


ROWS = {
    "Health": health,
    "Rails of hosts": rails,
    "Pauses and congestion": congestion,
    "Switches": switches,
    "Collectives": collectives,
}


def _choice(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """Make a variable that selects some of the label's values, all at first."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(model.VariableOption(text="All", value="$__all", selected=True))
    )


def build() -> model.Dashboard:
    """Put the board together."""
    board = (
        dashboard.Dashboard("Fabric overview")
        .uid("fabric-overview")
        .description("The network of a GPU cluster from the collectives down to the links, by fabric-exporter.")
        .tags(["fabric", "fabric-exporter"])
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_choice("job", "Job", "label_values(fabric_exporter_build_info, job)"))
        .with_variable(
            _choice("instance", "Instance", 'label_values(fabric_exporter_build_info{job=~"$job"}, instance)')
        )
    )
    for title, panels in ROWS.items():
        board.with_row(dashboard.Row(title))
        for panel in panels():
            board.with_panel(panel)
    made = board.build()
    for place, one in enumerate(made.panels or [], start=1):
        one.id_val = place
    return made


def render() -> str:
    """Give the board as JSON, the same for the same source."""
    return json.dumps(json.loads(JSONEncoder(sort_keys=True).encode(build())), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
