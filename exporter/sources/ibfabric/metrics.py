"""Metrics of an InfiniBand fabric, with the IBTA attributes and fields that they are read from.

Long because it is one table.
"""

from dataclasses import dataclass
from types import MappingProxyType

from exporter.core import vocabulary
from exporter.core.vocabulary import counter, gauge, info
from exporter.linux.mad.performance import DISCARD_DETAILS, RECEIVE_ERROR_DETAILS

PREFIX = "fabric_ib_"

_PORT_COUNTERS = "PortCounters"
_EXTENDED = "PortCountersExtended"


@dataclass(frozen=True, slots=True)
class _PortCounter:
    """A counter of a port: ending of its metric, its field in the specification, and its help without the field."""

    ending: str
    field: str
    text: str


_ERROR_COUNTERS = MappingProxyType(
    {
        "symbol_errors": _PortCounter(
            "symbol_errors_total", "SymbolErrorCounter", "Symbol errors detected on one or more lanes"
        ),
        "link_error_recovery": _PortCounter(
            "link_error_recovery_total",
            "LinkErrorRecoveryCounter",
            "Successful completions of the link error recovery process",
        ),
        "link_down": _PortCounter(
            "link_down_total",
            "LinkDownedCounter",
            "Failures of the link error recovery process, after which the link went down",
        ),
        "receive_errors": _PortCounter(
            "receive_errors_total",
            "PortRcvErrors",
            "Packets received with an error: local physical errors, malformed packets, buffer overruns",
        ),
        "receive_remote_physical_errors": _PortCounter(
            "receive_remote_physical_errors_total",
            "PortRcvRemotePhysicalErrors",
            "Packets received with the EBP delimiter, by which an earlier port on the path marked them as bad",
        ),
        "receive_switch_relay_errors": _PortCounter(
            "receive_switch_relay_errors_total",
            "PortRcvSwitchRelayErrors",
            "Packets received and discarded because the switch could not forward them",
        ),
        "transmit_discards": _PortCounter(
            "transmit_discards_total",
            "PortXmitDiscards",
            "Outbound packets discarded because the port was down or congested",
        ),
        "transmit_constraint_errors": _PortCounter(
            "transmit_constraint_errors_total",
            "PortXmitConstraintErrors",
            "Packets not transmitted from the switch port because of partition or raw-packet filtering",
        ),
        "receive_constraint_errors": _PortCounter(
            "receive_constraint_errors_total",
            "PortRcvConstraintErrors",
            "Packets received and discarded by the switch port because of partition or raw-packet filtering",
        ),
        "local_link_integrity_errors": _PortCounter(
            "local_link_integrity_errors_total",
            "LocalLinkIntegrityErrors",
            "Times that the count of local physical errors exceeded LocalPhyErrors",
        ),
        "excessive_buffer_overrun_errors": _PortCounter(
            "excessive_buffer_overrun_errors_total",
            "ExcessiveBufferOverrunErrors",
            "Times that OverrunErrors consecutive flow control update periods each had a buffer overrun",
        ),
        "vl15_dropped": _PortCounter(
            "vl15_dropped_total",
            "VL15Dropped",
            "Incoming VL15 (subnet management) packets dropped for lack of buffers",
        ),
        "transmit_wait": _PortCounter(
            "transmit_wait_ticks_total",
            "PortXmitWait",
            "Ticks during which the port had data to transmit and transmitted none, because it had no flow control"
            " credits or did not win arbitration; the length of a tick depends on the device",
        ),
    }
)
"""Error counters by their name in the codec."""

_BYTES_TEXT = "on all virtual lanes, link packets excluded, in bytes; the field counts octets divided by 4"

