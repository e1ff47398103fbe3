"""What an event of a port, or a line of a job's log, can cause, and what is to be done about it: one table.

The weights say how well an event of a kind explains a symptom when it is at the right place at the right time: 1 where
nothing else need be looked for, 0 where it cannot be. They are judgements, which only order causes; nothing is summed
over jobs.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CauseRule:
    """What one kind of event means.

    Attributes:
        kind: Of the event.
        says: The event in words; `{value}` is its number.
        slow: How well it explains that a job is bound by the network, …
        hang: … that it hangs, and …
        late: … that a rank comes late.
        remedy: What to do.
        shown: How the number is shown: `share`, `number`, or nothing.
        hit: Whether something elsewhere must be its cause, …
        hits: … and whether it can be that of ports elsewhere.
    """

    kind: str
    says: str
    slow: float
    hang: float
    late: float
    remedy: str
    shown: str = ""
    hit: bool = False
    hits: bool = False


_CABLE = "Clean and reseat the connectors, change the cable, then the transceivers of both sides."
_HOST_TAKES_LESS = (
    "The host cannot take what it is sent: take it out of service, then look at its PCIe link, its memory and its GPUs."
)
_GDR = "Load nvidia-peermem, or a driver with DMA-BUF, and see that NCCL's log says that GPU Direct RDMA is enabled."
_ADAPTERS = "Name the adapters that carry the job in NCCL_IB_HCA, with the same list on all hosts."
_ROUTES = (
    "See by ping with the adapters' own addresses whether all pairs reach each other; then the GID index and routes."
)

PORT_RULES: tuple[CauseRule, ...] = (
    CauseRule(
        "link_down",
        "the link is down",
        slow=0.8,
        hang=1.0,
        late=0.3,
        remedy="Look at the cable, at the transceivers and at whether the other side is switched off.",
    ),
    CauseRule(
        "link_flapping",
        "the link went down {value} times in 15 minutes",
        slow=0.8,
        hang=0.9,
        late=0.3,
        remedy=_CABLE,
        shown="number",
    ),
    CauseRule(
        "link_degraded",
        "the link is slower than it should be",
        slow=1.0,
        hang=0.1,
        late=0.4,
        remedy="Compare its lanes and speed with its siblings; then look at the cable and the transceivers.",
    ),
    CauseRule(
        "pcie_degraded",
        "the PCIe link has fewer lanes or a lower rate than both of its ends can do",
        slow=0.9,
        hang=0.05,
        late=0.5,
        remedy="Reseat the card or its riser, and see whether errors of the PCIe link rise.",
        hits=True,
    ),
    CauseRule(
        "pause_storm_sent",
        "it stops its peer from sending for {value} of the time",
        slow=1.0,
        hang=0.7,
        late=0.5,
        remedy=_HOST_TAKES_LESS,
        shown="share",
        hits=True,
    ),
    CauseRule(
        "paused_sent",
        "it stops its peer from sending for {value} of the time",
        slow=0.8,
        hang=0.1,
        late=0.4,
        remedy=_HOST_TAKES_LESS,
        shown="share",
        hits=True,
    ),
    CauseRule(
        "pause_storm_received",
        "its peer stops it for {value} of the time",
        slow=0.7,
        hang=0.5,
        late=0.3,
        remedy="Look for the port that sends the pauses: a host that cannot take what it is sent, or a full queue.",
        shown="share",
        hit=True,
    ),
    CauseRule(
        "paused_received",
        "its peer stops it for {value} of the time",
        slow=0.5,
        hang=0.05,
        late=0.2,
        remedy="Look for the port that sends the pauses, and at how full the leaf's uplinks are.",
        shown="share",
        hit=True,
    ),
    CauseRule(
        "congestion_marks",
        "{value} of its packets carry the congestion mark",
        slow=0.5,
        hang=0.0,
        late=0.1,
        remedy="Look at how many send to it at once, and at the imbalance of the leaf's uplinks.",
        shown="share",
        hit=True,
    ),
    CauseRule(
        "slowed_by_cnp",
        "congestion notifications slow it down: {value} of its packets",
        slow=0.4,
        hang=0.0,
        late=0.1,
        remedy="Look for the full queue that marks its packets, most likely that of a receiver.",
        shown="share",
        hit=True,
    ),
    CauseRule(
        "discards",
        "it drops {value} of the packets that it has to send",
        slow=0.9,
        hang=0.4,
        late=0.2,
        remedy="See whether the priority of RDMA is lossless on switch and host alike, and whether marks set in soon.",
        shown="share",
    ),
    CauseRule(
        "buffer_overflows",
        "it drops {value} of what it receives, since the host does not take it",
        slow=0.8,
        hang=0.2,
        late=0.4,
        remedy=_HOST_TAKES_LESS,
        shown="share",
    ),
    CauseRule(
        "retransmissions",
        "it sends {value} of its packets again",
        slow=0.7,
        hang=0.4,
        late=0.2,
        remedy="Look at its own link first, then at discards and errors on the switches on the way.",
        shown="share",
        hit=True,
    ),
    CauseRule(
        "fec_uncorrectable",
        "its error correction could not mend {value} blocks within 10 minutes",
        slow=0.8,
        hang=0.4,
        late=0.2,
        remedy=_CABLE,
        shown="number",
    ),
    CauseRule(
        "symbol_errors",
        "{value} symbol errors within 10 minutes",
        slow=0.6,
        hang=0.3,
        late=0.2,
        remedy=_CABLE,
        shown="number",
    ),
    CauseRule(
        "link_full",
        "it is {value} full",
        slow=0.6,
        hang=0.0,
        late=0.2,
        remedy="If its siblings are not, flows are spread unevenly; if they are, the job needs more than was built.",
        shown="share",
    ),
    CauseRule(
        "rate_limited",
        "the kernel holds it to a rate, of which it uses {value}",
        slow=0.9,
        hang=0.0,
        late=0.3,
        remedy="See who set the limit (`tc qdisc show`), and whether it is meant for what the job sends.",
        shown="share",
    ),
    CauseRule(
        "queue_drops",
        "the kernel dropped {value} packets of its queue within a minute, before they reached it",
        slow=0.7,
        hang=0.2,
        late=0.2,
        remedy="Look at its queueing discipline (`tc -s qdisc show`) and at what else sends by it.",
        shown="number",
    ),
    CauseRule(
        "optics_power_low",
        "its module gets {value} W of light, less than its own alarm",
        slow=0.6,
        hang=0.4,
        late=0.2,
        remedy="Clean the connectors, then look at the fibre and at the transceiver of the other side.",
        shown="number",
    ),
    CauseRule(
        "optics_hot",
        "its module has {value} degrees Celsius, more than its own alarm",
        slow=0.4,
        hang=0.2,
        late=0.2,
        remedy="Look at the fans, the blanking plates and the air that comes in.",
        shown="number",
    ),
)
"""States of ports, as `port_states` forms them."""

LOG_RULES: tuple[CauseRule, ...] = (
    CauseRule(
        "port_error",
        "NCCL's log tells of an error of the port",
        slow=0.6,
        hang=1.0,
        late=0.2,
        remedy="Look at the cable and the switch port; jobs fail minutes after it, when their retries are used up.",
    ),
    CauseRule(
        "adapter_fatal",
        "NCCL's log tells that the adapter itself failed",
        slow=0.3,
        hang=1.0,
        late=0.3,
        remedy="Take the host out of service; look at the kernel's log and at the adapter's firmware.",
    ),
    CauseRule(
        "peer_unreachable",
        "NCCL's log tells that a peer did not answer until all retries were used up",
        slow=0.3,
        hang=0.8,
        late=0.1,
        remedy="Look at the link of the peer that it names, then at loss on the way and at NCCL_IB_TIMEOUT.",
    ),
    CauseRule(
        "short_timeout",
        "NCCL_IB_TIMEOUT is set to less than loss on a full network outlasts",
        slow=0.1,
        hang=0.5,
        late=0.0,
        remedy="Leave NCCL_IB_TIMEOUT at its default of 20, or above.",
    ),
    CauseRule(
        "memory_protection",
        "NCCL's log tells that the adapter may not reach the GPU's memory",
        slow=0.2,
        hang=0.9,
        late=0.1,
        remedy="Switch PCIe ACS off on the bridges between GPU and adapter, or the IOMMU to pass-through.",
    ),
    CauseRule(
        "path_not_made",
        "NCCL's log tells that a connection between two adapters could not be made",
        slow=0.2,
        hang=0.9,
        late=0.1,
        remedy=_ROUTES + " On fabrics whose rails do not meet set NCCL_CROSS_NIC=0.",
    ),
    CauseRule(
        "failed_over",
        "NCCL's log tells that it gave this adapter up and goes on with less",
        slow=1.0,
        hang=0.2,
        late=0.3,
        remedy="Mend the link; the job gets its bandwidth back only when it is started anew.",
    ),
    CauseRule(
        "tcp_only",
        "NCCL uses TCP in the place of RDMA",
        slow=1.0,
        hang=0.0,
        late=0.2,
        remedy="See that libibverbs and the RDMA devices are in the container.",
    ),
    CauseRule(
        "wrong_provider",
        "libfabric's provider is TCP in the place of EFA",
        slow=1.0,
        hang=0.0,
        late=0.2,
        remedy="Set FI_PROVIDER=efa, and see that the EFA devices are in the container.",
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
        "GPU Direct RDMA is off, since GPU and adapter are too far apart",
        slow=0.8,
        hang=0.0,
        late=0.2,
        remedy="Use an adapter below the same PCIe switch; give a virtual machine its host's topology.",
    ),
    CauseRule(
        "adapter_shared",
        "it is the nearest of {value} ranks, more than a port of other hosts has",
        slow=0.8,
        hang=0.0,
        late=0.2,
        remedy="Compare the PCI topology with that of another host, and give NCCL a topology file.",
        shown="number",
    ),
    CauseRule(
        "adapters_unused",
        "{value} adapters are listed that no channel uses",
        slow=0.6,
        hang=0.0,
        late=0.1,
        remedy=_ADAPTERS,
        shown="number",
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
        "data goes by another GPU's adapter (PXN)",
        slow=0.25,
        hang=0.0,
        late=0.0,
        remedy="Try NCCL_PXN_DISABLE=1 and compare.",
    ),
)
"""What a log of NCCL tells of a host or of one of its ports, and where ranks are."""

RULES = {rule.kind: rule for rule in (*PORT_RULES, *LOG_RULES)}
