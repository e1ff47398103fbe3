"""Parsers of NVUE.  All data is synthetic, in the documented structures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.nvue import parser as nvue
from exporter.switch_api.nvue.modules import NvueLane, NvueModule, parse_module
from exporter.switch_api.port import ShapeError

STATS = {
    "carrier-transitions": 6,
    "in-bytes": 2**63,
    "in-drops": 1,
    "in-errors": 2,
    "in-pkts": 3,
    "out-bytes": 4,
    "out-drops": 5,
    "out-errors": 6,
    "out-pkts": 7,
}


def interfaces(**ports):
    return {"eth0": {"type": "eth", "link": {"state": {"up": {}}}}, **ports}


def port(**link):
    return {"type": "swp", "ifindex": 4, "link": {"state": {"up": {}}, "speed": "400G", "stats": STATS, **link}}


def test_a_port_with_all_values():
    parsed = nvue.parse_interfaces(interfaces(swp1={**port(), "description": "gpu-001 rail 3"}))
    counted = {key: value for key, value in STATS.items() if key != "carrier-transitions"}
    assert parsed.ports == {"swp1": nvue.NvueInterface(True, 400 * 10**9, "4", "gpu-001 rail 3", counted)}
    assert parsed.problems == ()


@pytest.mark.parametrize(
    ("link", "up"),
    [
        ({"state": {"up": {}}}, True),
        ({"state": {"down": {}}}, False),
        ({"state": "down"}, False),
        ({"oper-status": "up"}, True),
        ({"state": {}}, None),
        ({}, None),
    ],
)
def test_the_state_is_a_key_or_a_text(link, up):
    (one,) = nvue.parse_interfaces(interfaces(swp1={"link": link})).ports.values()
    assert one.up is up


def test_only_front_panel_ports_and_their_breakout_ports():
    names = [
        "swp1",
        "swp2s0",
        "swp2s3",
        "swp64",
        "bond1",
        "lo",
        "mgmt",
        "swp1.100",
        "vlan10",
        "swp",
        "swp1s",
        "br_default",
    ]
    parsed = nvue.parse_interfaces(interfaces(**{name: port() for name in names}))
    assert list(parsed.ports) == ["swp1", "swp2s0", "swp2s3", "swp64"]


def test_one_malformed_port_or_value_affects_nothing_else():
    parsed = nvue.parse_interfaces(
        interfaces(
            swp1="broken",
            swp2=port(stats={"in-bytes": -1, "in-pkts": 2**64, "out-bytes": True, "out-pkts": "12 kB", "in-errors": 9}),
            swp3=port(speed="fast", state={"sideways": {}}),
            swp4=port(stats="none", speed=None),
            swp5={**port(), "lldp": ["?"]},
        )
    )
    assert list(parsed.ports) == ["swp2", "swp3", "swp4", "swp5"]
    assert parsed.ports["swp2"].counters == {"in-errors": 9}
    assert (parsed.ports["swp3"].speed, parsed.ports["swp3"].up) == (None, None)
    assert parsed.ports["swp4"].counters == {}
    assert parsed.ports["swp5"].neighbours is None
    assert sorted(problem.split(":")[0] for problem in parsed.problems) == ["swp1"] + ["swp2"] * 4 + ["swp3"] * 2 + [
        "swp5"
    ]
    assert "swp2: in-pkts: 18446744073709551616 is not a counter of at most 64 bits" in parsed.problems


@pytest.mark.parametrize("data", [[], "x", 5, None, {}, {"title": "Unauthorized"}, {"swp1": "x"}])
def test_data_without_interfaces_is_a_shape_error(data):
    with pytest.raises(ShapeError):
        nvue.parse_interfaces(data)


def test_problems_are_bounded():
    parsed = nvue.parse_interfaces(interfaces(**{f"swp{place}": "x" for place in range(1, 5000)}, swp9999=port()))
    assert len(parsed.problems) == 100
    assert "swp9999" in parsed.ports


ROWS = {
    "egress-queue-stats": {"3": {"ecn-marked-frames": 11, "tx-frames": 12, "tx-bytes": 13, "wred-discards": 14,
                                 "tx-uc-buffer-discards": 15}},
    "pfc-stats": {"3": {"rx-pause-frames": 21, "tx-pause-frames": 22, "rx-pause-duration": "7 Bytes"},
                  "4": {"rx-pause-frames": 23, "tx-pause-frames": 24}, "total": {"rx-pause-frames": 44}},
    "ingress-buffer-stats": {"0": {"rx-frames": 31, "rx-buffer-discards": 32, "rx-shared-buffer-discards": 33}},
}  # fmt: skip
QUEUES = {
    3: {"ecn-marked-frames": 11, "tx-frames": 12, "tx-bytes": 13, "wred-discards": 14, "tx-uc-buffer-discards": 15}
}
PRIORITIES = {3: {"rx-pause-frames": 21, "tx-pause-frames": 22}, 4: {"rx-pause-frames": 23, "tx-pause-frames": 24}}
GROUPS = {0: {"rx-frames": 31, "rx-buffer-discards": 32}}


def as_lists(rows):
    selectors = {"egress-queue-stats": "traffic-class", "pfc-stats": "switch-priority", "ingress-buffer-stats": "id"}
    return {
        group: [{selectors[group]: int(place) if place.isdecimal() else place, **row} for place, row in entries.items()]
        for group, entries in rows.items()
    }


def with_numbers(rows, form):
    return {
        group: {
            place: {key: form(value) if isinstance(value, int) else value for key, value in row.items()}
            for place, row in entries.items()
        }
        for group, entries in rows.items()
    }


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        as_lists(ROWS),
        {"operational": {"interface": {"swp1": {"qos": ROWS}}}},
        {"interface": {"swp1": {"counters": {"qos": as_lists(ROWS)}}}},
        with_numbers(ROWS, "{:,}".format),
        with_numbers(ROWS, lambda value: {"value": value}),
    ],
)
def test_all_structures_of_counters_are_parsed_alike(data):
    assert nvue.parse_qos(data) == nvue.NvueQos(PRIORITIES, QUEUES, GROUPS)


@pytest.mark.parametrize("missing", list(ROWS))
def test_groups_may_be_missing(missing):
    parsed = nvue.parse_qos({group: rows for group, rows in ROWS.items() if group != missing})
    absent = {
        "egress-queue-stats": parsed.queues,
        "pfc-stats": parsed.priorities,
        "ingress-buffer-stats": parsed.groups,
    }
    assert [group for group, rows in absent.items() if rows is None] == [missing]


def test_a_malformed_counter_or_row_affects_only_itself():
    parsed = nvue.parse_qos(
        {
            "pfc-stats": {
                "0": "broken",
                "1": {"rx-pause-frames": "many", "tx-pause-frames": 5},
                "8": {"rx-pause-frames": 1},
            },
            "egress-queue-stats": "none",
        }
    )
    assert parsed.priorities == {1: {"tx-pause-frames": 5}}
    assert parsed.queues == {}
    assert parsed.problems == (
        "pfc-stats 0: not an object: 'broken'",
        "pfc-stats 1: rx-pause-frames: 'many' is not a counter of at most 64 bits",
        "egress-queue-stats: neither an object nor a list: 'none'",
    )


def test_placeholders_are_absent():
    assert nvue.parse_qos({"pfc-stats": {"3": {"rx-pause-frames": "n/a", "tx-pause-frames": None}}}).priorities == {
        3: {}
    }


def test_ecn_marks_of_the_port_as_a_whole():
    assert nvue.parse_qos({"port-stats": {"ecn-marked-packets": "693,777"}}).ecn_marked == 693777


@pytest.mark.parametrize("data", [[], "html", None, 3])
def test_qos_data_that_is_not_an_object(data):
    with pytest.raises(ShapeError, match="not an object"):
        nvue.parse_qos(data)


NEIGHBOUR = {
    "age": "698044",
    "chassis": {
        "capability": {"is-bridge": {}, "is-router": "on", "is-wlan": "off"},
        "chassis-id": "02:00:00:AA:00:01",
        "management-address-ipv4": "192.0.2.9",
        "management-address-ipv6": "2001:db8::9",
        "system-description": "A switch",
        "system-name": "spine01",
    },
    "port": {"description": "to leaf01", "name": "swp7", "ttl": 120, "type": "ifname"},
}
EXPECTED_NEIGHBOUR = LldpNeighbour(
    "swp1", "02:00:00:aa:00:01", "swp7", "spine01", "to leaf01", "A switch", frozenset({"bridge", "router"}),
    ("192.0.2.9", "2001:db8::9"),
)  # fmt: skip


def test_neighbours_alone_and_inside_interfaces():
    lldp = {"dcbx-pfc-tlv": "off", "neighbor": {"spine01": NEIGHBOUR}}
    assert nvue.parse_lldp(lldp, "swp1") == (EXPECTED_NEIGHBOUR,)
    parsed = nvue.parse_interfaces(interfaces(swp1={**port(), "lldp": lldp}, swp2=port()))
    assert parsed.ports["swp1"].neighbours == (EXPECTED_NEIGHBOUR,)
    assert parsed.ports["swp2"].neighbours is None


def test_a_neighbour_with_few_values():
    lldp = {"neighbor": {"0a:00:00:00:00:02": {"port": {"name": "0A-00-00-00-00-02", "type": "mac"}}}}
    assert nvue.parse_lldp(lldp, "swp3") == (
        LldpNeighbour("swp3", peer_port="0a:00:00:00:00:02", name="0a:00:00:00:00:02"),
    )  # fmt: skip
    assert nvue.parse_lldp({}, "swp3") == ()


def test_management_addresses_of_newer_releases():
    lldp = {"neighbor": {"x": {"chassis": {"management-ifinfo": {"2": {"management-address-ipv4": "192.0.2.3"}}}}}}
    (neighbour,) = nvue.parse_lldp(lldp, "swp1")
    assert neighbour.addresses == ("192.0.2.3",)


@pytest.mark.parametrize(
    ("data", "system"),
    [
        ({"hostname": "leaf01", "build": "Cumulus Linux 5.6.0", "uptime": 8282449},
         nvue.NvueSystem("leaf01", "Cumulus Linux 5.6.0", 8282449.0)),
        ({"hostname": "leaf01", "product-release": "5.11.0", "uptime": "12 days, 3:04:05.67"},
         nvue.NvueSystem("leaf01", "5.11.0", 12 * 86400 + 3 * 3600 + 4 * 60 + 5.0)),
        ({"uptime": "0:00:07"}, nvue.NvueSystem(uptime=7.0)),
        ({"uptime": "a while", "hostname": None, "build": "n/a"}, nvue.NvueSystem()),
        ({"uptime": True}, nvue.NvueSystem()),
        ({"operational": {"hostname": "leaf02"}}, nvue.NvueSystem("leaf02")),
    ],
)  # fmt: skip
def test_system_facts(data, system):
    assert nvue.parse_system(data) == system


FLAT = {
    "cable-type": "Active cable",
    "temperature": "42.56 degrees C / 108.61 degrees F",
    "voltage": "3.2888 V",
    "ch-1-rx-power": "0.8625 mW / -0.64 dBm",
    "ch-1-tx-power": "0.0001 mW / -40.00 dBm",
    "ch-1-tx-bias-current": "6.750 mA",
    "ch-2-rx-power": "0.0000 mW / -inf dBm",
}
LANES = {1: NvueLane(0.8625, -0.64, 0.0001, -40.0, 0.00675), 2: NvueLane(0.0, float("-inf"))}


def test_a_module_flat_and_nested():
    assert parse_module(FLAT) == NvueModule(42.56, 3.2888, LANES)
    nested = {
        "temperature": {"temperature": "42.56 C", "high-alarm-threshold": "80.00 C"},
        "voltage": {"voltage": "3.2888 V"},
        "channel": {
            "channel-1": {
                "rx-power": {"power": FLAT["ch-1-rx-power"], "low-alarm-threshold": "-13.31 dBm"},
                "tx-power": {"power": FLAT["ch-1-tx-power"]},
                "tx-bias-current": {"current": "6.750 mA"},
            },
            "channel-2": {"rx-power": {"power": FLAT["ch-2-rx-power"]}},
        },
    }
    assert parse_module(nested) == NvueModule(42.56, 3.2888, LANES)


@pytest.mark.parametrize(
    "data",
    [None, [], "x", {}, {"cable-type": "Copper cable", "temperature": "N/A", "voltage": None, "ch-1-rx-power": "N/A"}],
)
def test_a_cable_has_no_values(data):
    assert all(one == NvueLane() for one in parse_module(data).lanes.values())
    assert (parse_module(data).temperature, parse_module(data).voltage) == (None, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["1,000", "12 C", "-3 dBm", "up", "400G"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["pfc-stats", "egress-queue-stats", "ingress-buffer-stats", "3", "switch-priority", "rx-pause-frames", "value",
         "swp1", "link", "stats", "in-bytes", "state", "speed", "lldp", "neighbor", "chassis", "port", "capability",
         "management-ifinfo", "channel", "channel-1", "rx-power", "power", "ch-1-rx-power", "temperature", "uptime",
         "hostname", "type", "operational", "interface", "port-stats", "ecn-marked-packets"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_any_json_is_parsed_or_a_shape_error(data):
    """Nothing but ShapeError is raised, and counters are integers that are not negative."""
    for parse in (nvue.parse_interfaces, nvue.parse_qos, nvue.parse_system, lambda lldp: nvue.parse_lldp(lldp, "swp1")):
        try:
            parsed = parse(data)
        except ShapeError:
            continue
        if isinstance(parsed, nvue.NvueQos):
            cells = [value for rows in (parsed.priorities, parsed.queues, parsed.groups)
                     for row in (rows or {}).values() for value in row.values()]  # fmt: skip
            assert all(type(value) is int and 0 <= value < 2**64 for value in cells)
    parse_module(data)
