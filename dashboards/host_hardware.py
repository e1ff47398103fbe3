"""Rows of the host dashboard: errors, optics, PCIe, settings and sources."""

from joins import PORT, PORT_INFO
from panels import THIRD, Limits, Panel, Query, lines, meaning, where
from reading import sources, ticks
from tables import Column, info_table, table_of

SETTINGS = ("autoneg", "duplex", "fec", "pause", "pfc", "trust")
PCI_INFO = "on (job, instance, pci) group_left (devices, bridge, numa_node, nearest_gpu) fabric_pci_info{}"


def errors() -> list[Panel]:
    """Return panels of errors and drops."""
    return [
        lines(
            "FEC corrected blocks",
            "Blocks per second that forward error correction corrected. Some are normal at 100 Gb/s per lane; a port"
            " far above its siblings is the next to fail.",
            "cps",
            [Query("rate(fabric_nic_fec_corrected_blocks_total{}[$__rate_interval])", "{{device}}")],
        ),
        lines(
            "FEC uncorrectable blocks",
            "Blocks per second that forward error correction could not correct; each is at least one packet lost."
            " Clean and reseat connectors, replace the cable, then the transceivers of both sides.",
            "cps",
            [Query("rate(fabric_nic_fec_uncorrectable_blocks_total{}[$__rate_interval])", "{{device}}")],
            events=True,
        ),
        lines(
            "Symbol errors",
            "Symbol errors per second: a dirty, bent or failing cable or transceiver.",
            "cps",
            [
                Query(f"rate(fabric_rdma_symbol_errors_total{{}}[$__rate_interval]) * {PORT_INFO}", PORT),
                Query(
                    "rate(fabric_nic_symbol_errors_total{}[$__rate_interval])"
                    " * on (job, instance, device) group_left (rail) fabric_nic_info{}",
                    "rail {{rail}} {{device}}",
                ),
            ],
            events=True,
        ),
        lines(
            "Errors (FCS, ICRC, others)",
            "Packets per second with a wrong FCS, a wrong RoCE ICRC, or another error. FCS: this link. ICRC only:"
            " packets are corrupted on the path.",
            "pps",
            [
                Query(
                    "(rate(fabric_nic_fcs_errors_total{}[$__rate_interval])"
                    " or rate(fabric_nic_receive_errors_total{}[$__rate_interval]))",
                    "{{device}} received",
                ),
                Query("rate(fabric_nic_transmit_errors_total{}[$__rate_interval])", "{{device}} transmitted"),
                Query(f"rate(fabric_rdma_icrc_errors_total{{}}[$__rate_interval]) * {PORT_INFO}", f"{PORT} RoCE"),
                Query(f"rate(fabric_rdma_receive_errors_total{{}}[$__rate_interval]) * {PORT_INFO}", PORT),
            ],
            events=True,
        ),
        lines(
            "Discards",
            "Packets per second that network devices dropped without an error, for lack of buffers: a lossless"
            " fabric has none.",
            "pps",
            [
                Query("rate(fabric_nic_receive_discards_total{}[$__rate_interval])", "{{device}} received"),
                Query("rate(fabric_nic_transmit_discards_total{}[$__rate_interval])", "{{device}} transmitted"),
                Query("rate(fabric_nic_out_of_buffer_total{}[$__rate_interval])", "{{device}} no buffer"),
            ],
            events=True,
        ),
        lines(
            "Discards because of PCIe",
            "Packets per second that a device dropped because PCIe was slower than the wire. Check its PCIe link,"
            " the configured payload and read request sizes, and the host's memory.",
            "pps",
            [Query("rate(fabric_nic_pci_buffer_overflows_total{}[$__rate_interval])", "{{device}}")],
            events=True,
        ),
    ]


def optics() -> list[Panel]:
    """Return panels of the modules' sensors and alarm limits; empty unless the source optics is enabled."""
    return [
        *(
            lines(
                f"Light {verb}",
                f"Light {verb} on the darkest lane of each module, with the strictest low alarm of all of them."
                f" Below the low alarm {remedy}.",
                "watt",
                [
                    Query(f"min by (device) (fabric_nic_module_lane_{way}_power_watts{{}})", "{{device}} darkest lane"),
                    _limits("max", f"{way}_power_watts", "low_.+"),
                ],
                height=9,
            )
            for way, verb, remedy in (
                (
                    "receive",
                    "received",
                    "clean the connectors, then check the fibre and the module of the other side",
                ),
                ("transmit", "sent", "while the laser is on, replace the module"),
            )
        ),
        lines(
            "Temperature of modules",
            "Temperature inside each module, with the strictest limits of all of them. A hot module causes errors"
            " before it fails: check fans, blanking plates and the air inlet.",
            "celsius",
            [
                Query("fabric_nic_module_temperature_celsius{}", "{{device}}"),
                _limits("min", "temperature_celsius", "high_.+"),
            ],
            height=9,
        ),
        table_of(
            "Lanes of modules",
            "Each lane at its last read; no bias current means that the laser is off, and no light is expected then."
            " Below 1, the low alarm, there is too little light: clean the connectors first.",
            [
                Column("Received", "watt", "fabric_nic_module_lane_receive_power_watts{}"),
                Column(
                    "Of low alarm",
                    "none",
                    _of_the_low_alarm(),
                    limits=Limits(1.5, 1, below=True),
                    decimals=1,
                    width=125,
                ),
                Column("Sent", "watt", "fabric_nic_module_lane_transmit_power_watts{}"),
                Column("Current", "amp", "fabric_nic_module_lane_bias_amperes{}"),
            ],
            labels=["device", "lane"],
            worst=("-Of low alarm",),
            absent="the source optics is disabled, or no module has sensors",
            width=9,
            height=11,
        ),
        table_of(
            "Modules",
            "Identity of each module, as its EEPROM has it. Check modules of one rail that differ from the others.",
            [
                Column("Temperature", "celsius", f"fabric_nic_module_temperature_celsius{{}} * {_MODULE_INFO}"),
                Column("Supply", "volt", f"fabric_nic_module_voltage_volts{{}} * {_MODULE_INFO}"),
            ],
            labels=["device", *_MODULE],
            worst=("Temperature",),
            absent="the source optics is disabled",
            width=15,
            height=11,
            widths={"device": 60, "kind": 60, "vendor": 150, "part": 165, "serial": 120, "revision": 70},
        ),
    ]


