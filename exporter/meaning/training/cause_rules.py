"""Rules of causes: what a port state, or a line of a job's log, can cause, and its remedy.

The weights rate how well an event explains a symptom at the right place and time: 1 if nothing else need be checked, 0
if it cannot. They are judgements, which only order causes; nothing is summed over jobs. Long because it is one table.
"""

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class CauseRule:
    """Rule of one kind of event.

    Attributes:
        kind: Kind of the event.
        text: Description of the event; `{value}` is replaced by its value.
        slow: Weight for a network-bound job, …
        hang: … for a hang, and …
        late: … for a straggler.
        remedy: What to do.
        value_format: How the value is shown: `share`, `number`, or nothing.
        is_effect: Whether it must have a cause elsewhere.
        spreads: Whether it can affect ports elsewhere, as pauses do.
    """

    kind: str
    text: str
    slow: float
    hang: float
    late: float
    remedy: str
    value_format: str = ""
    is_effect: bool = False
    spreads: bool = False


_CABLE = "Clean and reseat the connectors, change the cable, then the transceivers of both sides."
_HOST_TAKES_LESS = (
    "The host receives more than it can process: drain it, then check its PCIe link, its memory and its GPUs."
)
_GDR = "Load nvidia-peermem, or a driver with DMA-BUF, and check in NCCL's log that GPU Direct RDMA is enabled."
_ADAPTERS = "Name the adapters that carry the job in NCCL_IB_HCA, with the same list on all hosts."
_ROUTES = (
    "Check with ping from the adapters' addresses whether all pairs are reachable; then check GID index and routes."
)

