"""Rows of a host's board about what its ports are made of: errors, optics, PCIe, settings, and how they are read."""

from joins import PORT, PORT_INFO
from panels import HALF, THIRD, Column, Panel, Query, facts, lines, listing, meaning, where
from reading import sources, ticks

SETTINGS = ("autoneg", "duplex", "fec", "pause", "pfc", "trust")
PCI_INFO = "on (job, instance, pci) group_left (devices, bridge, numa_node, nearest_gpu) fabric_pci_info{}"


def errors() -> list[Panel]:
    """Show what arrives broken, and what is dropped."""
    return [
        lines(
            "Blocks mended",
            "Blocks a second that forward error correction mended. Some are normal at 100 Gb/s a lane; a port far"
            " above its siblings is the next to fail.",
            "cps",
            [Query("rate(fabric_nic_fec_corrected_blocks_total{}[$__rate_interval])", "{{device}}")],
        ),
        lines(
            "Blocks lost",
            "Blocks a second that forward error correction could not mend; each is at least one packet lost. Clean and"
            " reseat connectors, change the cable, then the transceivers of both sides.",
            "cps",
            [Query("rate(fabric_nic_fec_uncorrectable_blocks_total{}[$__rate_interval])", "{{device}}")],
        ),
        lines(
            "Symbol errors",
            "Symbols a second that a port could not read: a dirty, bent or dying cable or transceiver.",
            "cps",
            [
                Query(f"rate(fabric_rdma_symbol_errors_total{{}}[$__rate_interval]) * {PORT_INFO}", PORT),
                Query("rate(fabric_nic_symbol_errors_total{}[$__rate_interval])", "{{device}}"),
            ],
        ),
        lines(
            "Packets with errors",
            "Packets a second with a wrong checksum of the frame, of RoCE, or another error. Frames: this link. RoCE"
            " alone: something on the way corrupts packets.",
            "pps",
            [
                Query(
                    "rate(fabric_nic_fcs_errors_total{}[$__rate_interval])"
                    " or rate(fabric_nic_receive_errors_total{}[$__rate_interval])",
                    "{{device}} received",
                ),
                Query("rate(fabric_nic_transmit_errors_total{}[$__rate_interval])", "{{device}} to be sent"),
                Query(f"rate(fabric_rdma_icrc_errors_total{{}}[$__rate_interval]) * {PORT_INFO}", f"{PORT} RoCE"),
                Query(f"rate(fabric_rdma_receive_errors_total{{}}[$__rate_interval]) * {PORT_INFO}", PORT),
            ],
        ),
        lines(
            "Packets dropped",
            "Packets a second that network devices dropped without an error, for lack of room: a lossless fabric has"
            " none.",
            "pps",
            [
                Query("rate(fabric_nic_receive_discards_total{}[$__rate_interval])", "{{device}} received"),
                Query("rate(fabric_nic_transmit_discards_total{}[$__rate_interval])", "{{device}} to be sent"),
                Query("rate(fabric_nic_out_of_buffer_total{}[$__rate_interval])", "{{device}} no buffer"),
            ],
        ),
        lines(
            "Packets dropped for PCIe",
            "Packets a second that a device dropped because PCIe was slower than the wire. Look at its PCIe link, at"
            " the payload and read sizes that are set, and at the host's memory.",
            "pps",
            [Query("rate(fabric_nic_pci_buffer_overflows_total{}[$__rate_interval])", "{{device}}")],
        ),
    ]


def optics() -> list[Panel]:
    """Show what the modules measure, with their own limits; empty unless the source optics is switched on."""
    return [
        *(
            lines(
                f"Light {verb}",
                f"Light {verb} on the darkest lane of each module, with the strictest limits of all of them. Under the"
                f" low alarm {remedy}.",
                "watt",
                [
                    Query(f"min by (device) (fabric_nic_module_lane_{way}_power_watts{{}})", "{{device}} darkest lane"),
                    _limits("max", f"{way}_power_watts", "low_.+"),
                    _limits("min", f"{way}_power_watts", "high_.+"),
                ],
            )
            for way, verb, remedy in (
                (
                    "receive",
                    "received",
                    "clean the connectors, then look at the fibre and the module of the other side",
                ),
                ("transmit", "sent", "while the laser is on, change the module"),
            )
        ),
        lines(
            "Temperature of modules",
            "Temperature inside each module, with the strictest limits of all of them. One that is too hot makes errors"
            " before it fails: look at fans, blanking plates and the air that comes in.",
            "celsius",
            [
                Query("fabric_nic_module_temperature_celsius{}", "{{device}}"),
                _limits("min", "temperature_celsius", "high_.+"),
            ],
        ),
        listing(
            "Lanes of modules",
            "Each lane as it was last read; no current means that the laser is off, and no light is expected then."
            " Under 100 % of the low alarm there is too little light: clean the connectors first.",
            [
                Column("Received", "watt", "fabric_nic_module_lane_receive_power_watts{}"),
                Column("Of the low alarm", "percentunit", _of_the_low_alarm()),
                Column("Sent", "watt", "fabric_nic_module_lane_transmit_power_watts{}"),
                Column("Current", "amp", "fabric_nic_module_lane_bias_amperes{}"),
            ],
            labels=["device", "lane"],
        ),
        listing(
            "Modules",
            "What is plugged in, in its own words. Modules of one rail that differ from the others are worth a look.",
            [
                Column("Temperature", "celsius", f"fabric_nic_module_temperature_celsius{{}} * {_MODULE_INFO}"),
                Column("Supply", "volt", f"fabric_nic_module_voltage_volts{{}} * {_MODULE_INFO}"),
            ],
            labels=["device", *_MODULE],
        ),
    ]


