"""Placement of switches: roles, uplinks, links, and the labels that join both ends."""

import itertools

import pytest

from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.sources.switch.links import peer_kind, peer_mac, resolve_link
from exporter.sources.switch.metrics import PORTS
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.placement import SwitchPlacement
from exporter.sources.switch.port_kinds import port_info
from exporter.sources.switch.registry import SwitchRegistry
from exporter.switch_api.neighbour import LldpNeighbour

HOST = frozenset({"station"})
SWITCH = frozenset({"bridge", "router"})
MAC, OTHER_MAC = "b8:ce:f6:01:02:03", "b8:ce:f6:01:02:04"
SNMP = Snmp(community="x")


class Fabric:
    """Switches, polled in turn; each has ports that are up, and neighbours by port."""

    def __init__(self, **targets):
        self.registry = SwitchRegistry()
        self.targets = {
            name: Target(name=name, address=f"192.0.2.{place}", snmp=SNMP, **options)
            for place, (name, options) in enumerate(targets.items(), start=1)
        }
        self.registry.configure({name: target.address for name, target in self.targets.items()})
        self.placements = {name: SwitchPlacement(target, self.registry) for name, target in self.targets.items()}
        self.keepers = {name: RowKeeper(PORTS.labels) for name in targets}

    def poll(self, name, neighbours, ports, *, types=None, chassis="", system_name=""):
        """Poll one; `ports` gives whether each is up. Returns groups by port, and links by (port, peer, peer port)."""
        label = self.registry.claim_label(name, system_name)
        builder = TableBuilder(PORTS)
        for port, up in ports.items():
            info = port_info(name, port, "1", "", (types or {}).get(port, "6"))
            builder.row((label, port), {"link_up": up, "info": info})
        table = builder.table(self.keepers[name], 1.0)
        tables = self.placements[name].tables(label, [table], neighbours, chassis, 1.0)
        kinds = dict(zip((port for _, port in tables[0].rows.keys), tables[0].kinds, strict=True))
        groups = tables[0].values("group_info") or [None] * len(kinds)
        assert [kind and (kind,) for kind in kinds.values()] == list(groups)
        links = {}
        if len(tables) > 1:
            for key, info in zip(tables[1].rows.keys, tables[1].values("info"), strict=True):
                assert key[:3] == ("", "", label)
                links[key[3:]] = info
        return kinds, links

    def role(self, name):
        return self.placements[name].role


def to_host(port, name="gpu1", peer_port="ens1f0np0"):
    return LldpNeighbour(port, MAC, peer_port, name, capabilities=HOST)


def to_switch(port, name, peer_port="Ethernet1/1", **options):
    return LldpNeighbour(port, peer_port=peer_port, name=name, capabilities=SWITCH, **options)


def poll_all(fabric, views, rounds=3):
    for _ in range(rounds):
        for name, (neighbours, ports) in views.items():
            fabric.poll(name, neighbours, ports)


@pytest.mark.parametrize("order", list(itertools.permutations(["leaf1", "leaf2", "spine1"])))
def test_switches_with_hosts_are_leaves_and_a_switch_with_only_leaves_is_a_spine(order):
    fabric = Fabric(leaf1={}, leaf2={}, spine1={})
    ports = dict.fromkeys(["Ethernet1/1", "Ethernet1/2", "Management1"], 1)
    views = {
        "leaf1": ([to_host("Ethernet1/1"), to_switch("Ethernet1/2", "spine1")], ports),
        "leaf2": ([to_host("Ethernet1/1"), to_switch("Ethernet1/2", "spine1", "Ethernet1/2")], ports),
        # Management ports do not belong to the fabric, whatever their peer is.
        "spine1": (
            [to_switch("Ethernet1/1", "leaf1"), to_switch("Ethernet1/2", "leaf2"), to_host("Management1", "jump")],
            ports,
        ),
    }
    poll_all(fabric, {name: views[name] for name in order})
    assert [fabric.role(name) for name in ("leaf1", "leaf2", "spine1")] == ["leaf", "leaf", "spine"]
    kinds, _ = fabric.poll("leaf1", *views["leaf1"])
    assert kinds == {"Ethernet1/1": "host", "Ethernet1/2": "uplink", "Management1": None}
    kinds, _ = fabric.poll("spine1", *views["spine1"])
    assert kinds == {"Ethernet1/1": None, "Ethernet1/2": None, "Management1": None}


