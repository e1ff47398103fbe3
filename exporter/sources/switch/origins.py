"""Origins of the switch metrics: for each, the objects of MIBs and the fields of APIs that it is read from.

A table of data, in the order of `metrics`; the documentation of metrics is generated from it.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

Origins: TypeAlias = Mapping[str, Sequence[str]]
"""By ending of the metric's name."""

PORTS: Final[Origins] = MappingProxyType(
    {
        "receive_bytes_total": (
            "IF-MIB ifHCInOctets",
            "Onyx: Rx bytes",
            "NVUE: link stats in-bytes",
            "SONiC: SAI_PORT_STAT_IF_IN_OCTETS",
            "OpenConfig: in-octets",
            "eAPI: inOctets",
            "NX-API: eth_inbytes",
        ),
        "transmit_bytes_total": (
            "IF-MIB ifHCOutOctets",
            "Onyx: Tx bytes",
            "NVUE: link stats out-bytes",
            "SONiC: SAI_PORT_STAT_IF_OUT_OCTETS",
            "OpenConfig: out-octets",
            "eAPI: outOctets",
            "NX-API: eth_outbytes",
        ),
        "receive_packets_total": (
            "IF-MIB ifHCInUcastPkts + ifHCInMulticastPkts + ifHCInBroadcastPkts",
            "Onyx: Rx packets",
            "NVUE: link stats in-pkts",
            "OpenConfig: in-pkts",
            "eAPI: inUcastPkts + inMulticastPkts + inBroadcastPkts",
            "NX-API: eth_inpkts",
        ),
        "transmit_packets_total": (
            "IF-MIB ifHCOutUcastPkts + ifHCOutMulticastPkts + ifHCOutBroadcastPkts",
            "Onyx: Tx packets",
            "NVUE: link stats out-pkts",
            "OpenConfig: out-pkts",
            "eAPI: outUcastPkts + outMulticastPkts + outBroadcastPkts",
            "NX-API: eth_outpkts",
        ),
        "receive_unicast_packets_total": (
            "IF-MIB ifHCInUcastPkts",
            "SONiC: SAI_PORT_STAT_IF_IN_UCAST_PKTS",
            "OpenConfig: in-unicast-pkts",
            "eAPI: inUcastPkts",
            "NX-API: eth_inucast",
        ),
        "transmit_unicast_packets_total": (
            "IF-MIB ifHCOutUcastPkts",
            "SONiC: SAI_PORT_STAT_IF_OUT_UCAST_PKTS",
            "OpenConfig: out-unicast-pkts",
            "eAPI: outUcastPkts",
            "NX-API: eth_outucast",
        ),
        "receive_multicast_packets_total": (
            "IF-MIB ifHCInMulticastPkts",
            "SONiC: SAI_PORT_STAT_IF_IN_MULTICAST_PKTS",
            "OpenConfig: in-multicast-pkts",
            "eAPI: inMulticastPkts",
            "NX-API: eth_inmcast",
        ),
        "transmit_multicast_packets_total": (
            "IF-MIB ifHCOutMulticastPkts",
            "SONiC: SAI_PORT_STAT_IF_OUT_MULTICAST_PKTS",
            "OpenConfig: out-multicast-pkts",
            "eAPI: outMulticastPkts",
            "NX-API: eth_outmcast",
        ),
        "receive_broadcast_packets_total": (
            "IF-MIB ifHCInBroadcastPkts",
            "SONiC: SAI_PORT_STAT_IF_IN_BROADCAST_PKTS",
            "OpenConfig: in-broadcast-pkts",
            "eAPI: inBroadcastPkts",
            "NX-API: eth_inbcast",
        ),
        "transmit_broadcast_packets_total": (
            "IF-MIB ifHCOutBroadcastPkts",
            "SONiC: SAI_PORT_STAT_IF_OUT_BROADCAST_PKTS",
            "OpenConfig: out-broadcast-pkts",
            "eAPI: outBroadcastPkts",
            "NX-API: eth_outbcast",
        ),
        "receive_errors_total": (
            "IF-MIB ifInErrors",
            "Onyx: Rx error packets",
            "NVUE: link stats in-errors",
            "SONiC: SAI_PORT_STAT_IF_IN_ERRORS",
            "OpenConfig: in-errors",
            "eAPI: totalInErrors",
            "NX-API: eth_inerr",
        ),
        "transmit_errors_total": (
            "IF-MIB ifOutErrors",
            "Onyx: Tx error packets",
            "NVUE: link stats out-errors",
            "SONiC: SAI_PORT_STAT_IF_OUT_ERRORS",
            "OpenConfig: out-errors",
            "eAPI: totalOutErrors",
            "NX-API: eth_outerr",
        ),
        "receive_discards_total": (
            "IF-MIB ifInDiscards",
            "Onyx: Rx discard packets",
            "NVUE: link stats in-drops",
            "SONiC: SAI_PORT_STAT_IF_IN_DISCARDS",
            "OpenConfig: in-discards",
            "eAPI: inDiscards",
            "NX-API: eth_indiscard",
        ),
        "transmit_discards_total": (
            "IF-MIB ifOutDiscards",
            "Onyx: Tx discard packets",
            "NVUE: link stats out-drops",
            "SONiC: SAI_PORT_STAT_IF_OUT_DISCARDS",
            "OpenConfig: out-discards",
            "eAPI: outDiscards",
            "NX-API: eth_outdiscard",
        ),
        "receive_pause_frames_total": (
            "EtherLike-MIB dot3HCInPauseFrames, dot3InPauseFrames",
            "MELLANOX-QOS-MIB mellanoxQoSPortRxPausePkts",
            "CUMULUS-COUNTERS-MIB clIntInPausePkt",
            "Onyx: Rx pause packets",
            "SONiC: SAI_PORT_STAT_PAUSE_RX_PKTS",
            "OpenConfig: in-mac-pause-frames",
            "eAPI: inputErrorsDetail rxPause",
            "NX-API: eth_inpause",
        ),
        "transmit_pause_frames_total": (
            "EtherLike-MIB dot3HCOutPauseFrames, dot3OutPauseFrames",
            "MELLANOX-QOS-MIB mellanoxQoSPortTxPausePkts",
            "CUMULUS-COUNTERS-MIB clIntOutPausePkt",
            "Onyx: Tx pause packets",
            "SONiC: SAI_PORT_STAT_PAUSE_TX_PKTS",
            "OpenConfig: out-mac-pause-frames",
            "eAPI: outputErrorsDetail txPause",
            "NX-API: eth_outpause",
        ),
        "fcs_errors_total": (
            "EtherLike-MIB dot3HCStatsFCSErrors, dot3StatsFCSErrors",
            "MELLANOX-IF-VPI-MIB mellanoxIfVPIFCSErrors",
            "Onyx: Rx FCS errors",
            "SONiC: SAI_PORT_STAT_ETHER_STATS_CRC_ALIGN_ERRORS",
            "OpenConfig: in-fcs-errors",
            "eAPI: inputErrorsDetail fcsErrors",
            "NX-API: eth_crc",
        ),
        "symbol_errors_total": (
            "EtherLike-MIB dot3HCStatsSymbolErrors, dot3StatsSymbolErrors",
            "MELLANOX-IF-VPI-MIB mellanoxIfVPISymbolErrorCounter",
            "Onyx: Rx symbol errors",
            "eAPI: inputErrorsDetail symbolErrors",
        ),
        "fec_corrected_blocks_total": ("SONiC: SAI_PORT_STAT_IF_IN_FEC_CORRECTABLE_FRAMES",),
        "fec_uncorrectable_blocks_total": ("SONiC: SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES",),
        "ecn_marked_packets_total": (
            "Onyx congestion-control: ECN marked packets",
            "sum over queues",
            "NVUE: port-stats ecn-marked-packets",
        ),
        "congestion_discards_total": (
            "sum over queues",
            "CUMULUS-COUNTERS-MIB clEgressQOverflowDiscards",
            "eAPI: counters queue, as text",
        ),
        "deepest_queue_bytes": ("maximum over queues",),
        "link_up": (
            "IF-MIB ifOperStatus",
            "Onyx: Operational state",
            "NVUE: link state",
            "SONiC: PORT_TABLE oper_status",
            "OpenConfig: oper-status",
            "eAPI: lineProtocolStatus",
            "NX-API: state",
        ),
        "receive_pfc_all_priorities_frames_total": (
            "IEEE8021-PFC-MIB ieee8021PfcIndications",
            "CISCO-PFC-EXT-MIB cpfcIfIndications",
            "eAPI: priority-flow-control counters rxFrames",
            "NX-API: priority-flow-control rx-stats",
        ),
        "transmit_pfc_all_priorities_frames_total": (
            "IEEE8021-PFC-MIB ieee8021PfcRequests",
            "CISCO-PFC-EXT-MIB cpfcIfRequests",
            "eAPI: priority-flow-control counters txFrames",
            "NX-API: priority-flow-control tx-stats",
        ),
        "link_speed_bytes_per_second": (
            "IF-MIB ifHighSpeed, ifSpeed",
            "Onyx: Speed",
            "NVUE: link speed",
            "SONiC: PORT_TABLE speed",
            "OpenConfig: port-speed",
            "eAPI: bandwidth",
            "NX-API: eth_speed, eth_bw",
        ),
        "group_info": ("configuration: uplinks", "neighbours by LLDP"),
        "link_changed_uptime_seconds": ("IF-MIB ifLastChange",),
        "admin_up": (
            "IF-MIB ifAdminStatus",
            "SONiC: PORT_TABLE admin_status",
            "OpenConfig: admin-status",
            "eAPI: interfaceStatus",
            "NX-API: admin_state",
        ),
        "info": (
            "IF-MIB ifName, ifAlias, ifType, ifConnectorPresent, ifStackTable",
            "IEEE8023-LAG-MIB dot3adAggPortAttachedAggID",
            "Onyx: Description",
            "NVUE: ifindex, description",
            "SONiC: PORT_TABLE description, alias",
            "OpenConfig: ifindex, description, type",
            "eAPI: description, hardware",
            "NX-API: desc",
        ),
    }
)