_TRAFFIC_COUNTERS = MappingProxyType(
    {
        "transmit_words": _PortCounter(
            "transmit_bytes_total", "PortXmitData", f"Data octets transmitted {_BYTES_TEXT}"
        ),
        "receive_words": _PortCounter("receive_bytes_total", "PortRcvData", f"Data octets received {_BYTES_TEXT}"),
        "transmit_packets": _PortCounter(
            "transmit_packets_total", "PortXmitPkts", "Packets transmitted on all virtual lanes, link packets excluded"
        ),
        "receive_packets": _PortCounter(
            "receive_packets_total", "PortRcvPkts", "Packets received on all virtual lanes, link packets excluded"
        ),
        "transmit_unicast_packets": _PortCounter(
            "transmit_unicast_packets_total", "PortUnicastXmitPkts", "Unicast packets transmitted"
        ),
        "receive_unicast_packets": _PortCounter(
            "receive_unicast_packets_total", "PortUnicastRcvPkts", "Unicast packets received"
        ),
        "transmit_multicast_packets": _PortCounter(
            "transmit_multicast_packets_total", "PortMulticastXmitPkts", "Multicast packets transmitted"
        ),
        "receive_multicast_packets": _PortCounter(
            "receive_multicast_packets_total", "PortMulticastRcvPkts", "Multicast packets received"
        ),
    }
)
"""Traffic counters by their name in the codec."""

ERROR_ENDINGS = MappingProxyType({name: one.ending for name, one in _ERROR_COUNTERS.items()})
TRAFFIC_ENDINGS = MappingProxyType({name: one.ending for name, one in _TRAFFIC_COUNTERS.items()})
"""Endings of counters by their name in the codec."""

_RECEIVE_ERROR_DETAIL_FIELDS = MappingProxyType(
    {
        "local_physical_errors": (
            "PortLocalPhysicalErrors",
            "Packets received with a physical error of this link, such as a CRC error",
        ),
        "malformed_packet_errors": ("PortMalformedPacketErrors", "Packets received with a malformed header or length"),
        "buffer_overrun_errors": (
            "PortBufferOverrunErrors",
            "Packets received and discarded because of a buffer overrun",
        ),
        "dlid_mapping_errors": (
            "PortDLIDMappingErrors",
            "Packets received and discarded because their DLID has no egress port in the forwarding table",
        ),
        "vl_mapping_errors": (
            "PortVLMappingErrors",
            "Packets received and discarded because their virtual lane does not exist at the egress port",
        ),
        "looping_errors": (
            "PortLoopingErrors",
            "Packets received and discarded because the egress port is the ingress port",
        ),
    }
)
_DISCARD_DETAIL_FIELDS = MappingProxyType(
    {
        "inactive_discards": ("PortInactiveDiscards", "Outbound packets discarded because the port was not active"),
        "neighbor_mtu_discards": (
            "PortNeighborMTUDiscards",
            "Outbound packets discarded because they exceeded the MTU of the neighbor",
        ),
        "lifetime_limit_discards": (
            "PortSwLifetimeLimitDiscards",
            "Outbound packets discarded because they exceeded the switch lifetime limit",
        ),
        "hoq_lifetime_limit_discards": (
            "PortSwHOQLifetimeLimitDiscards",
            "Outbound packets discarded because they exceeded the head-of-queue lifetime limit",
        ),
    }
)

RECEIVE_ERROR_DETAIL_ENDINGS = tuple(f"receive_{name}_total" for name in RECEIVE_ERROR_DETAILS)
DISCARD_DETAIL_ENDINGS = tuple(f"transmit_{name}_total" for name in DISCARD_DETAILS)
FEC_ENDINGS = ("fec_corrected_blocks_total", "fec_uncorrectable_blocks_total")

_DETAILS = MappingProxyType(
    {
        **{
            f"receive_{name}_total": ("PortRcvErrorDetails", *_RECEIVE_ERROR_DETAIL_FIELDS[name])
            for name in RECEIVE_ERROR_DETAILS
        },
        **{
            f"transmit_{name}_total": ("PortXmitDiscardDetails", *_DISCARD_DETAIL_FIELDS[name])
            for name in DISCARD_DETAILS
        },
    }
)
"""Attribute, field and help of the detail counters, by ending."""

_FEC = MappingProxyType(
    {
        "fec_corrected_blocks_total": (
            "FECCorrectableBlockCtrLane",
            "PortFECCorrectableBlockCtr",
            "FEC blocks received with errors that were corrected",
        ),
        "fec_uncorrectable_blocks_total": (
            "FECUncorrectableBlockCtrLane",
            "PortFECUncorrectableBlockCtr",
            "FEC blocks received with errors that could not be corrected",
        ),
    }
)
"""Field per lane, field per port (RS-FEC) and help, by ending."""

