"""Metrics of the configuration of switches: what their ports and queues are set to, beside what they count.

The label values have the form of those of `fabric_nic_settings_info` and `fabric_link_peer_settings_info`, so that both
ends of a link can be compared.
"""

from exporter.core import vocabulary
from exporter.core.vocabulary import gauge, info

PREFIX = "fabric_switch_"

SETTINGS = vocabulary.schema(
    PREFIX,
    ("switch", "port"),
    ["mtu_bytes"],
    own={
        "configured_speed_bytes_per_second": gauge(
            "Speed that the port is configured to, in bytes per second; the link may run at another one."
        ),
        "settings_info": info(
            "Settings of the port: autonegotiation and FEC (as configured; by NVUE those in operation), priorities with"
            " PFC (IEEE 802.1Qbb), trust mode (dscp, pcp, both or none) and action of the PFC watchdog (drop, forward,"
            " alert or off). Labels are empty where not known.",
            "autoneg",
            "fec",
            "pfc",
            "trust",
            "pfc_watchdog",
        ),
    },
    helps={
        "mtu_bytes": (
            "MTU of the port in bytes, as the switch counts it (IF-MIB ifMtu): of some vendors it is the MTU of IP, of"
            " others the longest frame, with the Ethernet header and without or with the FCS."
        )
    },
    origins={
        "mtu_bytes": (
            "IF-MIB ifMtu",
            "NVUE: link mtu",
            "SONiC: PORT mtu",
            "OpenConfig: mtu",
            "eAPI: mtu",
            "NX-API: eth_mtu",
        ),
        "configured_speed_bytes_per_second": ("SONiC: PORT speed", "OpenConfig: ethernet config port-speed"),
        "settings_info": (
            "Onyx dcb priority-flow-control: Priority Enabled List, PFC oper",
            "NVUE: link auto-negotiate, fec",
            "SONiC: PORT autoneg, fec; PORT_QOS_MAP pfc_enable, dscp_to_tc_map, dot1p_to_tc_map; PFC_WD",
            "NX-API: eth_autoneg",
        ),
    },
)
"""Rows are ports; keys of a PartialTable are `(port,)`."""

QUEUE_SETTINGS = vocabulary.schema(
    PREFIX,
    ("switch", "port", "queue"),
    own={
        "queue_ecn_min_threshold_bytes": gauge(
            "Depth of the egress queue above which the first packets are marked with ECN CE; only of queues that mark."
        ),
        "queue_ecn_max_threshold_bytes": gauge(
            "Depth of the egress queue above which all packets are marked with ECN CE; only of queues that mark."
        ),
        "queue_ecn_max_probability_ratio": gauge(
            "Share of the packets that is marked with ECN CE just below the highest threshold; only of queues that"
            " mark."
        ),
    },
    origins={
        "queue_ecn_min_threshold_bytes": ("SONiC: WRED_PROFILE ecn_green_min_threshold, green_min_threshold",),
        "queue_ecn_max_threshold_bytes": ("SONiC: WRED_PROFILE ecn_green_max_threshold, green_max_threshold",),
        "queue_ecn_max_probability_ratio": ("SONiC: WRED_PROFILE ecn_green_mark_probability, green_drop_probability",),
    },
)
"""Rows are the egress queues of ports; keys are `(port, queue)`."""

BUFFER_POOLS = vocabulary.schema(
    PREFIX,
    ("switch", "pool"),
    own={"buffer_pool_bytes": gauge("Size of the buffer pool, which ports share.")},
    origins={"buffer_pool_bytes": ("SONiC: BUFFER_POOL size",)},
)
"""Rows are the buffer pools of the switch; keys are `(pool,)`."""

SETTINGS_SCHEMAS = (SETTINGS, QUEUE_SETTINGS, BUFFER_POOLS)
