"""The kind of a row of an interface table, for the names and types of many makers.

The names are those of the makers' configuration guides and of public recordings; ifType is that of IANAifType-MIB.
"""

import pytest

from exporter.sources.switch.port_kinds import Evidence, PortKind, kind_of

ROWS = {
    PortKind.PHYSICAL: {
        "Arista EOS": {"6": "Ethernet1, Ethernet1/1, Et1", "": "Ethernet49/4", "ethernet": "Ethernet1"},
        "Cisco NX-OS": {"6": "Ethernet1/1, Ethernet1/1/4, Ethernet101/1/48, Eth1/1", "56": "fc1/1"},
        "Cisco IOS XR": {
            "6": "HundredGigE0/0/0/0, TenGigE0/0/0/0/3, FourHundredGigE0/0/0/1, Hu0/0/0/0, GigabitEthernet0/0/0/0"
        },
        "Cisco IOS XE": {
            "6": "HundredGigE1/0/25, TwentyFiveGigE1/0/1, Te1/1/1, Twe1/0/1, FortyGigabitEthernet1/1/1, Gi1/0/1, "
            "GigabitEthernet1/0/1, Fi1/0/1"
        },
        "Juniper": {"6": "et-0/0/0, et-0/0/0:1, xe-0/0/47:3, ge-0/0/0, mge-0/0/1"},
        "SONiC": {"6": "Ethernet0, Eth1/1, Eth6/3(Port1), etp1a, fortyGigE0/0", "": "Ethernet124, Eth1/33/4"},
        "Cumulus": {"6": "swp1, swp1s0", "": "swp64s3"},
        "Dell OS10": {"6": "ethernet1/1/1, ethernet1/1/25:4"},
        "Dell OS9": {
            "6": "TenGigabitEthernet 0/0, fortyGigE 0/48, hundredGigE 1/1, twentyFiveGigE 1/1/1, GigabitEthernet 0/0"
        },
        "Onyx": {"6": "Eth1/1, Eth1/1/4", "199": "IB1/1"},
        "Huawei": {"6": "100GE1/0/1, 400GE1/0/1:1, GigabitEthernet1/0/1, XGigabitEthernet0/0/1, 25GE1/0/48, 10GE1/0/1"},
        "H3C": {
            "6": "HundredGigE1/0/25, Ten-GigabitEthernet1/0/49:1, Twenty-FiveGigE1/0/1, FortyGigE1/0/49, "
            "HGE1/0/25, XGE1/0/1"
        },
        "Aruba CX": {"6": "1/1/1, 1/1/33:1"},
        "Extreme": {"6": "1:1, 1/1, Ethernet 0/1, Ethernet 0/49:4, 25"},
        "Nokia": {"6": "ethernet-1/1, ethernet-1/31/4, 1/1/c1/1, 2/x1/1/c3/1, 1/1/1"},
        "Ruijie": {"6": "HundredGigabitEthernet 0/49, TFGigabitEthernet 0/1, FourHundredGigabitEthernet 0/1, Hu0/49"},
        "PicOS": {"6": "te-1/1/1, xe-1/1/49.1, qe-1/1/49, te-1/1/52.4"},
        "FS, Centec": {"6": "eth-0-1, eth-0-49/1, TGigaEthernet0/1"},
        "Edgecore, OcNOS": {"6": "Eth 1/1, ce29/1, xe1, ge1, cd49/1"},
        "Ubiquiti": {"6": "0/1, 0/52"},
        "MikroTik": {"6": "ether1, sfp-sfpplus1, qsfp28-1-1, combo1, sfp28-12"},
        "Brocade": {"6": "ethernet1/1/1, 10GigabitEthernet1/2/1"},
        "ProCurve": {"6": "1, A24, 1/A1"},
        "Allied Telesis": {"6": "port1.0.1, port2.1.24"},
        "NVOS": {"199": "sw1p1"},
        "Linux": {"6": "enp1s0f0np0, ens1, eth2, lan3"},
    },
    PortKind.AGGREGATE: {
        "Arista EOS": {"161": "Port-Channel1", "": "Po3", "portChannel": "Port-Channel1"},
        "Cisco": {
            "53": "port-channel1, Port-channel1, Po1, san-port-channel1",
            "161": "port-channel4096, Bundle-Ether1",
            "6": "BE100",
        },
        "Juniper": {"161": "ae0", "53": "ae12", "6": "reth0"},
        "SONiC": {"161": "PortChannel1, Po10", "": "PortChannel0001"},
        "Cumulus": {"6": "bond1, peerlink, hostbond4, server_bond1, bond, host11_bond, leaf01-bond1"},
        "Dell": {"161": "port-channel1, Port-channel 1", "6": "Port-channel 128"},
        "Onyx": {"161": "Po1, Mpo1", "6": "Mpo7, Po3"},
        "Huawei": {"161": "Eth-Trunk1", "6": "Eth-Trunk127", "53": "Eth-Trunk1"},
        "H3C": {"161": "Bridge-Aggregation1, BAGG1", "6": "Route-Aggregation1, RAGG2", "1": "Bridge-Aggregation1"},
        "Aruba CX": {"161": "lag1", "6": "lag256"},
        "Extreme": {"1": "Port-channel 1", "6": "Port-channel 1"},
        "Nokia": {"6": "lag1, lag32", "161": "lag-1", "53": "lag-1"},
        "Ruijie": {"53": "AggregatePort 1, Ag1", "6": "AggregatePort 64"},
        "PicOS, FS": {"6": "ae1, agg1, Port-aggregator1", "161": "agg1"},
        "Edgecore, OcNOS": {"161": "Trunk 1", "6": "Trunk 1, po1, sa1"},
        "ProCurve": {"54": "Trk1", "161": "Trk1"},
        "MikroTik": {"6": "bonding1", "161": "bond-spine"},
        "Brocade": {"161": "lg1", "6": "lg1"},
        "Linux": {"6": "bond0, team0"},
        "Cisco, with ports attached": {"161": "LACP-7"},
    },
    PortKind.SUB_INTERFACE: {
        "Arista EOS": {"6": "Ethernet1.100", "subinterface": "Port-Channel1.20", "135": "Ethernet1/1.100"},
        "Cisco": {
            "6": "Ethernet1/1.100",
            "53": "port-channel10.100, HundredGigE0/0/0/0.10, Po1.10",
            "135": "Bundle-Ether1.100, GigabitEthernet0/0/1.10",
            "117": "TenGigabitEthernet0/1/0.EFP100",
        },
        "Juniper": {"53": "et-0/0/0.0, xe-0/0/0:1.0, ae0.100, em0.0, re0:mgmt-0.0, xe-1/1/1.1", "161": "ae0.0"},
        "SONiC": {"136": "Ethernet0.10", "": "Eth1/1.10, Po10.10"},
        "Cumulus": {"6": "swp1.100, peerlink.4094, swp1s0.7", "135": "bond1.10"},
        "Huawei": {"135": "100GE1/0/1.10", "6": "Eth-Trunk1.100"},
        "H3C": {"135": "HundredGigE1/0/25.10", "6": "Route-Aggregation1.10"},
        "Nokia SR Linux": {"6": "ethernet-1/1.0, lag1.0, mgmt0.0, ethernet-1/31/4.4095"},
        "Aruba CX": {"6": "1/1/1.10", "136": "lag1.10"},
        "Linux": {"6": "eth0.100, bond0.10", "135": "enp1s0f0.7"},
    },
    PortKind.VIRTUAL: {
        "Arista EOS": {
            "136": "Vlan13",
            "": "Vlan1002, Vxlan1, Tunnel0",
            "vxlan": "Vxlan1",
            "24": "Loopback0",
            "6": "Recirc-Channel1, Cpu",
            "1": "Null0",
            "131": "Dps1",
        },
        "Cisco NX-OS": {
            "53": "Vlan1, nve1, Vethernet1",
            "24": "loopback0",
            "131": "tunnel1",
            "1": "Null0",
            "6": "inband, Bdi1, Vlan100, sup-eth0",
            "56": "vfc1, sup-fc0",
        },
        "Cisco IOS": {
            "53": "unrouted VLAN 1, StackPort1, StackSub-St1-1",
            "6": "AppGigabitEthernet1/0/1, Ap1/0/1, Bluetooth0/4, BDI10, BVI1",
            "1": "Nu0, Control Plane Interface, VoIP-Null0",
            "24": "Lo0",
            "131": "Tu0",
        },
        "Cisco IOS XR": {
            "196": "Optics0/0/0/0",
            "6": "FINT0/0/CPU0, PTP0/RP0/CPU0/0, nve1, CoherentDSP0/0/0/0, PW-Ether1",
            "150": "tunnel-te1",
        },
        "Juniper": {
            "24": "lo0, lo0.16384",
            "1": "irb, dsc, tap, esi, jsrv, vtep, pfe-0/0/0, rtg0, .local..0",
            "53": "irb.23, vlan.2, bme0.0, jsrv.1, vtep.32768, pfh-0/0/0.16383",
            "150": "lsi",
            "131": "gre, ipip, pime, mtun, gr-0/0/0",
            "6": "bme0, vcp-255/1/0, em2, lc-0/0/0, sxe-0/0/0, cbp0, fti0, pp0, ixlv0, igb0",
        },
        "SONiC": {
            "136": "Vlan501",
            "24": "Loopback0, lo",
            "6": "Ethernet-IB0, Ethernet-Rec0, Ethernet-BP256, Bridge, docker0, dummy",
        },
        "Cumulus": {
            "24": "lo",
            "6": "mirror, vni100, br_default, bridge, vlan307-v0, vlan1, docker0, veth12ab34",
            "1": "swid0_eth",
            "126": "mgmt",
            "131": "vxlan48",
            "209": "br_default",
            "136": "vlan307",
        },
        "Dell": {"135": "vlan1", "24": "loopback0", "1": "null0", "53": "Vlan 1", "6": "virtual-network10"},
        "Huawei": {
            "53": "Vlanif10",
            "6": "Vlanif10, Nve1, Vbdif10, Stack-Port0/1",
            "24": "LoopBack0, InLoopBack0",
            "1": "NULL0, Console9/0/0",
        },
        "H3C": {
            "136": "Vlan-interface1",
            "6": "Vlan-interface1, Vsi-interface1, IRF-port1/1",
            "131": "Register-Tunnel0",
        },
        "Aruba CX": {"6": "vlan10, vxlan1, bridge_normal", "24": "loopback0"},
        "Extreme": {"6": "Ve 10, rtif(192.0.2.1/24)", "24": "Loopback 1", "53": "VLAN 001 (Default)", "135": "Default"},
        "Nokia": {"6": "irb0, irb0.10, system0, system0.0, lo0, vxlan0", "24": "system"},
        "Ruijie": {"53": "VLAN 10", "24": "Loopback 0", "6": "OverlayRouter 1", "1": "Null 0"},
        "PicOS, FS": {"6": "vlan10, inband, rif-ge1, VLAN1", "24": "loopback"},
        "Edgecore, OcNOS": {"53": "VLAN 1", "24": "lo.management", "6": "vlan1.10, irb10"},
        "Ubiquiti": {"1": "0/5/1", "136": "vlan 1"},
        "ProCurve": {"53": "DEFAULT_VLAN, VLAN20", "24": "lo0", "6": "VLAN20"},
        "MikroTik": {"209": "bridge", "6": "bridge1, vlan20, vxlan1", "24": "lo"},
        "Brocade": {"6": "ve10", "24": "loopback1", "131": "tn1", "135": "v10"},
        "Linux": {
            "24": "lo",
            "6": "docker0, veth0a1b2c, virbr0, virbr0-nic, br-1f2e, cni0, flannel.1, cali12ab, tun0, tap0, wg0, "
            "dummy0, ifb0, gre0, gretap0, vxlan.calico, ovs-system, br-int, vmbr0, macvlan0, geneve_sys, "
            "erspan0, docker_gwbridge, cilium_host, lxc1a2b, podman0, genev_sys_6081, weave, kube-ipvs0, nodelocaldns",
            "131": "sit0, ip6tnl0",
        },
    },
    PortKind.MANAGEMENT: {
        "Arista EOS": {"6": "Management1, Management1/1, Management0", "": "Ma1", "ethernet": "Ma0"},
        "Cisco": {
            "6": "mgmt0, GigabitEthernet0/0, Gi0/0, GigabitEthernet0, Fa0, FastEthernet0, MgmtEth0/RP0/CPU0/0, "
            "Mg0/RP1/CPU0/0"
        },
        "Juniper": {"6": "em0, em1, me0, fxp0, re0:mgmt-0, re1:mgmt-0", "1": "vme"},
        "SONiC, Cumulus, OcNOS": {"6": "eth0, eth1, Management0"},
        "Dell": {"6": "mgmt1/1/1, ManagementEthernet 0/0, oob"},
        "Onyx": {"6": "mgmt0, mgmt1"},
        "Huawei": {"6": "MEth0/0/0, MEth0/0/1"},
        "H3C": {"6": "M-GigabitEthernet0/0/0, M-Ethernet0/0/0, MGE0/0/0"},
        "Aruba CX": {"6": "mgmt, OOBM"},
        "Extreme": {"6": "Mgmt, Management 0, Management Port, mgmt-oob"},
        "Nokia": {"6": "mgmt0, A/1, B/1, mgmt0-standby"},
        "Ruijie": {"6": "Mg0, Mgmt 0"},
        "Edgecore": {"6": "Craft, Craft Port"},
        "Alcatel-Lucent": {"6": "EMP, EMP-CMMA-CHAS1"},
        "Brocade": {"6": "management1, mgmt1"},
    },
}
"""By kind and maker: the names by ifType, which is empty where an API has none."""


