"""Metrics of switches: ports, priorities, queues, priority groups, optical modules, links, and the switches themselves.

Not every switch has every counter; a missing one has no series. All metrics of queues and priority groups are details,
since a port has eight or more of each: the port has their sums, and the depth of the deepest queue.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from exporter.core import vocabulary
from exporter.core.vocabulary import counter, gauge, info
from exporter.sources.switch import origins
from exporter.sources.switch.settings_metrics import PREFIX, SETTINGS_SCHEMAS

_DIRECTIONS = ("receive", "transmit")

PORTS = vocabulary.schema(
    PREFIX,
    ("switch", "port"),
    [
        *(
            f"{direction}_{what}_total"
            for what in (
                "bytes",
                "packets",
                "unicast_packets",
                "multicast_packets",
                "broadcast_packets",
                "errors",
                "discards",
                "pause_frames",
            )
            for direction in _DIRECTIONS
        ),
        "fcs_errors_total",
        "symbol_errors_total",
        "fec_corrected_blocks_total",
        "fec_uncorrectable_blocks_total",
        "ecn_marked_packets_total",
        "link_up",
        "link_speed_bytes_per_second",
        "link_expected_speed_bytes_per_second",
        "link_degraded",
        "resets_total",
    ],
    {
        "info": info(
            "Attributes of the row: name of the target in the configuration, ifIndex, ifAlias and ifType, and its kind:"
            " physical, aggregate (a bundle of ports), sub-interface (a unit or VLAN of a port), virtual or management."
            " All but physical ones repeat the counters of ports, or carry none of the fabric's traffic.",
            "target",
            "ifindex",
            "alias",
            "if_type",
            "kind",
        ),
        "group_info": info(
            "The group of ports that the port is compared with: uplink for the uplinks of the switch, host for the"
            " ports connected to hosts.",
            "group",
        ),
        "link_changed_uptime_seconds": gauge(
            "Uptime of the switch when the link went up or down last, also between two polls; 0 if the switch started"
            " after that (IF-MIB ifLastChange)."
        ),
        "admin_up": gauge("Whether the port is administratively up (1) or not (0) (IF-MIB ifAdminStatus)."),
        "congestion_discards_total": counter(
            "Packets discarded on transmission because a queue was full, or early by WRED: sum over the queues of the"
            " port."
        ),
        "deepest_queue_bytes": gauge("Depth in bytes of the deepest egress queue of the port."),
        "receive_pfc_all_priorities_frames_total": counter(
            "IEEE 802.1Qbb PFC frames received, sum of all priorities, where the switch does not count them by priority"
            " (IEEE8021-PFC-MIB ieee8021PfcIndications)."
        ),
        "transmit_pfc_all_priorities_frames_total": counter(
            "IEEE 802.1Qbb PFC frames transmitted, sum of all priorities, where the switch does not count them by"
            " priority (IEEE8021-PFC-MIB ieee8021PfcRequests)."
        ),
    },
    helps={
        "receive_bytes_total": "Octets received on the interface, framing characters included (IF-MIB ifHCInOctets).",
        "transmit_bytes_total": (
            "Octets transmitted on the interface, framing characters included (IF-MIB ifHCOutOctets)."
        ),
        "receive_packets_total": (
            "Packets received: unicast, multicast and broadcast (IF-MIB ifHCInUcastPkts + ifHCInMulticastPkts +"
            " ifHCInBroadcastPkts)."
        ),
        "transmit_packets_total": (
            "Packets transmitted: unicast, multicast and broadcast (IF-MIB ifHCOutUcastPkts + ifHCOutMulticastPkts +"
            " ifHCOutBroadcastPkts)."
        ),
        "receive_unicast_packets_total": "Unicast packets received (IF-MIB ifHCInUcastPkts).",
        "transmit_unicast_packets_total": "Unicast packets transmitted (IF-MIB ifHCOutUcastPkts).",
        "receive_multicast_packets_total": "Multicast packets received (IF-MIB ifHCInMulticastPkts).",
        "transmit_multicast_packets_total": "Multicast packets transmitted (IF-MIB ifHCOutMulticastPkts).",
        "receive_broadcast_packets_total": "Broadcast packets received (IF-MIB ifHCInBroadcastPkts).",
        "transmit_broadcast_packets_total": "Broadcast packets transmitted (IF-MIB ifHCOutBroadcastPkts).",
        "receive_errors_total": "Packets received with errors and not delivered (IF-MIB ifInErrors).",
        "transmit_errors_total": "Packets not transmitted because of errors (IF-MIB ifOutErrors).",
        "receive_discards_total": (
            "Packets discarded on reception without an error, for example for lack of buffer space (IF-MIB"
            " ifInDiscards)."
        ),
        "transmit_discards_total": (
            "Packets discarded on transmission without an error, for example for lack of buffer space (IF-MIB"
            " ifOutDiscards)."
        ),
        "receive_pause_frames_total": (
            "IEEE 802.3x PAUSE frames received: the peer pauses this port (EtherLike-MIB dot3HCInPauseFrames)."
        ),
        "transmit_pause_frames_total": (
            "IEEE 802.3x PAUSE frames transmitted: this port pauses its peer (EtherLike-MIB dot3HCOutPauseFrames)."
        ),
        "fcs_errors_total": "Frames received with an FCS error (EtherLike-MIB dot3HCStatsFCSErrors).",
        "symbol_errors_total": ("Invalid data symbols received on the medium (EtherLike-MIB dot3HCStatsSymbolErrors)."),
        "fec_corrected_blocks_total": (
            "FEC codewords received with errors that were corrected (IEEE 802.3 aFECCorrectedBlocks)."
        ),
        "fec_uncorrectable_blocks_total": (
            "FEC codewords received with errors that could not be corrected (IEEE 802.3 aFECUncorrectableBlocks)."
        ),
        "ecn_marked_packets_total": "Packets transmitted with the ECN codepoint CE (RFC 3168) set by the switch.",
        "link_up": "Whether the link is operationally up (1) or not (0) (IF-MIB ifOperStatus).",
        "link_speed_bytes_per_second": (
            "Speed of the link in bytes per second (IF-MIB ifHighSpeed); absent while the link is down, or its speed is"
            " unknown or disproved by its traffic."
        ),
        "link_expected_speed_bytes_per_second": (
            "Expected speed of an uplink in bytes per second: the highest speed on which two uplinks of the switch"
            " agree."
        ),
        "link_degraded": (
            "Whether the link is slower than expected (1) or not (0); absent where no speed is expected or known."
        ),
    },
    origins=origins.PORTS,
)
"""Rows are ports; keys of a PartialTable are `(port,)`."""

KIND = PORTS.metrics["info"].extra.index("kind")
"""Position of the kind among the label values of `info`."""

PRIORITIES = vocabulary.schema(
    PREFIX,
    ("switch", "port", "priority"),
    [f"{direction}_pfc_{what}_total" for what in ("frames", "paused_seconds") for direction in _DIRECTIONS],
    helps={
        "receive_pfc_frames_total": (
            "PFC frames (IEEE 802.1Qbb) received for the priority: the peer pauses this port (CISCO-PFC-EXT-MIB"
            " cpfcIfPriorityIndications)."
        ),
        "transmit_pfc_frames_total": (
            "PFC frames (IEEE 802.1Qbb) transmitted for the priority: this port pauses its peer (CISCO-PFC-EXT-MIB"
            " cpfcIfPriorityRequests)."
        ),
        "receive_pfc_paused_seconds_total": (
            "Seconds that IEEE 802.1Qbb PFC frames received paused transmission of the priority."
        ),
        "transmit_pfc_paused_seconds_total": (
            "Seconds that IEEE 802.1Qbb PFC frames transmitted paused the peer's transmission of the priority."
        ),
    },
    origins=origins.PRIORITIES,
    details=["receive_pfc_paused_ratio", "transmit_pfc_paused_ratio"],
)
"""Rows are the priorities of ports; keys are `(port, priority)`, the priority from 0 to 7."""

PACKET_SUMS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        f"{direction}_packets_total": tuple(
            f"{direction}_{cast}_packets_total" for cast in ("unicast", "multicast", "broadcast")
        )
        for direction in ("receive", "transmit")
    }
)
"""Packets of all kinds, where a switch counts unicast, multicast and broadcast packets only, as IF-MIB does."""

QUEUES = vocabulary.schema(
    PREFIX,
    ("switch", "port", "queue"),
    own={
        "queue_transmit_bytes_total": counter("Bytes transmitted from the egress queue."),
        "queue_transmit_packets_total": counter("Packets transmitted from the egress queue."),
        "queue_ecn_marked_packets_total": counter(
            "Packets of the egress queue with the ECN codepoint CE (RFC 3168) set by the switch."
        ),
        "queue_full_discards_total": counter("Packets discarded because the egress queue was full (tail drop)."),
        "queue_early_discards_total": counter("Packets discarded by WRED before the egress queue was full."),
        "queue_depth_bytes": gauge("Bytes in the egress queue at the last poll."),
        "queue_highest_depth_bytes": gauge(
            "Highest depth of the egress queue in bytes within a period that the switch sets."
        ),
        "queue_pfc_deadlocks_total": counter(
            "PFC deadlocks of the egress queue detected by the switch's PFC watchdog."
        ),
    },
    origins=origins.QUEUES,
    details=[
        "queue_transmit_bytes_total",
        "queue_transmit_packets_total",
        "queue_ecn_marked_packets_total",
        "queue_full_discards_total",
        "queue_early_discards_total",
        "queue_depth_bytes",
        "queue_highest_depth_bytes",
        "queue_pfc_deadlocks_total",
    ],
)
"""Rows are the egress queues (or traffic classes) of ports; keys are `(port, queue)`."""

PRIORITY_GROUPS = vocabulary.schema(
    PREFIX,
    ("switch", "port", "priority_group"),
    own={
        "priority_group_depth_bytes": gauge("Ingress buffer in use by the priority group, in bytes."),
        "priority_group_highest_depth_bytes": gauge(
            "Highest use of the ingress buffer by the priority group, in bytes, within a period that the switch sets."
        ),
        "priority_group_highest_headroom_bytes": gauge(
            "Highest use of the headroom, which holds what arrives after PFC frames are transmitted, in bytes, within a"
            " period that the switch sets."
        ),
        "priority_group_discards_total": counter(
            "Packets of the priority group discarded because the ingress buffer was full."
        ),
    },
    origins=origins.PRIORITY_GROUPS,
    details=[
        "priority_group_depth_bytes",
        "priority_group_highest_depth_bytes",
        "priority_group_highest_headroom_bytes",
        "priority_group_discards_total",
    ],
)
"""Rows are the ingress priority groups of ports; keys are `(port, priority_group)`."""

MODULES = vocabulary.schema(
    PREFIX,
    ("switch", "port"),
    own={
        "module_temperature_celsius": gauge("Temperature of the module in degrees Celsius."),
        "module_voltage_volts": gauge("Supply voltage of the module in volts, nominally 3.3."),
    },
    origins=origins.MODULES,
)
"""Rows are the optical modules and cables in ports; keys are `(port,)`. Only with `optics: true`."""

LANES = vocabulary.schema(
    PREFIX,
    ("switch", "port", "lane"),
    own={
        "module_lane_receive_power_watts": gauge("Received optical power of the lane in watts; 0 without light."),
        "module_lane_transmit_power_watts": gauge("Transmitted optical power of the lane in watts; 0 without light."),
        "module_lane_bias_amperes": gauge("Laser bias current of the lane in amperes; 0 while the laser is off."),
    },
    origins=origins.LANES,
)
"""Rows are the lanes of modules, numbered from 1; keys are `(port, lane)`. Only with `optics: true`."""

DEVICE = vocabulary.schema(
    PREFIX,
    ("switch",),
    own={
        "device_info": info(
            "Attributes of the switch: name of the target in the configuration, role in the fabric, SNMP profile,"
            " description, sysObjectID, model and software version.",
            "target",
            "role",
            "profile",
            "description",
            "object_id",
            "model",
            "version",
        ),
        "uptime_seconds": gauge("Seconds since the management of the switch started (SNMPv2-MIB sysUpTime)."),
        "refresh_seconds": gauge(
            "Seconds between refreshes of the switch's counters, observed or configured: use rates over at least four"
            " times as long."
        ),
        "unchanged_polls_total": counter("Polls that returned counters not refreshed since the poll before."),
    },
    origins=origins.DEVICE,
)
"""The only row is the switch."""

FAMILIES = vocabulary.schema(
    PREFIX,
    ("switch", "family"),
    own={
        "family_info": info(
            "Whether the switch counts a family of metrics: counted; not_counted, it has the counters but they are"
            " disabled; unsupported, it does not have them; failed, the request failed.",
            "state",
        )
    },
    origins={"family_info": ["responses of the switch"]},
)
"""Rows are families of metrics."""

TRAPS = vocabulary.schema(
    PREFIX,
    ("switch", "event"),
    own={"traps_total": counter("SNMP traps and informs accepted from the switch, by event.")},
    origins={"traps_total": ["SNMP traps and informs"]},
)
"""Rows are the events of switches."""

TRAPS_REFUSED = vocabulary.schema(
    PREFIX,
    ("reason",),
    own={
        "traps_refused_total": counter(
            "Datagrams refused at the trap port: unknown_sender, not the address of a target; too_large, above 4096"
            " bytes; malformed, not a valid notification; credentials, not those of the target; rate_limited, too many"
            " from one address; overload, too many from all together."
        )
    },
    origins={"traps_refused_total": ["SNMP traps and informs"]},
)
"""Rows are reasons."""

LINKS = vocabulary.schema(
    "fabric_link_",
    ("host", "device", "switch", "port", "peer", "peer_port"),
    own={
        "info": info(
            "The LLDP neighbour of a switch port or of a host device. peer is the label `switch` of a switch that is"
            " polled, else the system name that the neighbour sends; peer_port is the label of its port, or its port"
            " ID.",
            "peer_kind",
            "peer_mac",
            "peer_port_description",
        ),
        "peer_settings_info": info(
            "Settings that the LLDP neighbour of a host device announces by DCBX (IEEE 802.1Qaz), in the form of those"
            " of fabric_nic_settings_info: priorities with PFC, transmission selection of each traffic class and"
            " traffic class of each priority, whether it takes over those that the host announces (willing), the ETS"
            " that it recommends, and the application priorities: dscp as DSCP:priority, applications as"
            " protocol:number:priority. Labels are empty for what it does not announce.",
            "pfc",
            "pfc_willing",
            "ets",
            "priority_classes",
            "ets_willing",
            "recommended_ets",
            "recommended_priority_classes",
            "dscp",
            "applications",
        ),
        "peer_max_frame_bytes": gauge(
            "Longest frame that the LLDP neighbour of a host device supports, MAC header and FCS included: 18 bytes"
            " more than an MTU, 22 with a VLAN tag (IEEE 802.3 Maximum Frame Size TLV)."
        ),
    },
    origins={
        "peer_settings_info": ["LLDP TLVs 00-80-C2 9 to 12"],
        "peer_max_frame_bytes": ["LLDP TLV 00-12-0F 4"],
        "info": [
            "LLDP-MIB lldpRemTable",
            "LLDP-V2-MIB lldpV2RemTable",
            "SONiC: LLDP_ENTRY_TABLE",
            "OpenConfig: lldp neighbor",
            "systemd-networkd: netif/lldp",
            "LLDP frames",
        ],
    },
)
"""Rows are links, seen from one end; the labels of the other type of end are empty."""

POLLS = vocabulary.schema(
    PREFIX,
    ("switch", "target"),
    own={
        "up": gauge(
            "Whether the last poll of the switch succeeded (1) or failed (0); target is its name in the configuration,"
            " switch is the label of its ports."
        ),
        "poll_duration_seconds": gauge("Duration of the last poll of the switch, successful or not."),
        "overruns_total": counter(
            "Polls of the switch that were skipped because the previous poll was still in progress."
        ),
    },
)
"""The polls of a switch; these rows remain while it is down and its ports are not exported."""

SCHEMAS = (
    *(PORTS, PRIORITIES, QUEUES, PRIORITY_GROUPS, MODULES, LANES, DEVICE, FAMILIES, TRAPS, TRAPS_REFUSED, LINKS),
    *SETTINGS_SCHEMAS,
)
