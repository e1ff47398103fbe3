"""HELP texts name the counters of the standards that the metrics' origins name, and the direction of traffic."""

import re
from collections.abc import Iterator

import pytest

from exporter.core.table import Kind, Metric
from exporter.daemon.sources import SOURCES

PORT_COUNTERS = {
    "symbol_error": "SymbolErrorCounter",
    "link_error_recovery": "LinkErrorRecoveryCounter",
    "link_downed": "LinkDownedCounter",
    "port_rcv_errors": "PortRcvErrors",
    "port_rcv_remote_physical_errors": "PortRcvRemotePhysicalErrors",
    "port_rcv_switch_relay_errors": "PortRcvSwitchRelayErrors",
    "port_xmit_discards": "PortXmitDiscards",
    "port_xmit_constraint_errors": "PortXmitConstraintErrors",
    "port_rcv_constraint_errors": "PortRcvConstraintErrors",
    "local_link_integrity_errors": "LocalLinkIntegrityErrors",
    "excessive_buffer_overrun_errors": "ExcessiveBufferOverrunErrors",
    "VL15_dropped": "VL15Dropped",
    "port_xmit_data": "PortXmitData",
    "port_rcv_data": "PortRcvData",
    "port_xmit_packets": "PortXmitPkts",
    "port_rcv_packets": "PortRcvPkts",
    "port_xmit_wait": "PortXmitWait",
    "unicast_xmit_packets": "PortUnicastXmitPkts",
    "unicast_rcv_packets": "PortUnicastRcvPkts",
    "multicast_xmit_packets": "PortMulticastXmitPkts",
    "multicast_rcv_packets": "PortMulticastRcvPkts",
}
"""Counter of IBTA PortCounters and PortCountersExtended (volume 1, 16.1.3) for each file of sysfs `counters/`
(Documentation/ABI/stable/sysfs-class-infiniband)."""

DRIVER_COUNTERS = {
    "np_cnp_sent": r"DCQCN notification point",
    "np_ecn_marked_roce_packets": r"ECN.*notification point",
    "rp_cnp_handled": r"DCQCN reaction point",
    "rp_cnp_ignored": r"DCQCN reaction point",
    "packet_seq_err": r"NAK.*PSN sequence error",
    "implied_nak_seq_err": r"implied NAK",
    "rnr_nak_retry_err": r"RNR NAK",
    "local_ack_timeout_err": r"local ACK timeout",
    "rx_icrc_encapsulated": r"ICRC",
}
"""Words of DCQCN and of the IBTA transport for files of sysfs `hw_counters/`, as patterns in any case."""

ETHTOOL_STATISTICS = {
    "undersize": "etherStatsUndersizePkts",
    "oversize": "etherStatsOversizePkts",
    "fragments": "etherStatsFragments",
    "jabbers": "etherStatsJabbers",
}
"""Statistics of ethtool's group `rmon` (RFC 2819). All others are attributes of IEEE 802.3 clause 30, without
the `a`."""

MIB_OBJECT = re.compile(
    r"(?:IF-MIB|EtherLike-MIB|IEEE8021-PFC-MIB) (?P<sum>\w+(?: \+ \w+)*)(?P<alternatives>(?:, \w+)*)$"
)
IBTA_COUNTER = re.compile(
    r"\b(PortCounters|PortCountersExtended|PortExtendedSpeedsCounters|PortRcvErrorDetails|PortXmitDiscardDetails)\b"
    r"(?: (?!else\b)(\w+))?"
)


def _mib_objects(found: re.Match[str], _: Metric) -> list[tuple[str, ...]]:
    """Return all objects of a sum, of which only the first may have alternatives, such as its 32-bit form."""
    first, *others = found["sum"].split(" + ")
    return [(first, *found["alternatives"].split(", ")[1:]), *((other,) for other in others)]


def _driver_words(found: re.Match[str], _: Metric) -> list[tuple[str, ...]]:
    return [(DRIVER_COUNTERS[found[1]],)] if found[1] in DRIVER_COUNTERS else []


def _pause_frames(_: re.Match[str], metric: Metric) -> list[tuple[str, ...]]:
    direction = "Received" if metric.ending.startswith("receive_") else "Transmitted"
    return [(f"aPAUSEMACCtrlFrames{direction}",)]


