"""What is exported of switches: their ports, by priority, queue and priority group, their modules, and themselves.

One switch tells more than another; what it does not tell has no series. Of queues and priority groups all is a detail,
since there are eight and more a port: the port's own row has their sums, and the deepest queue.
"""

from exporter.core import vocabulary
from exporter.core.vocabulary import counter, gauge, info

PREFIX = "fabric_switch_"

PORTS = vocabulary.schema(
    PREFIX,
    ("switch", "port"),
    [
        *(
            f"{way}_{what}_total"
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
            for way in ("receive", "transmit")
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
            "What the port is; target is the switch's name in the configuration.",
            "target",
            "ifindex",
            "alias",
            "if_type",
        ),
        "group_info": info(
            "What the port is compared with: the uplinks of its switch, or the ports that hosts are at.",
            "group",
        ),
        "admin_up": gauge("Whether the port is switched on by configuration (1) or not (0)."),
        "congestion_discards_total": counter(
            "Packets dropped for want of room in a queue, or early, before it was full: of all queues that tell."
        ),
        "deepest_queue_bytes": gauge("Bytes that wait in the fullest queue of the port."),
        "receive_pfc_all_priorities_frames_total": counter(
            "Priority flow control frames received, of all priorities: where the switch does not count them apart."
        ),
        "transmit_pfc_all_priorities_frames_total": counter(
            "Priority flow control frames transmitted, of all priorities: where the switch does not count them apart."
        ),
    },
    note="On the wire.",
    origins={
        "receive_bytes_total": [
            "IF-MIB ifHCInOctets",
            "Onyx: Rx bytes",
            "NVUE: link stats in-bytes",
            "SONiC: SAI_PORT_STAT_IF_IN_OCTETS",
            "OpenConfig: in-octets",
            "eAPI: inOctets",
            "NX-API: eth_inbytes",
        ],
        "transmit_bytes_total": [
            "IF-MIB ifHCOutOctets",
            "Onyx: Tx bytes",
            "NVUE: link stats out-bytes",
            "SONiC: SAI_PORT_STAT_IF_OUT_OCTETS",
            "OpenConfig: out-octets",
            "eAPI: outOctets",
            "NX-API: eth_outbytes",
        ],
        "receive_packets_total": [
            "IF-MIB ifHCInUcastPkts + ifHCInMulticastPkts + ifHCInBroadcastPkts",
            "Onyx: Rx packets",
            "NVUE: link stats in-pkts",
            "OpenConfig: in-pkts",
            "eAPI: inUcastPkts + inMulticastPkts + inBroadcastPkts",
            "NX-API: eth_inpkts",
        ],
        "transmit_packets_total": [
            "IF-MIB ifHCOutUcastPkts + ifHCOutMulticastPkts + ifHCOutBroadcastPkts",
            "Onyx: Tx packets",
            "NVUE: link stats out-pkts",
            "OpenConfig: out-pkts",
            "eAPI: outUcastPkts + outMulticastPkts + outBroadcastPkts",
            "NX-API: eth_outpkts",
        ],
        "receive_unicast_packets_total": [
            "IF-MIB ifHCInUcastPkts",
            "SONiC: SAI_PORT_STAT_IF_IN_UCAST_PKTS",
            "OpenConfig: in-unicast-pkts",
            "eAPI: inUcastPkts",
            "NX-API: eth_inucast",
        ],
        "transmit_unicast_packets_total": [
            "IF-MIB ifHCOutUcastPkts",
            "SONiC: SAI_PORT_STAT_IF_OUT_UCAST_PKTS",
            "OpenConfig: out-unicast-pkts",
            "eAPI: outUcastPkts",
            "NX-API: eth_outucast",
        ],
        "receive_multicast_packets_total": [
            "IF-MIB ifHCInMulticastPkts",
            "SONiC: SAI_PORT_STAT_IF_IN_MULTICAST_PKTS",
            "OpenConfig: in-multicast-pkts",
            "eAPI: inMulticastPkts",
            "NX-API: eth_inmcast",
        ],
        "transmit_multicast_packets_total": [
            "IF-MIB ifHCOutMulticastPkts",
            "SONiC: SAI_PORT_STAT_IF_OUT_MULTICAST_PKTS",
            "OpenConfig: out-multicast-pkts",
            "eAPI: outMulticastPkts",
            "NX-API: eth_outmcast",
        ],
        "receive_broadcast_packets_total": [
            "IF-MIB ifHCInBroadcastPkts",
            "SONiC: SAI_PORT_STAT_IF_IN_BROADCAST_PKTS",
            "OpenConfig: in-broadcast-pkts",
            "eAPI: inBroadcastPkts",
            "NX-API: eth_inbcast",
        ],
        "transmit_broadcast_packets_total": [
            "IF-MIB ifHCOutBroadcastPkts",
            "SONiC: SAI_PORT_STAT_IF_OUT_BROADCAST_PKTS",
            "OpenConfig: out-broadcast-pkts",
            "eAPI: outBroadcastPkts",
            "NX-API: eth_outbcast",
        ],
        "receive_errors_total": [
            "IF-MIB ifInErrors",
            "Onyx: Rx error packets",
            "NVUE: link stats in-errors",
            "SONiC: SAI_PORT_STAT_IF_IN_ERRORS",
            "OpenConfig: in-errors",
            "eAPI: totalInErrors",
            "NX-API: eth_inerr",
        ],
        "transmit_errors_total": [
            "IF-MIB ifOutErrors",
            "Onyx: Tx error packets",
            "NVUE: link stats out-errors",
            "SONiC: SAI_PORT_STAT_IF_OUT_ERRORS",
            "OpenConfig: out-errors",
            "eAPI: totalOutErrors",
            "NX-API: eth_outerr",
        ],
        "receive_discards_total": [
            "IF-MIB ifInDiscards",
            "Onyx: Rx discard packets",
            "NVUE: link stats in-drops",
            "SONiC: SAI_PORT_STAT_IF_IN_DISCARDS",
            "OpenConfig: in-discards",
            "eAPI: inDiscards",
            "NX-API: eth_indiscard",
        ],
        "transmit_discards_total": [
            "IF-MIB ifOutDiscards",
            "Onyx: Tx discard packets",
            "NVUE: link stats out-drops",
            "SONiC: SAI_PORT_STAT_IF_OUT_DISCARDS",
            "OpenConfig: out-discards",
            "eAPI: outDiscards",
            "NX-API: eth_outdiscard",
        ],
        "receive_pause_frames_total": [
            "EtherLike-MIB dot3HCInPauseFrames, dot3InPauseFrames",
            "MELLANOX-QOS-MIB mellanoxQoSPortRxPausePkts",
            "CUMULUS-COUNTERS-MIB clIntInPausePkt",
            "Onyx: Rx pause packets",
            "SONiC: SAI_PORT_STAT_PAUSE_RX_PKTS",
            "OpenConfig: in-mac-pause-frames",
            "eAPI: inputErrorsDetail rxPause",
            "NX-API: eth_inpause",
        ],
        "transmit_pause_frames_total": [
            "EtherLike-MIB dot3HCOutPauseFrames, dot3OutPauseFrames",
            "MELLANOX-QOS-MIB mellanoxQoSPortTxPausePkts",
            "CUMULUS-COUNTERS-MIB clIntOutPausePkt",
            "Onyx: Tx pause packets",
            "SONiC: SAI_PORT_STAT_PAUSE_TX_PKTS",
            "OpenConfig: out-mac-pause-frames",
            "eAPI: outputErrorsDetail txPause",
            "NX-API: eth_outpause",
        ],
        "fcs_errors_total": [
            "EtherLike-MIB dot3HCStatsFCSErrors, dot3StatsFCSErrors",
            "MELLANOX-IF-VPI-MIB mellanoxIfVPIFCSErrors",
            "Onyx: Rx FCS errors",
            "SONiC: SAI_PORT_STAT_ETHER_STATS_CRC_ALIGN_ERRORS",
            "OpenConfig: in-fcs-errors",
            "eAPI: inputErrorsDetail fcsErrors",
            "NX-API: eth_crc",
        ],
        "symbol_errors_total": [
            "EtherLike-MIB dot3HCStatsSymbolErrors, dot3StatsSymbolErrors",
            "MELLANOX-IF-VPI-MIB mellanoxIfVPISymbolErrorCounter",
            "Onyx: Rx symbol errors",
            "eAPI: inputErrorsDetail symbolErrors",
        ],
        "fec_corrected_blocks_total": ["SONiC: SAI_PORT_STAT_IF_IN_FEC_CORRECTABLE_FRAMES"],
        "fec_uncorrectable_blocks_total": ["SONiC: SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES"],
        "ecn_marked_packets_total": [
            "Onyx congestion-control: ECN marked packets",
            "sum of queues",
            "NVUE: port-stats ecn-marked-packets",
        ],
        "congestion_discards_total": [
            "sum of queues",
            "CUMULUS-COUNTERS-MIB clEgressQOverflowDiscards",
            "eAPI: counters queue, as text",
        ],
        "deepest_queue_bytes": ["most of queues"],
        "link_up": [
            "IF-MIB ifOperStatus",
            "Onyx: Operational state",
            "NVUE: link state",
            "SONiC: PORT_TABLE oper_status",
            "OpenConfig: oper-status",
            "eAPI: lineProtocolStatus",
            "NX-API: state",
        ],
        "receive_pfc_all_priorities_frames_total": [
            "IEEE8021-PFC-MIB ieee8021PfcIndications",
            "CISCO-PFC-EXT-MIB cpfcIfIndications",
            "eAPI: priority-flow-control counters rxFrames",
            "NX-API: priority-flow-control rx-stats",
        ],
        "transmit_pfc_all_priorities_frames_total": [
            "IEEE8021-PFC-MIB ieee8021PfcRequests",
            "CISCO-PFC-EXT-MIB cpfcIfRequests",
            "eAPI: priority-flow-control counters txFrames",
            "NX-API: priority-flow-control tx-stats",
        ],
        "link_speed_bytes_per_second": [
            "IF-MIB ifHighSpeed, ifSpeed",
            "Onyx: Speed",
            "NVUE: link speed",
            "SONiC: PORT_TABLE speed",
            "OpenConfig: port-speed",
            "eAPI: bandwidth",
            "NX-API: eth_speed, eth_bw",
        ],
        "group_info": ["configuration: uplinks", "neighbours by LLDP"],
        "admin_up": [
            "IF-MIB ifAdminStatus",
            "SONiC: PORT_TABLE admin_status",
            "OpenConfig: admin-status",
            "eAPI: interfaceStatus",
            "NX-API: admin_state",
        ],
        "info": [
            "IF-MIB ifName, ifAlias, ifType",
            "Onyx: Description",
            "NVUE: ifindex, description",
            "SONiC: PORT_TABLE description, alias",
            "OpenConfig: ifindex, description, type",
            "eAPI: description, hardware",
            "NX-API: desc",
        ],
    },
)
"""Rows are ports; keys of a Part are `(port,)`."""