_MODULE = ("kind", "vendor", "part", "serial", "revision")
_MODULE_INFO = f"on (job, instance, device) group_left ({', '.join(_MODULE)}) fabric_nic_module_info{{}}"


def _limits(pick: str, what: str, levels: str) -> Query:
    """Return the query for the modules' own alarm limits, the strictest of all modules."""
    chosen = where(f'level=~"{levels}"')
    return Query(f"{pick} by (level) (fabric_nic_module_threshold_{what}{chosen})", "{{level}}")


def _of_the_low_alarm() -> str:
    return (
        "fabric_nic_module_lane_receive_power_watts{} / on (job, instance, device) group_left ()"
        " fabric_nic_module_threshold_receive_power_watts" + where('level="low_alarm"')
    )


def pcie() -> list[Panel]:
    """Return panels of the PCIe links of NICs."""
    return [
        table_of(
            "PCIe links",
            "The PCIe link of each NIC and its position; a NIC is best below the same PCIe switch as its GPU. A"
            " degraded link has fewer lanes or a lower rate than both of its ends support: reseat the card or its"
            " riser.",
            [
                Column(
                    "Link",
                    "short",
                    f"fabric_pci_link_degraded{{}} * {PCI_INFO}",
                    meaning({0: ("good", "green"), 1: ("degraded", "red")}),
                ),
                Column("Lanes", "none", f"fabric_pci_link_lanes{{}} * {PCI_INFO}"),
                Column("Rate per lane", "si:T/s", f"fabric_pci_link_speed_transfers_per_second{{}} * {PCI_INFO}"),
            ],
            labels=["pci", "devices", "bridge", "numa_node", "nearest_gpu"],
            worst=("Link", "-devices"),
            width=14,
            height=11,
        ),
        lines(
            "PCIe errors (AER)",
            "AER errors per second reported by NICs. Correctable ones cost time, and many of them precede a link"
            " that trains down; nonfatal ones cost a transaction, fatal ones the link.",
            "cps",
            [
                Query(
                    "sum by (devices, severity) (rate(fabric_pci_aer_errors_total{}[$__rate_interval])"
                    " * on (job, instance, pci) group_left (devices) fabric_pci_info{})",
                    "{{devices}} {{severity}}",
                )
            ],
            width=10,
            height=11,
            events=True,
        ),
    ]


def settings() -> list[Panel]:
    """Return panels of the ports' settings, and of the sources."""
    return [
        table_of(
            "Settings",
            "Settings of each network device. All rails should be equal, and match the switch: no 802.3x pause, and"
            " PFC for the RoCE priority only.",
            [Column("MTU", "none", f"fabric_nic_mtu_bytes{{}} * {_SETTINGS_INFO}")],
            labels=["device", *SETTINGS],
            worst=("-device",),
            width=10,
            height=11,
        ),
        info_table(
            "Devices",
            "Attributes of each RDMA port, and its firmware. All rails should be equal.",
            "fabric_rdma_info{}",
            labels=["rail", "device", "port", "netdev", "pci", "driver", "hca_type", "board_id", "firmware"],
            worst=("-rail",),
            width=14,
            height=11,
            widths={"rail": 50, "port": 50, "pci": 115, "driver": 95, "hca_type": 75, "board_id": 150, "firmware": 105},
        ),
        sources("Sources of this host", ["source", "target"], width=THIRD),
        table_of(
            "Read failures",
            "Failures of the last hour, by device and reason. A failure does not affect anything else; the"
            " exporter's log has the details.",
            [Column("Times", "short", "round(increase(fabric_source_failures_total{}[1h])) > 0")],
            labels=["source", "target", "device", "reason"],
            worst=("Times",),
            absent="no read failed",
            width=THIRD,
        ),
        ticks(),
    ]


_SETTINGS_INFO = f"on (job, instance, device) group_left ({', '.join(SETTINGS)}) fabric_nic_settings_info{{}}"
