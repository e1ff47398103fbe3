"""Rules of port states: which counters and gauges of a port are a state worth reporting, with their thresholds.

Where an alert of `alerts/fabric.yml` covers the same condition, threshold and window are those of the alert, which
waits longer because it pages people. Thresholds without an alert are a judgement.
"""

import enum
from dataclasses import dataclass


class Form(enum.Enum):
    """How a value is computed from columns.

    LEVEL compares a gauge with a value; ABOVE whether it exceeds one; TIME is the share of time by which counters of
    seconds increased; SHARE the increase of counters over the increase of `base`; RISE their increase within the
    window; FILL a rate over the speed of the link.
    """

    LEVEL = "level"
    ABOVE = "above"
    TIME = "time"
    SHARE = "share"
    RISE = "rise"
    FILL = "fill"


@dataclass(frozen=True, slots=True)
class PortRule:
    """Rule of one state for one kind of port.

    Attributes:
        kind: Name of the state.
        prefix: Prefix of the tables that it is computed from.
        form: How the value is computed.
        ways: Endings of columns that are added up; of several sets the first of which a row has all columns is used.
        threshold: Value above which the state is active; for RISE the minimum, for LEVEL the exact value.
        window: Seconds over which the mean or the increase is computed; 0 for levels.
        base: Ending of the packets of a share, or of the limit of a FILL that is not the link speed.
        unless: Endings of counters that explain the state if they increased within EXPLAINED_SECONDS seconds.
        alert: The alert with the same threshold and window.
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


EXPLAINED_SECONDS = 900.0
"""Seconds for which an increase of a counter of `unless` explains a state."""

MIN_PACKETS_PER_SECOND = 1000.0
"""Packets per second below which there is no share of them."""

RDMA, NIC, SWITCH, IB, PCI = "fabric_rdma_", "fabric_nic_", "fabric_switch_", "fabric_ib_", "fabric_pci_"

LINK_DOWN = "link_down"
POWER_LOW = "optics_power_low"
TOO_HOT = "optics_hot"


def _levels(kind: str, ending: str, value: float, alerts: dict[str, str]) -> list[PortRule]:
    return [PortRule(kind, prefix, Form.LEVEL, ((ending,),), value, alert=alert) for prefix, alert in alerts.items()]


def _pauses(way: str, name: str) -> list[PortRule]:
    """Return the rules of one direction: PAUSE frames received stop this port, those transmitted its peer."""
    seconds = ((f"{way}_pfc_paused_seconds_total",), (f"{way}_paused_seconds_total",))
    found = [
        PortRule(f"pause_storm_{name}", NIC, Form.TIME, seconds, 0.5, 120, alert="FabricPauseStorm"),
        PortRule(f"paused_{name}", NIC, Form.TIME, seconds, 0.1, 300, alert="FabricPauseShare"),
    ]
    alert = "FabricPauseStorm" if way == "receive" else ""
    return [*found, PortRule(f"pause_storm_{name}", SWITCH, Form.TIME, seconds[:1], 0.5, 300, alert=alert)]


def _rises(kind: str, ending: str, minimum: float, window: float, prefixes: tuple[str, ...]) -> list[PortRule]:
    return [PortRule(kind, prefix, Form.RISE, ((ending,),), minimum, window) for prefix in prefixes]


_RETRANSMITTED = (("retransmitted_packets_total",), ("packet_sequence_errors_total", "local_ack_timeouts_total"))
_LINK_CHANGES = ("carrier_changes_total", "link_down_total")
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
        _RETRANSMITTED,
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
        unless=_LINK_CHANGES,
        alert="FabricFecUncorrectable",
    ),
    *_rises("fec_uncorrectable", "fec_uncorrectable_blocks_total", 1, 600, (SWITCH, IB)),
    *_rises("symbol_errors", "symbol_errors_total", 10, 600, (RDMA, NIC, SWITCH, IB)),
    *(PortRule("link_full", prefix, Form.FILL, _FILL, 0.8, 300) for prefix in (RDMA, NIC, SWITCH, IB)),
    PortRule("rate_limited", NIC, Form.FILL, (("transmit_bytes_per_second",),), 0.8, 60, _RATE_LIMIT),
    *_rises("queue_drops", "transmit_queue_drops_total", 100, 60, (NIC,)),
    *(PortRule("oversubscribed", prefix, Form.ABOVE, (("oversubscription_ratio",),), 1.05) for prefix in (SWITCH, IB)),
    *_rises("ack_timeouts", "local_ack_timeouts_total", 1, 120, (RDMA,)),
)