PRIORITIES: Final[Origins] = MappingProxyType(
    {
        "receive_pfc_frames_total": (
            "CISCO-PFC-EXT-MIB cpfcIfPriorityIndications",
            "ARISTA-PFC-MIB aristaPfcPriorityIndications",
            "MELLANOX-QOS-MIB mellanoxQoSPFCRxPausePkts",
            "CUMULUS-COUNTERS-MIB clIntInPfc0Pkt to clIntInPfc7Pkt",
            "Onyx counters pfc: Rx pause packets",
            "NVUE: pfc-stats rx-pause-frames",
            "SONiC: SAI_PORT_STAT_PFC_n_RX_PKTS",
            "eAPI: priority-flow-control counters detail rxFrames",
        ),
        "transmit_pfc_frames_total": (
            "CISCO-PFC-EXT-MIB cpfcIfPriorityRequests",
            "ARISTA-PFC-MIB aristaPfcPriorityRequests",
            "MELLANOX-QOS-MIB mellanoxQoSPFCTxPausePkts",
            "CUMULUS-COUNTERS-MIB clIntOutPfc0Pkt to clIntOutPfc7Pkt",
            "Onyx counters pfc: Tx pause packets",
            "NVUE: pfc-stats tx-pause-frames",
            "SONiC: SAI_PORT_STAT_PFC_n_TX_PKTS",
            "eAPI: priority-flow-control counters detail txFrames",
        ),
        "receive_pfc_paused_seconds_total": (
            "CISCO-PFC-EXT-MIB cpfcIfPriorityWaitRx",
            "MELLANOX-QOS-MIB mellanoxQoSPFCRxPauseDuration",
            "SONiC: SAI_PORT_STAT_PFC_n_RX_PAUSE_DURATION_US",
        ),
        "transmit_pfc_paused_seconds_total": (
            "CISCO-PFC-EXT-MIB cpfcIfPriorityWaitTx",
            "MELLANOX-QOS-MIB mellanoxQoSPFCTxPauseDuration",
            "SONiC: SAI_PORT_STAT_PFC_n_TX_PAUSE_DURATION_US",
        ),
    }
)

