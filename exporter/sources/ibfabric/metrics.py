"""What is exported of an InfiniBand fabric, and where it comes from: data."""

from exporter.core import vocabulary
from exporter.core.vocabulary import counter, gauge, info
from exporter.linux.mad.performance import DISCARDS, RECEIVE_ERRORS

PREFIX = "fabric_ib_"

ERRORS = {
    "symbol_errors": "symbol_errors_total",
    "link_error_recovery": "link_error_recovery_total",
    "link_down": "link_down_total",
    "receive_errors": "receive_errors_total",
    "receive_remote_physical_errors": "receive_remote_physical_errors_total",
    "receive_switch_relay_errors": "receive_switch_relay_errors_total",
    "transmit_discards": "transmit_discards_total",
    "transmit_constraint_errors": "transmit_constraint_errors_total",
    "receive_constraint_errors": "receive_constraint_errors_total",
    "local_link_integrity_errors": "local_link_integrity_errors_total",
    "excessive_buffer_overrun_errors": "excessive_buffer_overrun_errors_total",
    "vl15_dropped": "vl15_dropped_total",
    "transmit_wait": "transmit_wait_ticks_total",
}
"""Endings of the error counters, by what the codec calls them."""

TRAFFIC = {
    "transmit_words": "transmit_bytes_total",
    "receive_words": "receive_bytes_total",
    "transmit_packets": "transmit_packets_total",
    "receive_packets": "receive_packets_total",
    "transmit_unicast_packets": "transmit_unicast_packets_total",
    "receive_unicast_packets": "receive_unicast_packets_total",
    "transmit_multicast_packets": "transmit_multicast_packets_total",
    "receive_multicast_packets": "receive_multicast_packets_total",
}
"""Endings of traffic, likewise."""

_WHY_RECEIVED_WRONG = {
    "local_physical_errors": "Packets received with an error of this link.",
    "malformed_packet_errors": "Packets received whose header was wrong.",
    "buffer_overrun_errors": "Packets received that found no buffer.",
    "dlid_mapping_errors": "Packets received whose destination has no port to leave by.",
    "vl_mapping_errors": "Packets received whose virtual lane does not exist at the port to leave by.",
    "looping_errors": "Packets received that would leave by the port that they came in by.",
}
_WHY_DISCARDED = {
    "inactive_discards": "Packets dropped because the port was not active.",
    "neighbor_mtu_discards": "Packets dropped because they were larger than the peer takes.",
    "lifetime_limit_discards": "Packets dropped because they had been in the switch for too long.",
    "hoq_lifetime_limit_discards": "Packets dropped because they had been first in the queue for too long.",
}

RECEIVE_DETAILS = tuple(f"receive_{name}_total" for name in RECEIVE_ERRORS)
DISCARD_DETAILS = tuple(f"transmit_{name}_total" for name in DISCARDS)
FEC = ("fec_corrected_blocks_total", "fec_uncorrectable_blocks_total")

_SMA = "PortInfo"
_PMA = "PortCounters"
_LONG = "PortCountersExtended"

PORTS = vocabulary.schema(
    PREFIX,
    ("guid", "port"),
    [
        *TRAFFIC.values(),
        *ERRORS.values(),
        *FEC,
        "link_up",
        "link_speed_bytes_per_second",
        "link_degraded",
        "resets_total",
    ],
    {
        "link_expected_speed_bytes_per_second": gauge(
            "Speed that the ports at both ends of the link can do; absent where the peer is not known."
        ),
        "link_lanes": gauge("Lanes of the link as it is now; absent while it is down."),
        "port_state": gauge("Logical state: 0 no change, 1 down, 2 init, 3 armed, 4 active, 5 active, deferred."),
        "port_physical_state": gauge(
            "Physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery, 7 test."
        ),
        "port_answers": gauge(
            "Whether the port told its counters (1), or was asked and did not (0); absent of ports whose link is down."
        ),
        "link_info": info(
            "What the port is linked to; the peer's name is its node's description. Without a peer's GUID the link is"
            " up and the node at its other end does not say what it is.",
            "peer_guid",
            "peer_port",
            "peer",
            "width",
            "generation",
        ),
        "group_info": info(
            "What the port of a switch leads to: switches above (uplink), below (downlink) or beside it (peer), or"
            " adapters (host).",
            "group",
        ),
        **{
            ending: counter(text)
            for ending, text in zip(
                RECEIVE_DETAILS + DISCARD_DETAILS,
                (*_WHY_RECEIVED_WRONG.values(), *_WHY_DISCARDED.values()),
                strict=True,
            )
        },
    },
    note="All that crosses the port, headers included, of every program and function.",
    origins={
        **{ending: [f"{_LONG}, else {_PMA}"] for ending in (*TRAFFIC.values(), *ERRORS.values())},
        **{ending: ["PortExtendedSpeedsCounters"] for ending in FEC},
        **{ending: ["PortRcvErrorDetails"] for ending in RECEIVE_DETAILS},
        **{ending: ["PortXmitDiscardDetails"] for ending in DISCARD_DETAILS},
        "link_up": [f"{_SMA} PortState"],
        "port_state": [f"{_SMA} PortState"],
        "port_physical_state": [f"{_SMA} PortPhysicalState"],
        "link_lanes": [f"{_SMA} LinkWidthActive"],
        "link_speed_bytes_per_second": [f"{_SMA} LinkSpeedActive, LinkSpeedExtActive, LinkWidthActive"],
        "link_expected_speed_bytes_per_second": [f"{_SMA} LinkSpeedSupported, LinkWidthSupported of both ends"],
        "link_info": ["NodeInfo", "NodeDescription"],
        "group_info": ["NodeInfo"],
        "port_answers": [_LONG, _PMA],
    },
    details=(
        *(ending for name, ending in TRAFFIC.items() if "cast" in name),
        "receive_constraint_errors_total",
        "transmit_constraint_errors_total",
        "vl15_dropped_total",
        "port_physical_state",
        *RECEIVE_DETAILS,
        *DISCARD_DETAILS,
    ),
)
"""Ports of the fabric's nodes."""

