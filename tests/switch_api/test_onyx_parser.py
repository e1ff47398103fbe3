"""Conversion of Onyx's JSON to rows, and parsers of port tables: own data of each structure, then recordings."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.switch_api.onyx import parser, tables
from exporter.switch_api.port import PerPort, ShapeError
from exporter.switch_api.text_values import parse_counter, parse_speed
from tests.helpers.paths import FIXTURES

RECORDED = FIXTURES / "onyx"


def fixture(name):
    return json.loads((RECORDED / f"{name}.json").read_bytes())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Eth1/1", "Eth1/1"),
        ("Eth1/1 (Po100)", "Eth1/1"),
        ("Eth1/15/3", "Eth1/15/3"),
        ("ethernet 1/2", "Eth1/2"),
        ("Ethernet1/2", "Eth1/2"),
        ("Interface ethernet 1/2", "Eth1/2"),
        ("Po1", "Po1"),
        ("Mpo2", "Mpo2"),
        ("Vlan 1002", "Vlan 1002"),
        ("mgmt0", "mgmt0"),
        ("Po22(D)", "Po22"),
        ("TC-2", None),
        ("1/1", None),
        ("roce", None),
        ("Eth", None),
        ("Eth1/1\nEth1/2", None),
        ("Eth1/\u0661", None),
    ],
)
def test_port_names(text, name):
    assert tables.parse_port_name(text) == name


@pytest.mark.parametrize("text", [None, "", " ", "-", "N/A", "N\\A", "n/a", "Not Advertised", "Unknown", "UNKNOWN"])
def test_placeholders_are_none(text):
    assert parse_counter(text) is None
    assert parse_speed(text) is None
    assert parser.parse_oper_state(text) is None


def test_numbers():
    assert parse_counter("0") == 0
    assert parse_counter(" 1,234,567 ") == 1234567
    assert parse_counter("18446744073709551615") == 2**64 - 1


@pytest.mark.parametrize(
    "text", ["18446744073709551616", "-4", "1.5", "12,34", "1_000", "5.9M", "twelve", "\u0663", "0x10"]
)
def test_an_invalid_counter_is_an_error_that_quotes_it(text):
    with pytest.raises(ValueError, match="is not a counter of at most 64 bits") as caught:
        parse_counter(text)
    assert ascii(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("100 Gbps", 100_000_000_000),
        ("25G", 25_000_000_000),
        ("1000Mb/s (auto)", 1_000_000_000),
        ("2.5G", 2_500_000_000),
        ("200Gx4", 200_000_000_000),
        ("1.6T", 1_600_000_000_000),
        ("9000 kbit/s", 9_000_000),
    ],
)
def test_speeds(text, bits):
    assert parse_speed(text) == bits


@pytest.mark.parametrize("text", ["fast", "100", "100 Gbps or so", "1550 KB"])
def test_an_invalid_speed_is_an_error(text):
    with pytest.raises(ValueError, match="is not a link speed"):
        parse_speed(text)


def test_states():
    assert parser.parse_oper_state("Up") is True
    assert parser.parse_oper_state("Down (suspended)") is False
    with pytest.raises(ValueError, match="'Sideways' is neither Up nor Down"):
        parser.parse_oper_state("Sideways")


def test_counters_by_port_name():
    parsed = parser.parse_counters(fixture("counters_object"))
    assert parsed.ports == {
        "Eth1/1": parser.OnyxCounters(
            receive_packets=1204,
            receive_bytes=46755253366000,
            receive_errors=3,
            receive_discards=None,
            receive_pause_frames=17,
            receive_fcs_errors=2,
            receive_symbol_errors=1,
            transmit_packets=88,
            transmit_bytes=2**64 - 1,
            transmit_errors=0,
            transmit_discards=5,
            transmit_pause_frames=None,
            transmit_hoq_discards=4,
        ),
        "Eth1/2/1": parser.OnyxCounters(receive_bytes=0),
    }
    assert parsed.problems == ("Eth1/3: neither an object nor a list: 'no such port'",)


def test_counters_with_headers_and_malformed_rows():
    parsed = parser.parse_counters(fixture("counters_list"))
    assert parsed.ports == {
        "Eth1/1": parser.OnyxCounters(receive_packets=7, receive_bytes=700, transmit_packets=8),
        "Eth1/2": parser.OnyxCounters(receive_packets=9),
    }
    assert parsed.problems == (
        "data[1]: 'header' names no port: 5",
        "data[4]: not an object: 'broken'",
        "Eth1/1: tx bytes: 'twelve' is not a counter of at most 64 bits",
    )


def test_a_row_without_a_header_does_not_belong_to_the_port_before_it():
    parsed = tables.flatten([{"header": "Eth1/1", "MTU": "1"}, {"Rx": {"bytes": "5"}}])
    assert parsed.ports == {"Eth1/1": {"MTU": "1"}}
    assert parsed.problems == ("data[1]: 'Rx' belongs to no port",)


def test_congestion_control_belongs_to_the_interface_before_it():
    data = fixture("congestion_control")
    parsed = parser.parse_congestion_control(data)
    assert parsed.ports == {"Eth1/1": parser.OnyxCongestion(40, {3: 6}), "Eth1/2/1": parser.OnyxCongestion(None)}
    assert parsed.problems == ("data[3]: 'Interface ethernet' names no port: 'broken'",)
    rows = tables.flatten(data).ports
    assert rows["Eth1/1"] == {
        "ECN marked packets": "40",
        "TC-0 Mode": "none",
        "TC-3 Mode": "ECN",
        "TC-3 RED dropped packets": "6",
    }
    assert rows[tables.SWITCH] == {"TC-3 Mode": "RED"}


def test_descriptions_as_object_or_list():
    parsed = parser.parse_description(
        {
            "Eth1/1": {"Operational state": "Up", "Speed": "25G", "Description": "to gpu-017"},
            "Eth1/2": [{"Operational state": "Down", "Speed": "Unknown", "Description": "N/A"}],
            "Vlan 5": [{"State": "Down"}],
        }
    )
    assert parsed.ports == {
        "Eth1/1": parser.OnyxPortState(up=True, speed=25 * 10**9, description="to gpu-017"),
        "Eth1/2": parser.OnyxPortState(up=False),
    }
    assert parsed.problems == ()


def test_list_of_single_keys_and_a_duplicate_key():
    parsed = tables.flatten(fixture("neighbours"))
    assert parsed.ports == {
        "Eth1/1": {"Remote chassis id": "02:00:00:00:00:01", "Remote port-id": "swp1"},
        "Eth1/2": {"Remote port-id": "swp2"},
    }
    assert parsed.problems == ("Eth1/2: 'Remote port-id' is there twice; the first value is used",)


def test_lines_are_no_rows_and_no_error():
    parsed = parser.parse_counters({"Lines": ["", "No counters.", ""]})
    assert parsed == PerPort({}, (), "No counters.")


def test_values_without_a_port_belong_to_the_switch():
    assert tables.flatten({"value": ["MSN2100"], "Count": 3}).ports == {
        tables.SWITCH: {"value": "MSN2100", "Count": "3"}
    }


def test_an_exception_is_a_problem_unless_it_is_a_placeholder():
    parsed = tables.flatten({"Eth1/1": {"a": "1"}, "Exception list": {"message": "chip busy"}})
    assert parsed.ports == {"Eth1/1": {"a": "1"}}
    assert parsed.problems == ("the switch reports an exception: 'chip busy'",)


@pytest.mark.parametrize("data", [None, 7, True, "Rx: 576 packets"])
def test_data_of_unknown_structure_is_quoted(data):
    with pytest.raises(ShapeError, match="data of an unknown structure") as caught:
        tables.flatten(data)
    assert ascii(data) in str(caught.value)


def test_rows_without_any_counter_are_a_shape_error():
    with pytest.raises(ShapeError, match=r"without any of receive_packets, .*\{'Eth1/1': \{'Speed'"):
        parser.parse_counters({"Eth1/1": {"Speed": "25G"}})


def test_a_port_without_any_counter_is_a_problem():
    parsed = parser.parse_counters({"Eth1/1": {"Speed": "25G"}, "Eth1/2": {"Rx": {"bytes": "1"}}})
    assert parsed.ports == {"Eth1/2": parser.OnyxCounters(receive_bytes=1)}
    assert parsed.problems == ("Eth1/1: none of the expected keys among ['Speed']",)


def test_depth_and_number_of_problems_are_bounded():
    deep: object = "1"
    for _ in range(60):
        deep = {"x": deep}
    parsed = tables.flatten({"Eth1/1": deep, "Eth1/2": {"a": "1"}, "Exception list": deep})
    assert parsed.ports["Eth1/2"] == {"a": "1"}
    assert "nested deeper than 8 levels" in parsed.problems[0]
    assert len(tables.flatten([1] * 5000).problems) == 100


def test_the_number_of_ports_is_bounded():
    parsed = parser.parse_counters({f"Eth{a}/{b}": {"Rx": {"bytes": "1"}} for a in range(5) for b in range(1000)})
    assert len(parsed.ports) == 4096
    assert parsed.problems[0] == "Eth4/96: skipped, as there are more than 4096 ports"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["Eth1/1", "N/A", "Up", "25G"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["Eth1/1", "Po1", "header", "Interface ethernet", "Rx", "bytes", "Lines", "Exception list"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_parsed_or_a_shape_error(data):
    for parse in (tables.flatten, parser.parse_counters, parser.parse_description, parser.parse_congestion_control):
        try:
            parsed = parse(data)
        except ShapeError:
            continue
        assert all(name == tables.SWITCH or tables.parse_port_name(name) == name for name in parsed.ports)


RECORDINGS = {
    "ansible/onyx_buffer_pool.cfg": {"": {"roce Memory actual": "5.9M", "roce Switch Priorities": "3"}},
    "ansible/onyx_facts_show_interfaces_ethernet.cfg": {
        "Eth1/1": {"Actual speed": "100 Gbps", "Mac address": "7c:fe:90:e5:ca:3c"},
        "Eth1/2": {"Operational state": "Down"},
    },
    "ansible/onyx_facts_show_module.cfg": {"": {"MGMT Status": "ready"}},
    "ansible/onyx_facts_show_version.cfg": {"": {"Product release": "3.6.5000"}},
    "ansible/onyx_interfaces_rates.cfg": {"Eth1/1": {"ingress rate": "9000 b/s", "egress pkts/sec": "10"}},
    "ansible/onyx_interfaces_show.cfg": {
        "Eth1/1": {"Rx packets": "0", "Tx hoq discard packets": "0", "Actual speed": "40 Gbps"},
        "Vlan 10": {},
        "Vlan 1002": {},
    },
    "ansible/onyx_interfaces_status.cfg": {"Eth1/1": {"Speed": "100 Gbps"}, "Vlan 1002": {"State": "Down"}},
    "ansible/onyx_lldp_interface_show.cfg": {"Eth1/1": {"Receive": "Enabled"}, "Eth1/2": {"Receive": "Disabled"}},
    "ansible/onyx_lldp_show.cfg": {"": {"LLDP": "enabled", "Local global configuration System Name": "ufm-switch16"}},
    "ansible/onyx_pfc_interface_disabled.cfg": {
        "Eth1/1": {"PFC oper": "Disabled"},
        "Eth1/1/2": {"PFC oper": "Disabled"},
        "Po1": {"PFC oper": "Disabled"},
        "Mpo2": {"PFC oper": "Disabled"},
    },
    "ansible/onyx_pfc_interface_enabled.cfg": {
        "Eth1/1": {"PFC oper": "Enabled"},
        "Eth1/1/2": {},
        "Po1": {},
        "Mpo2": {"PFC admin": "on"},
    },
    "ansible/onyx_port_channel_show.cfg": {"": {"1 Po22(D) Member Ports": "Eth1/7(D)", "Flags U": "Up"}},
    "ansible/onyx_show_dcb_ets_interface.cfg": {"Eth1/1": {"ETS per TC 3 S.Mode": "Strict", "ETS per TC 1 W(%)": "17"}},
    "ansible/onyx_show_interface_congestion_control.cfg": {
        "Eth1/1": {"ECN marked packets": "0", "TC-2 Minimum threshold": "9%", "TC-3 Maximum threshold": "1550 KB"}
    },
    "ansible/show_qos_interface_ethernet.cfg": {"Eth1/1": {"Trust mode": "both"}},
    "napalm-onyx/show_lldp_remote___json_print.txt": {
        "Eth1/15/3": {"Device ID": "00:aa:bb:cc:dd:ff"},
        "Eth1/15/2": {"System Name": "mgmt2.dc"},
    },
}


def _is_json(path):
    try:
        msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError:
        return False
    return True


def test_all_recordings_are_flattened(corpus):
    folder = corpus / "switch" / "onyx"
    files = {str(path.relative_to(folder)) for path in folder.glob("*/*") if _is_json(path)}
    assert files == set(RECORDINGS)
    for name, expected in RECORDINGS.items():
        parsed = tables.flatten(json.loads((folder / name).read_bytes()))
        assert parsed.problems == (), name
        assert set(parsed.ports) == set(expected), name
        for port, values in expected.items():
            assert values.items() <= parsed.ports[port].items(), (name, port)


def test_recorded_counters(corpus):
    folder = corpus / "switch" / "onyx"
    new = parser.parse_counters(json.loads((folder / "blog_new_style_counters_shape.json").read_bytes())["data"])
    assert new.ports == {
        "Eth1/19": parser.OnyxCounters(receive_packets=6078365878, receive_bytes=46755253366062, transmit_bytes=0)
    }
    old = parser.parse_counters(json.loads((folder / "ansible" / "onyx_interfaces_show.cfg").read_bytes()))
    assert old.ports["Eth1/1"].transmit_hoq_discards == 0
    assert old.ports["Eth1/1"].receive_pause_frames is None
    assert old.problems == ()