def test_an_unknown_role_is_empty():
    fabric = Fabric(leaf1={}, spine1={}, lonely={})
    ports = {"Ethernet1/1": 1}
    # The hosts of this leaf run no LLDP, so it looks like anything.
    poll_all(
        fabric,
        {
            "leaf1": ([to_switch("Ethernet1/1", "spine1")], ports),
            "spine1": ([to_switch("Ethernet1/1", "leaf1")], ports),
            "lonely": ([], ports),
        },
    )
    assert [fabric.role(name) for name in ("leaf1", "spine1", "lonely")] == ["", "", ""]


def test_a_switch_between_a_leaf_and_an_unknown_switch_is_unknown():
    fabric = Fabric(leaf1={"role": "leaf"}, spine1={"role": "spine"}, odd={}, new={})
    ports = dict.fromkeys(["Ethernet1/1", "Ethernet1/2"], 1)
    for other in ("spine1", "new"):
        neighbours = [to_switch("Ethernet1/1", "leaf1"), to_switch("Ethernet1/2", other)]
        poll_all(fabric, {"leaf1": ([], ports), other: ([], ports), "odd": (neighbours, ports)})
        assert fabric.role("odd") == ""


def test_configured_roles_determine_those_of_neighbours():
    fabric = Fabric(leaf1={"role": "leaf"}, spine1={}, core1={"role": "core"})
    ports = dict.fromkeys(["Ethernet1/1", "Ethernet1/2"], 1)
    views = {
        "leaf1": ([to_switch("Ethernet1/1", "spine1")], ports),
        "spine1": ([to_switch("Ethernet1/1", "leaf1"), to_switch("Ethernet1/2", "core1")], ports),
        "core1": ([to_switch("Ethernet1/1", "spine1", "Ethernet1/2")], ports),
    }
    poll_all(fabric, views)
    assert fabric.role("spine1") == "spine"
    assert fabric.poll("leaf1", *views["leaf1"])[0] == {"Ethernet1/1": "uplink", "Ethernet1/2": "host"}
    assert fabric.poll("spine1", *views["spine1"])[0] == {"Ethernet1/1": None, "Ethernet1/2": "uplink"}
    assert fabric.poll("core1", *views["core1"])[0] == {"Ethernet1/1": None, "Ethernet1/2": None}


def test_links_between_two_leaves_are_neither_uplinks_nor_ports_of_hosts():
    fabric = Fabric(leaf1={"role": "leaf"}, leaf2={"role": "leaf"})
    ports = dict.fromkeys(["Ethernet1/1", "Ethernet1/2", "Ethernet1/3"], 1)
    views = {
        name: ([to_switch("Ethernet1/1", other), to_switch("Ethernet1/2", "unpolled")], ports)
        for name, other in (("leaf1", "leaf2"), ("leaf2", "leaf1"))
    }
    poll_all(fabric, views)
    kinds, _ = fabric.poll("leaf1", *views["leaf1"])
    assert kinds == {"Ethernet1/1": None, "Ethernet1/2": "uplink", "Ethernet1/3": "host"}


def test_configured_uplinks_take_precedence_and_lags_have_no_group():
    fabric = Fabric(leaf1={"role": "leaf", "uplinks": ("Ethernet1/[34]", "Port-Channel*")})
    ports = dict.fromkeys(["Ethernet1/2", "Ethernet1/3", "Ethernet1/4", "Port-Channel1", "Vlan10"], 1)
    types = {"Port-Channel1": "161", "Vlan10": "136"}
    kinds, _ = fabric.poll("leaf1", [to_switch("Ethernet1/2", "other")], ports, types=types)
    assert kinds == {
        "Ethernet1/2": None,  # a switch, and no uplink by the patterns
        "Ethernet1/3": "uplink",
        "Ethernet1/4": "uplink",
        "Port-Channel1": None,
        "Vlan10": None,
    }


