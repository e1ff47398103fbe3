"""What is exported of network devices, and where it comes from: data."""

from exporter import vocabulary
from exporter.sources.nic_drivers import DRIVERS
from exporter.sources.statistics import Statistic
from exporter.vocabulary import counter, info

KERNEL = {
    "kernel_receive_bytes_total": "rx_bytes",
    "kernel_transmit_bytes_total": "tx_bytes",
    "kernel_receive_packets_total": "rx_packets",
    "kernel_transmit_packets_total": "tx_packets",
    "kernel_receive_errors_total": "rx_errors",
    "kernel_transmit_errors_total": "tx_errors",
    "kernel_receive_discards_total": "rx_dropped",
    "kernel_transmit_discards_total": "tx_dropped",
}
"""Statistics of the kernel (struct rtnl_link_stats64) that are exported as such."""

INSTEAD = {
    ending.removeprefix("kernel_"): name
    for ending, name in KERNEL.items()
    if ending.endswith(("_bytes_total", "_packets_total"))
}
"""What stands in for bytes and packets of a device whose driver does not count them."""


def _origins() -> dict[str, list[str]]:
    """List where each metric comes from, for the documentation."""
    found: dict[str, list[str]] = {ending: [f"rtnetlink {name}"] for ending, name in KERNEL.items()}
    for driver, names in DRIVERS.items():
        for statistic in (*names.port, *names.priority):
            found.setdefault(statistic.ending, []).append(f"{driver}: {' + '.join(statistic.names)}")
    for ending, name in INSTEAD.items():
        found.setdefault(ending, []).append(f"others: rtnetlink {name}")
    found["link_down_total"].append("others: rtnetlink carrier_down_count")
    found |= {
        "link_up": ["rtnetlink IFLA_OPERSTATE, IFF_LOWER_UP"],
        "link_speed_bytes_per_second": ["ETHTOOL_GLINKSETTINGS"],
        "mtu_bytes": ["rtnetlink IFLA_MTU"],
        "carrier_changes_total": ["rtnetlink IFLA_CARRIER_CHANGES"],
        "info": ["rtnetlink", "ETHTOOL_GDRVINFO"],
    }
    return found


_STATISTICS: tuple[Statistic, ...] = tuple(one for names in DRIVERS.values() for one in names.port)
_PRIORITY: tuple[Statistic, ...] = tuple(one for names in DRIVERS.values() for one in names.priority)

SCHEMA = vocabulary.schema(
    "fabric_nic_",
    ("device",),
    [
        *dict.fromkeys(one.ending for one in _STATISTICS if one.ending in vocabulary.ENDINGS),
        "link_up",
        "link_speed_bytes_per_second",
        "link_expected_speed_bytes_per_second",
        "link_degraded",
        "mtu_bytes",
        "resets_total",
    ],
    {
        "info": info(
            "What the device is and where it sits; traffic tells whose bytes are counted: the wire's or the kernel's.",
            "host",
            "rail",
            "pci",
            "mac",
            "driver",
            "firmware",
            "phys_port_name",
            "traffic",
        ),
        "carrier_changes_total": counter("Times the carrier came or went."),
        "kernel_receive_bytes_total": counter("Bytes that the kernel received: no RDMA."),
        "kernel_transmit_bytes_total": counter("Bytes that the kernel sent: no RDMA."),
        "kernel_receive_packets_total": counter("Packets that the kernel received: no RDMA."),
        "kernel_transmit_packets_total": counter("Packets that the kernel sent: no RDMA."),
        "kernel_ecn_marked_packets_total": counter(
            "Packets that the kernel received with the congestion mark (ECN CE): TCP/IP, no RDMA."
        ),
        "kernel_receive_errors_total": counter("Packets that the kernel counts as received with an error."),
        "kernel_transmit_errors_total": counter("Packets that the kernel counts as not sent for an error."),
        "kernel_receive_discards_total": counter("Packets received that the kernel dropped."),
        "kernel_transmit_discards_total": counter("Packets to be sent that the kernel dropped."),
        "pcs_symbol_errors_total": counter("Symbol errors that forward error correction did not mend."),
        "fec_corrected_errors_total": counter("Wrong bits that forward error correction mended."),
        "receive_buffer_threshold_total": counter("Times the port's receive buffer was more than 85 % full."),
        "transmit_pause_storm_warnings_total": counter("Times this port paused its peer for long."),
        "transmit_pause_storm_errors_total": counter(
            "Times this port paused its peer so long that it was stopped from it."
        ),
        "transmit_timeouts_total": counter("Times that a queue did not send in time."),
        "pci_buffer_overflows_total": counter("Packets dropped because PCIe was slower than the wire."),
    },
    note="On the wire with RDMA, headers and frame check where the driver counts those, else what the kernel saw.",
    origins=_origins(),
)

PRIORITY = vocabulary.schema(
    "fabric_nic_",
    ("device", "priority"),
    [*dict.fromkeys(one.ending for one in _PRIORITY if one.ending in vocabulary.ENDINGS)],
    {"receive_pfc_transitions_total": counter("Times the priority went from paused to running.")},
    origins=_origins(),
)
