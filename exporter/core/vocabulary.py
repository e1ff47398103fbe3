"""Metric naming: the endings that sources share, each with type, HELP text and unit, and checks of metric names.

The same quantity has the same ending for every kind of port; the prefix of a schema identifies the kind of port. A
source declares its metrics by naming shared endings from here and adding its own. Long because it is one table.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from exporter.core.table import Kind, Metric, Schema

UNITS = (
    "transfers_per_second",
    "bytes_per_second",
    "packets_per_second",
    "bytes",
    "seconds",
    "ratio",
    "celsius",
    "volts",
    "amperes",
    "watts",
)
"""Units that a name may end in (before `_total`), longest first."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Declaration of a metric without its prefix: type, HELP text, labels of an info and buckets of a histogram.

    A schema replaces `{note}` in the HELP text with its own note.
    """

    kind: Kind
    help: str
    extra: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def counter(text: str) -> Ending:
    """Declare a counter."""
    return Ending(Kind.COUNTER, text)


def gauge(text: str) -> Ending:
    """Declare a gauge."""
    return Ending(Kind.GAUGE, text)


def unknown(text: str) -> Ending:
    """Declare a metric of type unknown: the driver does not document whether its value is a counter or a gauge."""
    return Ending(Kind.UNKNOWN, text)


def info(text: str, *extra: str) -> Ending:
    """Declare an info metric; `extra` are the label names that it adds to those of its rows."""
    return Ending(Kind.INFO, text, extra)


def histogram(text: str, *buckets: float) -> Ending:
    """Declare a histogram; `buckets` are the upper bounds without +Inf."""
    return Ending(Kind.HISTOGRAM, text, buckets=buckets)


_DIRECTIONS = MappingProxyType(
    {
        "receive": MappingProxyType(
            {
                "Did": "Received",
                "did": "received",
                "direction": "receive",
                "paused": "this port",
                "pausing": "received from the link partner",
            }
        ),
        "transmit": MappingProxyType(
            {
                "Did": "Transmitted",
                "did": "transmitted",
                "direction": "transmit",
                "paused": "the link partner",
                "pausing": "transmitted by this port",
            }
        ),
    }
)
"""Words of HELP texts by direction. Pause frames stop the side that receives them from transmitting."""


def _both_directions(endings: Mapping[str, Ending]) -> dict[str, Ending]:
    """Declare each ending once with `receive_` and once with `transmit_`."""
    return {
        f"{direction}_{ending}": replace(declared, help=declared.help.format_map({**words, "note": "{note}"}))
        for ending, declared in endings.items()
        for direction, words in _DIRECTIONS.items()
    }


ENDINGS: Mapping[str, Ending] = MappingProxyType(
    {
        **_both_directions(
            {
                "bytes_total": counter("Bytes {did}.{note}"),
                "packets_total": counter("Packets {did}.{note}"),
                "unicast_packets_total": counter("Unicast packets {did}."),
                "multicast_packets_total": counter("Multicast packets {did}."),
                "broadcast_packets_total": counter("Broadcast packets {did}."),
                "pause_frames_total": counter(
                    "IEEE 802.3x PAUSE frames {did}, which stop {paused} from transmitting (aPAUSEMACCtrlFrames{Did})."
                ),
                "paused_seconds_total": counter(
                    "Time during which IEEE 802.3x PAUSE frames {pausing} stopped {paused} from transmitting."
                ),
                "pfc_frames_total": counter(
                    "IEEE 802.1Qbb priority-based flow control (PFC) frames {did} that pause the priority on {paused}."
                ),
                "pfc_paused_seconds_total": counter(
                    "Time during which IEEE 802.1Qbb PFC frames {pausing} paused the priority on {paused}."
                ),
                "bytes_per_second": gauge("Bytes {did} per second, mean of the last poll interval."),
                "packets_per_second": gauge("Packets {did} per second, mean of the last poll interval."),
                "utilization_ratio": gauge(
                    "Mean {direction} rate of the last poll interval divided by the link speed, from 0 to 1."
                ),
                "utilization_samples": histogram(
                    "Utilization of the link in {direction} direction, sampled at a fixed interval, as a share of the"
                    " link speed. Independent of the scrape interval.",
                    0.5,
                    0.8,
                    0.95,
                ),
                "utilization_highest_ratio": gauge(
                    "Highest utilization of the link in {direction} direction among the samples of the last minute, as"
                    " a share of the link speed."
                ),
                "busy_seconds_total": counter(
                    "Time in which the link carried traffic in {direction} direction: the samples of the source bursts"
                    " with at least 1 % of the link speed."
                ),
                "paused_ratio": gauge(
                    "Share of the last poll interval during which IEEE 802.3x PAUSE frames {pausing} stopped {paused}"
                    " from transmitting."
                ),
                "pfc_paused_ratio": gauge(
                    "Share of the last poll interval during which IEEE 802.1Qbb PFC frames {pausing} paused the"
                    " priority on {paused}."
                ),
                "imbalance_ratio": gauge(
                    "Bytes {did} by the busiest member of the group divided by the mean of all members, minus one, in"
                    " the last minute."
                ),
                "deficit_ratio": gauge(
                    "One minus the bytes {did} by the least busy member of the group divided by the mean of all"
                    " members, in the last minute: 1 for a member without traffic."
                ),
            }
        ),
        "receive_errors_total": counter("Packets received with errors that prevented their delivery."),
        "transmit_errors_total": counter("Packets that could not be transmitted because of errors."),
        "receive_discards_total": counter(
            "Packets received without errors and discarded, for example for lack of buffer space."
        ),
        "transmit_discards_total": counter(
            "Packets without errors that were not transmitted but discarded, for example for lack of buffer space or"
            " because the link was down."
        ),
        "ecn_marked_packets_total": counter(
            "Packets with the ECN codepoint CE (congestion experienced): marked by a switch (DCQCN congestion point) or"
            " received by an endpoint (notification point)."
        ),
        "cnp_sent_total": counter(
            "Congestion notification packets (CNPs) transmitted by this DCQCN notification point to senders whose"
            " packets arrived marked with ECN CE."
        ),
        "cnp_received_total": counter(
            "Congestion notification packets (CNPs) received by this DCQCN reaction point, handled or ignored."
        ),
        "cnp_handled_total": counter(
            "Congestion notification packets (CNPs) received for which this DCQCN reaction point reduced its rate."
        ),
        "cnp_ignored_total": counter(
            "Congestion notification packets (CNPs) received that this DCQCN reaction point ignored."
        ),
        "retransmitted_packets_total": counter(
            "Packets transmitted again because they or their acknowledgements were lost."
        ),
        "symbol_errors_total": counter(
            "Symbol errors detected by the physical layer while the carrier was present (IEEE 802.3"
            " aSymbolErrorDuringCarrier)."
        ),
        "receive_remote_physical_errors_total": counter(
            "Packets received with the end bad packet (EBP) delimiter, set by a port upstream that detected the error"
            " (IBTA PortCounters PortRcvRemotePhysicalErrors)."
        ),
        "receive_switch_relay_errors_total": counter(
            "Packets received and discarded because the switch relay could not forward them (IBTA PortCounters"
            " PortRcvSwitchRelayErrors)."
        ),
        "receive_constraint_errors_total": counter(
            "Packets received on a switch port and discarded by its raw packet filter or partition enforcement (IBTA"
            " PortCounters PortRcvConstraintErrors)."
        ),
        "transmit_constraint_errors_total": counter(
            "Packets not transmitted from a switch port because of its raw packet filter or partition enforcement (IBTA"
            " PortCounters PortXmitConstraintErrors)."
        ),
        "transmit_wait_ticks_total": counter(
            "Ticks during which the port had data to transmit and transmitted none, because it had no flow control"
            " credits or did not win arbitration; the length of a tick depends on the device (IBTA PortCounters"
            " PortXmitWait)."
        ),
        "link_error_recovery_total": counter(
            "Times the link error recovery process completed successfully (IBTA PortCounters LinkErrorRecoveryCounter)."
        ),
        "local_link_integrity_errors_total": counter(
            "Times that local physical errors exceeded the threshold LocalPhyErrors (IBTA PortCounters"
            " LocalLinkIntegrityErrors)."
        ),
        "excessive_buffer_overrun_errors_total": counter(
            "Times that consecutive flow control update periods with buffer overruns exceeded the threshold"
            " OverrunErrors (IBTA PortCounters ExcessiveBufferOverrunErrors)."
        ),
        "vl15_dropped_total": counter(
            "Management packets received on virtual lane 15 and dropped for lack of buffer space (IBTA PortCounters"
            " VL15Dropped)."
        ),
        "fcs_errors_total": counter(
            "Frames received with a frame check sequence (FCS) error (IEEE 802.3 aFrameCheckSequenceErrors)."
        ),
        "fec_corrected_blocks_total": counter(
            "FEC blocks (codewords) received with errors that were corrected (IEEE 802.3 aFECCorrectedBlocks)."
        ),
        "fec_uncorrectable_blocks_total": counter(
            "FEC blocks (codewords) received with errors that could not be corrected, each a loss of one packet or more"
            " (IEEE 802.3 aFECUncorrectableBlocks)."
        ),
        "out_of_buffer_total": counter("Packets received and dropped because the receive queue had no buffer posted."),
        "link_up": gauge("Whether the link is up and can carry traffic (1) or not (0)."),
        "link_speed_bytes_per_second": gauge(
            "Current speed of the link; absent while the link is down, or its speed is unknown or disproved by its"
            " traffic."
        ),
        "link_max_speed_bytes_per_second": gauge("Highest speed that the hardware of the port supports."),
        "link_expected_speed_bytes_per_second": gauge(
            "Speed expected of the link: from the configuration; else, for a network device that carries RDMA, the"
            " highest speed that its hardware supports, where the driver reports it; else the highest speed on which"
            " two ports of the same model agree."
        ),
        "link_degraded": gauge(
            "Whether the link is slower than expected (1) or not (0); absent without an expected speed. A link that"
            " lost lanes is slower; lanes are not compared separately."
        ),
        "link_down_total": counter("Times the link went down."),
        "asymmetry_ratio": gauge(
            "(Bytes received - bytes transmitted) / (bytes received + bytes transmitted) in the last minute: 1 for a"
            " port that only receives, -1 for one that only transmits; absent with little traffic."
        ),
        "ecn_marked_ratio": gauge(
            "RoCE packets received with ECN CE divided by packets received, in the last poll interval; absent below"
            " 1,000 packets received. Too high where virtual functions share the port and the device counts marked"
            " packets of the whole port, but received packets of this function."
        ),
        "cnp_sent_ratio": gauge(
            "Congestion notification packets (CNPs) transmitted divided by packets received, in the last poll interval;"
            " absent below 1,000 packets received."
        ),
        "cnp_handled_ratio": gauge(
            "Congestion notification packets (CNPs) for which this DCQCN reaction point reduced its rate (CNPs"
            " received, where the device does not count those), divided by packets transmitted in the last poll"
            " interval; absent below 1,000 packets transmitted."
        ),
        "retransmission_ratio": gauge(
            "Packets retransmitted, where the device counts them, else events that cause retransmission (NAKs for PSN"
            " sequence errors, implied NAKs, local ACK timeouts, RNR NAKs, adaptive retransmissions), divided by"
            " packets transmitted in the last poll interval; absent below 1,000 packets transmitted."
        ),
        "mtu_bytes": gauge("Maximum transmission unit (MTU) of the port."),
        "resets_total": counter("Times that the counters with these labels were reset, as detected by this exporter."),
        "saturated": gauge("1 for a counter that reached the top of its range and no longer increases."),
    }
)
"""The shared endings. `{note}` is where a schema describes what its bytes and packets contain."""

RATES = MappingProxyType(
    {
        **{
            f"{direction}_{what}_total": f"{direction}_{what}_per_second"
            for direction in _DIRECTIONS
            for what in ("bytes", "packets")
        },
        **{
            f"{direction}_{what}_seconds_total": f"{direction}_{what}_ratio"
            for direction in _DIRECTIONS
            for what in ("paused", "pfc_paused")
        },
    }
)
"""Counters that are also exported as rates, with the ending of the rate: bytes, packets and paused time only."""

UTILIZATION = MappingProxyType(
    {f"{direction}_bytes_per_second": f"{direction}_utilization_ratio" for direction in _DIRECTIONS}
)
"""Rates that are also exported as a share of the link speed, with the ending of that share."""

SPEED = "link_speed_bytes_per_second"
MAX_SPEED = "link_max_speed_bytes_per_second"
EXPECTED_SPEED = "link_expected_speed_bytes_per_second"

RESETS = "resets_total"
"""Added by `meaning.ports.rates` to tables whose schema declares it. Schemas of priorities and
queues do not: their counters are reset together with those of the port."""

SAMPLES = "byte_samples"
"""Column of an internal schema, the input of `meaning.ports.bursts`: for each row the samples of one poll interval,
each (time, bytes received, bytes transmitted, link speed in bytes per second)."""


def unit_of(name: str) -> str:
    """Return the base unit that a metric name ends in; empty for a name without a unit."""
    bare = name.removesuffix("_total")
    return next((unit for unit in UNITS if bare.endswith(f"_{unit}")), "")


def metric(
    prefix: str,
    labels: tuple[str, ...],
    ending: str,
    declared: Ending | None = None,
    *,
    note: str = "",
    origins: Sequence[str] = (),
    detail: bool = False,
) -> Metric:
    """Return the Metric of a prefix and ending; `declared` defaults to the shared declaration of the ending."""
    declared = declared or ENDINGS[ending]
    text = declared.help.replace("{note}", f" {note}" if note else "")
    name = prefix + ending
    return Metric(
        name,
        declared.kind,
        text,
        labels,
        ending,
        unit_of(name),
        extra=declared.extra,
        buckets=declared.buckets,
        origins=tuple(origins),
        detail=detail,
    )


def schema(
    prefix: str,
    labels: tuple[str, ...],
    shared: Iterable[str] = (),
    own: Mapping[str, Ending] | None = None,
    *,
    note: str = "",
    helps: Mapping[str, str] | None = None,
    origins: Mapping[str, Sequence[str]] | None = None,
    internal: bool = False,
    details: Iterable[str] = (),
) -> Schema:
    """Declare a schema from shared endings and its own.

    Args:
        prefix: Prefix of the metric names, such as `fabric_nic_`.
        labels: Label names of the rows.
        shared: Names of shared endings.
        own: Declarations of endings that only this schema has, by ending.
        note: Sentence for the HELP texts: what bytes and packets of this schema contain.
        helps: HELP texts that replace the shared ones, by ending, for example to name the counter of a standard.
        origins: Where the values come from (files, OIDs, keys), by ending; for the documentation.
        internal: Whether the tables are only input of `exporter.meaning`, and never exported.
        details: Endings, also of derived rates, that are exported only if the configuration lists them under `keep`.
    """
    detail_endings = frozenset(details)
    declared: dict[str, Ending | None] = {**dict.fromkeys(shared), **(own or {})}
    declared |= {
        ending: replace(declared[ending] or ENDINGS[ending], help=text) for ending, text in (helps or {}).items()
    }
    origins = origins or {}
    metrics = {
        ending: metric(
            prefix,
            labels,
            ending,
            declaration,
            note=note,
            origins=origins.get(ending, ()),
            detail=ending in detail_endings,
        )
        for ending, declaration in declared.items()
    }
    return Schema(prefix, labels, MappingProxyType(metrics), internal, detail_endings)


_NAME = re.compile(r"fabric_[a-z0-9]+(_[a-z0-9]+)*")
_LABEL = re.compile(r"[a-z][a-z0-9_]*")
_NOT_BASE_UNIT = re.compile(
    r"_(bits|kilobytes|kb|mb|gb|gbps|mbps|milliseconds|ms|microseconds|us|ns|percent|percentage|minutes|hours)(_|$)"
)
_RESERVED_LABELS = frozenset(
    {"le", "quantile", "job", "instance", "type", "cluster", "region", "zone", "env", "service", "owner"}
)
_RESERVED_ENDINGS = ("_sum", "_count", "_bucket", "_created")


def check(metrics: Iterable[Metric]) -> list[str]:
    """Check declared metrics for bad names, non-base units and name collisions.

    Returns:
        One text for each problem.
    """
    problems: list[str] = []
    by_name: dict[str, Metric] = {}
    for metric in metrics:
        problems += _check_name(metric)
        first = by_name.setdefault(metric.name, metric)
        if (first.kind, first.help, first.labels, first.extra) != (
            metric.kind,
            metric.help,
            metric.labels,
            metric.extra,
        ):
            problems.append(f"{metric.name}: declared twice with different type, HELP or labels")
    families: dict[str, str] = {}
    for name in by_name:
        first_name = families.setdefault(name.removesuffix("_total").removesuffix("_info"), name)
        if first_name != name:
            problems.append(f"{name}: is the same metric family in OpenMetrics as {first_name}")
    return problems


def _check_name(metric: Metric) -> list[str]:
    labels = (*metric.labels, *metric.extra)
    rules = {
        "not lower-case words joined by _ after fabric_": not _NAME.fullmatch(metric.name),
        "only counters end in _total, and all do": metric.name.endswith("_total") != (metric.kind is Kind.COUNTER),
        "only infos end in _info, and all do": metric.name.endswith("_info") != (metric.kind is Kind.INFO),
        "not a base unit": bool(_NOT_BASE_UNIT.search(metric.name)),
        "the ending is reserved for histograms and summaries": metric.name.endswith(_RESERVED_ENDINGS),
        "an invalid label name": not all(_LABEL.fullmatch(label) for label in labels),
        "a label name that scrapes or other exporters set": bool(_RESERVED_LABELS & {*labels}),
        "a duplicate label name": len({*labels}) != len(labels),
        "no HELP": not metric.help.strip() or "{" in metric.help,
        "only histograms have buckets, and all do": bool(metric.buckets) != (metric.kind is Kind.HISTOGRAM),
    }
    return [f"{metric.name}: {rule}" for rule, broken in rules.items() if broken]