def test_an_uplink_that_is_down_keeps_its_group_and_one_with_another_peer_does_not():
    fabric = Fabric(leaf1={"role": "leaf"})
    up, down = {"Ethernet1/1": 1}, {"Ethernet1/1": 0}
    uplink = [to_switch("Ethernet1/1", "spine1")]
    assert fabric.poll("leaf1", uplink, up)[0] == {"Ethernet1/1": "uplink"}
    assert fabric.poll("leaf1", [], down)[0] == {"Ethernet1/1": "uplink"}
    assert fabric.poll("leaf1", None, down)[0] == {"Ethernet1/1": "uplink"}
    assert fabric.poll("leaf1", None, up)[0] == {"Ethernet1/1": "uplink"}, "neighbours could not be read"
    assert fabric.poll("leaf1", [], up)[0] == {"Ethernet1/1": "host"}
    assert fabric.poll("leaf1", [to_host("Ethernet1/1")], up)[0] == {"Ethernet1/1": "host"}


def test_unknown_neighbours_have_no_links():
    fabric = Fabric(leaf1={})
    assert fabric.poll("leaf1", [to_host("Eth1/1")], {"Eth1/1": 1})[1] != {}
    assert fabric.poll("leaf1", None, {"Eth1/1": 1})[1] == {}


def test_both_ends_of_a_link_name_each_other_by_their_labels():
    fabric = Fabric(l1={}, s1={})
    leaf = [to_switch("Eth1/49", "SPINE1.example.com", "Ethernet 1/1", port_description="to leaf")]
    spine = [to_switch("Ethernet1/1", "leaf1", "Eth1/49")]
    for _ in range(2):
        _, up = fabric.poll("l1", leaf, {"Eth1/49": 1}, system_name="leaf1")
        _, down = fabric.poll("s1", spine, {"Ethernet1/1": 1}, system_name="spine1")
    assert up == {("Eth1/49", "spine1", "Ethernet1/1"): ("switch", "", "to leaf")}
    assert down == {("Ethernet1/1", "leaf1", "Eth1/49"): ("switch", "", "")}


def test_a_port_id_that_is_a_number_or_a_mac_address_is_resolved_by_the_peers_neighbours():
    fabric = Fabric(leaf1={}, spine1={})
    for _ in range(2):
        _, links = fabric.poll(
            "leaf1", [to_switch("Eth1/1", "spine1", OTHER_MAC), to_switch("Eth1/2", "spine1", "523")], {"Eth1/1": 1}
        )
        fabric.poll("spine1", [to_switch("swp7", "leaf1", "Eth1/1")], {"swp7": 1})
    assert links == {
        ("Eth1/1", "spine1", "swp7"): ("switch", OTHER_MAC, ""),
        ("Eth1/2", "spine1", "523"): ("switch", "", ""),
    }


def test_neighbours_of_other_switches_do_not_resolve_the_peer_port():
    """Both leaves are plugged in by their Eth1/1."""
    fabric = Fabric(leaf1={}, leaf2={}, spine1={})
    for _ in range(2):
        _, links = fabric.poll("leaf1", [to_switch("Eth1/1", "spine1", OTHER_MAC)], {"Eth1/1": 1})
        fabric.poll("leaf2", [to_switch("Eth1/1", "spine1", OTHER_MAC)], {"Eth1/1": 1})
        seen = [to_switch("swp7", "leaf1", "Eth1/1"), to_switch("swp8", "leaf2", "Eth1/1")]
        fabric.poll("spine1", seen, {"swp7": 1, "swp8": 1})
    assert links.keys() == {("Eth1/1", "spine1", "swp7")}


def test_a_switch_that_is_its_own_neighbour_is_not_a_polled_peer():
    registry = SwitchRegistry()
    registry.configure({"a": "192.0.2.1", "b": "192.0.2.2"})
    loop = to_switch("Eth1/1", "a")
    assert (resolve_link("a", loop, registry).polled, resolve_link("b", loop, registry).polled) == (False, True)


