"""The words that sources share: endings of metric names with their kind, unit and meaning, and the name check.

The same thing has the same ending everywhere; a schema's prefix says what kind of port it is. A source declares what
it has by naming endings from here and adding its own.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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
"""Units that may end a name (before `_total`), longest first."""


@dataclass(frozen=True, slots=True)
class Ending:
    """One shared ending: what it is and what it means; `{note}` in the help is filled by the schema."""

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
    """Declare numbers of which nobody knows whether they only rise."""
    return Ending(Kind.UNKNOWN, text)


def info(text: str, *extra: str) -> Ending:
    """Declare an info metric with the label names that it adds to those of its rows."""
    return Ending(Kind.INFO, text, extra)


def histogram(text: str, *buckets: float) -> Ending:
    """Declare a histogram with the upper bounds of its buckets, without +Inf."""
    return Ending(Kind.HISTOGRAM, text, buckets=buckets)


def _both_ways(endings: Mapping[str, Ending]) -> dict[str, Ending]:
    """Declare each ending for both directions; {Did}, {verb} and the like follow the direction."""
    words = {
        "receive": {"Did": "Received", "did": "received", "peer": "the peer stopped this port from sending"},
        "transmit": {"Did": "Transmitted", "did": "transmitted", "peer": "this port stopped its peer from sending"},
    }
    return {
        f"{direction}_{ending}": replace(declared, help=declared.help.format_map({**fill, "note": "{note}"}))
        for ending, declared in endings.items()
        for direction, fill in words.items()
    }


ENDINGS: dict[str, Ending] = {
    **_both_ways(
        {
            "bytes_total": counter("Bytes {did}.{note}"),
            "packets_total": counter("Packets {did}.{note}"),
            "unicast_packets_total": counter("Unicast packets {did}."),
            "multicast_packets_total": counter("Multicast packets {did}."),
            "broadcast_packets_total": counter("Broadcast packets {did}."),
            "errors_total": counter("Packets that could not be {did} for an error."),
            "discards_total": counter("Packets dropped though they had no error: for lack of room, or of a link."),
            "pause_frames_total": counter("802.3x pause frames {did}: {peer}."),
            "paused_seconds_total": counter("Time under 802.3x pause: {peer}."),
            "pfc_frames_total": counter("Priority flow control frames {did} for the priority: {peer}."),
            "pfc_paused_seconds_total": counter("Time the priority was paused by flow control: {peer}."),
            "bytes_per_second": gauge("Bytes {did} per second over the last interval of reading."),
            "packets_per_second": gauge("Packets {did} per second over the last interval of reading."),
            "utilization_ratio": gauge("Share of the link's speed in use over the last interval of reading."),
            "utilization_samples": histogram(
                "Share of the link's speed in use, sampled at a fixed tick: over each tick, whoever scrapes.",
                0.5,
                0.8,
                0.95,
            ),
            "utilization_highest_ratio": gauge(
                "Highest share of the link's speed in use over a tick, of all samples of the last minute."
            ),
            "paused_ratio": gauge("Share of the last interval under 802.3x pause: {peer}."),
            "pfc_paused_ratio": gauge("Share of the last interval that the priority was paused: {peer}."),
            "imbalance_ratio": gauge(
                "Bytes {did} by the busiest member of the group over the mean of all, minus one, over a minute."
            ),
            "deficit_ratio": gauge(
                "One minus the bytes {did} by the idlest member of the group over the mean of all, over a minute:"
                " 1 for a member that moves nothing."
            ),
        }
    ),
    "ecn_marked_packets_total": counter("Packets with the congestion mark (ECN CE) seen or set here."),
    "cnp_sent_total": counter("Congestion notification packets sent back to senders whose packets came marked."),
    "cnp_received_total": counter("Congestion notification packets received, whatever came of them."),
    "cnp_handled_total": counter("Congestion notification packets received that made this sender slow down."),
    "cnp_ignored_total": counter("Congestion notification packets received that changed nothing."),
    "retransmitted_packets_total": counter("Packets sent again: they were lost, or their acknowledgement was."),
    "symbol_errors_total": counter("Errors of the physical coding."),
    "receive_remote_physical_errors_total": counter("Packets received that were marked bad by a port before this."),
    "receive_switch_relay_errors_total": counter("Packets dropped because the switch could not forward them."),
    "receive_constraint_errors_total": counter("Packets received against the partition or raw-packet rules."),
    "transmit_constraint_errors_total": counter("Packets not sent for the partition or raw-packet rules."),
    "transmit_wait_ticks_total": counter(
        "Ticks, of a length that depends on the device, in which there was data but none could be sent."
    ),
    "link_error_recovery_total": counter("Times the link recovered from an error by itself."),
    "local_link_integrity_errors_total": counter("Times that local physical errors exceeded their threshold."),
    "excessive_buffer_overrun_errors_total": counter("Times that buffer overruns went on for too long."),
    "vl15_dropped_total": counter("Management packets dropped for lack of room."),
    "fcs_errors_total": counter("Frames with a wrong checksum."),
    "fec_corrected_blocks_total": counter("Blocks that forward error correction mended."),
    "fec_uncorrectable_blocks_total": counter(
        "Blocks that forward error correction could not mend, each the loss of a packet or more."
    ),
    "out_of_buffer_total": counter("Packets dropped because the receiver had posted no buffer."),
    "link_up": gauge("Whether the link carries traffic (1) or not (0)."),
    "link_speed_bytes_per_second": gauge("Speed of the link as it is now; absent while it is down or not known."),
    "link_max_speed_bytes_per_second": gauge("Speed of the fastest mode that the port's own hardware has."),
    "link_expected_speed_bytes_per_second": gauge(
        "Speed the link should have: from the configuration; else, of a network device that carries RDMA and whose"
        " driver tells, the most that its own hardware can do; else the best of its siblings of the same kind."
    ),
    "link_degraded": gauge(
        "Whether the link is slower than expected (1) or not (0); absent where nothing is expected. Lanes are not"
        " judged apart: a link that lost some is slower."
    ),
    "link_down_total": counter("Times the link went down."),
    "asymmetry_ratio": gauge(
        "Bytes received less bytes transmitted, over their sum, over a minute: 1 where all is received, -1 where all"
        " is sent; absent where there is little traffic."
    ),
    "ecn_marked_ratio": gauge(
        "RoCE packets received with the congestion mark over packets received, over the last interval of reading;"
        " absent under 1,000 packets. Where virtual functions share the port, marks may be of the whole port, and"
        " packets of this function alone: then it is too high."
    ),
    "cnp_sent_ratio": gauge(
        "Congestion notification packets sent over packets received, over the last interval of reading; absent under"
        " 1,000 packets."
    ),
    "cnp_handled_ratio": gauge(
        "Congestion notification packets received that made this sender slow down, or all received where the device"
        " does not tell those, over packets transmitted, over the last interval of reading; absent under 1,000 packets."
    ),
    "retransmission_ratio": gauge(
        "Packets sent again, where the device counts them, else what made this sender send again (sequence errors told"
        " or implied, acknowledgements that did not come, missing buffers of the peer, adaptive retransmissions), over"
        " packets transmitted, over the last interval of reading; absent under 1,000 packets."
    ),
    "mtu_bytes": gauge("Largest packet the port takes."),
    "resets_total": counter("Times that counters of the row started anew since it was first seen."),
    "saturated": gauge("1 for a counter that stands at the top of its range and will never rise again."),
}
"""The shared endings. `{note}` is where a schema says what its bytes and packets contain."""

RATES = {
    **{
        f"{way}_{what}_total": f"{way}_{what}_per_second"
        for way in ("receive", "transmit")
        for what in ("bytes", "packets")
    },
    **{
        f"{way}_{what}_seconds_total": f"{way}_{what}_ratio"
        for way in ("receive", "transmit")
        for what in ("paused", "pfc_paused")
    },
}
"""Counters whose change per second is exported, with the ending it has: bytes, packets and paused time only."""

UTILIZATION = {f"{way}_bytes_per_second": f"{way}_utilization_ratio" for way in ("receive", "transmit")}
"""Rates that are set against the link's speed."""

