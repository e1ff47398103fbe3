"""Service discovery: configured switches, and their neighbours that are not configured."""

import json

from exporter.daemon import service_discovery
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.registry import KnownSwitch
from exporter.switch_api.neighbour import LldpNeighbour

SNMP = Snmp(community="public")


def neighbour(**facts):
    given = {
        "port": "Ethernet1",
        "chassis": "02:00:00:00:00:09",
        "name": "spine-09",
        "capabilities": frozenset({"bridge", "router"}),
        "addresses": ("192.0.2.9",),
    }
    return LldpNeighbour(**given | facts)


def test_switches_of_the_configuration():
    targets = [
        (Target(name="leaf-01", address="192.0.2.1", snmp=SNMP, role="leaf"), "row-7"),
        (Target(name="leaf-02", address="192.0.2.2", snmp=SNMP, poll=False, profile="arista"), ""),
    ]
    known = {"leaf-01": KnownSwitch("leaf-01", "leaf-01.example.com", role="leaf")}
    assert service_discovery.configured(targets, known) == [
        {
            "targets": ["leaf-01"],
            "labels": {
                "__meta_fabric_name": "leaf-01",
                "__meta_fabric_switch": "leaf-01.example.com",
                "__meta_fabric_address": "192.0.2.1",
                "__meta_fabric_group": "row-7",
                "__meta_fabric_role": "leaf",
                "__meta_fabric_protocols": "snmp",
                "__meta_fabric_polled": "true",
                "__meta_fabric_found_by": "configuration",
            },
        },
        {
            "targets": ["leaf-02"],
            "labels": {
                "__meta_fabric_name": "leaf-02",
                "__meta_fabric_switch": "leaf-02",
                "__meta_fabric_address": "192.0.2.2",
                "__meta_fabric_protocols": "snmp",
                "__meta_fabric_profile": "arista",
                "__meta_fabric_polled": "false",
                "__meta_fabric_found_by": "configuration",
                "__param_target": "leaf-02",
            },
        },
    ]


def seen(*neighbours, **facts):
    return service_discovery.discovered(
        [KnownSwitch("leaf-01", "leaf-01", "192.0.2.1", neighbours=neighbours, **facts)]
    )


def test_a_neighbour_switch_that_is_not_configured():
    (found,) = seen(neighbour(description="NOS 4.2"))
    assert found == {
        "targets": ["192.0.2.9"],
        "labels": {
            "__meta_fabric_name": "spine-09",
            "__meta_fabric_switch": "spine-09",
            "__meta_fabric_address": "192.0.2.9",
            "__meta_fabric_chassis": "02:00:00:00:00:09",
            "__meta_fabric_description": "NOS 4.2",
            "__meta_fabric_polled": "false",
            "__meta_fabric_found_by": "lldp",
            "__meta_fabric_seen_by": "leaf-01",
            "__meta_fabric_seen_by_port": "Ethernet1",
            "__param_target": "192.0.2.9",
        },
    }
    assert json.loads(json.dumps([found])) == [found]


def test_a_neighbour_of_several_switches_is_listed_once():
    both = [KnownSwitch(name, name, neighbours=[neighbour(port=name)]) for name in ("leaf-01", "leaf-02")]
    assert [one["labels"]["__meta_fabric_seen_by"] for one in service_discovery.discovered(both)] == ["leaf-01"]


def test_hosts_and_known_switches_are_not_discovered():
    assert seen(neighbour(capabilities=frozenset({"station"}))) == []
    assert seen(neighbour(name="leaf-01")) == []
    assert seen(neighbour(addresses=("192.0.2.1",))) == []
    assert seen(neighbour(), chassis="02:00:00:00:00:09") == []


def test_neighbours_without_a_usable_address_are_not_discovered():
    assert seen(neighbour(addresses=())) == []
    assert seen(neighbour(addresses=("fe80::1", "127.0.0.1", "not-an-address", "0.0.0.0", "224.0.0.1"))) == []


def test_the_preferred_management_address():
    (found,) = seen(neighbour(addresses=("2001:db8::9", "fe80::9", "192.0.2.10", "192.0.2.9")))
    assert found["targets"] == ["192.0.2.9"]