QUEUES: Final[Origins] = MappingProxyType(
    {
        "queue_highest_depth_bytes": ("SONiC: SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES",),
        "queue_depth_bytes": ("SONiC: SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES",),
        "queue_transmit_bytes_total": (
            "ARISTA-QUEUE-MIB aristaEgressQueueBytes",
            "CISCO-SWITCH-QOS-MIB csqIfQosGroupStatsValue 2",
            "MELLANOX-QOS-MIB mellanoxQoSTCBytes",
            "JUNIPER-COS-MIB jnxCosQstatTxedBytes",
            "NVUE: egress-queue-stats tx-bytes",
            "SONiC: SAI_QUEUE_STAT_BYTES",
            "DME: ipqosQueuingStats txBytes",
        ),
        "queue_transmit_packets_total": (
            "ARISTA-QUEUE-MIB aristaEgressQueuePkts",
            "CISCO-SWITCH-QOS-MIB csqIfQosGroupStatsValue 1",
            "MELLANOX-QOS-MIB mellanoxQoSTCPkts",
            "JUNIPER-COS-MIB jnxCosQstatTxedPkts",
            "NVUE: egress-queue-stats tx-frames",
            "SONiC: SAI_QUEUE_STAT_PACKETS",
            "DME: ipqosQueuingStats txPackets",
        ),
        "queue_ecn_marked_packets_total": (
            "ARISTA-QOS-MIB aristaEcnQueuePktsMarked",
            "NVUE: egress-queue-stats ecn-marked-frames",
            "SONiC: SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS",
            "eAPI: ecn counters queue",
            "DME: ipqosQueuingStats randEcnMarkedPackets",
        ),
        "queue_full_discards_total": (
            "ARISTA-QUEUE-MIB aristaEgressQueuePktsDropped",
            "CISCO-SWITCH-QOS-MIB csqIfQosGroupStatsValue 5",
            "MELLANOX-QOS-MIB mellanoxQoSTCUnicastNoBufferDiscard",
            "JUNIPER-COS-MIB jnxCosQstatTailDropPkts",
            "NVUE: egress-queue-stats tx-uc-buffer-discards",
            "SONiC: SAI_QUEUE_STAT_DROPPED_PACKETS",
            "eAPI: counters queue droppedPackets",
        ),
        "queue_early_discards_total": (
            "MELLANOX-QOS-MIB mellanoxQoSTCWREDDiscard",
            "JUNIPER-COS-MIB jnxCosQstatTotalRedDropPkts",
            "Onyx congestion-control: RED dropped packets",
            "NVUE: egress-queue-stats wred-discards",
            "SONiC: SAI_QUEUE_STAT_WRED_DROPPED_PACKETS",
        ),
        "queue_pfc_deadlocks_total": (
            "CISCO-PFC-EXT-MIB cpfcWatchdogIfQueueShutdowns",
            "SONiC: PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED",
        ),
    }
)

