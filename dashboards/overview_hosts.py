"""Rows of the overview about hosts: rails, hardware and congestion."""

from joins import (
    DEGRADED,
    DOWN,
    HIGHEST,
    HOST_OF,
    MARKED,
    NIC_INFO,
    PAUSED,
    PAUSES,
    PCI_DEGRADED,
    PCI_INFO,
    PHYSICAL_STATES,
    PORT_INFO,
    higher,
    receive_power_to_low_alarm,
    ticks_above,
)
from panels import WAYS, Column, Limits, Panel, Query, lines, table_of, top_list


def rails() -> list[Panel]:
    """Return panels of the RDMA ports of hosts, by rail, and of ports with faults."""
    return [
        lines(
            "Traffic by rail",
            "Bytes per second transmitted and received by all RDMA ports of a rail. On Ethernet RDMA only.",
            "Bps",
            [
                Query(
                    f"sum by (rail) (rate(fabric_rdma_{way}_bytes_total{{}}[$__rate_interval]) * {PORT_INFO})",
                    f"rail {{{{rail}}}} {way}",
                )
                for way in WAYS
            ],
        ),
        lines(
            "Highest utilization by rail",
            "Utilization of the busiest RDMA port of each rail, by direction.",
            "percentunit",
            [
                Query(
                    f"max by (rail) (fabric_rdma_{way}_utilization_ratio{{}} * {PORT_INFO})",
                    f"rail {{{{rail}}}} {way}",
                )
                for way in WAYS
            ],
            top=1,
        ),
        top_list(
            "Busiest RDMA ports",
            "Transmit utilization of a port.",
            "percentunit",
            Query(
                f"max by (host, device, port) (fabric_rdma_transmit_utilization_ratio{{}} * {PORT_INFO})",
                "{{host}} {{device}}/{{port}}",
            ),
            Limits(0.8, 0.95),
        ),
        top_list(
            "Ports with the highest bursts",
            "Highest utilization of a port over one tick of the sampler within the last minute, in either direction."
            " Bursts that fill a port while its mean is low fill queues: spread the collectives, or check how many"
            " hosts send to it at the same time.",
            "percentunit",
            Query(
                f"max by (host, device, port) ({HIGHEST} * {PORT_INFO})",
                "{{host}} {{device}}/{{port}}",
            ),
            Limits(0.8, 0.95),
        ),
        lines(
            "Share of bursts by rail",
            "Share of the sampler's ticks in which ports of a rail used more than 95 % of their speed. The mean"
            " hides these bursts; compare with pauses and ECN marks.",
            "percentunit",
            [Query(ticks_above(way, "0.95", "rail", f" * {PORT_INFO}"), f"rail {{{{rail}}}} {way}") for way in WAYS],
            top=1,
        ),
        lines(
            "Imbalance of rails",
            "How far the busiest port of a host is above the mean of its group: the worst host, and the median of"
            " all. If the median rises, the cause is the job or the switches; if one host rises, the cause is that"
            " host.",
            "percentunit",
            [
                query
                for way in WAYS
                for query in (
                    Query(f"max(fabric_rdma_{way}_imbalance_ratio{{}})", f"{way}, worst host"),
                    Query(f"quantile(0.5, fabric_rdma_{way}_imbalance_ratio{{}})", f"{way}, median"),
                )
            ],
        ),
        top_list(
            "Most unbalanced hosts",
            "How far the busiest port of a host is above the mean of its group, in either direction; causes of more"
            " than 20 % are degraded links, or how the switches distribute flows.",
            "percentunit",
            Query(f"max by (host) ({_of_groups('imbalance')} * {HOST_OF})", "{{host}}"),
            Limits(0.2, 0.5),
        ),
        top_list(
            "Hosts with an idle rail",
            "How far the idlest port of a host is below the mean of its group, in either direction. Check the link"
            " of that port, and which NICs the job's NCCL uses.",
            "percentunit",
            Query(f"max by (host) ({_of_groups('deficit')} * {HOST_OF})", "{{host}}"),
            Limits(0.3, 0.5),
        ),
        top_list(
            "Most asymmetric ports",
            "Difference of bytes received and transmitted, as a share of both. In collectives of all ranks both are"
            " similar: check what else uses the port.",
            "percentunit",
            Query(
                f"max by (host, device, port) (abs(fabric_rdma_asymmetry_ratio{{}}) * {PORT_INFO})",
                "{{host}} {{device}}/{{port}}",
            ),
        ),
        lines(
            "Link failures",
            "Per second: links of RDMA ports that went down, and packets that arrived out of order, were not"
            " acknowledged in time, or found no receive buffer.",
            "cps",
            [
                Query("sum(rate(fabric_rdma_link_down_total{}[$__rate_interval]))", "link down"),
                Query("sum(rate(fabric_rdma_out_of_sequence_total{}[$__rate_interval]))", "out of sequence"),
                Query("sum(rate(fabric_rdma_local_ack_timeouts_total{}[$__rate_interval]))", "ack timeouts"),
                Query("sum(rate(fabric_rdma_out_of_buffer_total{}[$__rate_interval]))", "out of buffer"),
            ],
        ),
        top_list(
            "Ports with bit errors",
            "Symbol errors per second, over 5 minutes: a dirty, bent or failing cable or transceiver.",
            "cps",
            Query(
                f"max by (host, device, port) (rate(fabric_rdma_symbol_errors_total{{}}[5m]) * {PORT_INFO})",
                "{{host}} {{device}}/{{port}}",
            ),
            Limits(0.1, 10),
        ),
        top_list(
            "Links that flap most",
            "Times the link of a port went down in the last hour.",
            "short",
            Query(
                f"max by (host, device, port) (increase(fabric_rdma_link_down_total{{}}[1h]) * {PORT_INFO})",
                "{{host}} {{device}}/{{port}}",
            ),
            Limits(1, 3),
        ),
        table_of(
            "Links slower than expected",
            "RDMA ports below the speed expected by the configuration, or else by their own hardware or the fastest"
            " port of their group. Compare the lanes with those of siblings, then check cables and transceivers.",
            [
                Column(name, "bps", f"8 * fabric_rdma_link_{ending}_bytes_per_second{{}} * {PORT_INFO} and {DEGRADED}")
                for name, ending in (("Speed", "speed"), ("Expected", "expected_speed"))
            ],
            labels=["host", "device", "port", "rail", "netdev"],
        ),
        table_of(
            "RDMA ports that are down",
            "The physical state shows how far link training gets: without a signal it is polling. Unused ports are"
            " listed too.",
            [
                Column(
                    "Physical state",
                    "short",
                    f"fabric_rdma_port_physical_state{{}} * {PORT_INFO} and {DOWN}",
                    PHYSICAL_STATES,
                )
            ],
            labels=["host", "device", "port", "rail", "netdev"],
        ),
    ]