PRIORITIES = vocabulary.schema(
    PREFIX,
    ("switch", "port", "priority"),
    [f"{way}_pfc_{what}_total" for what in ("frames", "paused_seconds") for way in ("receive", "transmit")],
    origins={
        "receive_pfc_frames_total": [
            "CISCO-PFC-EXT-MIB cpfcIfPriorityIndications",
            "ARISTA-PFC-MIB aristaPfcPriorityIndications",
            "MELLANOX-QOS-MIB mellanoxQoSPFCRxPausePkts",
            "CUMULUS-COUNTERS-MIB clIntInPfc0Pkt to clIntInPfc7Pkt",
            "Onyx counters pfc: Rx pause packets",
            "NVUE: pfc-stats rx-pause-frames",
            "SONiC: SAI_PORT_STAT_PFC_n_RX_PKTS",
            "eAPI: priority-flow-control counters detail rxFrames",
        ],
        "transmit_pfc_frames_total": [
            "CISCO-PFC-EXT-MIB cpfcIfPriorityRequests",
            "ARISTA-PFC-MIB aristaPfcPriorityRequests",
            "MELLANOX-QOS-MIB mellanoxQoSPFCTxPausePkts",
            "CUMULUS-COUNTERS-MIB clIntOutPfc0Pkt to clIntOutPfc7Pkt",
            "Onyx counters pfc: Tx pause packets",
            "NVUE: pfc-stats tx-pause-frames",
            "SONiC: SAI_PORT_STAT_PFC_n_TX_PKTS",
            "eAPI: priority-flow-control counters detail txFrames",
        ],
        "receive_pfc_paused_seconds_total": [
            "CISCO-PFC-EXT-MIB cpfcIfPriorityWaitRx",
            "MELLANOX-QOS-MIB mellanoxQoSPFCRxPauseDuration",
            "SONiC: SAI_PORT_STAT_PFC_n_RX_PAUSE_DURATION_US",
        ],
        "transmit_pfc_paused_seconds_total": [
            "CISCO-PFC-EXT-MIB cpfcIfPriorityWaitTx",
            "MELLANOX-QOS-MIB mellanoxQoSPFCTxPauseDuration",
            "SONiC: SAI_PORT_STAT_PFC_n_TX_PAUSE_DURATION_US",
        ],
    },
    details=["receive_pfc_paused_ratio", "transmit_pfc_paused_ratio"],
)
"""Rows are the priorities of ports; keys are `(port, priority)`, the priority from 0 to 7."""

