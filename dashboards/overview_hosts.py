"""Rows of the overview about hosts: their rails, what these are made of, and what stops them."""

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
    above,
    higher,
    light,
)
from panels import WAYS, Column, Limits, Panel, Query, lines, listing, worst


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
                for way in WAYS
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
                for way in WAYS
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
        worst(
            "Ports with the highest bursts",
            "Highest share of its speed that a port used over a tick of the sampler within the last minute, sending or"
            " receiving. Bursts that fill a port while its mean is low fill queues: spread the collectives, or look at"
            " how many send to it at once.",
            "percentunit",
            Query(
                f"max by (host, device, port) ({HIGHEST} * {PORT_INFO})",
                "{{host}} {{device}}/{{port}}",
            ),
            Limits(0.8, 0.95),
        ),
        lines(
            "Share of bursts by rail",
            "Share of the sampler's ticks in which ports of a rail used more than 95 % of their speed. The mean hides"
            " what these show; compare with pauses and marks.",
            "percentunit",
            [Query(above(way, "0.95", "rail", f" * {PORT_INFO}"), f"rail {{{{rail}}}} {way}") for way in WAYS],
            top=1,
        ),
        lines(
            "Imbalance of rails",
            "How far the busiest port of a host is above the mean of its like: the worst host, and the median of all. A"
            " median that rises is the job's or the switches' doing, one host that rises is its own.",
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
        worst(
            "Most unbalanced hosts",
            "How far the busiest port of a host is above the mean of its like, sending or receiving; over 20 %"
            " something steers the traffic: links that are degraded, or how the switches spread flows.",
            "percentunit",
            Query(f"max by (host) ({_of_groups('imbalance')} * {HOST_OF})", "{{host}}"),
            Limits(0.2, 0.5),
        ),
        worst(
            "Hosts with an idle rail",
            "How far the idlest port of a host is below the mean of its like, sending or receiving. Look at the link of"
            " that port, and at which NICs the job's NCCL uses.",
            "percentunit",
            Query(f"max by (host) ({_of_groups('deficit')} * {HOST_OF})", "{{host}}"),
            Limits(0.3, 0.5),
        ),
        worst(
            "Most one-sided ports",
            "How far a port receives more than it sends, or the other way round, as a share of both. In collectives of"
            " all ranks both are alike: see what else the port carries.",
            "percentunit",
            Query(
                f"max by (host, device, port) (abs(fabric_rdma_asymmetry_ratio{{}}) * {PORT_INFO})",
                "{{host}} {{device}}/{{port}}",
            ),
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
        ),
        worst(
            "Links that flap most",
            "Times that the link of a port went down in the last hour.",
            "short",
            Query(
                f"max by (host, device, port) (increase(fabric_rdma_link_down_total{{}}[1h]) * {PORT_INFO})",
                "{{host}} {{device}}/{{port}}",
            ),
            Limits(1, 3),
        ),
        listing(
            "Links slower than expected",
            "RDMA ports below the speed that the configuration, or else their own hardware or the best of their like,"
            " lets expect. Compare the lanes with those of siblings, then look at cables and transceivers.",
            [
                Column(name, "bps", f"8 * fabric_rdma_link_{ending}_bytes_per_second{{}} * {PORT_INFO} and {DEGRADED}")
                for name, ending in (("Speed", "speed"), ("Expected", "expected_speed"))
            ],
            labels=["host", "device", "port", "rail", "netdev"],
        ),
        listing(
            "RDMA ports that are down",
            "The physical state tells how far the link comes: without a signal it polls. Ports that nobody uses are"
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
    """Ask for the higher of both directions' ratios of each host."""
    return f"max by (job, instance) ({higher(*(f'fabric_rdma_{way}_{what}_ratio{{}}' for way in WAYS))})"


def hardware() -> list[Panel]:
    """Show what the rails are made of, where it is not as it should be."""
    return [
        worst(
            "Blocks that could not be mended",
            "Blocks of the last hour that forward error correction could not mend, without ports whose link went down"
            " in that time. Each is at least one packet lost: clean and reseat connectors, change the cable, then the"
            " transceivers of both sides.",
            "short",
            Query(
                f"max by (host, device) (increase(fabric_nic_fec_uncorrectable_blocks_total{{}}[1h]) * {NIC_INFO}"
                " unless on (job, instance, device) increase(fabric_nic_link_down_total{}[1h]) > 0)",
                "{{host}} {{device}}",
            ),
            Limits(1, 100),
        ),
        worst(
            "Blocks that were mended",
            "Blocks a second that forward error correction mended, over 5 minutes. Some are normal at 100 Gb/s a lane;"
            " a port far above its siblings is the next to fail.",
            "cps",
            Query(
                f"max by (host, device) (rate(fabric_nic_fec_corrected_blocks_total{{}}[5m]) * {NIC_INFO})",
                "{{host}} {{device}}",
            ),
        ),
        worst(
            "Errors of PCIe",
            "Errors of the last hour that NICs reported: correctable ones cost time, many of them come before a link"
            " that trains down. Reseat the card or its riser.",
            "short",
            Query(
                f"max by (host, devices, severity) (increase(fabric_pci_aer_errors_total{{}}[1h]) * {PCI_INFO})",
                "{{host}} {{devices}} {{severity}}",
            ),
            Limits(1, 100),
        ),
        listing(
            "PCIe links slower than they could be",
            "NICs whose PCIe link has fewer lanes or a lower rate than both of its ends can do: they take packets in"
            " more slowly than they come and pause their switch. Reseat the card or its riser.",
            [
                Column("Lanes", "none", f"fabric_pci_link_lanes{{}} * {PCI_INFO} and {PCI_DEGRADED}"),
                Column(
                    "Rate a lane",
                    "si:T/s",
                    f"fabric_pci_link_speed_transfers_per_second{{}} * {PCI_INFO} and {PCI_DEGRADED}",
                ),
            ],
            labels=["host", "pci", "devices", "bridge"],
        ),
        listing(
            "Lanes with too little light",
            "Lanes that receive less light than the low alarm of their own module while its laser is on. Clean the"
            " connectors, then look at the fibre and the other side's transceiver. Needs the source optics, which is"
            " off unless it is switched on.",
            [
                Column("Received", "watt", f"{light('<')} * {NIC_INFO}"),
                Column("Of the low alarm", "percentunit", f"({light('/')} < 1) * {NIC_INFO}"),
            ],
            labels=["host", "device", "lane"],
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
                for way in WAYS
            ],
            top=1,
        ),
        worst(
            "Ports most paused by the network",
            "Share of the last 5 minutes that a priority was stopped by the switch; the whole port where no priority is"
            " named. The cause is elsewhere: look for the host that pauses most, and at the leaf's uplinks.",
            "percentunit",
            Query(
                f"max by (host, device, priority) ({PAUSED} * {NIC_INFO})",
                "{{host}} {{device}} priority {{priority}}",
            ),
            Limits(0.02, 0.1),
        ),
        worst(
            "Hosts that pause the network most",
            "Share of the last 5 minutes that a host stopped its switch: it cannot take what it is sent. Look at its"
            " PCIe links, its memory and its GPUs; over a half take it out of service.",
            "percentunit",
            Query(
                f"max by (host, device, priority) ({PAUSES} * {NIC_INFO})",
                "{{host}} {{device}} priority {{priority}}",
            ),
            Limits(0.02, 0.1),
        ),
        lines(
            "Packets marked for congestion",
            "Share of the RoCE packets received that carried the mark (ECN CE), by rail. A rail above the others: look"
            " at how many send to it at once, and at the uplinks of its leaf.",
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
            "Packets that network devices dropped: for lack of room, and because PCIe was slower than the wire. The"
            " latter: look at the PCIe links.",
            "pps",
            [
                Query("sum(rate(fabric_nic_receive_discards_total{}[$__rate_interval]))", "received, no room"),
                Query("sum(rate(fabric_nic_transmit_discards_total{}[$__rate_interval]))", "to be sent, no room"),
                Query("sum(rate(fabric_nic_pci_buffer_overflows_total{}[$__rate_interval]))", "PCIe too slow"),
            ],
        ),
    ]