def _of_groups(what: str) -> str:
    """Return the query for the higher of both directions' ratios of each host."""
    return f"max by (job, instance) ({higher(*(f'fabric_rdma_{way}_{what}_ratio{{}}' for way in WAYS))})"


def hardware() -> list[Panel]:
    """Return panels of the hardware with faults."""
    return [
        top_list(
            "FEC uncorrectable blocks",
            "Blocks of the last hour that forward error correction could not correct, without ports whose link went"
            " down in that time. Each is at least one packet lost: clean and reseat connectors, replace the cable,"
            " then the transceivers of both sides.",
            "short",
            Query(
                f"max by (host, device) (increase(fabric_nic_fec_uncorrectable_blocks_total{{}}[1h]) * {NIC_INFO}"
                " unless on (job, instance, device) increase(fabric_nic_link_down_total{}[1h]) > 0)",
                "{{host}} {{device}}",
            ),
            Limits(1, 100),
        ),
        top_list(
            "FEC corrected blocks",
            "Blocks per second that forward error correction corrected, over 5 minutes. Some are normal at 100 Gb/s"
            " per lane; a port far above its siblings is the next to fail.",
            "cps",
            Query(
                f"max by (host, device) (rate(fabric_nic_fec_corrected_blocks_total{{}}[5m]) * {NIC_INFO})",
                "{{host}} {{device}}",
            ),
        ),
        top_list(
            "PCIe errors",
            "AER errors of the last hour reported by NICs: correctable ones cost time, and many of them precede a"
            " link that trains down. Reseat the card or its riser.",
            "short",
            Query(
                f"max by (host, devices, severity) (increase(fabric_pci_aer_errors_total{{}}[1h]) * {PCI_INFO})",
                "{{host}} {{devices}} {{severity}}",
            ),
            Limits(1, 100),
        ),
        table_of(
            "Degraded PCIe links",
            "NICs whose PCIe link has fewer lanes or a lower rate than both of its ends support: they receive"
            " packets more slowly than these arrive and pause their switch. Reseat the card or its riser.",
            [
                Column("Lanes", "none", f"fabric_pci_link_lanes{{}} * {PCI_INFO} and {PCI_DEGRADED}"),
                Column(
                    "Rate per lane",
                    "si:T/s",
                    f"fabric_pci_link_speed_transfers_per_second{{}} * {PCI_INFO} and {PCI_DEGRADED}",
                ),
            ],
            labels=["host", "pci", "devices", "bridge"],
        ),
        table_of(
            "Lanes with too little light",
            "Lanes that receive less light than the low alarm of their own module while its laser is on. Clean the"
            " connectors, then check the fibre and the transceiver of the other side. Needs the source optics, which"
            " is disabled by default.",
            [
                Column("Received", "watt", f"{receive_power_to_low_alarm('<')} * {NIC_INFO}"),
                Column("Of the low alarm", "percentunit", f"({receive_power_to_low_alarm('/')} < 1) * {NIC_INFO}"),
            ],
            labels=["host", "device", "lane"],
        ),
    ]