CASES = [
    pytest.param(name, if_type, kind, id=f"{maker} {name} {if_type}")
    for kind, makers in ROWS.items()
    for maker, types in makers.items()
    for if_type, names in types.items()
    for name in names.split(", ")
]


@pytest.mark.parametrize(("name", "if_type", "kind"), CASES)
def test_names_and_types_of_makers(name, if_type, kind):
    assert kind_of(name, if_type) == kind


@pytest.mark.parametrize(
    ("name", "if_type", "evidence", "kind"),
    [
        ("upstream1", "6", Evidence(), PortKind.PHYSICAL),  # nothing is known but the type
        ("upstream1", "6", Evidence(is_aggregator=True), PortKind.AGGREGATE),
        ("upstream1", "6", Evidence(lower_layers=2), PortKind.AGGREGATE),
        ("upstream1", "6", Evidence(lower_layers=1), PortKind.SUB_INTERFACE),
        ("upstream1", "6", Evidence(connector=False), PortKind.VIRTUAL),
        ("upstream1", "6", Evidence(port_names=("swp[0-9]*",)), PortKind.VIRTUAL),
        ("swp1", "6", Evidence(port_names=("swp[0-9]*",)), PortKind.PHYSICAL),
        ("mgmt", "6", Evidence(port_names=("swp[0-9]*",)), PortKind.VIRTUAL),  # a VRF; the port is eth0
        ("mgmt", "6", Evidence(), PortKind.MANAGEMENT),
        ("Ethernet8", "6", Evidence(connector=False), PortKind.PHYSICAL),  # a cage without a module
        ("xe-0/0/0", "6", Evidence(connector=False), PortKind.PHYSICAL),
        ("Eth1/1", "6", Evidence(lower_layers=1), PortKind.PHYSICAL),  # above the row of its optical module
        ("lo0", "24", Evidence(connector=True), PortKind.VIRTUAL),  # net-snmp reports a connector for all rows
        ("0/3/1", "6", Evidence(description=" Link Aggregate 1"), PortKind.AGGREGATE),
        ("0/5/1", "6", Evidence(description=" CPU Interface for Slot: 5 Port: 1"), PortKind.VIRTUAL),
        ("0/1", "6", Evidence(description="Slot: 0 Port: 1 Gigabit - Level"), PortKind.PHYSICAL),
        ("25", "6", Evidence(description="Management Port"), PortKind.MANAGEMENT),
        ("1000001", "6", Evidence(description="Port-Channel1"), PortKind.AGGREGATE),
    ],
)
def test_evidence_beside_name_and_type(name, if_type, evidence, kind):
    assert kind_of(name, if_type, evidence) == kind
