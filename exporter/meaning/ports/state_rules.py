"""When a port's counters and gauges are a state that is worth telling: one table, with the thresholds of the alerts.

Where an alert of `alerts/fabric.yml` looks at the same thing, the threshold and the window are its own; alerts wait
longer, since they call people. What no alert looks at has a threshold that is a judgement of ours.
"""

import enum
from dataclasses import dataclass


class Form(enum.Enum):
    """How a number is made of columns.

    LEVEL is a gauge that has a certain value; TIME the share of time by which counters of seconds rose; SHARE what
    counters rose by over what `base` rose by; RISE what they rose by within the window; FILL a rate over what the link
    can carry.
    """

    LEVEL = "level"
    TIME = "time"
    SHARE = "share"
    RISE = "rise"
    FILL = "fill"


@dataclass(frozen=True, slots=True)
class PortRule:
    """What one state of one kind of port is.

    Attributes:
        kind: Name of the state.
        prefix: Of the tables it is read from.
        form: How.
        ways: Endings of the columns, which are added up; of several ways the first whose columns a row has.
        threshold: The number above which, or from which on (`RISE`), or at which (`LEVEL`) it is active.
        window: Seconds over which the mean or the rise is taken; 0 for levels.
        base: Ending of the packets of a share, or of what fills a link where that is not its speed.
        unless: Endings of counters that explain it, when they rose within a quarter of an hour.
        alert: The alert that has the same threshold and window.
    """

    kind: str
    prefix: str
    form: Form
    ways: tuple[tuple[str, ...], ...]
    threshold: float
    window: float = 0.0
    base: str = ""
    unless: tuple[str, ...] = ()
    alert: str = ""


EXPLAINED = 900.0
"""Seconds for which a counter of `unless` explains what is seen."""

LEAST_PACKETS = 1000.0
"""Packets per second below which no share of them is formed."""

RDMA, NIC, SWITCH, IB, PCI = "fabric_rdma_", "fabric_nic_", "fabric_switch_", "fabric_ib_", "fabric_pci_"

LINK_DOWN = "link_down"
POWER_LOW = "optics_power_low"
TOO_HOT = "optics_hot"


def _levels(kind: str, ending: str, value: float, alerts: dict[str, str]) -> list[PortRule]:
    return [PortRule(kind, prefix, Form.LEVEL, ((ending,),), value, alert=alert) for prefix, alert in alerts.items()]


def _pauses(way: str, told: str) -> list[PortRule]:
    """Make the rules of one direction: received pauses stop this port, sent ones its peer."""
    seconds = ((f"{way}_pfc_paused_seconds_total",), (f"{way}_paused_seconds_total",))
    found = [
        PortRule(f"pause_storm_{told}", NIC, Form.TIME, seconds, 0.5, 120, alert="FabricPauseStorm"),
        PortRule(f"paused_{told}", NIC, Form.TIME, seconds, 0.1, 300, alert="FabricPauseShare"),
    ]
    alert = "FabricPauseStorm" if way == "receive" else ""
    return [*found, PortRule(f"pause_storm_{told}", SWITCH, Form.TIME, seconds[:1], 0.5, 300, alert=alert)]


def _rises(kind: str, ending: str, least: float, window: float, prefixes: tuple[str, ...]) -> list[PortRule]:
    return [PortRule(kind, prefix, Form.RISE, ((ending,),), least, window) for prefix in prefixes]


_SENT_AGAIN = (("retransmitted_packets_total",), ("packet_sequence_errors_total", "local_ack_timeouts_total"))
_UPS_AND_DOWNS = ("carrier_changes_total", "link_down_total")
_RATE_LIMIT = "transmit_rate_limit_bytes_per_second"
_FILL = (("transmit_bytes_per_second",), ("receive_bytes_per_second",))

RULES: tuple[PortRule, ...] = (
    *_levels(
        LINK_DOWN, "link_up", 0, {RDMA: "FabricLinkDown", NIC: "FabricLinkDown", SWITCH: "FabricLinkDown", IB: ""}
    ),
    *_levels(
        "link_degraded",
        "link_degraded",
        1,
        {RDMA: "FabricLinkDegraded", NIC: "FabricLinkDegraded", SWITCH: "FabricLinkDegraded", IB: ""},
    ),
    *_levels("pcie_degraded", "link_degraded", 1, {PCI: "FabricPciDegraded"}),
    PortRule("link_flapping", RDMA, Form.RISE, (("link_down_total",),), 3, 900, alert="FabricLinkFlapping"),
    PortRule("link_flapping", NIC, Form.RISE, (("link_down_total",),), 3, 900, alert="FabricLinkFlapping"),
    *_rises("link_flapping", "link_down_total", 3, 900, (IB,)),
    *_pauses("receive", "received"),
    *_pauses("transmit", "sent"),
    PortRule(
        "congestion_marks",
        RDMA,
        Form.SHARE,
        (("ecn_marked_packets_total",),),
        0.1,
        300,
        "receive_packets_total",
        alert="FabricCongestion",
    ),
    PortRule(
        "congestion_marks",
        SWITCH,
        Form.SHARE,
        (("ecn_marked_packets_total",),),
        0.1,
        300,
        "transmit_packets_total",
        alert="FabricCongestion",
    ),
    PortRule(
        "slowed_by_cnp",
        RDMA,
        Form.SHARE,
        (("cnp_handled_total",), ("cnp_received_total",)),
        0.01,
        300,
        "transmit_packets_total",
    ),
    PortRule(
        "discards",
        SWITCH,
        Form.SHARE,
        (("congestion_discards_total",), ("transmit_discards_total",)),
        0.0001,
        600,
        "transmit_packets_total",
        alert="FabricCongestionDiscards",
    ),
    PortRule(
        "discards",
        NIC,
        Form.SHARE,
        (("transmit_discards_total",), ("kernel_transmit_discards_total",)),
        0.0001,
        600,
        "transmit_packets_total",
    ),
    PortRule(
        "discards",
        IB,
        Form.SHARE,
        (("transmit_discards_total",),),
        0.0001,
        600,
        "transmit_packets_total",
    ),
    PortRule(
        "buffer_overflows",
        NIC,
        Form.SHARE,
        (("pci_buffer_overflows_total",), ("receive_discards_total",)),
        0.0001,
        600,
        "receive_packets_total",
    ),
    PortRule(
        "retransmissions",
        RDMA,
        Form.SHARE,
        _SENT_AGAIN,
        0.0001,
        600,
        "transmit_packets_total",
        ("requester_completion_errors_total",),
        alert="FabricRetransmissions",
    ),
    PortRule(
        "fec_uncorrectable",
        NIC,
        Form.RISE,
        (("fec_uncorrectable_blocks_total",),),
        1,
        600,
        unless=_UPS_AND_DOWNS,
        alert="FabricFecUncorrectable",
    ),
    *_rises("fec_uncorrectable", "fec_uncorrectable_blocks_total", 1, 600, (SWITCH, IB)),
    *_rises("symbol_errors", "symbol_errors_total", 10, 600, (RDMA, NIC, SWITCH, IB)),
    *(PortRule("link_full", prefix, Form.FILL, _FILL, 0.8, 300) for prefix in (RDMA, NIC, IB)),
    PortRule("rate_limited", NIC, Form.FILL, (("transmit_bytes_per_second",),), 0.8, 60, _RATE_LIMIT),
    *_rises("queue_drops", "transmit_queue_drops_total", 100, 60, (NIC,)),
    PortRule("link_full", SWITCH, Form.FILL, _FILL, 0.8, 300, alert="FabricUplinkImbalance"),
)
