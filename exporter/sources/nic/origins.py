"""Origins of the metrics of network devices: kernel counters, standard statistics, driver statistics, settings."""

from types import MappingProxyType

from exporter.sources.nic.drivers import DRIVERS, INFINIBAND

KERNEL = MappingProxyType(
    {
        "kernel_receive_bytes_total": "rx_bytes",
        "kernel_transmit_bytes_total": "tx_bytes",
        "kernel_receive_packets_total": "rx_packets",
        "kernel_transmit_packets_total": "tx_packets",
        "kernel_receive_errors_total": "rx_errors",
        "kernel_transmit_errors_total": "tx_errors",
        "kernel_receive_discards_total": "rx_dropped",
        "kernel_transmit_discards_total": "tx_dropped",
    }
)
"""Counters of the kernel (struct rtnl_link_stats64) that are exported as such."""

KERNEL_FALLBACK = MappingProxyType(
    {
        ending.removeprefix("kernel_"): name
        for ending, name in KERNEL.items()
        if ending.endswith(("_bytes_total", "_packets_total"))
    }
)
"""Counters of the kernel that are exported as bytes and packets of a device whose driver does not count them."""

STANDARD_STATISTICS = MappingProxyType(
    {
        "OctetsReceivedOK": "receive_bytes_total",
        "OctetsTransmittedOK": "transmit_bytes_total",
        "FramesReceivedOK": "receive_packets_total",
        "FramesTransmittedOK": "transmit_packets_total",
        "FrameCheckSequenceErrors": "fcs_errors_total",
        "SymbolErrorDuringCarrier": "symbol_errors_total",
        "AlignmentErrors": "alignment_errors_total",
        "undersize": "receive_undersize_packets_total",
        "oversize": "receive_oversize_packets_total",
        "fragments": "receive_fragments_total",
        "jabbers": "receive_jabbers_total",
    }
)
"""Standard statistics of ethtool netlink, by their names in IEEE 802.3 and RFC 2819: for drivers not listed."""

_SETTINGS_ORIGINS = MappingProxyType(
    {
        "receive_pause_frames_total": "others: ethtool netlink PAUSE_GET",
        "transmit_pause_frames_total": "others: ethtool netlink PAUSE_GET",
        "fec_corrected_blocks_total": "ethtool netlink FEC_GET",
        "fec_uncorrectable_blocks_total": "ethtool netlink FEC_GET",
        "fec_corrected_errors_total": "others: ethtool netlink FEC_GET",
        "link_speed_bytes_per_second": "ethtool netlink LINKMODES_GET, else ETHTOOL_GLINKSETTINGS",
        "link_max_speed_bytes_per_second": "ethtool netlink LINKMODES_GET",
        "link_lanes": "ethtool netlink LINKMODES_GET",
        "link_down_reason_info": "ethtool netlink LINKSTATE_GET",
        "settings_info": "ethtool netlink LINKMODES_GET, FEC_GET, PAUSE_GET; rtnetlink DCB IEEE_GET",
        "raw": "ETHTOOL_GSTATS",
    }
)

RATE_LIMIT = "transmit_rate_limit_bytes_per_second"


def origins() -> dict[str, list[str]]:
    """Return the origins of each metric by ending, for the documentation."""
    found: dict[str, list[str]] = {ending: [f"rtnetlink {name}"] for ending, name in KERNEL.items()}
    for driver, names in ({**DRIVERS, **INFINIBAND}).items():
        for statistic in (*names.port, *names.priority):
            found.setdefault(statistic.ending, []).append(f"{driver}: {' + '.join(statistic.names)}")
    for name, ending in STANDARD_STATISTICS.items():
        found.setdefault(ending, []).append(f"others: ethtool netlink STATS_GET {name}")
    for ending, text in _SETTINGS_ORIGINS.items():
        found.setdefault(ending, []).append(text)
    for ending, name in KERNEL_FALLBACK.items():
        found.setdefault(ending, []).append(f"others: rtnetlink {name}")
    found["link_down_total"] += [
        "others: ethtool netlink LINKSTATE_GET EXT_DOWN_CNT, else rtnetlink CARRIER_DOWN_COUNT"
    ]
    found |= {
        "link_up": ["rtnetlink IFLA_OPERSTATE"],
        "mtu_bytes": ["rtnetlink IFLA_MTU"],
        "carrier_changes_total": ["rtnetlink IFLA_CARRIER_CHANGES"],
        "transmit_queue_drops_total": ["rtnetlink GETQDISC drops"],
        "transmit_queue_overlimits_total": ["rtnetlink GETQDISC overlimits"],
        "transmit_queue_requeues_total": ["rtnetlink GETQDISC requeues"],
        "transmit_queue_backlog_bytes": ["rtnetlink GETQDISC backlog"],
        "transmit_queue_info": ["rtnetlink GETQDISC TCA_KIND"],
        RATE_LIMIT: ["tbf: rtnetlink GETQDISC rate", "htb: rtnetlink GETTCLASS ceil"],
        "info": ["rtnetlink", "ETHTOOL_GDRVINFO"],
    }
    return found
