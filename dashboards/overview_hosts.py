"""Rows of the overview about hosts: links and hardware, congestion, and rails."""

from joins import (
    DEGRADED,
    DOWN,
    MARKED,
    NIC_INFO,
    ON_HOST,
    PAUSE_SHARES,
    PAUSED,
    PAUSES,
    PCI_DEGRADED,
    PCI_INFO,
    PHYSICAL_STATES,
    PORT_INFO,
    SATURATED,
    higher,
    receive_power_to_low_alarm,
)
from panels import HALF, THIRD, WAYS, Limits, Panel, Query, lines
from tables import Column, info_table, table_of, top_list


def links_of_hosts() -> list[Panel]:
    """Return panels of links and hardware with faults."""
    return [*_links(), *_errors(), *_hardware()]


def _links() -> list[Panel]:
    return [
        table_of(
            "RDMA ports slower than expected",
            "RDMA ports below the speed expected by the configuration, or else by their own hardware or the fastest"
            " port of their group. Compare the lanes with those of siblings, then check cables and transceivers.",
            [
                Column(name, "bps", f"8 * fabric_rdma_link_{ending}_bytes_per_second{{}} * {PORT_INFO} and {DEGRADED}")
                for name, ending in (("Speed", "speed"), ("Expected", "expected_speed"))
            ],
            labels=["host", "device", "port", "rail", "netdev"],
            worst=("-Speed",),
            absent="no port is slow",
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
            absent="no port is down",
        ),
        top_list(
            "Links that flap most",
            "Times the link of a port went down in the last hour.",
            "short",
            f"max by (host, device, port) (round(increase(fabric_rdma_link_down_total{{}}[1h])) * {PORT_INFO})",
            labels=["host", "device", "port"],
            when="last hour",
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
            absent="no PCIe link is degraded",
            width=16,
        ),
    ]


def _errors() -> list[Panel]:
    return [
        top_list(
            "FEC uncorrectable blocks",
            "Blocks of the last hour that forward error correction could not correct, without ports whose link went"
            " down in that time. Each is at least one packet lost: clean and reseat connectors, replace the cable,"
            " then the transceivers of both sides.",
            "short",
            f"max by (host, device) (increase(fabric_nic_fec_uncorrectable_blocks_total{{}}[1h]) * {NIC_INFO}"
            " unless on (job, instance, device) increase(fabric_nic_link_down_total{}[1h]) > 0)",
            labels=["host", "device"],
            when="last hour",
        ),
        top_list(
            "FEC corrected blocks",
            "Blocks per second that forward error correction corrected, over 5 minutes. Some are normal at 100 Gb/s"
            " per lane; a port far above its siblings is the next to fail.",
            "cps",
            f"max by (host, device) (rate(fabric_nic_fec_corrected_blocks_total{{}}[5m]) * {NIC_INFO})",
            labels=["host", "device"],
        ),
        top_list(
            "Symbol errors",
            "Symbol errors per second, over 5 minutes: a dirty, bent or failing cable or transceiver. A saturated"
            " counter shows none: see the table of these.",
            "cps",
            f"max by (host, device, port) (rate(fabric_rdma_symbol_errors_total{{}}[5m]) * {PORT_INFO})",
            Limits(0.1, 10),
            labels=["host", "device", "port"],
        ),
        info_table(
            "Saturated counters",
            "Counters that have reached the top of their range and count no further, so that their rates are 0: clear"
            " them, or restart the driver.",
            SATURATED,
            labels=["host", "switch", "device", "port", "counter"],
            absent="no counter is saturated",
            width=THIRD,
        ),
    ]


def _hardware() -> list[Panel]:
    return [
        table_of(
            "Lanes with too little light",
            "Lanes that receive less light than the low alarm of their own module while its laser is on. Clean the"
            " connectors, then check the fibre and the transceiver of the other side. Needs the source optics, which"
            " is disabled by default.",
            [
                Column("Received", "watt", f"{receive_power_to_low_alarm('<')} * {NIC_INFO}"),
                Column(
                    "Of low alarm",
                    "none",
                    f"({receive_power_to_low_alarm('/')} < 1) * {NIC_INFO}",
                    limits=Limits(1, 0.5, below=True),
                    decimals=2,
                ),
            ],
            labels=["host", "device", "lane"],
            worst=("-Of low alarm",),
            absent="no lane below its alarm, or the source optics is disabled",
            width=THIRD,
        ),
        top_list(
            "PCIe errors (AER)",
            "AER errors of the last hour reported by NICs: correctable ones cost time, and many of them precede a"
            " link that trains down. Reseat the card or its riser.",
            "short",
            f"max by (host, devices, severity) (increase(fabric_pci_aer_errors_total{{}}[1h]) * {PCI_INFO})",
            labels=["host", "devices", "severity"],
            when="last hour",
        ),
    ]