QUEUES = vocabulary.schema(
    PREFIX,
    ("switch", "port", "queue"),
    own={
        "queue_transmit_bytes_total": counter("Bytes that left by the queue."),
        "queue_transmit_packets_total": counter("Packets that left by the queue."),
        "queue_ecn_marked_packets_total": counter("Packets with the congestion mark (ECN CE) set in the queue."),
        "queue_full_discards_total": counter("Packets dropped since the queue had no room."),
        "queue_early_discards_total": counter("Packets dropped early, before the queue was full (WRED)."),
        "queue_depth_bytes": gauge("Bytes that wait in the queue."),
        "queue_highest_depth_bytes": gauge(
            "Most bytes that waited in the queue, over a period that the switch chooses; then it begins anew."
        ),
        "queue_pfc_deadlocks_total": counter("Times the switch's watchdog found the queue paused without end."),
    },
    origins={
        "queue_highest_depth_bytes": ["SONiC: SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES"],
        "queue_depth_bytes": ["SONiC: SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES"],
        "queue_transmit_bytes_total": [
            "ARISTA-QUEUE-MIB aristaEgressQueueBytes",
            "CISCO-SWITCH-QOS-MIB csqIfQosGroupStatsValue 2",
            "MELLANOX-QOS-MIB mellanoxQoSTCBytes",
            "JUNIPER-COS-MIB jnxCosQstatTxedBytes",
            "NVUE: egress-queue-stats tx-bytes",
            "SONiC: SAI_QUEUE_STAT_BYTES",
            "DME: ipqosQueuingStats txBytes",
        ],
        "queue_transmit_packets_total": [
            "ARISTA-QUEUE-MIB aristaEgressQueuePkts",
            "CISCO-SWITCH-QOS-MIB csqIfQosGroupStatsValue 1",
            "MELLANOX-QOS-MIB mellanoxQoSTCPkts",
            "JUNIPER-COS-MIB jnxCosQstatTxedPkts",
            "NVUE: egress-queue-stats tx-frames",
            "SONiC: SAI_QUEUE_STAT_PACKETS",
            "DME: ipqosQueuingStats txPackets",
        ],
        "queue_ecn_marked_packets_total": [
            "ARISTA-QOS-MIB aristaEcnQueuePktsMarked",
            "NVUE: egress-queue-stats ecn-marked-frames",
            "SONiC: SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS",
            "eAPI: ecn counters queue",
            "DME: ipqosQueuingStats randEcnMarkedPackets",
        ],
        "queue_full_discards_total": [
            "ARISTA-QUEUE-MIB aristaEgressQueuePktsDropped",
            "CISCO-SWITCH-QOS-MIB csqIfQosGroupStatsValue 5",
            "MELLANOX-QOS-MIB mellanoxQoSTCUnicastNoBufferDiscard",
            "JUNIPER-COS-MIB jnxCosQstatTailDropPkts",
            "NVUE: egress-queue-stats tx-uc-buffer-discards",
            "SONiC: SAI_QUEUE_STAT_DROPPED_PACKETS",
            "eAPI: counters queue droppedPackets",
        ],
        "queue_early_discards_total": [
            "MELLANOX-QOS-MIB mellanoxQoSTCWREDDiscard",
            "JUNIPER-COS-MIB jnxCosQstatTotalRedDropPkts",
            "Onyx congestion-control: RED dropped packets",
            "NVUE: egress-queue-stats wred-discards",
            "SONiC: SAI_QUEUE_STAT_WRED_DROPPED_PACKETS",
        ],
        "queue_pfc_deadlocks_total": [
            "CISCO-PFC-EXT-MIB cpfcWatchdogIfQueueShutdowns",
            "SONiC: PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED",
        ],
    },
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
        "priority_group_depth_bytes": gauge("Bytes of the priority group that wait in the ingress buffer."),
        "priority_group_highest_depth_bytes": gauge(
            "Most bytes of the priority group that waited in the ingress buffer, over a period that the switch chooses."
        ),
        "priority_group_highest_headroom_bytes": gauge(
            "Most bytes of the headroom, which takes what arrives after a pause was sent, in use at a time, over a"
            " period that the switch chooses."
        ),
        "priority_group_discards_total": counter("Packets dropped since the ingress buffer had no room for them."),
    },
    origins={
        "priority_group_highest_headroom_bytes": ["SONiC: SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES"],
        "priority_group_highest_depth_bytes": ["SONiC: SAI_INGRESS_PRIORITY_GROUP_STAT_SHARED_WATERMARK_BYTES"],
        "priority_group_depth_bytes": ["SONiC: SAI_INGRESS_PRIORITY_GROUP_STAT_CURR_OCCUPANCY_BYTES"],
        "priority_group_discards_total": [
            "MELLANOX-QOS-MIB mellanoxQoSPGNoBufferDiscard",
            "NVUE: ingress-buffer-stats rx-buffer-discards",
            "SONiC: SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS",
        ],
    },
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
        "module_temperature_celsius": gauge("Temperature inside the module."),
        "module_voltage_volts": gauge("Supply voltage of the module, nominally 3.3."),
    },
    origins={
        "module_temperature_celsius": [
            "ENTITY-SENSOR-MIB, CISCO-ENTITY-SENSOR-MIB: sensors in degrees",
            "JUNIPER-DOM-MIB jnxDomCurrentModuleTemperature",
            "NVUE: transceiver temperature",
            "SONiC: TRANSCEIVER_DOM_SENSOR temperature",
            "eAPI: transceiver temperature",
        ],
        "module_voltage_volts": [
            "ENTITY-SENSOR-MIB, CISCO-ENTITY-SENSOR-MIB: sensors in volts",
            "JUNIPER-DOM-MIB jnxDomCurrentModuleVoltage",
            "NVUE: transceiver voltage",
            "SONiC: TRANSCEIVER_DOM_SENSOR voltage",
            "eAPI: transceiver voltage",
        ],
    },
)
"""Rows are the optical modules and cables in ports; keys are `(port,)`. Only where `optics` is switched on."""