@pytest.mark.parametrize(
    ("neighbour", "found"),
    [
        (LldpNeighbour("p", chassis="44:4c:a8:00:00:01"), "a"),
        (LldpNeighbour("p", name="leaf-a.example.com"), "a"),
        (LldpNeighbour("p", name="LEAF-A"), "a"),
        (LldpNeighbour("p", addresses=("2001:db8::1", "192.0.2.1")), "a"),
        (LldpNeighbour("p", name="b"), "b"),  # as it is named in the configuration
        (LldpNeighbour("p", name="sonic"), None),  # what two go by names neither
        (LldpNeighbour("p", name="sonic", addresses=("192.0.2.3",)), "c"),
        (LldpNeighbour("p", chassis="44:4c:a8:00:00:99", name="leaf-a"), None),  # another one that has its name
        (LldpNeighbour("p", chassis="serial 5", name="leaf-a"), "a"),
        (LldpNeighbour("p", name="leaf"), None),
        (LldpNeighbour("p"), None),
    ],
)
def test_a_neighbour_is_matched_with_a_switch(neighbour, found):
    registry = SwitchRegistry()
    registry.configure({"a": "192.0.2.1:1161", "b": "b.example.com", "c": "[192.0.2.3]:161", "d": "2001:db8::4"})
    registry.update("a", name="leaf-a", chassis="44:4c:a8:00:00:01")
    for target in ("c", "d"):
        registry.update(target, name="sonic", label=target)
    known = registry.find(neighbour)
    assert (known and known.target) == found


def test_removed_targets_are_not_found():
    registry = SwitchRegistry()
    registry.configure({"a": "192.0.2.1"})
    assert registry.find(LldpNeighbour("p", name="a")) is not None
    registry.configure({"b": "192.0.2.1"})
    assert registry.find(LldpNeighbour("p", name="a")) is None


@pytest.mark.parametrize(
    ("neighbour", "kind"),
    [
        (to_host("p"), "host"),
        (to_switch("p", "x"), "switch"),
        (LldpNeighbour("p", MAC, MAC), "host"),  # firmware of a NIC
        (LldpNeighbour("p", MAC, OTHER_MAC), "unknown"),
        (LldpNeighbour("p", MAC, "", "printer"), "unknown"),
        # A host that forwards for its containers, as lldpd describes it.
        (
            LldpNeighbour(
                "p",
                MAC,
                OTHER_MAC,
                "gpu1",
                "",
                "Ubuntu 22.04.4 LTS Linux 5.15.0-105-generic #115-Ubuntu SMP x86_64",
                SWITCH,
            ),
            "host",
        ),
        (LldpNeighbour("p", MAC, "enp65s0np0", "gpu1", capabilities=SWITCH), "host"),
        # The same hosts, by an API that reports no capabilities.
        (LldpNeighbour("p", MAC, OTHER_MAC, "gpu1", "", "Ubuntu 22.04.4 LTS Linux 5.15.0-105-generic"), "host"),
        (LldpNeighbour("p", MAC, "enp65s0np0", "gpu1"), "host"),
        (LldpNeighbour("p", MAC, OTHER_MAC, "l", "", "Cumulus Linux version 5.9.1"), "unknown"),
        # Switches whose system is Linux.
        (
            LldpNeighbour("p", MAC, "swp1", "leaf1", "", "Cumulus Linux version 5.9.1 running on Mellanox", SWITCH),
            "switch",
        ),
        (
            LldpNeighbour("p", MAC, "Ethernet0", "leaf1", "", "Debian GNU/Linux 9 Linux 4.9.0-11-2-amd64", SWITCH),
            "switch",
        ),
        (
            LldpNeighbour("p", MAC, OTHER_MAC, "l", "", "SONiC Software Version: 202311 - Linux 5.10.0", SWITCH),
            "switch",
        ),
    ],
)
def test_the_kind_of_a_peer(neighbour, kind):
    assert peer_kind(neighbour) == kind