PRIORITY_GROUPS: Final[Origins] = MappingProxyType(
    {
        "priority_group_highest_headroom_bytes": ("SONiC: SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES",),
        "priority_group_highest_depth_bytes": ("SONiC: SAI_INGRESS_PRIORITY_GROUP_STAT_SHARED_WATERMARK_BYTES",),
        "priority_group_depth_bytes": ("SONiC: SAI_INGRESS_PRIORITY_GROUP_STAT_CURR_OCCUPANCY_BYTES",),
        "priority_group_discards_total": (
            "MELLANOX-QOS-MIB mellanoxQoSPGNoBufferDiscard",
            "NVUE: ingress-buffer-stats rx-buffer-discards",
            "SONiC: SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS",
        ),
    }
)

MODULES: Final[Origins] = MappingProxyType(
    {
        "module_temperature_celsius": (
            "ENTITY-SENSOR-MIB, CISCO-ENTITY-SENSOR-MIB: sensors in degrees",
            "JUNIPER-DOM-MIB jnxDomCurrentModuleTemperature",
            "NVUE: transceiver temperature",
            "SONiC: TRANSCEIVER_DOM_SENSOR temperature",
            "eAPI: transceiver temperature",
        ),
        "module_voltage_volts": (
            "ENTITY-SENSOR-MIB, CISCO-ENTITY-SENSOR-MIB: sensors in volts",
            "JUNIPER-DOM-MIB jnxDomCurrentModuleVoltage",
            "NVUE: transceiver voltage",
            "SONiC: TRANSCEIVER_DOM_SENSOR voltage",
            "eAPI: transceiver voltage",
        ),
    }
)

