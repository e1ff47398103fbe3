"""What ports counted, over a simulated fabric: widths, ceilings, rates, details, and generations no simulator has."""

import pytest

from exporter.sources.ibfabric.model import format_guid
from tests.helpers.fabric_simulation import NARROW, TRAFFIC

NAMES = {name: f"{name}_total" for name in NARROW} | {"transmit_wait": "transmit_wait_ticks_total"}


async def test_each_counter_is_told_under_its_own_name(fabric, swept):
    leaf = fabric.nodes[4]
    port = leaf.ports[1]
    for value, name in enumerate(NARROW, start=1):
        port.counts[name] = value
    for value, name in enumerate(TRAFFIC, start=10**12):
        port.counts[name] = value
    seen = await swept().look()
    for value, (name, ending) in enumerate(NAMES.items(), start=1):
        assert seen.at(ending, leaf, 1) == value, name
    for value, name in enumerate(TRAFFIC, start=10**12):
        ending = name.replace("words", "bytes")
        assert seen.at(f"{ending}_total", leaf, 1) == (4 * value if ending != name else value)
    assert "fabric_ib_saturated" not in seen.values


@pytest.mark.parametrize("name", NARROW)
async def test_a_counter_at_its_ceiling_is_flagged_and_one_below_is_not(fabric, swept, name):
    leaf = fabric.nodes[4]
    leaf.ports[1].counts[name] = 1 << 40
    leaf.ports[2].counts[name] = (1 << NARROW[name]) - 2
    seen = await swept().look()
    label = NAMES[name].removesuffix("_total")
    assert seen.values["fabric_ib_saturated"] == {(format_guid(leaf.guid), "1", label): 1}
    assert seen.at(NAMES[name], leaf, 1) == (1 << NARROW[name]) - 1


@pytest.mark.parametrize("name", NARROW)
async def test_errors_of_64_bits_are_taken_where_there_are_and_have_no_such_ceiling(fabric, swept, name):
    leaf = fabric.nodes[4]
    leaf.mask_2 = 1 << 1
    leaf.ports[1].counts[name] = (1 << NARROW[name]) - 1
    leaf.ports[2].counts[name] = 2**53 + 1
    seen = await swept().look()
    assert seen.at(NAMES[name], leaf, 1) == (1 << NARROW[name]) - 1
    assert seen.at(NAMES[name], leaf, 2) == 2**53 + 1
    assert "fabric_ib_saturated" not in seen.values
    assert not [one for one in leaf.asked if (one[1], one[17]) == (4, 0x12)]  # one question tells it all


async def test_a_node_of_32_bits_alone_is_taken_at_its_word_and_flagged_at_its_end(fabric, swept):
    leaf = fabric.nodes[4]
    leaf.mask = 1 << 12
    leaf.ports[1].counts = {"transmit_words": 1 << 40, "receive_words": 77, "transmit_unicast_packets": 5}
    seen = await swept().look()
    assert seen.at("transmit_bytes_total", leaf, 1) == 4 * (2**32 - 1)
    assert seen.at("receive_bytes_total", leaf, 1) == 4 * 77
    assert seen.at("transmit_unicast_packets_total", leaf, 1) is None
    assert seen.values["fabric_ib_saturated"] == {(format_guid(leaf.guid), "1", "transmit_bytes"): 1}
    assert seen.at("transmit_bytes_total", fabric.nodes[5], 1) == 0  # of 64 bits, in a table of its own


async def test_a_node_without_casts_and_without_wait_has_none_of_them(fabric, swept):
    leaf = fabric.nodes[4]
    leaf.mask = 1 << 10
    leaf.ports[1].counts = dict.fromkeys(TRAFFIC, 3 << 32) | {"transmit_wait": 9}
    seen = await swept().look()
    assert seen.at("transmit_packets_total", leaf, 1) == 3 << 32
    assert seen.at("transmit_unicast_packets_total", leaf, 1) is None
    assert seen.at("transmit_wait_ticks_total", leaf, 1) is None
    assert seen.at("symbol_errors_total", leaf, 1) == 0