LANES = vocabulary.schema(
    PREFIX,
    ("switch", "port", "lane"),
    own={
        "module_lane_receive_power_watts": gauge("Light that comes in on the lane; 0 where there is none."),
        "module_lane_transmit_power_watts": gauge("Light that goes out on the lane; 0 where there is none."),
        "module_lane_bias_amperes": gauge("Current of the lane's laser; 0 while it is off."),
    },
    origins={
        "module_lane_receive_power_watts": [
            "ENTITY-SENSOR-MIB, CISCO-ENTITY-SENSOR-MIB: sensors in watts or dBm named RX or receive",
            "JUNIPER-DOM-MIB jnxDomCurrentLaneRxLaserPower, jnxDomCurrentRxLaserPower",
            "NVUE: transceiver ch-N-rx-power",
            "SONiC: TRANSCEIVER_DOM_SENSOR rxNpower",
            "eAPI: transceiver rxPower",
        ],
        "module_lane_transmit_power_watts": [
            "ENTITY-SENSOR-MIB, CISCO-ENTITY-SENSOR-MIB: sensors in watts or dBm named TX or transmit",
            "JUNIPER-DOM-MIB jnxDomCurrentLaneTxLaserOutputPower, jnxDomCurrentTxLaserOutputPower",
            "NVUE: transceiver ch-N-tx-power",
            "SONiC: TRANSCEIVER_DOM_SENSOR txNpower",
            "eAPI: transceiver txPower",
        ],
        "module_lane_bias_amperes": [
            "ENTITY-SENSOR-MIB, CISCO-ENTITY-SENSOR-MIB: sensors in amperes",
            "JUNIPER-DOM-MIB jnxDomCurrentLaneTxLaserBiasCurrent, jnxDomCurrentTxLaserBiasCurrent",
            "NVUE: transceiver ch-N-tx-bias-current",
            "SONiC: TRANSCEIVER_DOM_SENSOR txNbias",
            "eAPI: transceiver txBias",
        ],
    },
)
"""Rows are the lanes of modules, the first is 1; keys are `(port, lane)`. Only where `optics` is switched on."""