def _fec_blocks(_: re.Match[str], metric: Metric) -> list[tuple[str, ...]]:
    if not metric.ending.endswith("_blocks_total"):
        return []  # wrong bits are no attribute of IEEE 802.3
    return [("aFECUncorrectableBlocks" if "uncorrectable" in metric.ending else "aFECCorrectedBlocks",)]


NAMES_BY_ORIGIN = (
    (re.compile(r"^counters/(\w+)$"), lambda found, _: [(PORT_COUNTERS[found[1]],)]),
    (re.compile(r"^hw_counters/(\w+)$"), _driver_words),
    (MIB_OBJECT, _mib_objects),
    (re.compile(r"STATS_GET (\w+)"), lambda found, _: [(ETHTOOL_STATISTICS.get(found[1], f"a{found[1]}"),)]),
    (re.compile(r"PAUSE_GET"), _pause_frames),
    (re.compile(r"FEC_GET"), _fec_blocks),
    (IBTA_COUNTER, lambda found, _: [(found[2],)] if found[2] else []),
)
"""For each form of an origin, which names HELP must contain: one of each tuple."""


def names_required(metric: Metric) -> Iterator[tuple[str, ...]]:
    """Yield, for each standard counter among a metric's origins, the names of which HELP must contain one."""
    for origin in metric.origins:
        for pattern, names in NAMES_BY_ORIGIN:
            for found in pattern.finditer(origin):
                yield from names(found, metric)


def counters() -> list[Metric]:
    found = [
        metric
        for definition in SOURCES
        for schema in definition.schemas
        if not schema.internal
        for metric in schema.metrics.values()
        if metric.kind is Kind.COUNTER
    ]
    assert len(found) > 100
    return found


def by_prefix(metrics: list[Metric]) -> list:
    """Return one parameter for each prefix, so that a failure shows whose metrics it is about."""
    prefixes = dict.fromkeys("_".join(one.name.split("_")[:2]) for one in metrics)
    return [
        pytest.param([one for one in metrics if one.name.startswith(f"{prefix}_")], id=prefix) for prefix in prefixes
    ]


STANDARD_COUNTERS = [one for one in counters() if any(True for _ in names_required(one))]

TRAFFIC = re.compile(r"_(receive|transmit)_(?:\w+_)?(bytes|packets|frames|errors)_total")
DIRECTIONS = {
    "receive": re.compile(r"\breceiv", re.IGNORECASE),
    "transmit": re.compile(r"\b(transmi|sent\b)", re.IGNORECASE),
}


def test_every_standard_is_covered():
    prefixes = {"_".join(one.name.split("_")[:2]) for one in STANDARD_COUNTERS}
    assert prefixes >= {"fabric_rdma", "fabric_nic", "fabric_ib", "fabric_switch"}


@pytest.mark.parametrize("metrics", by_prefix(STANDARD_COUNTERS))
def test_help_names_the_counter_of_the_standard(metrics):
    missing = [
        f"{one.name}: {' or '.join(names)} is not in {one.help!r}"
        for one in metrics
        for names in names_required(one)
        if not any(re.search(rf"(?<![A-Za-z]){name}s?(?![A-Za-z])", one.help, re.IGNORECASE) for name in names)
    ]
    assert missing == []


@pytest.mark.parametrize("metrics", by_prefix([one for one in counters() if TRAFFIC.search(one.name)]))
def test_help_names_the_direction_of_traffic(metrics):
    missing = [
        f"{one.name}: {one.help!r}"
        for one in metrics
        for direction in [TRAFFIC.search(one.name)[1]]
        if not DIRECTIONS[direction].search(one.help)
    ]
    assert missing == []


@pytest.mark.parametrize(
    "metrics", by_prefix([one for one in counters() if re.search(r"_pfc_\w*(frames|seconds)_total", one.name)])
)
def test_help_of_priority_flow_control_names_its_standard(metrics):
    assert [one.name for one in metrics if "802.1Qbb" not in one.help] == []


def test_origins_of_infiniband_counters_name_the_counter():
    """An attribute of performance management holds many counters: the origin names one."""
    origins = [
        (one.name, origin)
        for one in counters()
        for origin in one.origins
        if re.match(r"PortCounters(Extended)?\b", origin)
    ]
    assert origins
    assert [name for name, origin in origins if not any(counter for _, counter in IBTA_COUNTER.findall(origin))] == []


def test_help_ends_with_a_full_stop():
    assert [f"{one.name}: {one.help!r}" for one in counters() if not one.help.endswith(".")] == []
