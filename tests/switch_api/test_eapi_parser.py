"""Parsers of eAPI: unusual structures and malformed values.  All data is synthetic."""

import pytest

from exporter.switch_api.eapi import parser as eapi
from exporter.switch_api.port import ShapeError

VOQ_SUMS = {
    "ingressVoqCounters": {"countersSum": {"droppedPackets": 4}},
    "egressQueueCounters": {"countersSum": {"droppedPackets": 5}},
}


@pytest.mark.parametrize("container", ["interfaces", "interfaceCounters"])
def test_pfc_by_priority(container):
    parsed = eapi.parse_pfc(
        {container: {"Ethernet1/1": {"priorities": {"3": {"rxFrames": 7, "txFrames": 8}, "9": {"rxFrames": 1}}}}}
    )
    assert parsed.ports == {"Ethernet1/1": {3: (7, 8)}}
    assert parsed.problems == ()


def test_pfc_of_a_malformed_port_and_a_malformed_count():
    ports = {"Ethernet1/1": "malformed", "Ethernet2/1": {"rxFrames": "many", "txFrames": 2}, "Ethernet3/1": {}}
    parsed = eapi.parse_pfc({"interfaceCounters": ports})
    assert parsed.ports == {"Ethernet2/1": {None: (None, 2)}, "Ethernet3/1": {}}
    assert parsed.problems == (
        "Ethernet1/1: not an object: 'malformed'",
        "Ethernet2/1: rxFrames is 'many', not a counter of at most 64 bits",
    )


@pytest.mark.parametrize(
    ("parse", "container"),
    [
        (eapi.parse_interfaces, "interfaces"),
        (eapi.parse_ecn, "intfQueueCounters"),
        (eapi.parse_drops, "interfaces"),
        (eapi.parse_modules, "interfaces"),
    ],
)
def test_a_port_that_is_not_an_object_is_a_problem(parse, container):
    parsed = parse({container: {"Ethernet1/1": 5, "Ethernet2/1": {}}})
    assert parsed.problems == ("Ethernet1/1: not an object: 5",)
    assert "Ethernet1/1" not in parsed.ports


def test_drops_at_both_ends_of_a_virtual_output_queue_are_added_up():
    parsed = eapi.parse_drops({"interfaces": {"Ethernet48": {"trafficClasses": {"TC1": VOQ_SUMS, "TC0-5": VOQ_SUMS}}}})
    assert parsed.ports == {"Ethernet48": {"1": 9}}


def test_a_sum_of_drops_with_a_malformed_part_is_absent():
    sums = {**VOQ_SUMS, "egressQueueCounters": {"countersSum": {"droppedPackets": -1}}}
    parsed = eapi.parse_drops({"interfaces": {"Ethernet48": {"trafficClasses": {"TC0": VOQ_SUMS, "TC1": sums}}}})
    assert parsed.ports == {"Ethernet48": {"0": 9}}
    assert parsed.problems == ("Ethernet48: TC1: droppedPackets is -1, not a counter of at most 64 bits",)


def test_drops_as_text():
    text = (
        "Port            InDropPkts     OutUcDropPkts    OutMcDropPkts\n"
        "Et1/1                    1                20              300\n"
        "  Et2             18446744073709551615      0                0  \n"
        "Ma1                      0                 0                0\n"
        "Et3/1                    1                20\n"
        "Po1                      1                20                5\n"
    )
    parsed = eapi.parse_drops_text({"output": text})
    assert parsed.ports == {"Ethernet1/1": 320, "Ethernet2": 0, "Management1": 0}


@pytest.mark.parametrize("data", [None, {}, {"output": ""}, {"output": 5}, {"output": "% Invalid input"}])
def test_a_text_without_ports_is_a_shape_error(data):
    with pytest.raises(ShapeError, match="no line of a port"):
        eapi.parse_drops_text(data)