PORT_RULES: tuple[CauseRule, ...] = (
    CauseRule(
        "link_down",
        "the link is down",
        slow=0.8,
        hang=1.0,
        late=0.3,
        remedy="Check the cable, the transceivers and whether the other side is administratively down.",
    ),
    CauseRule(
        "link_flapping",
        "the link went down {value} times in 15 minutes",
        slow=0.8,
        hang=0.9,
        late=0.3,
        remedy=_CABLE,
        value_format="number",
    ),
    CauseRule(
        "link_degraded",
        "the link is slower than expected",
        slow=1.0,
        hang=0.1,
        late=0.4,
        remedy="Compare its lanes and speed with its siblings; then check the cable and the transceivers.",
    ),
    CauseRule(
        "pcie_degraded",
        "the PCIe link has fewer lanes or a lower rate than both of its ends support",
        slow=0.9,
        hang=0.05,
        late=0.5,
        remedy="Reseat the card or its riser, and check the error counters of the PCIe link.",
        spreads=True,
    ),
    CauseRule(
        "pause_storm_sent",
        "it pauses its peer for {value} of the time",
        slow=1.0,
        hang=0.7,
        late=0.5,
        remedy=_HOST_TAKES_LESS,
        value_format="share",
        spreads=True,
    ),
    CauseRule(
        "paused_sent",
        "it pauses its peer for {value} of the time",
        slow=0.8,
        hang=0.1,
        late=0.4,
        remedy=_HOST_TAKES_LESS,
        value_format="share",
        spreads=True,
    ),
    CauseRule(
        "pause_storm_received",
        "its peer pauses it for {value} of the time",
        slow=0.7,
        hang=0.5,
        late=0.3,
        remedy="Find the port that sends the pauses: a host that receives more than it can process, or a full queue.",
        value_format="share",
        is_effect=True,
    ),
    CauseRule(
        "paused_received",
        "its peer pauses it for {value} of the time",
        slow=0.5,
        hang=0.05,
        late=0.2,
        remedy="Find the port that sends the pauses, and check the utilization of the leaf's uplinks.",
        value_format="share",
        is_effect=True,
    ),
    CauseRule(
        "congestion_marks",
        "{value} of its packets are ECN-marked",
        slow=0.5,
        hang=0.0,
        late=0.1,
        remedy="Check how many ports send to it at once, and the imbalance of the leaf's uplinks.",
        value_format="share",
        is_effect=True,
    ),
    CauseRule(
        "slowed_by_cnp",
        "congestion notification packets reduce its rate: {value} of its packets",
        slow=0.4,
        hang=0.0,
        late=0.1,
        remedy="Find the full queue that marks its packets, most likely that of a receiver.",
        value_format="share",
        is_effect=True,
    ),
    CauseRule(
        "discards",
        "it discards {value} of the packets that it has to transmit",
        slow=0.9,
        hang=0.4,
        late=0.2,
        remedy="Check that the priority of RDMA is lossless on switch and host, and the ECN thresholds.",
        value_format="share",
    ),
    CauseRule(
        "buffer_overflows",
        "it discards {value} of the packets received because the host is too slow",
        slow=0.8,
        hang=0.2,
        late=0.4,
        remedy=_HOST_TAKES_LESS,
        value_format="share",
    ),
    CauseRule(
        "retransmissions",
        "it retransmits {value} of its packets",
        slow=0.7,
        hang=0.4,
        late=0.2,
        remedy="Check its own link first, then discards and errors of the switches on the path.",
        value_format="share",
        is_effect=True,
    ),
    CauseRule(
        "ack_timeouts",
        "{value} of its requests had no acknowledgement within their timeout, in 2 minutes",
        slow=0.4,
        hang=0.8,
        late=0.1,
        remedy="Packets or their acknowledgements are lost: check its link and the path, with ping and ib_write_bw.",
        value_format="number",
    ),
    CauseRule(
        "fec_uncorrectable",
        "{value} uncorrectable FEC blocks within 10 minutes",
        slow=0.8,
        hang=0.4,
        late=0.2,
        remedy=_CABLE,
        value_format="number",
    ),
    CauseRule(
        "symbol_errors",
        "{value} symbol errors within 10 minutes",
        slow=0.6,
        hang=0.3,
        late=0.2,
        remedy=_CABLE,
        value_format="number",
    ),
    CauseRule(
        "link_full",
        "its utilization is {value}",
        slow=0.6,
        hang=0.0,
        late=0.2,
        remedy="If its siblings are not full, flows are hashed unevenly; else the job needs more bandwidth.",
        value_format="share",
    ),
    CauseRule(
        "oversubscribed",
        "its ports to hosts have {value} times the speed of its uplinks",
        slow=0.5,
        hang=0.0,
        late=0.0,
        remedy="Look for uplinks that are down or slower than those of other leaves; else place ranks closer together.",
        value_format="number",
    ),
    CauseRule(
        "rate_limited",
        "the kernel limits its rate, of which it uses {value}",
        slow=0.9,
        hang=0.0,
        late=0.3,
        remedy="Check the limit (`tc qdisc show`), and whether it is intended for the traffic of the job.",
        value_format="share",
    ),
    CauseRule(
        "queue_drops",
        "the kernel dropped {value} packets of its queueing discipline within a minute",
        slow=0.7,
        hang=0.2,
        late=0.2,
        remedy="Check its queueing discipline (`tc -s qdisc show`) and what else transmits through it.",
        value_format="number",
    ),
    CauseRule(
        "optics_power_low",
        "its module receives {value} W of light, below its low alarm",
        slow=0.6,
        hang=0.4,
        late=0.2,
        remedy="Clean the connectors, then check the fibre and the transceiver of the other side.",
        value_format="number",
    ),
    CauseRule(
        "optics_hot",
        "its module has {value} degrees Celsius, above its high alarm",
        slow=0.4,
        hang=0.2,
        late=0.2,
        remedy="Check the fans, the blanking plates and the temperature of the air intake.",
        value_format="number",
    ),
)
"""States of ports, see `meaning.ports.states`."""

