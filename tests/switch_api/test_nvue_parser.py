"""What the JSON of Cumulus Linux's NVUE means.  All of it is written here after the documented shapes; none is real."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.switch_api.neighbour import Heard
from exporter.switch_api.nvue import parser as nvue
from exporter.switch_api.nvue.modules import Lane, Module, parse_module

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


def test_a_port_with_all_that_it_tells():
    read = nvue.parse_interfaces(interfaces(swp1={**port(), "description": "gpu-001 rail 3"}))
    counted = {key: value for key, value in STATS.items() if key != "carrier-transitions"}
    assert read.ports == {"swp1": nvue.Port(True, 400 * 10**9, "4", "gpu-001 rail 3", counted)}
    assert read.problems == ()


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
def test_the_state_is_a_key_or_a_word(link, up):
    (one,) = nvue.parse_interfaces(interfaces(swp1={"link": link})).ports.values()
    assert one.up is up


def test_only_ports_of_the_front_panel_and_what_they_are_split_into():
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
    read = nvue.parse_interfaces(interfaces(**{name: port() for name in names}))
    assert list(read.ports) == ["swp1", "swp2s0", "swp2s3", "swp64"]


def test_one_malformed_port_or_value_loses_nothing_else():
    read = nvue.parse_interfaces(
        interfaces(
            swp1="broken",
            swp2=port(stats={"in-bytes": -1, "in-pkts": 2**64, "out-bytes": True, "out-pkts": "12 kB", "in-errors": 9}),
            swp3=port(speed="fast", state={"sideways": {}}),
            swp4=port(stats="none", speed=None),
            swp5={**port(), "lldp": ["?"]},
        )
    )
    assert list(read.ports) == ["swp2", "swp3", "swp4", "swp5"]
    assert read.ports["swp2"].stats == {"in-errors": 9}
    assert (read.ports["swp3"].speed, read.ports["swp3"].up) == (None, None)
    assert read.ports["swp4"].stats == {}
    assert read.ports["swp5"].neighbours is None
    assert sorted(problem.split(":")[0] for problem in read.problems) == ["swp1"] + ["swp2"] * 4 + ["swp3"] * 2 + [
        "swp5"
    ]
    assert "swp2: in-pkts: 18446744073709551616 is not a counter of at most 64 bits" in read.problems


@pytest.mark.parametrize("data", [[], "x", 5, None, {}, {"title": "Unauthorized"}, {"swp1": "x"}])
def test_what_is_no_answer_about_interfaces(data):
    with pytest.raises(nvue.NvueShapeError):
        nvue.parse_interfaces(data)


def test_problems_are_bounded():
    read = nvue.parse_interfaces(interfaces(**{f"swp{place}": "x" for place in range(1, 5000)}, swp9999=port()))
    assert len(read.problems) == 100
    assert "swp9999" in read.ports


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
        group: [{selectors[group]: int(place) if place.isdecimal() else place, **row} for place, row in told.items()]
        for group, told in rows.items()
    }


def with_numbers(rows, shown):
    return {
        group: {
            place: {key: shown(value) if isinstance(value, int) else value for key, value in row.items()}
            for place, row in told.items()
        }
        for group, told in rows.items()
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
def test_every_form_of_counters_reads_alike(data):
    assert nvue.parse_qos(data) == nvue.Qos(PRIORITIES, QUEUES, GROUPS)


@pytest.mark.parametrize("missing", list(ROWS))
def test_groups_are_missing_one_by_one(missing):
    read = nvue.parse_qos({group: rows for group, rows in ROWS.items() if group != missing})
    absent = {"egress-queue-stats": read.queues, "pfc-stats": read.priorities, "ingress-buffer-stats": read.groups}
    assert [group for group, rows in absent.items() if rows is None] == [missing]


def test_a_malformed_counter_or_row_loses_itself():
    read = nvue.parse_qos(
        {
            "pfc-stats": {
                "0": "broken",
                "1": {"rx-pause-frames": "many", "tx-pause-frames": 5},
                "8": {"rx-pause-frames": 1},
            },
            "egress-queue-stats": "none",
        }
    )
    assert read.priorities == {1: {"tx-pause-frames": 5}}
    assert read.queues == {}
    assert read.problems == (
        "pfc-stats 0: not an object: 'broken'",
        "pfc-stats 1: rx-pause-frames: 'many' is not a counter of at most 64 bits",
        "egress-queue-stats: neither an object nor a list: 'none'",
    )


def test_words_for_no_value_are_absent():
    assert nvue.parse_qos({"pfc-stats": {"3": {"rx-pause-frames": "n/a", "tx-pause-frames": None}}}).priorities == {
        3: {}
    }


def test_marks_of_the_port_as_a_whole():
    assert nvue.parse_qos({"port-stats": {"ecn-marked-packets": "693,777"}}).marked == 693777


@pytest.mark.parametrize("data", [[], "html", None, 3])
def test_what_are_no_counters(data):
    with pytest.raises(nvue.NvueShapeError, match="not an object"):
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
HEARD = Heard(
    "swp1", "02:00:00:aa:00:01", "swp7", "spine01", "to leaf01", "A switch", frozenset({"bridge", "router"}),
    ("192.0.2.9", "2001:db8::9"),
)  # fmt: skip


def test_neighbours_alone_and_within_interfaces():
    told = {"dcbx-pfc-tlv": "off", "neighbor": {"spine01": NEIGHBOUR}}
    assert nvue.parse_lldp(told, "swp1") == (HEARD,)
    read = nvue.parse_interfaces(interfaces(swp1={**port(), "lldp": told}, swp2=port()))
    assert read.ports["swp1"].neighbours == (HEARD,)
    assert read.ports["swp2"].neighbours is None


def test_a_neighbour_that_tells_little():
    told = {"neighbor": {"0a:00:00:00:00:02": {"port": {"name": "0A-00-00-00-00-02", "type": "mac"}}}}
    assert nvue.parse_lldp(told, "swp3") == (
        Heard("swp3", peer_port="0a:00:00:00:00:02", name="0a:00:00:00:00:02"),
    )  # fmt: skip
    assert nvue.parse_lldp({}, "swp3") == ()


def test_management_addresses_of_newer_releases():
    told = {"neighbor": {"x": {"chassis": {"management-ifinfo": {"2": {"management-address-ipv4": "192.0.2.3"}}}}}}
    (heard,) = nvue.parse_lldp(told, "swp1")
    assert heard.addresses == ("192.0.2.3",)


@pytest.mark.parametrize(
    ("told", "system"),
    [
        ({"hostname": "leaf01", "build": "Cumulus Linux 5.6.0", "uptime": 8282449},
         nvue.System("leaf01", "Cumulus Linux 5.6.0", 8282449.0)),
        ({"hostname": "leaf01", "product-release": "5.11.0", "uptime": "12 days, 3:04:05.67"},
         nvue.System("leaf01", "5.11.0", 12 * 86400 + 3 * 3600 + 4 * 60 + 5.0)),
        ({"uptime": "0:00:07"}, nvue.System(uptime=7.0)),
        ({"uptime": "a while", "hostname": None, "build": "n/a"}, nvue.System()),
        ({"uptime": True}, nvue.System()),
        ({"operational": {"hostname": "leaf02"}}, nvue.System("leaf02")),
    ],
)  # fmt: skip
def test_the_system(told, system):
    assert nvue.parse_system(told) == system


FLAT = {
    "cable-type": "Active cable",
    "temperature": "42.56 degrees C / 108.61 degrees F",
    "voltage": "3.2888 V",
    "ch-1-rx-power": "0.8625 mW / -0.64 dBm",
    "ch-1-tx-power": "0.0001 mW / -40.00 dBm",
    "ch-1-tx-bias-current": "6.750 mA",
    "ch-2-rx-power": "0.0000 mW / -inf dBm",
}
LANES = {1: Lane(0.8625, -0.64, 0.0001, -40.0, 0.00675), 2: Lane(0.0, float("-inf"))}


def test_a_module_flat_and_nested():
    assert parse_module(FLAT) == Module(42.56, 3.2888, LANES)
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
    assert parse_module(nested) == Module(42.56, 3.2888, LANES)


@pytest.mark.parametrize(
    "data",
    [None, [], "x", {}, {"cable-type": "Copper cable", "temperature": "N/A", "voltage": None, "ch-1-rx-power": "N/A"}],
)
def test_a_cable_tells_nothing(data):
    assert all(one == Lane() for one in parse_module(data).lanes.values())
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
def test_no_answer_breaks_a_parser(data):
    """It is read, or it is of no known shape; nothing else is raised, and counters are whole and not negative."""
    for parse in (nvue.parse_interfaces, nvue.parse_qos, nvue.parse_system, lambda told: nvue.parse_lldp(told, "swp1")):
        try:
            read = parse(data)
        except nvue.NvueShapeError:
            continue
        if isinstance(read, nvue.Qos):
            cells = [value for rows in (read.priorities, read.queues, read.groups) for row in (rows or {}).values()
                     for value in row.values()]  # fmt: skip
            assert all(type(value) is int and 0 <= value < 2**64 for value in cells)
    parse_module(data)
