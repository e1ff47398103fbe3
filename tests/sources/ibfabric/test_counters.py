"""Port counters of a simulated fabric: widths, maximums, rates, details, and link generations ibsim does not have."""

import pytest

from exporter.sources.ibfabric.model import format_guid
from tests.helpers.fabric_simulation import NARROW, TRAFFIC

NAMES = {name: f"{name}_total" for name in NARROW} | {"transmit_wait": "transmit_wait_ticks_total"}


async def test_each_counter_is_exported_under_its_own_name(fabric, make_sweeper):
    leaf = fabric.nodes[4]
    port = leaf.ports[1]
    for value, name in enumerate(NARROW, start=1):
        port.counts[name] = value
    for value, name in enumerate(TRAFFIC, start=10**12):
        port.counts[name] = value
    result = await make_sweeper().sweep()
    for value, (name, ending) in enumerate(NAMES.items(), start=1):
        assert result.value(ending, leaf, 1) == value, name
    for value, name in enumerate(TRAFFIC, start=10**12):
        ending = name.replace("words", "bytes")
        assert result.value(f"{ending}_total", leaf, 1) == (4 * value if ending != name else value)
    assert "fabric_ib_saturated" not in result.values


@pytest.mark.parametrize("name", NARROW)
async def test_a_counter_at_its_maximum_is_saturated_and_one_below_is_not(fabric, make_sweeper, name):
    leaf = fabric.nodes[4]
    leaf.ports[1].counts[name] = 1 << 40
    leaf.ports[2].counts[name] = (1 << NARROW[name]) - 2
    result = await make_sweeper().sweep()
    label = NAMES[name].removesuffix("_total")
    assert result.values["fabric_ib_saturated"] == {(format_guid(leaf.guid), "1", label): 1}
    assert result.value(NAMES[name], leaf, 1) == (1 << NARROW[name]) - 1


@pytest.mark.parametrize("name", NARROW)
async def test_64_bit_error_counters_are_preferred_and_do_not_saturate(fabric, make_sweeper, name):
    leaf = fabric.nodes[4]
    leaf.mask_2 = 1 << 1
    leaf.ports[1].counts[name] = (1 << NARROW[name]) - 1
    leaf.ports[2].counts[name] = 2**53 + 1
    result = await make_sweeper().sweep()
    assert result.value(NAMES[name], leaf, 1) == (1 << NARROW[name]) - 1
    assert result.value(NAMES[name], leaf, 2) == 2**53 + 1
    assert "fabric_ib_saturated" not in result.values
    assert not [one for one in leaf.requests if (one[1], one[17]) == (4, 0x12)]  # one request per port is enough


async def test_a_node_with_32_bit_counters_only_saturates(fabric, make_sweeper):
    leaf = fabric.nodes[4]
    leaf.mask = 1 << 12
    leaf.ports[1].counts = {"transmit_words": 1 << 40, "receive_words": 77, "transmit_unicast_packets": 5}
    result = await make_sweeper().sweep()
    assert result.value("transmit_bytes_total", leaf, 1) == 4 * (2**32 - 1)
    assert result.value("receive_bytes_total", leaf, 1) == 4 * 77
    assert result.value("transmit_unicast_packets_total", leaf, 1) is None
    assert result.values["fabric_ib_saturated"] == {(format_guid(leaf.guid), "1", "transmit_bytes"): 1}
    assert result.value("transmit_bytes_total", fabric.nodes[5], 1) == 0  # 64 bits wide, in another table


async def test_unsupported_unicast_multicast_and_wait_counters_are_absent(fabric, make_sweeper):
    leaf = fabric.nodes[4]
    leaf.mask = 1 << 10
    leaf.ports[1].counts = dict.fromkeys(TRAFFIC, 3 << 32) | {"transmit_wait": 9}
    result = await make_sweeper().sweep()
    assert result.value("transmit_packets_total", leaf, 1) == 3 << 32
    assert result.value("transmit_unicast_packets_total", leaf, 1) is None
    assert result.value("transmit_wait_ticks_total", leaf, 1) is None
    assert result.value("symbol_errors_total", leaf, 1) == 0


async def test_a_node_without_class_port_info_has_the_mandatory_counters(fabric, make_sweeper):
    leaf = fabric.nodes[4]
    leaf.unsupported = frozenset({(4, 1)})
    leaf.ports[1].counts = {"transmit_words": 5, "symbol_errors": 6}
    result = await make_sweeper().sweep()
    assert (result.value("transmit_bytes_total", leaf, 1), result.value("symbol_errors_total", leaf, 1)) == (20, 6)
    assert result.value("port_responding", leaf, 1) == 1
    assert not result.failures


