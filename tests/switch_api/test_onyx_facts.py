"""Parsers of Onyx: version, LLDP, lossless priorities and PFC counters.  All data is synthetic."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.onyx import facts, parser
from exporter.switch_api.onyx.parser import OnyxPfc
from exporter.switch_api.port import ShapeError


@pytest.mark.parametrize(
    ("uptime", "seconds"),
    [("2d 13h 40m 34.992s", 222034.992), ("1h 0m 5s", 3605.0), ("7s", 7.0), ("soon", None), ("N/A", None)],
)
def test_versions(uptime, seconds):
    version = {"Product name": "Onyx", "Product release": "3.10.1", "Product model": "MSN3700", "Uptime": uptime}
    assert facts.parse_version(version) == facts.OnyxVersion("MSN3700", "Onyx 3.10.1", seconds)
    assert facts.parse_version([{key: text} for key, text in version.items()]).model == "MSN3700"


@pytest.mark.parametrize("data", [{}, [], {"Lines": [""]}, {"Uptime": "7s"}, "", {"Product release": "N/A"}])
def test_a_version_without_release_is_a_shape_error(data):
    with pytest.raises(ShapeError, match="no release"):
        facts.parse_version(data)


def test_a_switch_without_lldp_has_no_local_system():
    assert facts.parse_local([{"LLDP": "disabled"}]) == facts.OnyxLocalSystem()


@pytest.mark.parametrize(
    ("data", "priorities"),
    [
        ([{"PFC": "enabled", "Priority Enabled List": "3 4"}, {"Eth1/1": [{"PFC oper": "Enabled"}]}], {3, 4}),
        ({"PFC": "enabled", "Priority Enabled List": "0,7"}, {0, 7}),
        ([{"PFC": "enabled", "Priority Enabled List": "N/A"}, {"PFC": "disabled"}], None),
        ([{"PFC": "disabled"}], set()),
        ({"Lines": ["PFC: enabled", "Priority Enabled List: 3", "Priority Disabled List: 0 1 2 4 5 6 7"]}, {3}),
    ],
)
def test_lossless_priorities(data, priorities):
    if priorities is None:
        with pytest.raises(ShapeError):
            facts.parse_lossless(data)
    else:
        assert facts.parse_lossless(data) == priorities


NEIGHBOUR = {
    "port id subtype": "Interface Name (5)",
    "Remote chassis id": "02:00:00:AA:00:01",
    "Remote port-id": "Eth1/11",
    "Remote system name": "spine-01",
    "Remote system description": "A switch",
    "Remote port description": "N/A",
}
EXPECTED_NEIGHBOUR = LldpNeighbour("Eth1/1", "02:00:00:aa:00:01", "Eth1/11", "spine-01", "", "A switch")


@pytest.mark.parametrize(
    "data",
    [
        [{"Eth1/1 (Po100)": [NEIGHBOUR]}],
        [{"Eth1/1 (Po100)": [{key: text} for key, text in NEIGHBOUR.items()]}],
        {"Eth1/1": NEIGHBOUR},
        {"Eth1/1": [NEIGHBOUR], "Exception list": {"message": "N/A"}},
        [{"header": "Eth1/1", **NEIGHBOUR}],
    ],
)
def test_neighbours_in_every_structure(data):
    parsed = facts.parse_neighbours(data)
    assert parsed.ports == {"Eth1/1": (EXPECTED_NEIGHBOUR,)}
    assert parsed.problems == ()


def test_several_neighbours_of_a_port_are_kept():
    other = {**NEIGHBOUR, "Remote system name": "spine-02"}
    apart = [{"Eth1/1": [NEIGHBOUR]}, {"Eth1/1": [other]}]
    together = [{"Eth1/1": [NEIGHBOUR, other]}]
    in_pieces = [{"Eth1/1": [{key: text} for one in (NEIGHBOUR, other) for key, text in one.items()]}]
    for data in (apart, together, in_pieces):
        assert [one.name for one in facts.parse_neighbours(data).ports["Eth1/1"]] == ["spine-01", "spine-02"]


def test_one_malformed_neighbour_affects_nothing_else():
    parsed = facts.parse_neighbours([{"Eth1/1": [NEIGHBOUR]}, {"Eth1/2": "?"}, 7, {"Eth1/3": [{"TTL": "120"}]}])
    assert parsed.ports == {"Eth1/1": (EXPECTED_NEIGHBOUR,)}
    assert len(parsed.problems) == 3


def test_no_neighbours_is_no_error_but_unknown_rows_are():
    assert facts.parse_neighbours({"Lines": ["", "No lldp remote information.", ""]}).ports == {}
    assert facts.parse_neighbours([]).ports == {}
    with pytest.raises(ShapeError, match="no neighbour of any port"):
        facts.parse_neighbours([{"Eth1/1": [{"colour": "blue"}]}])


PFC = {"Eth1/1": OnyxPfc(12, 34)}


@pytest.mark.parametrize(
    "data",
    [
        {"Eth1/1": [{"Rx": [{"pause packets": "12"}]}, {"Tx": [{"pause packets": "34"}]}]},
        {"Eth1/1": [{"PFC 3": [{"Rx pause packets": "12", "Tx pause packets": "34", "Rx pause duration": "5"}]}]},
        [{"header": "Eth1/1", "Rx": {"pause packets": "12"}, "Tx": {"pause packets": "34"}}],
        [{"Eth1/1": [{"Rx pause packets": "12"}, {"Tx pause packets": "34"}]}, {"Po1": [{"Rx pause packets": "12"}]}],
        {"Lines": ["Eth1/1", " Rx", "  12  pause packets", " 9 pause duration", " Tx", "  34  pause packets"]},
        {"Lines": ["Po1:", " 7 pause packets", " 7 pause packets", "Eth1/1:", " 12 pause packets", "34 pause packets"]},
    ],
)
def test_pfc_in_every_structure(data):
    parsed = parser.parse_pfc(data)
    assert parsed.ports == PFC
    assert parsed.problems == ()


def test_a_malformed_pfc_text_affects_only_that_port():
    parsed = parser.parse_pfc(
        {"Lines": ["Eth1/1:", " 12 pause packets", " 34 pause packets", "Eth1/2:", " 5 pause packets",
                   "Eth1/3:", " 5 pause packets", " 99999999999999999999 pause packets"]}
    )  # fmt: skip
    assert parsed.ports == PFC
    assert [problem.split(":")[0] for problem in parsed.problems] == ["Eth1/2", "Eth1/3"]


@pytest.mark.parametrize("data", [{"Lines": ["12 pause packets"]}, {"Eth1/1": [{"pause packets": "12"}]}, 7])
def test_pfc_of_unknown_structure(data):
    with pytest.raises(ShapeError):
        parser.parse_pfc(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6)
    | st.sampled_from(["12", "N/A", "3 4", "Eth1/1", "enabled", "12 pause packets", "1d 2h 3m 4s"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["Eth1/1", "Eth1/2 (Po1)", "Lines", "header", "Rx", "Tx", "pause packets", "Remote chassis id", "System Name",
         "Priority Enabled List", "PFC", "Product release", "Uptime", "TC-3", "RED dropped packets",
         "Interface ethernet", "ECN marked packets", "Exception list"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_any_json_is_parsed_or_a_shape_error(data):
    for parse in (facts.parse_version, facts.parse_local, facts.parse_lossless,
                  facts.parse_neighbours, parser.parse_pfc, parser.parse_congestion_control):  # fmt: skip
        with contextlib.suppress(ShapeError):
            parse(data)