@pytest.mark.parametrize(
    ("neighbour", "mac"),
    [
        (LldpNeighbour("p", MAC, OTHER_MAC, "gpu1"), OTHER_MAC),
        (LldpNeighbour("p", MAC, "", ""), MAC),
        (LldpNeighbour("p", MAC, "eth0", "gpu1"), ""),  # all ports of the host have this chassis ID
        (LldpNeighbour("p", "serial", "eth0", "gpu1"), ""),
    ],
)
def test_the_mac_address_of_a_peer(neighbour, mac):
    assert peer_mac(neighbour) == mac


def test_a_neighbour_with_few_tlvs_has_the_names_it_sends():
    registry = SwitchRegistry()
    link = resolve_link("here", LldpNeighbour("p", MAC, port_description="eth0"), registry)
    assert link[:8] == ("p", MAC, "eth0", "unknown", MAC, "eth0", False, "")
    assert resolve_link("here", LldpNeighbour("p", addresses=("192.0.2.9",)), registry).peer == "192.0.2.9"


def test_two_neighbours_at_one_port_are_both_kept():
    """lldpd#502."""
    fabric = Fabric(leaf1={})
    _, links = fabric.poll(
        "leaf1", [to_host("Eth1/1"), to_host("Eth1/1", "bmc1", "eth0"), to_host("Eth1/1")], {"Eth1/1": 1}
    )
    assert links.keys() == {("Eth1/1", "gpu1", "ens1f0np0"), ("Eth1/1", "bmc1", "eth0")}


def test_only_physical_ports_have_a_group_and_a_link_of_a_unit_is_one_of_its_port():
    """All rows have ifType 6, as on Nokia SR Linux; the management port has a host as neighbour too."""
    fabric = Fabric(leaf1={}, spine1={"role": "spine"})
    names = ["ethernet-1/1", "ethernet-1/1.0", "ethernet-1/2", "ethernet-1/2.0", "lag1", "irb0.10", "mgmt0", "system0"]
    views = {"leaf1": ([to_switch("ethernet-1/1.0", "spine1"), to_host("ethernet-1/2")], dict.fromkeys(names, 1))}
    poll_all(fabric, {"spine1": ([], {"Ethernet1/1": 1}), **views})
    kinds, _ = fabric.poll("leaf1", *views["leaf1"])
    assert kinds == dict.fromkeys(names) | {"ethernet-1/1": "uplink", "ethernet-1/2": "host"}


def test_neighbours_outside_the_fabric_do_not_make_a_leaf():
    fabric = Fabric(switch1={})
    neighbours = [to_host("mgmt0"), to_host("docker0")]
    kinds, links = fabric.poll("switch1", neighbours, dict.fromkeys(["Ethernet1/1", "mgmt0", "docker0"], 1))
    assert (fabric.role("switch1"), set(kinds.values()), len(links)) == ("", {None}, 2)


def test_links_are_resolved_again_only_after_a_change(monkeypatch):
    fabric = Fabric(leaf1={}, spine1={})
    neighbours = [to_switch("Eth1/1", "spine1")]
    for _ in range(2):
        fabric.poll("leaf1", neighbours, {"Eth1/1": 1})
    monkeypatch.setattr("exporter.sources.switch.placement.resolve_link", None)
    fabric.poll("leaf1", list(neighbours), {"Eth1/1": 1})
    fabric.poll("spine1", [], {"Ethernet1/1": 1})
    with pytest.raises(TypeError):
        fabric.poll("leaf1", neighbours, {"Eth1/1": 1})


def test_a_switch_without_ports():
    registry = SwitchRegistry()
    registry.configure({"a": "192.0.2.1"})
    placement = SwitchPlacement(Target(name="a", address="192.0.2.1", snmp=SNMP), registry)
    other = Table(PORTS, RowKeeper(PORTS.labels).rows([]), {}, 1.0)
    (table,) = placement.tables("a", [other], None, "", 1.0)
    assert (list(table.rows.keys), table.kinds) == ([], [])