DEVICE = vocabulary.schema(
    PREFIX,
    ("switch",),
    own={
        "device_info": info(
            "The switch in its own words; target is its name in the configuration, role is leaf, spine or the like.",
            "target",
            "role",
            "profile",
            "description",
            "object_id",
            "model",
            "version",
        ),
        "uptime_seconds": gauge("Time since the switch's management started."),
        "refresh_seconds": gauge(
            "Time between refreshes of the switch's counters, as seen or as it is configured: rates over less than four"
            " times it mean little."
        ),
        "unchanged_polls_total": counter("Polls that found the counters not refreshed since the one before."),
    },
    origins={
        "device_info": [
            "SNMPv2-MIB sysDescr, sysObjectID",
            "Onyx: show version, show lldp local",
            "NVUE: system",
            "SONiC: DEVICE_METADATA, LLDP_LOC_CHASSIS",
            "OpenConfig: system hostname",
        ],
        "uptime_seconds": ["SNMPv2-MIB sysUpTime", "NVUE: system"],
        "refresh_seconds": [
            "time stamps of the switch, or the times at which its counters moved",
            "SONiC: FLEX_COUNTER_TABLE POLL_INTERVAL, the longest",
        ],
        "unchanged_polls_total": ["time stamps of the switch, or the times at which its counters moved"],
    },
)
"""The one row is the switch."""