LOG_RULES: tuple[CauseRule, ...] = (
    CauseRule(
        "port_error",
        "NCCL's log reports an error of the port",
        slow=0.6,
        hang=1.0,
        late=0.2,
        remedy="Check the cable and the switch port; jobs fail minutes after it, when their retries are exhausted.",
    ),
    CauseRule(
        "adapter_fatal",
        "NCCL's log reports a fatal error of the adapter",
        slow=0.3,
        hang=1.0,
        late=0.3,
        remedy="Drain the host; check the kernel's log and the adapter's firmware.",
    ),
    CauseRule(
        "peer_unreachable",
        "NCCL's log reports that a peer did not answer until all retries were exhausted",
        slow=0.3,
        hang=0.8,
        late=0.1,
        remedy="Check the link of the peer named there, then packet loss on the path and NCCL_IB_TIMEOUT.",
    ),
    CauseRule(
        "short_timeout",
        "NCCL_IB_TIMEOUT is too short for packet loss on a congested network",
        slow=0.1,
        hang=0.5,
        late=0.0,
        remedy="Leave NCCL_IB_TIMEOUT at its default of 20, or above.",
    ),
    CauseRule(
        "memory_protection",
        "NCCL's log reports that the adapter cannot access the GPU's memory",
        slow=0.2,
        hang=0.9,
        late=0.1,
        remedy="Disable PCIe ACS on the bridges between GPU and adapter, or set the IOMMU to pass-through.",
    ),
    CauseRule(
        "path_not_made",
        "NCCL's log reports that a connection between two adapters could not be established",
        slow=0.2,
        hang=0.9,
        late=0.1,
        remedy=_ROUTES + " On fabrics with separate rails set NCCL_CROSS_NIC=0.",
    ),
    CauseRule(
        "failed_over",
        "NCCL's log reports that it no longer uses this adapter and continues with fewer",
        slow=1.0,
        hang=0.2,
        late=0.3,
        remedy="Repair the link; the job regains its bandwidth only after a restart.",
    ),
    CauseRule(
        "tcp_only",
        "NCCL uses TCP instead of RDMA",
        slow=1.0,
        hang=0.0,
        late=0.2,
        remedy="Check that libibverbs and the RDMA devices are in the container.",
    ),
    CauseRule(
        "wrong_provider",
        "libfabric's provider is TCP instead of EFA",
        slow=1.0,
        hang=0.0,
        late=0.2,
        remedy="Set FI_PROVIDER=efa, and check that the EFA devices are in the container.",
    ),
    CauseRule(
        "gdr_off",
        "GPU Direct RDMA is off",
        slow=0.9,
        hang=0.0,
        late=0.2,
        remedy=_GDR,
    ),
    CauseRule(
        "gdr_partly",
        "GPU Direct RDMA is on for some channels only",
        slow=0.8,
        hang=0.0,
        late=0.2,
        remedy=_GDR,
    ),
    CauseRule(
        "gdr_too_far",
        "GPU Direct RDMA is off because GPU and adapter are too far apart",
        slow=0.8,
        hang=0.0,
        late=0.2,
        remedy="Use an adapter below the same PCIe switch; in a virtual machine, provide the topology of the host.",
    ),
    CauseRule(
        "adapter_shared",
        "it is the nearest port of {value} ranks, more than any port of other hosts",
        slow=0.8,
        hang=0.0,
        late=0.2,
        remedy="Compare the PCI topology with that of another host, and provide a topology file to NCCL.",
        value_format="number",
    ),
    CauseRule(
        "adapters_unused",
        "{value} adapters are not used by any channel",
        slow=0.6,
        hang=0.0,
        late=0.1,
        remedy=_ADAPTERS,
        value_format="number",
    ),
    CauseRule(
        "adapters_mixed",
        "InfiniBand and RoCE adapters are used together",
        slow=0.7,
        hang=0.2,
        late=0.1,
        remedy=_ADAPTERS,
    ),
    CauseRule(
        "enhanced_connections",
        "enhanced connection establishment (ECE) is on",
        slow=0.3,
        hang=0.0,
        late=0.0,
        remedy="Try NCCL_IB_ECE_ENABLE=0 and compare.",
    ),
    CauseRule(
        "proxied",
        "data goes through another GPU's adapter (PXN)",
        slow=0.25,
        hang=0.0,
        late=0.0,
        remedy="Try NCCL_PXN_DISABLE=1 and compare.",
    ),
)
"""States of hosts and ports from logs of NCCL, and from the location of ranks."""

TRAFFIC_RULES: tuple[CauseRule, ...] = (
    CauseRule(
        "no_rdma",
        "its RDMA ports carry {value} of what the job has to move: it uses TCP, or a device that is not visible here",
        slow=1.0,
        hang=0.0,
        late=0.2,
        remedy="Start the job with NCCL_DEBUG=INFO to see why; check libibverbs and the RDMA devices in the container.",
        value_format="share",
    ),
    CauseRule(
        "few_ports",
        "the job uses {value} RDMA ports, half of those that it could or fewer",
        slow=0.7,
        hang=0.0,
        late=0.1,
        remedy=_ADAPTERS,
        value_format="number",
    ),
)
"""States of hosts from the traffic of jobs, see `transport_states`."""

RULES = MappingProxyType({rule.kind: rule for rule in (*PORT_RULES, *LOG_RULES, *TRAFFIC_RULES)})
