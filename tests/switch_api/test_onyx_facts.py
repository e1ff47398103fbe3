"""What an Onyx switch says of itself and of its neighbours, and of PFC.  All of it is written here; none is real."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.switch_api.neighbour import Heard
from exporter.switch_api.onyx import facts as onyx_facts
from exporter.switch_api.onyx import parser as onyx_data
from exporter.switch_api.onyx.parser import OnyxShapeError, Pfc


@pytest.mark.parametrize(
    ("uptime", "seconds"),
    [("2d 13h 40m 34.992s", 222034.992), ("1h 0m 5s", 3605.0), ("7s", 7.0), ("soon", None), ("N/A", None)],
)
def test_versions(uptime, seconds):
    told = {"Product name": "Onyx", "Product release": "3.10.1", "Product model": "MSN3700", "Uptime": uptime}
    assert onyx_facts.parse_version(told) == onyx_facts.Version("MSN3700", "Onyx 3.10.1", seconds)
    assert onyx_facts.parse_version([{key: text} for key, text in told.items()]).model == "MSN3700"


@pytest.mark.parametrize("data", [{}, [], {"Lines": [""]}, {"Uptime": "7s"}, "", {"Product release": "N/A"}])
def test_what_names_no_release_is_no_version(data):
    with pytest.raises(OnyxShapeError, match="no release"):
        onyx_facts.parse_version(data)


def test_a_switch_that_speaks_no_lldp_tells_nothing_of_itself():
    assert onyx_facts.parse_local([{"LLDP": "disabled"}]) == onyx_facts.Local()


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
def test_priorities_that_pause(data, priorities):
    if priorities is None:
        with pytest.raises(OnyxShapeError):
            onyx_facts.parse_lossless(data)
    else:
        assert onyx_facts.parse_lossless(data) == priorities


NEIGHBOUR = {
    "port id subtype": "Interface Name (5)",
    "Remote chassis id": "02:00:00:AA:00:01",
    "Remote port-id": "Eth1/11",
    "Remote system name": "spine-01",
    "Remote system description": "A switch",
    "Remote port description": "N/A",
}
HEARD = Heard("Eth1/1", "02:00:00:aa:00:01", "Eth1/11", "spine-01", "", "A switch")


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
def test_neighbours_in_every_shape(data):
    read = onyx_facts.parse_neighbours(data)
    assert read.ports == {"Eth1/1": (HEARD,)}
    assert read.problems == ()


def test_several_neighbours_of_a_port_are_kept():
    other = {**NEIGHBOUR, "Remote system name": "spine-02"}
    apart = [{"Eth1/1": [NEIGHBOUR]}, {"Eth1/1": [other]}]
    together = [{"Eth1/1": [NEIGHBOUR, other]}]
    in_pieces = [{"Eth1/1": [{key: text} for one in (NEIGHBOUR, other) for key, text in one.items()]}]
    for data in (apart, together, in_pieces):
        assert [one.name for one in onyx_facts.parse_neighbours(data).ports["Eth1/1"]] == ["spine-01", "spine-02"]


def test_one_malformed_neighbour_loses_nothing_else():
    read = onyx_facts.parse_neighbours([{"Eth1/1": [NEIGHBOUR]}, {"Eth1/2": "?"}, 7, {"Eth1/3": [{"TTL": "120"}]}])
    assert read.ports == {"Eth1/1": (HEARD,)}
    assert len(read.problems) == 3


def test_no_neighbours_is_no_error_and_no_port_at_all_is():
    assert onyx_facts.parse_neighbours({"Lines": ["", "No lldp remote information.", ""]}).ports == {}
    assert onyx_facts.parse_neighbours([]).ports == {}
    with pytest.raises(OnyxShapeError, match="no neighbour of any port"):
        onyx_facts.parse_neighbours([{"Eth1/1": [{"colour": "blue"}]}])


PFC = {"Eth1/1": Pfc(12, 34)}


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
def test_pfc_in_every_shape(data):
    read = onyx_data.parse_pfc(data)
    assert read.ports == PFC
    assert read.problems == ()


def test_a_text_of_pfc_that_is_malformed_loses_that_port():
    read = onyx_data.parse_pfc(
        {"Lines": ["Eth1/1:", " 12 pause packets", " 34 pause packets", "Eth1/2:", " 5 pause packets",
                   "Eth1/3:", " 5 pause packets", " 99999999999999999999 pause packets"]}
    )  # fmt: skip
    assert read.ports == PFC
    assert [problem.split(":")[0] for problem in read.problems] == ["Eth1/2", "Eth1/3"]


@pytest.mark.parametrize("data", [{"Lines": ["12 pause packets"]}, {"Eth1/1": [{"pause packets": "12"}]}, 7])
def test_pfc_of_an_unknown_shape(data):
    with pytest.raises(OnyxShapeError):
        onyx_data.parse_pfc(data)


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
def test_no_answer_breaks_a_parser(data):
    for parse in (onyx_facts.parse_version, onyx_facts.parse_local, onyx_facts.parse_lossless,
                  onyx_facts.parse_neighbours, onyx_data.parse_pfc, onyx_data.parse_congestion_control):  # fmt: skip
        with contextlib.suppress(OnyxShapeError):
            parse(data)