def congestion() -> list[Panel]:
    """Return panels of pauses, ECN marks and drops."""
    return [
        lines(
            "Longest pauses by priority",
            "Share of time that the most paused port of each priority was paused: 'receive' by its switch,"
            " 'transmit' by a host that paused its switch.",
            "percentunit",
            [
                Query(
                    f"max by (priority) (rate(fabric_nic_{way}_pfc_paused_seconds_total{{}}[$__rate_interval]))",
                    f"priority {{{{priority}}}} {way}",
                )
                for way in WAYS
            ],
            top=1,
        ),
        top_list(
            "Ports most paused by the network",
            "Share of the last 5 minutes that a priority was paused by the switch; the whole port if no priority is"
            " shown. The cause is elsewhere: look for the host that pauses most, and check the leaf's uplinks.",
            "percentunit",
            Query(
                f"max by (host, device, priority) ({PAUSED} * {NIC_INFO})",
                "{{host}} {{device}} priority {{priority}}",
            ),
            Limits(0.02, 0.1),
        ),
        top_list(
            "Hosts that pause the network most",
            "Share of the last 5 minutes that a host paused its switch: it cannot receive as fast as packets arrive."
            " Check its PCIe links, its memory and its GPUs; above one half take it out of service.",
            "percentunit",
            Query(
                f"max by (host, device, priority) ({PAUSES} * {NIC_INFO})",
                "{{host}} {{device}} priority {{priority}}",
            ),
            Limits(0.02, 0.1),
        ),
        lines(
            "ECN-marked packets",
            "Share of received RoCE packets with ECN Congestion Experienced, by rail. For a rail above the others"
            " check how many hosts send to it at the same time, and the uplinks of its leaf.",
            "percentunit",
            [
                Query(
                    f"sum by (rail) (rate(fabric_rdma_ecn_marked_packets_total{{}}[$__rate_interval]) * {PORT_INFO})"
                    f" / sum by (rail) (rate(fabric_rdma_receive_packets_total{{}}[$__rate_interval]) * {PORT_INFO})",
                    "rail {{rail}}",
                )
            ],
            limits=MARKED,
        ),
        lines(
            "Congestion notifications",
            "CNPs that notification points sent, and that reaction points handled or ignored. Marks without CNPs:"
            " congestion control is off. CNPs sent but not handled: they get lost.",
            "pps",
            [
                Query(f"sum(rate(fabric_rdma_cnp_{what}_total{{}}[$__rate_interval]))", what)
                for what in ("sent", "handled", "ignored")
            ],
        ),
        lines(
            "Drops at hosts",
            "Packets per second that network devices dropped for lack of buffers, or because PCIe was slower than the"
            " wire. For the latter check the PCIe links.",
            "pps",
            [
                Query("sum(rate(fabric_nic_receive_discards_total{}[$__rate_interval]))", "received, no buffers"),
                Query("sum(rate(fabric_nic_transmit_discards_total{}[$__rate_interval]))", "transmitted, no buffers"),
                Query("sum(rate(fabric_nic_pci_buffer_overflows_total{}[$__rate_interval]))", "PCIe"),
            ],
        ),
    ]