_SHARED_COUNTERS = (*_TRAFFIC_COUNTERS.values(), *_ERROR_COUNTERS.values())


def _attributes(one: _PortCounter) -> tuple[str, ...]:
    """Return the attributes that have a counter; unicast and multicast packets are in PortCountersExtended only."""
    return (_EXTENDED,) if "cast" in one.ending else (_EXTENDED, _PORT_COUNTERS)


PORTS = vocabulary.schema(
    PREFIX,
    ("guid", "port"),
    [
        *(one.ending for one in _SHARED_COUNTERS),
        *FEC_ENDINGS,
        "link_up",
        "link_speed_bytes_per_second",
        "link_degraded",
        "resets_total",
    ],
    {
        "link_expected_speed_bytes_per_second": gauge(
            "Highest link speed that the ports at both ends support, in bytes per second; absent while the peer is"
            " not known."
        ),
        "link_lanes": gauge("Active lanes of the link (PortInfo LinkWidthActive); absent while it is not active."),
        "port_state": gauge(
            "Logical state (PortInfo PortState): 0 no state change, 1 down, 2 initialize, 3 armed, 4 active, 5 active"
            " defer."
        ),
        "port_physical_state": gauge(
            "Physical state (PortInfo PortPhysicalState): 1 sleep, 2 polling, 3 disabled, 4 port configuration"
            " training, 5 link up, 6 link error recovery, 7 phy test."
        ),
        "port_responding": gauge(
            "Whether the performance management agent responded to the last request for the port's counters (1) or"
            " not (0); absent for ports whose link is down."
        ),
        "link_info": info(
            "Peer of the port; peer is the NodeDescription of its node. An empty peer_guid: the link is up and the"
            " node at its other end did not respond.",
            "peer_guid",
            "peer_port",
            "peer",
            "width",
            "generation",
        ),
        "group_info": info(
            "What a switch port is linked to: a switch of a higher (uplink), lower (downlink) or the same level"
            " (peer), or an adapter (host).",
            "group",
        ),
        **{ending: counter(f"{text} ({attribute} {field}).") for ending, (attribute, field, text) in _DETAILS.items()},
    },
    helps={
        **{one.ending: f"{one.text} (IBTA {_attributes(one)[-1]} {one.field})." for one in _SHARED_COUNTERS},
        **{
            ending: f"{text} (IBTA PortExtendedSpeedsCounters {per_port}, or the sum of {per_lane}0 to 11)."
            for ending, (per_lane, per_port, text) in _FEC.items()
        },
        "link_up": "Whether the link is active (1) or not (0), from PortInfo PortState.",
        "link_speed_bytes_per_second": "Active speed of the link, of all its lanes, in bytes per second; absent while"
        " it is not active.",
    },
    origins={
        **{one.ending: [f"{attribute} {one.field}" for attribute in _attributes(one)] for one in _SHARED_COUNTERS},
        **{
            ending: [f"PortExtendedSpeedsCounters {field}" for field in (per_port, per_lane)]
            for ending, (per_lane, per_port, _) in _FEC.items()
        },
        **{ending: [f"{attribute} {field}"] for ending, (attribute, field, _) in _DETAILS.items()},
        "link_up": ["PortInfo PortState"],
        "port_state": ["PortInfo PortState"],
        "port_physical_state": ["PortInfo PortPhysicalState"],
        "link_lanes": ["PortInfo LinkWidthActive"],
        "link_speed_bytes_per_second": [
            "PortInfo LinkSpeedActive",
            "PortInfo LinkSpeedExtActive",
            "PortInfo LinkWidthActive",
        ],
        "link_expected_speed_bytes_per_second": [
            "PortInfo LinkSpeedSupported",
            "PortInfo LinkSpeedExtSupported",
            "PortInfo LinkWidthSupported",
        ],
        "link_info": ["NodeInfo", "NodeDescription"],
        "group_info": ["NodeInfo"],
        "port_responding": [_EXTENDED, _PORT_COUNTERS],
    },
    details=(
        *(ending for ending in TRAFFIC_ENDINGS.values() if "cast" in ending),
        "receive_constraint_errors_total",
        "transmit_constraint_errors_total",
        "vl15_dropped_total",
        "port_physical_state",
        *RECEIVE_ERROR_DETAIL_ENDINGS,
        *DISCARD_DETAIL_ENDINGS,
    ),
)
"""Ports of the nodes of a fabric."""