SPEED = "link_speed_bytes_per_second"
MAX_SPEED = "link_max_speed_bytes_per_second"
EXPECTED_SPEED = "link_expected_speed_bytes_per_second"

RESETS = "resets_total"
"""Filled in by meaning where the schema declares it: tables of finer rows start anew together with the port's own."""

SAMPLES = "byte_samples"
"""Column of an internal schema: per row the samples of one interval, each (time, bytes received, bytes transmitted,
bytes per second that the link can do), from which bursts are told."""


def unit_of(name: str) -> str:
    """Read the base unit off a metric's name; empty for plain numbers."""
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
    """Make one Metric from its declaration, or from the shared endings where none is given."""
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
    """Declare a schema: endings taken from the shared ones, and its own with their declarations.

    Args:
        prefix: `fabric_nic_` and the like.
        labels: Label names of the rows.
        shared: Endings that mean here what they mean everywhere.
        own: Endings of this schema alone.
        note: What bytes and packets of this schema contain; a sentence for the help texts.
        helps: Help texts of shared endings whose meaning is narrower here, such as that of one counter of a standard.
        origins: By ending, where the values come from.
        internal: Whether the tables are only food for meaning.
        details: Endings that are exported only where the configuration keeps them, those of rates included.
    """
    fine = frozenset(details)
    declared: dict[str, Ending | None] = {**dict.fromkeys(shared), **(own or {})}
    declared |= {
        ending: replace(declared[ending] or ENDINGS[ending], help=text) for ending, text in (helps or {}).items()
    }
    found = origins or {}
    metrics = {
        ending: metric(prefix, labels, ending, what, note=note, origins=found.get(ending, ()), detail=ending in fine)
        for ending, what in declared.items()
    }
    return Schema(prefix, labels, metrics, internal, fine)


