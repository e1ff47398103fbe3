"""What answers of eAPI mean: their less usual forms, and what is malformed.  All is written here; none is real."""

import pytest

from exporter.switch_api.eapi import parser as eapi
from exporter.switch_api.port import ShapeError

VOQ_SUMS = {
    "ingressVoqCounters": {"countersSum": {"droppedPackets": 4}},
    "egressQueueCounters": {"countersSum": {"droppedPackets": 5}},
}


@pytest.mark.parametrize("container", ["interfaces", "interfaceCounters"])
def test_pfc_by_priority(container):
    read = eapi.parse_pfc(
        {container: {"Ethernet1/1": {"priorities": {"3": {"rxFrames": 7, "txFrames": 8}, "9": {"rxFrames": 1}}}}}
    )
    assert read.ports == {"Ethernet1/1": {3: (7, 8)}}
    assert read.problems == ()


def test_pfc_of_a_malformed_port_and_a_malformed_count():
    ports = {"Ethernet1/1": "malformed", "Ethernet2/1": {"rxFrames": "many", "txFrames": 2}, "Ethernet3/1": {}}
    read = eapi.parse_pfc({"interfaceCounters": ports})
    assert read.ports == {"Ethernet2/1": {None: (None, 2)}, "Ethernet3/1": {}}
    assert read.problems == (
        "Ethernet1/1: not an object: 'malformed'",
        "Ethernet2/1: rxFrames is 'many', no counter of at most 64 bits",
    )


@pytest.mark.parametrize(
    ("read", "container"),
    [
        (eapi.parse_interfaces, "interfaces"),
        (eapi.parse_ecn, "intfQueueCounters"),
        (eapi.parse_drops, "interfaces"),
        (eapi.parse_modules, "interfaces"),
    ],
)
def test_a_port_that_is_no_object_is_told(read, container):
    found = read({container: {"Ethernet1/1": 5, "Ethernet2/1": {}}})
    assert found.problems == ("Ethernet1/1: not an object: 5",)
    assert "Ethernet1/1" not in found.ports


def test_drops_at_both_ends_of_a_virtual_output_queue_are_added_up():
    read = eapi.parse_drops({"interfaces": {"Ethernet48": {"trafficClasses": {"TC1": VOQ_SUMS, "TC0-5": VOQ_SUMS}}}})
    assert read.ports == {"Ethernet48": {"1": 9}}


def test_a_sum_of_drops_of_which_a_part_is_malformed_is_none():
    sums = {**VOQ_SUMS, "egressQueueCounters": {"countersSum": {"droppedPackets": -1}}}
    read = eapi.parse_drops({"interfaces": {"Ethernet48": {"trafficClasses": {"TC0": VOQ_SUMS, "TC1": sums}}}})
    assert read.ports == {"Ethernet48": {"0": 9}}
    assert read.problems == ("Ethernet48: TC1: droppedPackets is -1, no counter of at most 64 bits",)


def test_drops_as_text():
    text = (
        "Port            InDropPkts     OutUcDropPkts    OutMcDropPkts\n"
        "Et1/1                    1                20              300\n"
        "  Et2             18446744073709551615      0                0  \n"
        "Ma1                      0                 0                0\n"
        "Et3/1                    1                20\n"
        "Po1                      1                20                5\n"
    )
    read = eapi.parse_drops_text({"output": text})
    assert read.ports == {"Ethernet1/1": 320, "Ethernet2": 0, "Management1": 0}


@pytest.mark.parametrize("data", [None, {}, {"output": ""}, {"output": 5}, {"output": "% Invalid input"}])
def test_a_text_without_ports_is_of_another_shape(data):
    with pytest.raises(ShapeError, match="no line of a port"):
        eapi.parse_drops_text(data)