NODES = vocabulary.schema(
    PREFIX,
    ("guid",),
    own={
        "node_info": info(
            "Properties of the node: node_name is its NodeDescription; host and device are parsed from that of an"
            " adapter.",
            "node_name",
            "node_kind",
            "host",
            "device",
            "system_guid",
            "vendor_id",
            "device_id",
            "role",
        ),
        "node_up": gauge(
            "Whether the node is reachable (1), or was reachable within the last hour and is not any more (0)."
        ),
        "node_ports": gauge("Physical ports of the node (NodeInfo NumPorts)."),
    },
    origins={
        "node_info": ["NodeInfo", "NodeDescription"],
        "node_up": ["NodeInfo"],
        "node_ports": ["NodeInfo NumPorts"],
    },
)
"""Nodes: switches, adapters, and the aggregation nodes inside switches."""

MANAGERS = vocabulary.schema(
    PREFIX,
    ("guid", "port"),
    own={
        "sm_state": gauge(
            "State of the subnet manager at the port (SMInfo SMState): 0 not active, 1 discovering, 2 standby,"
            " 3 master."
        ),
        "sm_priority": gauge(
            "Priority of the subnet manager (SMInfo Priority), from 0 to 15; the highest becomes master."
        ),
        "sm_activity_total": counter(
            "Activity counter of the subnet manager (SMInfo ActCount), which increments while it is alive."
        ),
    },
    origins={
        "sm_state": ["SMInfo SMState"],
        "sm_priority": ["SMInfo Priority"],
        "sm_activity_total": ["SMInfo ActCount"],
    },
)
"""Subnet managers, by their ports."""

SERVICE_LEVELS = vocabulary.schema(
    PREFIX,
    ("guid", "port", "sl"),
    own={
        "transmit_service_level_bytes_total": counter(
            "Data octets transmitted at the service level, in bytes (IBTA PortXmitDataSL)."
        ),
        "receive_service_level_bytes_total": counter(
            "Data octets received at the service level, in bytes (IBTA PortRcvDataSL)."
        ),
    },
    origins={
        "transmit_service_level_bytes_total": ["PortXmitDataSL"],
        "receive_service_level_bytes_total": ["PortRcvDataSL"],
    },
)
"""Traffic by service level, where it is enabled."""

SWEEPS = vocabulary.schema(
    "fabric_ib_sweep_",
    ("local_port",),
    own={
        "info": info(
            "State of the sweeps from the local port: sweeping, or waiting for the exporter in holder, which sweeps"
            " the subnet.",
            "state",
            "holder",
            "subnet",
        ),
        "duration_seconds": gauge("Duration of the last sweep of the fabric."),
        "discoveries_total": counter("Discoveries of the whole fabric."),
        "switches": gauge("Switches that respond."),
        "adapters": gauge(
            "Channel adapters (HCAs) that responded in the last sweep, SHARP aggregation nodes excluded."
        ),
        "links": gauge("Links between nodes that responded in the last sweep."),
        "unanswered_links": gauge("Ports whose link is up and whose peer does not respond."),
    },
    origins={
        "info": ["SMInfo"],
        "duration_seconds": ["the clock"],
        "discoveries_total": ["NodeInfo"],
        **{ending: ["NodeInfo"] for ending in ("switches", "adapters", "links", "unanswered_links")},
    },
)
"""Sweeps, by the local port."""

DATAGRAMS = vocabulary.schema(
    "fabric_ib_sweep_",
    ("local_port", "outcome"),
    own={
        "datagrams_total": counter(
            "Management datagrams by outcome: sent; answered; timed_out after all retries; retried; unmatched replies,"
            " which were late or unsolicited; malformed replies."
        )
    },
    origins={"datagrams_total": ["umad"]},
)
"""Datagrams by outcome."""

SCHEMAS = (PORTS, NODES, MANAGERS, SERVICE_LEVELS, SWEEPS, DATAGRAMS)