LANES: Final[Origins] = MappingProxyType(
    {
        "module_lane_receive_power_watts": (
            "ENTITY-SENSOR-MIB, CISCO-ENTITY-SENSOR-MIB: sensors in watts or dBm named RX or receive",
            "JUNIPER-DOM-MIB jnxDomCurrentLaneRxLaserPower, jnxDomCurrentRxLaserPower",
            "NVUE: transceiver ch-N-rx-power",
            "SONiC: TRANSCEIVER_DOM_SENSOR rxNpower",
            "eAPI: transceiver rxPower",
        ),
        "module_lane_transmit_power_watts": (
            "ENTITY-SENSOR-MIB, CISCO-ENTITY-SENSOR-MIB: sensors in watts or dBm named TX or transmit",
            "JUNIPER-DOM-MIB jnxDomCurrentLaneTxLaserOutputPower, jnxDomCurrentTxLaserOutputPower",
            "NVUE: transceiver ch-N-tx-power",
            "SONiC: TRANSCEIVER_DOM_SENSOR txNpower",
            "eAPI: transceiver txPower",
        ),
        "module_lane_bias_amperes": (
            "ENTITY-SENSOR-MIB, CISCO-ENTITY-SENSOR-MIB: sensors in amperes",
            "JUNIPER-DOM-MIB jnxDomCurrentLaneTxLaserBiasCurrent, jnxDomCurrentTxLaserBiasCurrent",
            "NVUE: transceiver ch-N-tx-bias-current",
            "SONiC: TRANSCEIVER_DOM_SENSOR txNbias",
            "eAPI: transceiver txBias",
        ),
    }
)

DEVICE: Final[Origins] = MappingProxyType(
    {
        "device_info": (
            "SNMPv2-MIB sysDescr, sysObjectID",
            "Onyx: show version, show lldp local",
            "NVUE: system",
            "SONiC: DEVICE_METADATA, LLDP_LOC_CHASSIS",
            "OpenConfig: system hostname",
        ),
        "uptime_seconds": ("SNMPv2-MIB sysUpTime", "Onyx: show version", "NVUE: system", "eAPI, NX-API: show version"),
        "refresh_seconds": (
            "time stamps of the switch, or the times at which its counters moved",
            "SONiC: FLEX_COUNTER_TABLE POLL_INTERVAL, the longest",
        ),
        "unchanged_polls_total": ("time stamps of the switch, or the times at which its counters moved",),
    }
)