_PAUSING_REMEDY = " Check its PCIe links, its memory and its GPUs; above one half take it out of service."
_PAUSED_REMEDY = " The cause is elsewhere: look for the host that pauses most, and check the leaf's uplinks."


def congestion() -> list[Panel]:
    """Return panels of pauses, ECN marks and drops."""
    return [
        *(
            top_list(
                title,
                text,
                "percentunit",
                f"max by (host, rail, device) ({pauses})",
                PAUSE_SHARES,
                width=HALF,
                labels=["host", "rail", "device"],
                when="of time",
            )
            for title, pauses, text in (
                (
                    "Hosts that pause their switch most (PFC, 802.3x)",
                    PAUSES,
                    "Share of the last 5 minutes that a host paused its switch, as it receives too slowly."
                    + _PAUSING_REMEDY,
                ),
                (
                    "Ports most paused by their switch (PFC, 802.3x)",
                    PAUSED,
                    "Share of the last 5 minutes that a port was paused by the switch." + _PAUSED_REMEDY,
                ),
            )
        ),
        lines(
            "ECN-marked, of packets received, by rail",
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
            decimals=1,
        ),
        lines(
            "Congestion notification packets (CNP)",
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
        lines(
            "Losses seen by RDMA",
            "Per second, of all ports: packets that arrived out of sequence, requests without an acknowledgement in"
            " time, and packets without a receive buffer.",
            "cps",
            [
                Query("sum(rate(fabric_rdma_out_of_sequence_total{}[$__rate_interval]))", "out of sequence"),
                Query("sum(rate(fabric_rdma_local_ack_timeouts_total{}[$__rate_interval]))", "local ACK timeouts"),
                Query("sum(rate(fabric_rdma_out_of_buffer_total{}[$__rate_interval]))", "out of buffer"),
            ],
            width=HALF,
        ),
        top_list(
            "Most retransmissions",
            "Share of packets that a port retransmitted. Check its own link, then discards and errors of switches on"
            " the path.",
            "percentunit",
            f"max by (host, device, port) (fabric_rdma_retransmission_ratio{{}} * {PORT_INFO})",
            Limits(0.00001, 0.0001),
            width=HALF,
            labels=["host", "device", "port"],
            when="of packets",
        ),
    ]


def rails() -> list[Panel]:
    """Return panels of the traffic of rails, and of how even it is."""
    return [
        *(
            lines(
                f"Traffic by rail, {verb}",
                f"Bits per second {verb} by all RDMA ports of a rail, over 5 minutes. On Ethernet RDMA only.",
                "bps",
                [Query(f"8 * sum by (rail) (port:fabric_rdma_{way}_bytes:rate{{}})", "rail {{rail}}")],
                width=HALF,
            )
            for way, verb in zip(WAYS, ("transmitted", "received"), strict=True)
        ),
        lines(
            "Imbalance of rails, over the mean",
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
            limits=Limits(0.2, 0.5),
            decimals=0,
        ),
        top_list(
            "Most unbalanced hosts",
            "How far the busiest port of a host is above the mean of its group, in either direction; causes of more"
            " than 20 % are degraded links, or how the switches distribute flows.",
            "percentunit",
            f"max by (host) ({_of_groups('imbalance')} * {ON_HOST})",
            Limits(0.2, 0.5),
            labels=["host"],
            when="over the mean",
        ),
        top_list(
            "Hosts with an idle rail",
            "How far the idlest port of a host is below the mean of its group, in either direction. Check the link"
            " of that port, and which NICs the job's NCCL uses.",
            "percentunit",
            f"max by (host) ({_of_groups('deficit')} * {ON_HOST})",
            Limits(0.3, 0.5),
            labels=["host"],
            when="below the mean",
        ),
    ]


def _of_groups(what: str) -> str:
    """Return the query for the higher of both directions' ratios of each host."""
    return f"max by (job, instance) ({higher(*(f'fabric_rdma_{way}_{what}_ratio{{}}' for way in WAYS))})"