NODES = vocabulary.schema(
    PREFIX,
    ("guid",),
    own={
        "node_info": info(
            "What the node is: node_name is its description, host and device what that tells of an adapter.",
            "node_name",
            "node_kind",
            "host",
            "device",
            "system_guid",
            "vendor_id",
            "device_id",
            "role",
        ),
        "node_up": gauge("Whether the node answers (1), or did and is not reached any more (0); told of for an hour."),
        "node_ports": gauge("Ports that the node has."),
    },
    origins={
        "node_info": ["NodeInfo", "NodeDescription"],
        "node_up": ["NodeInfo"],
        "node_ports": ["NodeInfo NumPorts"],
    },
)
"""Nodes: switches, adapters, and the aggregation nodes within switches."""

MANAGERS = vocabulary.schema(
    PREFIX,
    ("guid", "port"),
    own={
        "sm_state": gauge("State of the subnet manager at the port: 0 not active, 1 discovering, 2 standby, 3 master."),
        "sm_priority": gauge("Priority of the subnet manager, from 0 to 15: the highest is to be the master."),
        "sm_activity_total": counter("What the subnet manager counts while it is alive."),
    },
    origins={ending: ["SMInfo"] for ending in ("sm_state", "sm_priority", "sm_activity_total")},
)
"""Subnet managers, by the port that they are at."""

SERVICE_LEVELS = vocabulary.schema(
    PREFIX,
    ("guid", "port", "sl"),
    own={
        "transmit_service_level_bytes_total": counter("Bytes transmitted of the service level."),
        "receive_service_level_bytes_total": counter("Bytes received of the service level."),
    },
    origins={
        "transmit_service_level_bytes_total": ["PortXmitDataSL"],
        "receive_service_level_bytes_total": ["PortRcvDataSL"],
    },
)
"""Traffic by service level, where it is asked for."""

SWEEPS = vocabulary.schema(
    "fabric_ib_sweep_",
    ("local_port",),
    own={
        "info": info(
            "Whether this exporter looks at the fabric (sweeping), or another one does that is named (waiting).",
            "state",
            "holder",
            "subnet",
        ),
        "duration_seconds": gauge("Time of the last pass over the fabric."),
        "surveys_total": counter("Times that all of the fabric was looked for anew."),
        "switches": gauge("Switches that answer."),
        "adapters": gauge("Adapters that answer, aggregation nodes aside."),
        "links": gauge("Links between nodes that answer, each counted once."),
        "unanswered_links": gauge("Ports whose link is up and whose peer does not say what it is."),
    },
    origins={
        "info": ["SMInfo"],
        "duration_seconds": ["the clock"],
        "surveys_total": ["NodeInfo"],
        **{ending: ["NodeInfo"] for ending in ("switches", "adapters", "links", "unanswered_links")},
    },
)
"""The passes over a fabric, by the port that it is looked at from."""

DATAGRAMS = vocabulary.schema(
    "fabric_ib_sweep_",
    ("local_port", "outcome"),
    own={
        "datagrams_total": counter(
            "Management datagrams: sent; answered; timed_out after all tries; retried; stray, which came too late or"
            " were nobody's; malformed."
        )
    },
    origins={"datagrams_total": ["umad"]},
)
"""What became of datagrams."""

SCHEMAS = (PORTS, NODES, MANAGERS, SERVICE_LEVELS, SWEEPS, DATAGRAMS)