FAMILIES = vocabulary.schema(
    PREFIX,
    ("switch", "family"),
    own={
        "family_info": info(
            "Whether the switch counts a family of metrics: counted; not_counted, where it knows of it and says that it"
            " does not; unsupported; failed, where asking failed.",
            "state",
        )
    },
    origins={"family_info": ["what the switch answered"]},
)
"""Rows are families of metrics."""

TRAPS = vocabulary.schema(
    PREFIX,
    ("switch", "event"),
    own={"traps_total": counter("Traps and informs of the switch that were heeded, by what they tell of.")},
    origins={"traps_total": ["traps and informs of SNMP"]},
)
"""Rows are kinds of events of switches."""

TRAPS_REFUSED = vocabulary.schema(
    PREFIX,
    ("reason",),
    own={
        "traps_refused_total": counter(
            "Datagrams at the trap port that were not heeded: stranger, of no target; limited, too many from one"
            " address; junk, no SNMP; credentials, not those of the target."
        )
    },
    origins={"traps_refused_total": ["traps and informs of SNMP"]},
)
"""Rows are reasons."""

LINKS = vocabulary.schema(
    "fabric_link_",
    ("host", "device", "switch", "port", "peer", "peer_port"),
    own={
        "info": info(
            "Who is at the other end of a link, by LLDP: seen from a switch's port or a host's device. peer is a switch"
            " by its label `switch`, or a host or other device by its name; peer_port is its port by its label, or its"
            " MAC address.",
            "peer_kind",
            "peer_mac",
            "peer_port_description",
        )
    },
    origins={
        "info": [
            "LLDP-MIB lldpRemTable",
            "LLDP-V2-MIB lldpV2RemTable",
            "SONiC: LLDP_ENTRY_TABLE",
            "OpenConfig: lldp neighbor",
            "systemd-networkd: netif/lldp",
            "frames of LLDP",
        ]
    },
)
"""Rows are links, seen from one end; the labels of the other kind of end are empty."""

SCHEMAS = (PORTS, PRIORITIES, QUEUES, PRIORITY_GROUPS, MODULES, LANES, DEVICE, FAMILIES, TRAPS, TRAPS_REFUSED, LINKS)