_MODULE = ("kind", "vendor", "part", "serial", "revision")
_MODULE_INFO = f"on (job, instance, device) group_left ({', '.join(_MODULE)}) fabric_nic_module_info{{}}"


def _limits(pick: str, what: str, levels: str) -> Query:
    """Ask for limits that the modules set themselves, the strictest of all modules."""
    chosen = where(f'level=~"{levels}"')
    return Query(f"{pick} by (level) (fabric_nic_module_threshold_{what}{chosen})", "{{level}}")


def _of_the_low_alarm() -> str:
    return (
        "fabric_nic_module_lane_receive_power_watts{} / on (job, instance, device) group_left ()"
        " fabric_nic_module_threshold_receive_power_watts" + where('level="low_alarm"')
    )


def pcie() -> list[Panel]:
    """Show the way from the NICs to the memory and the GPUs."""
    return [
        listing(
            "PCIe links",
            "The PCIe link of each NIC and where it sits; a NIC is best under the bridge of its GPU. A degraded link"
            " has fewer lanes or a lower rate than both of its ends can do: reseat the card or its riser.",
            [
                Column(
                    "Link",
                    "short",
                    f"fabric_pci_link_degraded{{}} * {PCI_INFO}",
                    meaning({0: ("good", "green"), 1: ("degraded", "red")}),
                ),
                Column("Lanes", "none", f"fabric_pci_link_lanes{{}} * {PCI_INFO}"),
                Column("Rate a lane", "si:T/s", f"fabric_pci_link_speed_transfers_per_second{{}} * {PCI_INFO}"),
            ],
            labels=["pci", "devices", "bridge", "numa_node", "nearest_gpu"],
        ),
        lines(
            "Errors of PCIe links",
            "Errors a second that NICs reported. Correctable ones cost time, many of them come before a link that"
            " trains down; nonfatal ones cost a transaction, fatal ones the link.",
            "cps",
            [
                Query(
                    "sum by (devices, severity) (rate(fabric_pci_aer_errors_total{}[$__rate_interval])"
                    " * on (job, instance, pci) group_left (devices) fabric_pci_info{})",
                    "{{devices}} {{severity}}",
                )
            ],
            width=HALF,
        ),
    ]


def settings() -> list[Panel]:
    """Show how the ports are set up, and how reading them goes."""
    return [
        listing(
            "Settings",
            "How each network device is set up. All rails should be alike, and like the switch: pause none, and the"
            " RoCE priority alone under flow control.",
            [Column("MTU", "none", f"fabric_nic_mtu_bytes{{}} * {_SETTINGS_INFO}")],
            labels=["device", *SETTINGS],
        ),
        facts(
            "Devices",
            "What each RDMA port is, and its firmware. All rails should be alike.",
            "fabric_rdma_info{}",
            labels=["rail", "device", "port", "netdev", "pci", "driver", "hca_type", "board_id", "firmware"],
        ),
        sources("Sources of this host", ["source", "target"], width=THIRD),
        listing(
            "Failures to read",
            "What could not be read in the last hour, by device and reason. Nothing else is lost by a failure; the"
            " exporter's log says more.",
            [Column("Times", "short", "round(increase(fabric_source_failures_total{}[1h])) > 0")],
            labels=["source", "target", "device", "reason"],
            width=THIRD,
        ),
        ticks(),
    ]


_SETTINGS_INFO = f"on (job, instance, device) group_left ({', '.join(SETTINGS)}) fabric_nic_settings_info{{}}"