async def test_rates_use_the_time_between_two_replies_of_the_port(fabric, make_sweeper):
    leaf = fabric.nodes[4]
    port = leaf.ports[1]
    sweeper = make_sweeper()
    result = await sweeper.sweep()
    assert result.value("transmit_bytes_per_second", leaf, 1) is None
    port.counts |= {"transmit_words": 25_000_000_000 * 10 // 4, "symbol_errors": 10}
    result = await sweeper.sweep(20)
    assert result.value("transmit_bytes_per_second", leaf, 1) == pytest.approx(12.5e9, rel=1e-3)
    assert result.value("transmit_utilization_ratio", leaf, 1) == pytest.approx(0.5, rel=1e-3)  # of 200 Gb/s
    assert result.value("transmit_bytes_per_second", leaf, 2) == 0


async def test_a_counter_reset_is_counted_and_gives_no_rate(fabric, make_sweeper):
    leaf = fabric.nodes[4]
    leaf.ports[1].counts = {"transmit_words": 10**15, "symbol_errors": 65535}
    sweeper = make_sweeper()
    await sweeper.sweep()
    leaf.ports[1].counts = {"transmit_words": 5, "symbol_errors": 1}
    result = await sweeper.sweep()
    assert result.value("transmit_bytes_per_second", leaf, 1) is None
    assert result.value("resets_total", leaf, 1) == 1
    assert result.value("transmit_bytes_total", leaf, 1) == 20
    assert "fabric_ib_saturated" not in result.values


@pytest.mark.parametrize("mask_2", [0, 1 << 1])
async def test_decreasing_error_counters_are_a_reset_and_no_wrap_at_any_width(fabric, make_sweeper, mask_2):
    leaf = fabric.nodes[4]
    leaf.mask_2 = mask_2
    leaf.ports[1].counts = {"link_down": 250}
    sweeper = make_sweeper()
    await sweeper.sweep()
    leaf.ports[1].counts = {"link_down": 5}
    result = await sweeper.sweep()
    assert (result.value("link_down_total", leaf, 1), result.value("resets_total", leaf, 1)) == (5, 1)


async def test_details_are_read_only_when_their_total_increased_and_are_kept(fabric, make_sweeper):
    leaf = fabric.nodes[4]
    port = leaf.ports[1]
    sweeper = make_sweeper()
    await sweeper.sweep()
    detail_requests = lambda: [(one[17], one[65]) for one in leaf.requests if one[1] == 4 and one[17] in (0x15, 0x16)]  # noqa: E731
    assert not detail_requests()
    port.counts |= {"receive_errors": 9, "local_physical": 4, "looping": 5, "transmit_discards": 2, "hoq_lifetime": 2}
    for _ in range(3):
        result = await sweeper.sweep()
        assert detail_requests() == [(0x15, 1), (0x16, 1)]
        assert result.value("receive_local_physical_errors_total", leaf, 1) == 4
        assert result.value("receive_looping_errors_total", leaf, 1) == 5
        assert result.value("receive_malformed_packet_errors_total", leaf, 1) == 0
        assert result.value("transmit_hoq_lifetime_limit_discards_total", leaf, 1) == 2
        assert result.value("receive_local_physical_errors_total", leaf, 2) is None
    port.counts |= {"receive_errors": 10, "local_physical": 65535}
    result = await sweeper.sweep()
    assert detail_requests() == [(0x15, 1), (0x16, 1), (0x15, 1)]
    assert (format_guid(leaf.guid), "1", "receive_local_physical_errors") in result.values["fabric_ib_saturated"]


@pytest.mark.parametrize("way", ["refused", "dropped"])
async def test_unsupported_details_are_requested_once_or_twice_and_affect_nothing_else(fabric, make_sweeper, way):
    leaf = fabric.nodes[4]
    if way == "refused":
        leaf.unsupported = frozenset({(4, 0x15)})
    else:
        leaf.tamper = lambda datagram: None if (datagram[1], datagram[17]) == (4, 0x15) else datagram
    leaf.ports[1].counts = {"receive_errors": 1}
    sweeper = make_sweeper()
    for errors in (1, 2, 3):
        leaf.ports[1].counts["receive_errors"] = errors
        result = await sweeper.sweep()
        assert result.value("receive_errors_total", leaf, 1) == errors
        assert result.value("port_responding", leaf, 1) == 1
        assert not result.failures
    assert len([one for one in leaf.requests if (one[1], one[17]) == (4, 0x15)]) == (1 if way == "refused" else 6)


async def test_enhanced_port_0_of_a_switch_has_counters(fabric, make_sweeper):
    leaf, other = fabric.nodes[4:6]
    leaf.enhanced_port_0 = True
    leaf.ports[0].counts["vl15_dropped"] = 3
    result = await make_sweeper().sweep()
    assert result.value("vl15_dropped_total", leaf, 0) == 3
    assert result.value("port_responding", other, 0) is None


# --- link generations


@pytest.mark.parametrize(
    ("lanes", "generation", "gbits"),
    [
        (1, "SDR", 2.5),
        (4, "DDR", 20),
        (12, "QDR", 120),
        (4, "FDR10", 40),
        (4, "FDR", 56),
        (4, "EDR", 100),
        (2, "HDR", 100),
        (4, "HDR", 200),
        (2, "NDR", 200),
        (4, "NDR", 400),
        (2, "XDR", 400),
        (4, "XDR", 800),
    ],
)
async def test_width_and_generation_of_a_link(fabric, make_sweeper, lanes, generation, gbits):
    host, leaf = fabric.nodes[3], fabric.nodes[5]
    every = ("SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR")
    can = every[: every.index(generation) + 1]
    widths = tuple(width for width in (1, 2, 4, 8, 12) if width <= lanes)
    fabric.link(leaf, 2, host, 1, lanes=lanes, generation=generation, supported_generations=can, supported_lanes=widths)
    sweeper = make_sweeper()
    for _ in range(2):  # by the discovery, and by the link poll
        result = await sweeper.sweep()
        for node, number in ((leaf, 2), (host, 1)):
            assert result.value("link_info", node, number)[3:] == (f"{lanes}X", generation)
            assert result.value("link_speed_bytes_per_second", node, number) == gbits * 1e9 / 8
            assert result.value("link_lanes", node, number) == lanes
            assert result.value("link_expected_speed_bytes_per_second", node, number) == gbits * 1e9 / 8
            assert result.value("link_degraded", node, number) == 0


async def test_expected_speed_is_supported_by_both_ends(fabric, make_sweeper):
    host, leaf = fabric.nodes[3], fabric.nodes[5]
    ports = fabric.link(leaf, 2, host, 1, lanes=2, generation="EDR")
    ports[0].supported_generations, ports[0].supported_lanes = ("SDR", "EDR", "HDR", "NDR"), (1, 2, 4)
    ports[1].supported_generations, ports[1].supported_lanes = ("SDR", "EDR", "HDR"), (1, 2)
    result = await make_sweeper().sweep()
    assert result.value("link_expected_speed_bytes_per_second", leaf, 2) == 100e9 / 8  # 2X HDR
    assert result.value("link_degraded", host, 1) == 1


# --- FEC and service levels


@pytest.mark.parametrize(
    ("rs", "mode", "expected"),
    [
        (True, 2, (11, 12)),
        (True, 3, (11, 12)),
        (True, None, (11, 12)),
        (True, 1, (13, 0)),
        (False, 2, (13, 0)),
        (True, 0, (13, 0)),
    ],
)
async def test_corrected_blocks_are_those_of_the_active_fec_mode(fabric, make_sweeper, rs, mode, expected):
    leaf = fabric.nodes[4]
    leaf.mask |= (1 << 14) * rs
    leaf.ports[1].fec_mode, leaf.ports[1].fec = mode, (11, 12, 13)
    result = await make_sweeper().sweep()
    found = result.value("fec_corrected_blocks_total", leaf, 1), result.value("fec_uncorrectable_blocks_total", leaf, 1)
    assert found == expected


async def test_fec_counters_are_not_read_from_a_qdr_link(fabric, make_sweeper):
    host, leaf = fabric.nodes[3], fabric.nodes[5]
    fabric.link(leaf, 2, host, 1, generation="QDR")
    result = await make_sweeper().sweep()
    assert result.value("fec_corrected_blocks_total", leaf, 2) is None
    assert result.value("fec_corrected_blocks_total", leaf, 1) == 0
    assert not [one for one in host.requests if (one[1], one[17]) == (4, 0x1F)]


async def test_traffic_by_service_level_is_exported_if_enabled_and_not_zero(fabric, make_sweeper):
    leaf = fabric.nodes[4]
    leaf.ports[1].sent_by_sl = {0: 100, 5: 2**32 - 1}
    result = await make_sweeper(service_levels=True).sweep()
    assert result.value("transmit_service_level_bytes_total", leaf, 1, "0") == 400
    assert result.value("transmit_service_level_bytes_total", leaf, 1, "5") == 4 * (2**32 - 1)
    assert len(result.values["fabric_ib_transmit_service_level_bytes_total"]) == 2
    before = len([one for one in leaf.requests if one[17] == 0x36])
    assert before == 3