async def test_a_node_that_cannot_say_what_it_counts_has_the_counters_that_all_have(fabric, swept):
    leaf = fabric.nodes[4]
    leaf.lacks = frozenset({(4, 1)})
    leaf.ports[1].counts = {"transmit_words": 5, "symbol_errors": 6}
    seen = await swept().look()
    assert (seen.at("transmit_bytes_total", leaf, 1), seen.at("symbol_errors_total", leaf, 1)) == (20, 6)
    assert seen.at("port_responding", leaf, 1) == 1
    assert not seen.failures


async def test_rates_are_of_the_time_between_two_answers_of_the_port(fabric, swept):
    leaf = fabric.nodes[4]
    port = leaf.ports[1]
    one = swept()
    seen = await one.look()
    assert seen.at("transmit_bytes_per_second", leaf, 1) is None
    port.counts |= {"transmit_words": 25_000_000_000 * 10 // 4, "symbol_errors": 10}
    seen = await one.look(20)
    assert seen.at("transmit_bytes_per_second", leaf, 1) == pytest.approx(12.5e9, rel=1e-3)
    assert seen.at("transmit_utilization_ratio", leaf, 1) == pytest.approx(0.5, rel=1e-3)  # of 200 Gb/s
    assert seen.at("transmit_bytes_per_second", leaf, 2) == 0


async def test_counters_that_somebody_reset_are_a_reset_and_make_no_rate(fabric, swept):
    leaf = fabric.nodes[4]
    leaf.ports[1].counts = {"transmit_words": 10**15, "symbol_errors": 65535}
    one = swept()
    await one.look()
    leaf.ports[1].counts = {"transmit_words": 5, "symbol_errors": 1}
    seen = await one.look()
    assert seen.at("transmit_bytes_per_second", leaf, 1) is None
    assert seen.at("resets_total", leaf, 1) == 1
    assert seen.at("transmit_bytes_total", leaf, 1) == 20
    assert "fabric_ib_saturated" not in seen.values


@pytest.mark.parametrize("mask_2", [0, 1 << 1])
async def test_errors_that_fall_are_a_reset_and_no_wrap_whatever_their_width(fabric, swept, mask_2):
    leaf = fabric.nodes[4]
    leaf.mask_2 = mask_2
    leaf.ports[1].counts = {"link_down": 250}
    one = swept()
    await one.look()
    leaf.ports[1].counts = {"link_down": 5}
    seen = await one.look()
    assert (seen.at("link_down_total", leaf, 1), seen.at("resets_total", leaf, 1)) == (5, 1)


async def test_details_are_asked_for_only_where_what_they_divide_has_risen_and_are_kept(fabric, swept):
    leaf = fabric.nodes[4]
    port = leaf.ports[1]
    one = swept()
    await one.look()
    asked = lambda: [(one[17], one[65]) for one in leaf.asked if one[1] == 4 and one[17] in (0x15, 0x16)]  # noqa: E731
    assert not asked()
    port.counts |= {"receive_errors": 9, "local_physical": 4, "looping": 5, "transmit_discards": 2, "hoq_lifetime": 2}
    for _ in range(3):
        seen = await one.look()
        assert asked() == [(0x15, 1), (0x16, 1)]
        assert seen.at("receive_local_physical_errors_total", leaf, 1) == 4
        assert seen.at("receive_looping_errors_total", leaf, 1) == 5
        assert seen.at("receive_malformed_packet_errors_total", leaf, 1) == 0
        assert seen.at("transmit_hoq_lifetime_limit_discards_total", leaf, 1) == 2
        assert seen.at("receive_local_physical_errors_total", leaf, 2) is None
    port.counts |= {"receive_errors": 10, "local_physical": 65535}
    seen = await one.look()
    assert asked() == [(0x15, 1), (0x16, 1), (0x15, 1)]
    assert (format_guid(leaf.guid), "1", "receive_local_physical_errors") in seen.values["fabric_ib_saturated"]


@pytest.mark.parametrize("way", ["refused", "silent"])
async def test_details_that_a_node_does_not_have_are_asked_for_once_or_twice_and_cost_nothing_else(fabric, swept, way):
    leaf = fabric.nodes[4]
    if way == "refused":
        leaf.lacks = frozenset({(4, 0x15)})
    else:
        leaf.tamper = lambda datagram: None if (datagram[1], datagram[17]) == (4, 0x15) else datagram
    leaf.ports[1].counts = {"receive_errors": 1}
    one = swept()
    for errors in (1, 2, 3):
        leaf.ports[1].counts["receive_errors"] = errors
        seen = await one.look()
        assert seen.at("receive_errors_total", leaf, 1) == errors
        assert seen.at("port_responding", leaf, 1) == 1
        assert not seen.failures
    assert len([one for one in leaf.asked if (one[1], one[17]) == (4, 0x15)]) == (1 if way == "refused" else 6)


async def test_a_switch_whose_port_0_is_one_like_others_has_its_counters(fabric, swept):
    leaf, other = fabric.nodes[4:6]
    leaf.enhanced_port_0 = True
    leaf.ports[0].counts["vl15_dropped"] = 3
    seen = await swept().look()
    assert seen.at("vl15_dropped_total", leaf, 0) == 3
    assert seen.at("port_responding", other, 0) is None


# Links of each generation.


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
async def test_width_and_generation_of_a_link(fabric, swept, lanes, generation, gbits):
    host, leaf = fabric.nodes[3], fabric.nodes[5]
    every = ("SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR")
    can = every[: every.index(generation) + 1]
    widths = tuple(width for width in (1, 2, 4, 8, 12) if width <= lanes)
    fabric.link(leaf, 2, host, 1, lanes=lanes, generation=generation, can=can, can_lanes=widths)
    one = swept()
    for _ in range(2):  # as it was found, and as it is followed
        seen = await one.look()
        for node, number in ((leaf, 2), (host, 1)):
            assert seen.at("link_info", node, number)[3:] == (f"{lanes}X", generation)
            assert seen.at("link_speed_bytes_per_second", node, number) == gbits * 1e9 / 8
            assert seen.at("link_lanes", node, number) == lanes
            assert seen.at("link_expected_speed_bytes_per_second", node, number) == gbits * 1e9 / 8
            assert seen.at("link_degraded", node, number) == 0


async def test_what_is_expected_is_what_both_ends_can_do(fabric, swept):
    host, leaf = fabric.nodes[3], fabric.nodes[5]
    ports = fabric.link(leaf, 2, host, 1, lanes=2, generation="EDR")
    ports[0].can, ports[0].can_lanes = ("SDR", "EDR", "HDR", "NDR"), (1, 2, 4)
    ports[1].can, ports[1].can_lanes = ("SDR", "EDR", "HDR"), (1, 2)
    seen = await swept().look()
    assert seen.at("link_expected_speed_bytes_per_second", leaf, 2) == 100e9 / 8  # 2X HDR
    assert seen.at("link_degraded", host, 1) == 1


# Forward error correction and service levels.


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
async def test_blocks_that_were_corrected_are_those_of_the_code_that_runs(fabric, swept, rs, mode, expected):
    leaf = fabric.nodes[4]
    leaf.mask |= (1 << 14) * rs
    leaf.ports[1].fec_mode, leaf.ports[1].fec = mode, (11, 12, 13)
    seen = await swept().look()
    found = seen.at("fec_corrected_blocks_total", leaf, 1), seen.at("fec_uncorrectable_blocks_total", leaf, 1)
    assert found == expected


async def test_a_link_of_qdr_has_no_error_correction_to_ask_for(fabric, swept):
    host, leaf = fabric.nodes[3], fabric.nodes[5]
    fabric.link(leaf, 2, host, 1, generation="QDR")
    seen = await swept().look()
    assert seen.at("fec_corrected_blocks_total", leaf, 2) is None
    assert seen.at("fec_corrected_blocks_total", leaf, 1) == 0
    assert not [one for one in host.asked if (one[1], one[17]) == (4, 0x1F)]


async def test_traffic_by_service_level_is_told_where_it_is_asked_for_and_there_is_some(fabric, swept):
    leaf = fabric.nodes[4]
    leaf.ports[1].sent_by_sl = {0: 100, 5: 2**32 - 1}
    seen = await swept(service_levels=True).look()
    assert seen.at("transmit_service_level_bytes_total", leaf, 1, "0") == 400
    assert seen.at("transmit_service_level_bytes_total", leaf, 1, "5") == 4 * (2**32 - 1)
    assert len(seen.values["fabric_ib_transmit_service_level_bytes_total"]) == 2
    before = len([one for one in leaf.asked if one[17] == 0x36])
    assert before == 3