_NAME = re.compile(r"fabric_[a-z0-9]+(_[a-z0-9]+)*")
_LABEL = re.compile(r"[a-z][a-z0-9_]*")
_NOT_BASE = re.compile(
    r"_(bits|kilobytes|kb|mb|gb|gbps|mbps|milliseconds|ms|microseconds|us|ns|percent|percentage|minutes|hours)(_|$)"
)
_RESERVED_LABELS = {"le", "quantile", "job", "instance", "type", "cluster", "region", "zone", "env", "service", "owner"}
_RESERVED_ENDS = ("_sum", "_count", "_bucket", "_created")


def check(metrics: Iterable[Metric]) -> list[str]:
    """Find what is wrong with declared metrics: form, units, clashes. Empty when all is well."""
    problems: list[str] = []
    seen: dict[str, Metric] = {}
    for one in metrics:
        problems += _check_name(one)
        other = seen.setdefault(one.name, one)
        if (other.kind, other.help, other.labels, other.extra) != (one.kind, one.help, one.labels, one.extra):
            problems.append(f"{one.name}: declared twice with another kind, help or set of labels")
    families: dict[str, str] = {}
    for name in seen:
        other_name = families.setdefault(name.removesuffix("_total").removesuffix("_info"), name)
        if other_name != name:
            problems.append(f"{name}: is the same family in OpenMetrics as {other_name}")
    return problems


def _check_name(one: Metric) -> list[str]:
    """Check one metric alone."""
    rules = {
        "not lower-case words joined by _ after fabric_": not _NAME.fullmatch(one.name),
        "a counter ends in _total, and nothing else does": one.name.endswith("_total") != (one.kind is Kind.COUNTER),
        "an info ends in _info, and nothing else does": one.name.endswith("_info") != (one.kind is Kind.INFO),
        "not a base unit": bool(_NOT_BASE.search(one.name)),
        "the ending belongs to histograms": one.name.endswith(_RESERVED_ENDS),
        "a label name of bad form": not all(_LABEL.fullmatch(label) for label in one.labels + one.extra),
        "a label name that others use": bool(_RESERVED_LABELS & {*one.labels, *one.extra}),
        "a label twice": len({*one.labels, *one.extra}) != len(one.labels + one.extra),
        "no help": not one.help.strip() or "{" in one.help,
        "buckets only for histograms": bool(one.buckets) != (one.kind is Kind.HISTOGRAM),
    }
    return [f"{one.name}: {rule}" for rule, broken in rules.items() if broken]
